"""A finding is computed once for all processes, and a verdict on an ended checkpoint never changes again."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest
from sqlalchemy import text

from backend.domain.observation import JobState
from backend.services.alerts.signals import SignalReader
from backend.services.checkpoints import reader as checkpoint_reader
from backend.services.checkpoints.reader import CheckpointKey, CheckpointService
from backend.services.jobs import evidence as evidence_module
from backend.services.jobs.evidence import EvidenceReader
from backend.store.jobs.findings import lock_findings
from backend.store.jobs.reader import list_current
from backend.store.postgres.connections import create_store_engine, reading
from backend.store.retention import apply_retention
from backend.store.schema.partitions import Retention
from tests.support.advised_jobs import EXACTLY_ONCE, readings, slow_run
from tests.support.handwritten_jobs import START, chain
from tests.support.observations import job as observed_job
from tests.support.observations import observation
from tests.support.serving import api_over, asking

pytestmark = pytest.mark.anyio
_SEEN = START + timedelta(seconds=62)


class Job:
    """A job whose polls the test writes."""

    def __init__(self, writer, target, clock):
        self.writer, self.target, self.clock = writer, target, clock

    async def report(self, checkpoints, pressure=(), *, at=_SEEN, **changed):
        self.clock.at = at
        seen = replace(observed_job(checkpoints), topology=chain(), placements=(), config=EXACTLY_ONCE, counts=None)
        seen = replace(seen, pressure=tuple(pressure), started_at=START - timedelta(hours=1), **changed)
        await self.writer.write(observation(self.target, seen, at=at))


@pytest.fixture
async def slow(writer, target, clock):
    found = Job(writer, target, clock)
    await found.report(slow_run(8), readings())
    return found


@pytest.fixture
def computed(monkeypatch):
    """Yield the list of the findings that any reader in this test computed."""
    found, real = [], evidence_module.finding_of
    monkeypatch.setattr(evidence_module, "finding_of", lambda *asked: found.append(real(*asked)) or found[-1])
    return found


async def findings(engine, reader):
    async with reading(engine) as connection:
        cases = await reader.cases(connection, await list_current(connection))
    return [case.finding for case in cases]


async def test_processes_that_need_a_finding_at_the_same_time_compute_it_once(engine, clock, slow, computed):
    found = await asyncio.gather(*(findings(engine, EvidenceReader(clock)) for _ in range(4)))

    assert len(computed) == 1
    assert found == [computed] * 4


async def test_api_board_alerts_and_advice_read_one_finding(engine, clock, slow, computed):
    async with asking(api_over(engine, clock)) as client:
        (row,) = (await client.get("/api/v1/jobs")).json()["items"]
        root = f"/api/v1/jobs/{row['id']}"
        verdict = (await client.get(f"{root}/verdict")).json()["verdict"]
        await client.get(root)
        await client.get(f"{root}/advice")
    async with reading(engine) as connection:
        reader = SignalReader(engine, clock, EvidenceReader(clock))
        signals = (await reader.with_places(connection, await reader.read(connection), {row["id"]})).signals
    async with asking(api_over(engine, clock)) as client:
        assert (await client.get(f"{root}/verdict")).json()["verdict"] == verdict

    assert len(computed) == 1
    assert row["verdict"]["sentence"] == verdict["sentence"] == computed[0].diagnosis.verdict.sentence
    assert verdict["sentence"] in {s.place.sentence for s in signals if hasattr(s, "place")}


@pytest.mark.parametrize(
    ("checkpoints", "changed", "computed_count"),
    [
        pytest.param(8, {}, 1, id="nothing"),
        pytest.param(9, {}, 2, id="a checkpoint ended"),
        pytest.param(8, {"config": replace(EXACTLY_ONCE, timeout_ms=30_000)}, 2, id="a setting"),
        pytest.param(8, {"restart_count": 3}, 2, id="the job restarted"),
        pytest.param(8, {"state": JobState.RESTARTING}, 2, id="the state of the job"),
    ],
)
async def test_a_finding_is_computed_again_only_if_something_changed(
    engine, clock, slow, computed, checkpoints, changed, computed_count
):
    reader = EvidenceReader(clock)
    await findings(engine, reader)
    await slow.report(slow_run(checkpoints), at=_SEEN + timedelta(seconds=1), **changed)

    for one in (reader, reader, EvidenceReader(clock)):
        assert await findings(engine, one) == computed[-1:]

    assert len(computed) == computed_count


async def test_details_that_are_stored_after_the_end_of_a_checkpoint_change_the_finding(
    engine, writer, target, clock, computed
):
    job, run = Job(writer, target, clock), slow_run(8)
    await job.report([*run[:-1], replace(run[-1], details=())])
    await findings(engine, EvidenceReader(clock))

    await job.report(run, at=_SEEN + timedelta(seconds=1))
    await findings(engine, EvidenceReader(clock))

    assert len(computed) == 2


async def test_new_readings_change_the_finding_within_half_a_minute(engine, clock, slow, computed):
    reader = EvidenceReader(clock)
    for second in range(60):
        at = _SEEN + timedelta(seconds=second)
        newer = [replace(r, observed_at=r.observed_at + timedelta(seconds=second)) for r in readings()[-3:]]
        await slow.report(slow_run(8), newer, at=at)
        await findings(engine, reader)

    assert 2 <= len(computed) <= 4


async def test_a_process_that_does_not_get_the_lock_in_time_computes_the_finding_itself(engine, clock, slow, computed):
    async with engine.connect() as other, reading(engine) as connection:
        records = await list_current(connection)
        await lock_findings(other, [r.run.id for r in records])
        await connection.execute(text("SET lock_timeout = '50ms'"))
        await connection.commit()

        (case,) = await EvidenceReader(clock).cases(connection, records)

    assert [case.finding] == computed


_READ_ONLY = "ALTER DATABASE {database} SET default_transaction_read_only = on"
_FULL_DISK = """
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE SQLSTATE '53100' USING MESSAGE = 'could not extend file: No space left on device'; END $$;
    CREATE TRIGGER refuse_findings BEFORE INSERT ON findings EXECUTE FUNCTION refuse();
    CREATE TRIGGER refuse_verdicts BEFORE INSERT ON verdicts EXECUTE FUNCTION refuse();
    CREATE TRIGGER refuse_cards BEFORE INSERT ON recommendations EXECUTE FUNCTION refuse();
