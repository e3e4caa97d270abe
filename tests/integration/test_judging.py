"""The process that stores data computes the findings and verdicts on it, once, and never delays the storing."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text

from backend.domain.errors import StoreUnavailableError
from backend.domain.observation import JobState
from backend.services.alerts.signals import SignalReader
from backend.services.checkpoints import judging
from backend.services.checkpoints import reader as checkpoint_reader
from backend.services.checkpoints.judging import Judge
from backend.services.checkpoints.reader import CheckpointKey, CheckpointService
from backend.services.jobs import evidence as evidence_module
from backend.services.jobs.evidence import EvidenceReader
from backend.store.checkpoints.reader import get_checkpoint
from backend.store.ingest import IngestWriter
from backend.store.jobs.reader import get_job
from backend.store.postgres.connections import reading
from backend.store.retention import apply_retention
from backend.store.schema.partitions import Retention
from tests.support.advised_jobs import EXACTLY_ONCE, expired_run, readings, slow_run
from tests.support.handwritten_jobs import START, chain
from tests.support.observations import job as observed_job
from tests.support.observations import observation
from tests.support.serving import api_over, asking

pytestmark = pytest.mark.anyio
_SEEN = START + timedelta(seconds=62)


@pytest.fixture
def judge(engine, clock):
    return Judge(engine, clock)


@pytest.fixture
def report(engine, clock, target, judge):
    writer = IngestWriter(engine, clock=clock, on_commit=judge.note)

    async def write(checkpoints, pressure=(), *, at=_SEEN, **changed):
        clock.at = at
        seen = replace(observed_job(checkpoints), topology=chain(), placements=(), config=EXACTLY_ONCE, counts=None)
        seen = replace(seen, pressure=tuple(pressure), started_at=START - timedelta(hours=1), **changed)
        await writer.write(observation(target, seen, at=at))

    return write


def counted(monkeypatch, module, name):
    """Return a list to which each call of the function appends its result."""
    found, real = [], getattr(module, name)
    monkeypatch.setattr(module, name, lambda *asked: found.append(real(*asked)) or found[-1])
    return found


async def read_everywhere(engine, clock):
    """Read the job as the board, the API, the advice and the alerts of new processes do. Return the sentences."""
    async with asking(api_over(engine, clock)) as client:
        (row,) = (await client.get("/api/v1/jobs")).json()["items"]
    root = f"/api/v1/jobs/{row['id']}"
    sentences = [row["verdict"]["sentence"]]
    async with asking(api_over(engine, clock)) as client:
        sentences.append((await client.get(f"{root}/verdict")).json()["verdict"]["sentence"])
    async with asking(api_over(engine, clock)) as client:
        assert (await client.get(f"{root}/advice")).json()["considered_count"] > 0
    async with reading(engine) as connection:
        reader = SignalReader(engine, clock, EvidenceReader(clock))
        signals = (await reader.with_places(connection, await reader.read(connection), {row["id"]})).signals
    return sentences + [s.place.sentence for s in signals if hasattr(s, "place")]


async def key_of(engine, checkpoint_id):
    async with engine.connect() as connection:
        return CheckpointKey(*(await connection.execute(text("SELECT job_id, id FROM runs"))).one(), checkpoint_id)


async def test_api_board_alerts_and_advice_read_the_finding_of_the_process_that_stored_the_event(
    engine, clock, judge, report, monkeypatch
):
    computed = counted(monkeypatch, evidence_module, "finding_of")
    for count, pressure in ((8, readings()), (9, ()), (10, ())):
        await report(slow_run(count), pressure, at=_SEEN + timedelta(seconds=count - 8))
        assert await judge.work()
        in_storing_process = len(computed)
        sentences = await read_everywhere(engine, clock)

        assert in_storing_process == len(computed) == count - 7, "each event is computed once, by the storing process"
        assert set(sentences) == {computed[-1].diagnosis.verdict.sentence}
        assert len(sentences) == 3


async def test_a_poll_without_news_gives_the_judge_nothing_to_do(clock, judge, report):
    await report(slow_run(8), readings())
    assert await judge.work()
    await report(slow_run(8), at=_SEEN + timedelta(seconds=2))

    assert not await judge.work()


async def test_new_readings_are_computed_once_in_half_a_minute(engine, clock, judge, report, monkeypatch):
    computed = counted(monkeypatch, evidence_module, "finding_of")
    for second in range(60):
        newer = [replace(r, observed_at=r.observed_at + timedelta(seconds=second)) for r in readings()[-3:]]
        await report(slow_run(8), newer, at=_SEEN + timedelta(seconds=second))
        await judge.work()

    assert 2 <= len(computed) <= 4


async def test_storing_does_not_wait_for_a_finding(engine, clock, judge, report, monkeypatch):
    real, began, may_end = evidence_module.finding_of, threading.Event(), threading.Event()

    def slow_finding(*asked):
        began.set()
        assert may_end.wait(60)
        return real(*asked)

    monkeypatch.setattr(evidence_module, "finding_of", slow_finding)
    await report(slow_run(8), readings())
    async with asyncio.TaskGroup() as group:
        task = group.create_task(judge.run())
        assert await asyncio.to_thread(began.wait, 60)
        for count in (9, 10):
            await report(slow_run(count), at=_SEEN + timedelta(seconds=count))
        async with engine.connect() as connection:
            stored = (await connection.execute(text("SELECT max(checkpoint_id) FROM checkpoints"))).scalar_one()
        may_end.set()
        task.cancel()

    assert stored == 10


async def test_a_finding_that_fails_is_left_to_the_readers(engine, clock, judge, report, monkeypatch):
    async def refuse(*asked):
        raise StoreUnavailableError("no connection")

    await report(slow_run(8), readings())
    monkeypatch.setattr(judge._evidence, "cases", refuse)
    assert await judge.work()
    computed = counted(monkeypatch, evidence_module, "finding_of")
    await read_everywhere(engine, clock)

    assert judge.shed_count == 1
    assert len(computed) == 1


async def test_while_the_store_is_unreachable_the_judge_waits_between_attempts(judge, report, monkeypatch):
    class EndOfTest(Exception):
        pass

    rests = []

    async def rest(seconds):
        rests.append(seconds)
        if len(rests) == 2:
            raise EndOfTest

    async def refuse(*asked):
        # Simulate that the event of a later write arrives while the judge computes.
        judge._jobs["another"] = None
        raise StoreUnavailableError("no connection")

    await report(slow_run(8), readings())
    monkeypatch.setattr(judge, "_rest", rest)
    monkeypatch.setattr(judge._evidence, "cases", refuse)
    with pytest.raises(EndOfTest):
        await judge.run()

    assert rests == [judging._IDLE_S] * 2


async def thinned(engine, clock, hours):
    """Let the hours pass and apply retention, as often as the API does."""
    for _ in range(2 * hours):
        clock.at += timedelta(minutes=30)
        await apply_retention(engine, Retention(), clock.at)


def every_second(count=10):
    """Return readings of each second of the last checkpoint. In each, every subtask reads 250 records."""
    return [
        replace(
            r,
            observed_at=r.observed_at + timedelta(seconds=second),
            busy_ratio=(0.9 + second / 100,) * 4,
            records_in_count=tuple(n + 250 * second for n in r.records_in_count),
        )
        for second in range(count)
        for r in readings()[-3:]
    ]


@pytest.mark.parametrize("checkpoints", [slow_run(8), expired_run(8)], ids=["completed", "failed"])
async def test_the_verdict_is_stored_before_its_readings_are_thinned_out(
    engine, clock, judge, report, monkeypatch, checkpoints
):
    await report(checkpoints, every_second())
    await judge.work()
    await report(checkpoints, at=_SEEN + timedelta(seconds=200))
    while await judge.work():
        pass
    computed = counted(monkeypatch, checkpoint_reader, "_judge")
    key = await key_of(engine, 8)
    full = await CheckpointService(engine, clock, EvidenceReader(clock)).detail(key)
    await thinned(engine, clock, 3)
    later = await CheckpointService(engine, clock, EvidenceReader(clock)).detail(key)
    async with engine.connect() as connection:
        left = (await connection.execute(text("SELECT count(*) FROM pressure"))).scalar_one()

    assert left < len(every_second()) / 2, "retention has thinned the readings out"
    assert computed == [], "the verdict was stored by the judge"
    assert "readings" in str(full.verdict.evidence)
    assert (later.verdict, later.critical_path) == (full.verdict, full.critical_path)


@pytest.mark.parametrize("has_details", [True, False])
async def test_a_shown_verdict_is_not_replaced_by_one_from_thinner_readings(
    engine, clock, report, monkeypatch, has_details
):
    """The verdict is not final, because the run was not read after the checkpoint, and details may still arrive."""
    checkpoints = slow_run(8) if has_details else [replace(c, details=()) for c in slow_run(8)]
    await report(checkpoints, every_second())
    key = await key_of(engine, 8)

    def service():
        return CheckpointService(engine, clock, EvidenceReader(clock))

    shown = await service().detail(key)
    await thinned(engine, clock, 3)
    later = await service().detail(key)
    await report(checkpoints, at=clock.at)
    again = await service().detail(key)

    assert "readings" in str(shown.verdict.evidence)
    assert shown.verdict == later.verdict == again.verdict


async def test_details_that_arrive_late_replace_a_verdict_without_them(engine, clock, report):
    bare = [replace(c, details=()) for c in slow_run(8)]
    await report(bare, every_second())
    key = await key_of(engine, 8)
    service = CheckpointService(engine, clock, EvidenceReader(clock))
    await report(bare, at=_SEEN + timedelta(minutes=10))
    before = await service.detail(key)
    await report(slow_run(8), at=_SEEN + timedelta(minutes=20))
    after = await service.detail(key)
    await thinned(engine, clock, 3)

    assert before.critical_path is None
    assert after.critical_path is not None
    assert (await service.detail(key)).verdict == after.verdict


async def test_a_new_version_of_the_analysis_does_not_change_a_final_verdict(engine, clock, judge, report, monkeypatch):
    await report(slow_run(8), every_second())
    await judge.work()
    await report(slow_run(8), at=_SEEN + timedelta(seconds=200))
    while await judge.work():
        pass
    key = await key_of(engine, 8)
    first = await CheckpointService(engine, clock, EvidenceReader(clock)).detail(key)
    monkeypatch.setattr(checkpoint_reader, "_judge", lambda opened: pytest.fail("it was computed again"))

    assert (await CheckpointService(engine, clock, EvidenceReader(clock)).detail(key)).verdict == first.verdict


async def test_a_verdict_in_an_unknown_form_is_computed_again_and_then_stays(engine, clock, judge, report, monkeypatch):
    await report(slow_run(8), every_second())
    await report(slow_run(8), at=_SEEN + timedelta(seconds=200))
    clock.at += judging._MARGIN
    while await judge.work():
        pass
    async with engine.begin() as connection:
        await connection.execute(text("""UPDATE verdicts SET document = '{"verdict": 1, "critical_path": null}'"""))
    computed = counted(monkeypatch, checkpoint_reader, "_judge")
    key = await key_of(engine, 8)
    for _ in range(3):
        await CheckpointService(engine, clock, EvidenceReader(clock)).detail(key)

    assert len(computed) == 1


async def test_the_verdicts_on_a_job_and_on_a_checkpoint_and_its_model_know_the_same_of_the_run(engine, clock, report):
    await report(slow_run(8), readings(), restart_count=2)
    key, reader = await key_of(engine, 8), EvidenceReader(clock)
    async with reading(engine) as connection:
        job = await get_job(connection, key.job_id)
        record = await get_checkpoint(connection, key.run_id, key.checkpoint_id)
        found = [
            (await reader.of_finding(connection, job))[0],
            await reader.of_checkpoint(connection, job, job.run, record),
            await reader.under_current_settings(connection, job),
        ]

    known = {(e.flink_version, e.restart_count, e.state, e.started_at, e.cluster_settings) for e in found}
    assert known == {("1.20.0", 2, JobState.RUNNING, START - timedelta(hours=1), None)}
