"""One query that several targets report is one job: its batches have the values of all, and what differs is said."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import psycopg
import pytest
from sqlalchemy import text

from backend.domain.batch_work import BatchWork
from backend.domain.channel import Channel
from backend.domain.checkpoint import Checkpoint, CheckpointHeader, CheckpointKind, CheckpointStatus
from backend.domain.engines import SPARK, SPARK_DRIVER, SPARK_HISTORY
from backend.domain.failure import FailureReason
from backend.domain.ids import EngineRunId
from backend.domain.micro_batch import BatchPhase, MicroBatch, SourceProgress
from backend.domain.observation import JobObservation, JobState, Observation, PollCost
from backend.domain.target import TargetOrigin
from backend.domain.verdict import Basis
from backend.store.jobs.joining import places_of
from backend.store.jobs.reader import list_current, list_unended
from backend.store.targets.targets import NewTarget, TargetRepository
from tests.support.observations import NOW, SteppingClock
from tests.support.serving import api_over, asking

pytestmark = pytest.mark.anyio

QUERY = "0b0b0b0b-0000-4000-8000-000000000000"
RUNS = [f"{QUERY}/0c0c0c0c-0000-4000-8000-00000000000{n}" for n in range(4)]
CLONES = [f"1d1d1d1d-0000-4000-8000-000000000000/1e1e1e1e-0000-4000-8000-00000000000{n}" for n in range(2)]
CLONE = CLONES[0]
ENGINES = {"listener": SPARK, "history": SPARK_HISTORY, "driver": SPARK_DRIVER}
SOURCES = (SourceProgress("Kafka"),)
NAMES = {"listener": "orders", "history": "etl: orders", "driver": "etl: orders"}


@pytest.fixture
async def targets(engine):
    repository = TargetRepository(engine)
    found = {}
    for name in ENGINES:
        url = "push:spark/etl" if name == "listener" else f"http://{name}:4040"
        origin = TargetOrigin.PUSH if name == "listener" else TargetOrigin.API
        found[name] = (await repository.add(NewTarget(url=url, name=name, origin=origin, kind="spark"), at=NOW)).id
    return found


def batch(number, *, rows=100, took_ms=900, at=None, status=CheckpointStatus.COMPLETED, **values):
    """A batch as a listener or an event log reports it."""
    header = CheckpointHeader(
        checkpoint_id=number,
        kind=CheckpointKind.CHECKPOINT,
        status=status,
        triggered_at=at or NOW + timedelta(seconds=10 * number),
        end_to_end_duration_ms=took_ms,
    )
    known = {
        "input_row_count": rows,
        "phases_ms": ((BatchPhase.ADD_BATCH, 800),),
        "sink": "Noop",
        "sources": SOURCES,
    } | values
    return Checkpoint(header, batch=MicroBatch(**known))


def execution(number, *, status=CheckpointStatus.COMPLETED, took_ms=780, at=None):
    """A batch as a driver reports it."""
    header = CheckpointHeader(
        checkpoint_id=number,
        kind=CheckpointKind.CHECKPOINT,
        status=status,
        triggered_at=at or NOW + timedelta(seconds=10 * number, milliseconds=60),
        end_to_end_duration_ms=None if status is CheckpointStatus.IN_PROGRESS else took_ms,
        failure_reason=FailureReason.QUERY_FAILURE if status is CheckpointStatus.FAILED else None,
        failure_message="no" if status is CheckpointStatus.FAILED else None,
    )
    return Checkpoint(header, batch=MicroBatch())


class Reports:
    """Writes what the targets report."""

    def __init__(self, writer, targets):
        self.writer, self.targets = writer, targets
        self.at = NOW

    async def __call__(self, name, *batches, run=RUNS[0], after_s=1, **values):
        self.at += timedelta(seconds=after_s)
        known = {"state": JobState.RUNNING, "engine_state": "ACTIVE"} | values
        job = JobObservation(
            EngineRunId(run),
            NAMES[name],
            started_at=NOW + timedelta(hours=[*RUNS, *CLONES].index(run)),
            checkpoints=batches,
            **known,
        )
        seen = Observation(
            target_id=self.targets[name],
            observed_at=self.at,
            engine=ENGINES[name],
            engine_version="4.3.0",
            jobs=(job,),
            cost=PollCost(0, 0, 0),
            received_at=self.at,
        )
        self.writer._clock.at = self.at
        return await self.writer.write(seen)


@pytest.fixture
def report(writer, targets):
    return Reports(writer, targets)


async def rows(engine, query, **values):
    async with engine.connect() as connection:
        return (await connection.execute(text(query), values)).all()


async def page(engine, at):
    """What the API says of the only job."""
    async with asking(api_over(engine, SteppingClock(at))) as client:
        (job,) = (await client.get("/api/v1/jobs")).json()["items"]
        return (await client.get(f"/api/v1/jobs/{job['id']}")).json()


async def test_a_query_of_three_channels_is_one_job_with_one_row_for_each_batch(report, engine):
    await report("listener", batch(0))
    await report("history", batch(0), batch(1))
    await report("driver", execution(0), execution(1), execution(2, status=CheckpointStatus.IN_PROGRESS))
    await report("listener", batch(1), batch(2))
    await report("driver", execution(2))

    assert await rows(engine, "SELECT name FROM jobs JOIN runs ON job_id = jobs.id") == [("orders",)]
    stored = "SELECT checkpoint_id, status, end_to_end_duration_ms FROM checkpoints ORDER BY 1"
    assert await rows(engine, stored) == [(0, "completed", 900), (1, "completed", 900), (2, "completed", 900)]


async def test_the_values_of_a_batch_say_from_which_channel_they_are(report, engine):
    await report("driver", execution(0, took_ms=780))
    await report("history", batch(0, rows=70, sink=None))
    await report("listener", batch(0, rows=70))

    job = await page(engine, report.at)

    (found,) = job["batches"]
    assert (found["duration_ms"], found["input_row_count"]) == (900, 70)
    values = {c["channel"]: c["values"] for c in found["channels"]}
    assert values["listener"] == [
        "status",
        "trigger",
        "duration",
        "input rows",
        "sink",
        "phase add-batch",
        "source 1 description",
    ]
    assert values["driver"] == values["history server"] == []
    assert found["disagreements"] == []


async def test_what_the_first_channel_lacks_is_filled_by_the_next_one(report, engine):
    await report("listener", batch(0, rows=None, phases_ms=()))
    await report("history", batch(0, rows=70))

    (found,) = (await page(engine, report.at))["batches"]

    assert (found["input_row_count"], found["phases"]) == (70, [{"phase": "add-batch", "duration_ms": 800}])
    values = {c["channel"]: c["values"] for c in found["channels"]}
    assert values["history server"] == ["input rows", "phase add-batch"]


async def test_channels_that_disagree_say_so_on_the_job_and_on_the_batch(report, engine):
    await report("history", batch(7, rows=120))
    await report("listener", batch(7, rows=100))

    job = await page(engine, report.at)
    async with asking(api_over(engine, SteppingClock(report.at))) as client:
        link = f"/api/v1/jobs/{job['id']}/runs/{job['run_id']}/checkpoints/7"
        checkpoint = (await client.get(link)).json()

    sentence = "Batch 7: input rows 100 (listener), 120 (history server)"
    assert [d["sentence"] for d in job["batches"][0]["disagreements"]] == [sentence]
    assert [d["sentence"] for d in checkpoint["batch"]["disagreements"]] == [sentence]
    assert checkpoint["batch"]["input_row_count"] == 100


async def test_a_failed_batch_that_a_driver_measured_replaces_the_reconstructed_one(report, engine):
    guess = batch(3, rows=None, phases_ms=(), sink=None, took_ms=None, status=CheckpointStatus.FAILED)
    guess = replace(guess, batch=replace(guess.batch, number_basis=Basis.RECONSTRUCTED))
    ended = {"state": JobState.ENDED, "engine_state": "FAILED", "ended_at": NOW + timedelta(seconds=31)}
    await report("listener", guess, **ended)
    await report("driver", execution(3, status=CheckpointStatus.FAILED), **ended)

    (found,) = (await page(engine, report.at))["batches"]

    assert (found["number_basis"], found["duration_ms"], found["disagreements"]) == ("measured", 780, [])
    assert found["triggered_at"] == "2026-11-21T12:00:30.060000Z"


async def test_a_batch_that_only_one_channel_says_has_failed_is_a_disagreement(report, engine):
    guess = batch(3, rows=None, phases_ms=(), sink=None, took_ms=None, status=CheckpointStatus.FAILED)
    guess = replace(guess, batch=replace(guess.batch, number_basis=Basis.RECONSTRUCTED))
    await report("listener", guess)
    await report("driver", execution(3))

    (found,) = (await page(engine, report.at))["batches"]

    (said,) = found["disagreements"]
    assert said["name"] == "status"
    assert said["sentence"] == "Batch 3: status failed (listener, reconstructed), completed (driver)"


@pytest.mark.parametrize("is_driver_last", [True, False])
async def test_a_query_that_failed_after_the_execution_of_its_batch_is_shown_as_failed(report, engine, is_driver_last):
    guess = batch(7, rows=None, phases_ms=(), sink=None, took_ms=None, status=CheckpointStatus.FAILED)
    guess = replace(guess, batch=replace(guess.batch, number_basis=Basis.RECONSTRUCTED))
    at = NOW + timedelta(seconds=72)
    ended = {"state": JobState.ENDED, "engine_state": "FAILED", "ended_at": at, "exceptions": ((at, "IOException"),)}
    of_driver = ("driver", *(execution(n) for n in range(8)))
    if not is_driver_last:
        await report(*of_driver)
    await report("listener", *(batch(n) for n in range(7)), guess, **ended)
    if is_driver_last:
        await report(*of_driver)

    job = await page(engine, report.at)

    statuses = await rows(engine, "SELECT status FROM checkpoints ORDER BY checkpoint_id")
    assert [status for (status,) in statuses] == ["completed"] * 7 + ["failed"]
    assert (job["state"], job["health"]) == ("ended", "failing")


async def test_the_next_run_belongs_to_the_same_job_whichever_channel_is_first(report, engine):
    await report("listener", batch(0))
    await report("history", batch(0))
    await report("history", batch(1), run=RUNS[1])
    await report("listener", batch(1), run=RUNS[1])
    await report("driver", run=RUNS[1])
    await report("driver", execution(2), run=RUNS[2])

    counted = "SELECT jobs.name, count(*) FROM jobs JOIN runs ON job_id = jobs.id GROUP BY 1"
    assert await rows(engine, counted) == [("orders", 3)]
    assert await rows(engine, "SELECT count(DISTINCT job_id) FROM checkpoints") == [(1,)]


async def test_another_query_of_the_same_name_is_another_job_while_the_first_one_runs(report, engine):
    await report("listener", batch(0))
    await report("history", batch(0))
    await report("history", batch(0, rows=5), run=CLONE)
    ended = {"state": JobState.ENDED, "engine_state": "STOPPED", "ended_at": NOW + timedelta(seconds=5)}
    await report("listener", **ended)
    await report("history", batch(1), run=CLONES[1])

    found = await rows(engine, "SELECT engine_run_id, name FROM jobs JOIN runs ON job_id = jobs.id ORDER BY 1")
    assert found == [(RUNS[0], "orders"), (CLONE, "etl: orders"), (CLONES[1], "etl: orders")]


async def test_a_query_that_begins_anew_from_another_checkpoint_location_stays_the_same_job(report, engine):
    ended = {"state": JobState.ENDED, "engine_state": "STOPPED", "ended_at": NOW + timedelta(seconds=5)}
    await report("history", batch(0), **ended)
    await report("listener", batch(0), **ended)
    await report("history", batch(0, rows=5), run=CLONE)

    assert len(await rows(engine, "SELECT DISTINCT job_id FROM runs")) == 1


async def test_a_run_that_a_channel_reports_once_and_ended_has_its_end_and_the_name_of_that_channel(report, engine):
    await report("listener", batch(0))
    await report("history", batch(0))
    ended = {"state": JobState.ENDED, "engine_state": "FINISHED", "ended_at": NOW + timedelta(seconds=5)}
    await report("history", batch(0), batch(1), run=RUNS[1], **ended)

    run = "run_id IN (SELECT id FROM runs WHERE engine_run_id = :run)"
    events = await rows(engine, f"SELECT text FROM job_events WHERE kind = 'run-ended' AND {run}", run=RUNS[1])
    assert events == [("ended FINISHED",)]
    (channel,) = await rows(engine, f"SELECT name, own_job_id FROM run_channels WHERE {run}", run=RUNS[1])
    of_history = await rows(
        engine,
        "SELECT name, own_job_id FROM run_channels WHERE name = 'etl: orders' AND run_id IN "
        "(SELECT id FROM runs WHERE engine_run_id = :run)",
        run=RUNS[0],
    )
    assert [channel] == of_history


async def test_a_write_of_very_many_new_runs_holds_few_locks(engine):
    reported = [
        JobObservation(EngineRunId(f"{QUERY}/{n}"), "orders", started_at=NOW, state=JobState.RUNNING, engine_state="")
        for n in range(20_000)
    ]
    seen = Observation(
        target_id="t",
        observed_at=NOW,
        engine=SPARK_HISTORY,
        engine_version="4.3.0",
        jobs=tuple(reported),
        cost=PollCost(0, 0, 0),
    )
    async with engine.begin() as connection:
        raw = (await connection.get_raw_connection()).driver_connection
        await places_of(raw.cursor(), [seen])
        held = (await connection.execute(text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"))).scalar()

    assert 0 < held <= 256


async def test_the_round_trips_of_a_write_do_not_grow_with_its_new_runs(writer, targets, monkeypatch):
    waited: list[object] = []
    real = psycopg.AsyncCursor.execute

    async def counted(cursor, *arguments, **options):
        if cursor.connection._pipeline is None:
            waited.append(arguments[0])
        return await real(cursor, *arguments, **options)

    monkeypatch.setattr(psycopg.AsyncCursor, "execute", counted)
    counts = []
    for first, count in ((0, 2), (100, 60)):
        jobs = tuple(
            JobObservation(EngineRunId(f"{QUERY[:-4]}{n:04}/r"), f"job {n}", JobState.RUNNING, "ACTIVE", NOW)
            for n in range(first, first + count)
        )
        waited.clear()
        writer._clock.at = NOW
        await writer.write(
            Observation(
                target_id=targets["history"],
                observed_at=NOW + timedelta(seconds=first),
                engine=SPARK_HISTORY,
                engine_version="4.3.0",
                jobs=jobs,
                cost=PollCost(0, 0, 0),
            )
        )
        counts.append(len(waited))

    assert counts[0] == counts[1]


async def test_only_the_newest_runs_of_a_channel_decide_to_which_job_the_next_one_belongs(report, engine):
    await report("listener", batch(0))
    await report("history", batch(0))
    ended = {"state": JobState.ENDED, "engine_state": "STOPPED", "ended_at": NOW + timedelta(seconds=5)}
    await report("listener", **ended)
    async with engine.begin() as connection:
        for table, values, condition in (
            ("jobs", "'id', 'later', 'name', 'later'", "n = 1"),
            ("runs", "'id', n, 'job_id', 'later', 'engine_run_id', 'query/' || n", "true"),
            ("run_channels", "'run_id', n, 'observed_at', t.observed_at + interval '1 hour'", "name = 'etl: orders'"),
        ):
            made = f"(jsonb_populate_record(t, jsonb_build_object({values}))).*"
            copied = f"INSERT INTO {table} SELECT {made} FROM {table} t, generate_series(1, 100) n WHERE {condition}"
            await connection.execute(text(copied))
    await report("history", batch(0), run=CLONE)

    query = "SELECT name FROM jobs JOIN runs ON job_id = jobs.id WHERE engine_run_id = :run"
    assert await rows(engine, query, run=CLONE) == [("later",)]


async def test_the_end_counts_that_one_channel_has_seen(report, engine):
    await report("driver", execution(0))
    await report(
        "listener", batch(0), state=JobState.ENDED, engine_state="STOPPED", ended_at=NOW + timedelta(seconds=5)
    )
    await report("driver", state=JobState.UNKNOWN)

    job = await page(engine, report.at)

    assert (job["state"], job["target_name"]) == ("ended", "listener")
    assert {c["channel"]: c["state"] for c in job["channels"]} == {"listener": "ended", "driver": "unknown"}
    assert await rows(engine, "SELECT text FROM job_events WHERE kind = 'run-ended'") == [("ended STOPPED",)]


async def test_a_run_that_one_channel_no_longer_lists_has_not_ended(report, engine):
    await report("listener", batch(0))
    await report("history", batch(0), state=JobState.ENDED, engine_state="NOT LISTED")

    assert (await page(engine, report.at))["state"] == "running"
    assert await rows(engine, "SELECT text FROM job_events WHERE kind = 'run-ended'") == []


async def test_a_silent_listener_is_not_hidden_by_a_history_server_without_newer_events(report, engine):
    await report("listener", batch(0), after_s=20)
    await report("history", batch(0))
    await report("history", after_s=120)

    job = await page(engine, report.at)

    assert (job["state"], job["target_state"]) == ("unknown", "silent")


async def test_a_channel_with_newer_batches_speaks_for_a_silent_listener_until_it_is_heard_again(report, engine):
    await report("listener", batch(0), after_s=20)
    await report("history", batch(0))
    await report("history", batch(12), after_s=130)
    silent = await page(engine, report.at)
    await report("listener", batch(13))
    heard = await page(engine, report.at)

    assert (silent["state"], silent["target_name"]) == ("running", "history")
    assert (heard["state"], heard["target_name"]) == ("running", "listener")
    assert [b["checkpoint_id"] for b in heard["batches"]] == [0, 12, 13]


async def test_a_silent_listener_is_a_silent_target_while_another_channel_speaks(report, engine):
    await report("listener", batch(0), after_s=20)
    await report("history", batch(0))
    await report("history", batch(12), after_s=130)

    async with asking(api_over(engine, SteppingClock(report.at))) as client:
        found = (await client.get("/api/v1/targets")).json()["items"]

    states = {target["name"]: target["health"]["state"] for target in found}
    assert (states["listener"], states["history"]) == ("silent", "ok")


async def test_removing_one_target_keeps_the_job_and_its_history(report, engine, targets):
    await report("listener", batch(0))
    ended = {"state": JobState.ENDED, "engine_state": "STOPPED", "ended_at": NOW + timedelta(seconds=5)}
    await report("listener", **ended)
    await report("history", batch(0), batch(1), **ended)

    await TargetRepository(engine).remove(targets["listener"], at=report.at)

    job = await page(engine, report.at)
    assert (job["name"], job["state"], job["target_name"]) == ("orders", "ended", "history")
    assert [b["checkpoint_id"] for b in job["batches"]] == [0, 1]


async def test_removing_a_target_does_not_end_a_run_that_one_of_the_others_no_longer_lists(report, engine, targets):
    await report("listener", batch(0))
    await report("driver", execution(0))
    await report("history", batch(0))
    gone = {"state": JobState.ENDED, "engine_state": "NOT LISTED", "ended_at": NOW + timedelta(seconds=5)}
    await report("history", **gone)

    await TargetRepository(engine).remove(targets["listener"], at=report.at)

    job = await page(engine, report.at)
    assert (job["state"], job["target_name"]) == ("running", "driver")


async def test_pausing_the_target_that_speaks_lets_another_one_speak_at_once(report, engine, targets):
    ended = {"state": JobState.ENDED, "engine_state": "STOPPED", "ended_at": NOW + timedelta(seconds=5)}
    await report("listener", batch(0), **ended)
    await report("history", batch(0), **ended)

    await TargetRepository(engine).change(targets["listener"], is_enabled=False)
    paused = await page(engine, report.at)
    await TargetRepository(engine).change(targets["history"], is_enabled=False)
    both = await page(engine, report.at)

    assert (paused["state"], paused["target_name"], paused["target_state"]) == ("ended", "history", "ok")
    assert (both["target_name"], both["target_state"]) == ("history", "paused")


async def test_spark_jobs_that_a_channel_learns_later_are_stored_with_the_batch(report, engine):
    await report("listener", batch(0))
    await report("history", batch(0))
    ((before,),) = await rows(engine, "SELECT revision FROM runs")
    work = BatchWork("app-1", None, 40, (11,), 1, 0, 800, ())
    await report("history", batch(0, work=work))

    assert await rows(engine, "SELECT work ->> 'app_id', input_row_count FROM micro_batches") == [("app-1", 100)]
    assert await rows(engine, "SELECT revision > :before FROM runs", before=before) == [(True,)]


OPEN = CheckpointStatus.IN_PROGRESS
STATES = "SELECT checkpoint_id, status, failure_reason FROM checkpoints ORDER BY 1"
STOPPED = (2, "failed", "coordinator-shutdown")


@pytest.mark.parametrize("is_driver_late", [False, True])
async def test_a_batch_that_is_open_at_a_driver_ends_when_the_listener_says_that_the_query_stopped(
    report, engine, is_driver_late
):
    await report("listener", batch(0), batch(1))
    await report("driver", execution(0), execution(1), *([] if is_driver_late else [execution(2, status=OPEN)]))
    ended_at = NOW + timedelta(seconds=25)
    await report("listener", state=JobState.ENDED, engine_state="TERMINATED", ended_at=ended_at)
    # The driver's list is older than the end, and its application is then gone.
    await report("driver", execution(2, status=OPEN))

    assert await rows(engine, STATES) == [(0, "completed", None), (1, "completed", None), STOPPED]
    shown = await page(engine, NOW + timedelta(seconds=40))
    assert shown["health"] != "failing"
    assert "error" not in shown["verdict"]["sentence"]


@pytest.mark.parametrize("status", [CheckpointStatus.COMPLETED, CheckpointStatus.FAILED])
async def test_what_a_channel_reports_later_of_a_stopped_batch_counts(report, engine, status):
    await report("listener", batch(0), batch(1))
    await report("driver", execution(2, status=OPEN))
    await report("listener", state=JobState.ENDED, engine_state="TERMINATED", ended_at=NOW + timedelta(seconds=25))
    assert (await rows(engine, STATES))[-1] == STOPPED
    await report("driver", execution(2, status=status))

    (_, _, (number, stored, reason)) = await rows(engine, STATES)
    assert (number, stored, reason) == (2, status, None if status is CheckpointStatus.COMPLETED else "query-failure")


async def test_a_batch_stays_open_while_another_channel_says_that_the_query_runs(report, engine):
    await report("listener", batch(0), batch(1))
    await report("driver", execution(2, status=OPEN))
    await report("listener")

    assert (await rows(engine, STATES))[-1] == (2, "in-progress", None)


async def test_the_links_to_spark_stay_when_a_listener_joins(report, engine):
    async def links():
        job = await page(engine, report.at)
        async with asking(api_over(engine, SteppingClock(report.at))) as client:
            found = (await client.get(f"/api/v1/jobs/{job['id']}/links", params={"checkpoint_id": 0})).json()
        return [(link["name"], link["url"]) for link in found["items"] if link["origin"] == "engine"]

    await report("history", batch(0, work=BatchWork("app-1", None, 40, (11,), 1, 0, 800, ())))
    alone = await links()
    await report("listener", batch(0))

    assert await links() == alone
    assert any(url and url.startswith("http://history:4040/") for _, url in alone)


async def test_a_collector_that_starts_anew_knows_the_runs_that_its_target_reports_beside_another(
    report, engine, targets
):
    await report("listener", batch(0))
    await report("history", batch(0))

    async with engine.connect() as connection:
        known = await list_unended(connection, targets["history"])
        of_listener = await list_unended(connection, targets["listener"])

    assert [(key[0], run.name, run.newest_id) for key, run in known.items()] == [(RUNS[0], "etl: orders", None)]
    assert [run.name for run in of_listener.values()] == ["orders"]


async def test_reports_in_any_order_and_repeated_lead_to_the_same_batches(report, engine):
    sent = [("listener", batch(0)), ("history", batch(0, rows=101)), ("driver", execution(0)), ("listener", batch(0))]
    found = []
    for run, order in zip(RUNS, (sent, sent[::-1], sent[1:] + sent[:1], [*sent, *sent]), strict=True):
        for name, reported in order:
            await report(name, reported, run=run)
        values = "SELECT b.input_row_count, c.end_to_end_duration_ms, c.triggered_at, jsonb_array_length(b.reports)"
        joined = " FROM checkpoints c JOIN micro_batches b USING (run_id, checkpoint_id)"
        found.append(
            await rows(engine, f"{values}{joined} JOIN runs r ON r.id = c.run_id WHERE engine_run_id = :r", r=run)
        )

    assert found == [[(100, 900, NOW, 3)]] * 4


async def test_a_batch_over_midnight_is_one_row_though_a_driver_dates_it_on_the_next_day(report, engine):
    midnight = datetime(2026, 11, 22, tzinfo=NOW.tzinfo)
    report.at = midnight
    await report("driver", execution(0, at=midnight + timedelta(milliseconds=20)))
    await report("listener", batch(0, at=midnight - timedelta(milliseconds=20)))

    assert len(await rows(engine, "SELECT 1 FROM checkpoints")) == 1


async def test_a_query_with_one_channel_says_which(report, engine):
    await report("history", batch(0))

    job = await page(engine, report.at)

    assert [(c["channel"], c["target_name"], c["is_speaking"]) for c in job["channels"]] == [
        (Channel.HISTORY_SERVER, "history", True)
    ]
    assert job["batches"][0]["channels"] == []
    async with engine.connect() as connection:
        (record,) = await list_current(connection)
    assert record.run.engine.channel is Channel.HISTORY_SERVER