"""


@pytest.mark.parametrize("fault", [_READ_ONLY, _FULL_DISK], ids=["read-only database", "full disk"])
async def test_findings_and_verdicts_that_cannot_be_stored_are_computed_and_shown(
    database, engine, clock, slow, computed, fault
):
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(fault.format(database=database.rpartition("/")[2]))
    clock.at = _SEEN + timedelta(days=2)
    refused = create_store_engine(database)
    async with asking(api_over(refused, clock)) as client:
        (row,) = (await client.get("/api/v1/jobs")).json()["items"]
        root = f"/api/v1/jobs/{row['id']}"
        paths = [
            root,
            f"{root}/verdict",
            f"{root}/advice",
            f"{root}/runs/{row['run_id']}/checkpoints/8",
            "/api/v1/jobs",
        ]
        answers = [await client.get(path) for path in paths]
    await refused.dispose()

    assert [(path, a.status_code) for path, a in zip(paths, answers, strict=True)] == [(path, 200) for path in paths]
    assert answers[3].json()["verdict"]["kind"] != "undecided"
    assert len(computed) == 1, "the process that computed the finding has it, although it is not stored"
    assert await findings(engine, EvidenceReader(clock)) == [computed[0]] == computed[1:]


@pytest.mark.parametrize("document", ["{}", '{"diagnosis": 1}'])
async def test_a_finding_in_another_form_is_computed_again(engine, clock, slow, computed, document):
    await findings(engine, EvidenceReader(clock))
    async with engine.begin() as connection:
        await connection.execute(text(f"UPDATE findings SET document = '{document}'"))

    assert await findings(engine, EvidenceReader(clock)) == computed[-1:]
    assert len(computed) == 2


async def test_the_verdict_on_an_ended_checkpoint_is_computed_once_and_stays_when_readings_are_removed(
    engine, clock, slow, monkeypatch
):
    judged, real = [], checkpoint_reader._judge
    monkeypatch.setattr(checkpoint_reader, "_judge", lambda opened: judged.append(real(opened)) or judged[-1])
    async with engine.connect() as connection:
        key = CheckpointKey(*(await connection.execute(text("SELECT job_id, id FROM runs"))).one(), 5)

    def service():
        return CheckpointService(engine, clock, EvidenceReader(clock))

    clock.at = _SEEN + timedelta(minutes=1)
    await service().detail(key)
    assert len(judged) == 1
    clock.at = _SEEN + timedelta(minutes=10)
    await service().detail(key)
    await service().detail(key)
    assert len(judged) == 3, "readings and details may still be on their way: the run has not been read since"
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE runs SET observed_at = observed_at + interval '9 minutes'"))
    first = await service().detail(key)
    await service().detail(key)
    assert len(judged) == 4, "a verdict is final only when nothing more can be read for it"
    assert "busy" in first.verdict.sentence

    clock.at = _SEEN + timedelta(days=3)
    await apply_retention(engine, Retention(), clock.at)
    async with engine.begin() as connection:
        await connection.execute(text("DELETE FROM pressure"))
        await connection.execute(text("DELETE FROM checkpoint_details WHERE checkpoint_id < 8"))
    later = await service().detail(key)

    assert (later.verdict, later.critical_path) == (first.verdict, first.critical_path)
    assert await service().verdict(key) == first.verdict
    assert len(judged) == 4


async def test_findings_and_verdicts_go_with_their_run(engine, clock, slow):
    await findings(engine, EvidenceReader(clock))
    async with engine.connect() as connection:
        key = CheckpointKey(*(await connection.execute(text("SELECT job_id, id FROM runs"))).one(), 5)
    clock.at = _SEEN + timedelta(hours=25)
    await CheckpointService(engine, clock, EvidenceReader(clock)).verdict(key)
    count = text("SELECT (SELECT count(*) FROM findings) + (SELECT count(*) FROM verdicts)")
    async with engine.begin() as connection:
        assert (await connection.execute(count)).scalar_one() == 2
        await connection.execute(text("DELETE FROM runs"))

    await apply_retention(engine, Retention(), clock.at)

    async with engine.begin() as connection:
        assert (await connection.execute(count)).scalar_one() == 0
