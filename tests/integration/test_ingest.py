"""Ingest stores each observation once and unchanged, despite repeats, restarts, rejected writes and changed order."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text
from structlog.testing import capture_logs

from backend.domain.checkpoint import CheckpointCounts
from backend.domain.errors import UnknownEntityError
from backend.domain.ids import TargetId
from backend.domain.observation import NOTHING_SHED, JobState, Shed
from backend.domain.target import TargetOrigin, TargetState
from backend.store.ingest import IngestWriter
from backend.store.jobs.reader import list_current, list_marks
from backend.store.postgres.connections import create_store_engine
from backend.store.targets.targets import NewTarget, TargetRepository, TargetShed
from tests.support.observations import (
    NOW,
    SINK,
    SOURCE,
    SteppingClock,
    barrier_events,
    completed,
    detail,
    failed,
    in_progress,
    job,
    observation,
    pressure,
    progress,
    restarted,
)
from tests.support.seeds import over_seeds

pytestmark = pytest.mark.anyio


async def _rows(engine, query, **values):
    async with engine.connect() as connection:
        return (await connection.execute(text(query), values)).all()


async def test_a_write_returns_its_counts(writer, target):
    result = await writer.write(observation(target, job([completed(1), failed(2), in_progress(3)])))

    assert (result.new_count, result.updated_count, result.detail_count) == (3, 0, 4)


async def test_an_engine_that_plans_once_makes_no_plan_for_single_values(database, target):
    engine = create_store_engine(database, pool_size=1, pool_overflow=0, plans_once=True)
    writer = IngestWriter(engine, clock=SteppingClock())
    for number in range(8):
        at = NOW + timedelta(seconds=number)
        await writer.write(observation(target, job([completed(number)]), at=at))
    plans = await _rows(engine, "SELECT generic_plans, custom_plans FROM pg_prepared_statements")
    await engine.dispose()
    assert sum(generic for generic, _ in plans) >= 8
    assert {custom for _, custom in plans} == {0}


async def test_writing_the_same_again_changes_no_row(writer, target, engine):
    seen = observation(target, job([completed(1), failed(2), in_progress(3)]))
    await writer.write(seen)
    before = await _rows(engine, "SELECT * FROM checkpoints ORDER BY 1, 2")

    result = await writer.write(seen)

    assert (result.new_count, result.updated_count, result.detail_count) == (0, 0, 0)
    assert await _rows(engine, "SELECT * FROM checkpoints ORDER BY 1, 2") == before
    assert await _rows(engine, "SELECT checkpoint_count, failed_listed_count FROM runs") == [(3, 1)]


async def test_a_terminal_checkpoint_never_changes_its_status(writer, target, engine):
    await writer.write(observation(target, job([completed(1)])))

    await writer.write(observation(target, job([in_progress(1)]), at=NOW + timedelta(seconds=5)))
    await writer.write(observation(target, job([failed(1)]), at=NOW + timedelta(seconds=6)))

    assert await _rows(engine, "SELECT status, end_to_end_duration_ms, failed_listed_count FROM checkpoints, runs") == [
        ("completed", 301, 0)
    ]


async def test_an_open_checkpoint_follows_the_newest_observation_until_it_ends(writer, target, engine):
    await writer.write(observation(target, job([in_progress(1, acknowledged_count=2)]), at=NOW))
    await writer.write(observation(target, job([in_progress(1, acknowledged_count=1)]), at=NOW - timedelta(seconds=1)))
    assert await _rows(engine, "SELECT acknowledged_count FROM checkpoints") == [(2,)]

    await writer.write(observation(target, job([completed(1)]), at=NOW - timedelta(seconds=2)))

    assert await _rows(engine, "SELECT status, acknowledged_count FROM checkpoints") == [("completed", 6)]
    assert await _rows(engine, "SELECT count(*) FROM checkpoint_details") == [(2,)]


async def test_arrays_keep_missing_values_and_are_stored_compactly(writer, target, engine):
    await writer.write(observation(target, job([failed(2)])))

    rows = await _rows(
        engine,
        "SELECT vertex_id, subtask_count, sync_duration_ms, ack_delay_ms, persisted_bytes FROM checkpoint_details"
        " ORDER BY vertex_id",
    )
    assert rows == [("sink-2", 3, [7, None, 7], [102, None, 302], None), ("source-1", 3, [7], [102, 202, 302], None)]


async def test_a_checkpoint_outside_the_retention_is_refused_and_counted_and_the_others_are_stored(
    writer, target, engine
):
    old = completed(1, triggered_at=NOW - timedelta(days=8))
    future = completed(2, triggered_at=NOW + timedelta(days=1, seconds=1))

    result = await writer.write(observation(target, job([old, future, completed(3)])))

    assert (result.new_count, len(result.rejected)) == (1, 2)
    assert "checkpoint 1 triggered at 2026-11-13" in result.rejected[0]
    assert await _rows(engine, "SELECT checkpoint_id FROM checkpoints") == [(3,)]
    assert await _rows(engine, "SELECT rejected_count FROM target_health") == [(2,)]


async def test_refused_checkpoints_are_logged_when_that_begins_and_when_it_ends(writer, target):
    old = completed(1, triggered_at=NOW - timedelta(days=8))

    with capture_logs() as logs:
        for n in range(5):
            await writer.write(observation(target, job([old]), at=NOW + timedelta(seconds=n)))
        await writer.write(observation(target, job([completed(3)]), at=NOW + timedelta(seconds=6)))

    assert [entry["event"] for entry in logs] == ["checkpoints refused", "checkpoints accepted again"]


async def test_what_was_shed_is_added_up_once_and_kept(writer, target, engine):
    def read_at(at_s, of_job=NOTHING_SHED, of_target=NOTHING_SHED):
        seen = replace(job([completed(at_s)]), shed=of_job)
        return replace(observation(target, seen, at=NOW + timedelta(seconds=at_s)), shed=of_target)

    targets = TargetRepository(engine)
    await writer.write(read_at(1))
    assert (await targets.get(target)).shed is None

    await writer.write(late := read_at(2, Shed(checkpoint_count=1, detail_count=2), Shed(checkpoint_count=10)))
    await writer.write(late)
    await writer.write(read_at(3, Shed(detail_count=5)))
    await writer.write(read_at(4))

    assert (await targets.get(target)).shed == TargetShed(11, 7, NOW + timedelta(seconds=3))


async def test_an_unknown_target_is_refused(writer):
    with pytest.raises(UnknownEntityError, match="no target 'nobody'"):
        await writer.write(observation(TargetId("nobody"), job()))


async def test_failures_that_were_never_listed_are_counted_across_a_restart_of_the_coordinator(writer, target, engine):
    def counted(total, failures, at_s, *checkpoints):
        seen = job(checkpoints)
        assert seen.counts is not None
        counts = replace(seen.counts, total=total, failed=failures)
        return observation(target, replace(seen, counts=counts), at=NOW + timedelta(seconds=at_s))

    await writer.write(counted(10, 4, 0, failed(1)))
    await writer.write(counted(2, 1, 10))
    await writer.write(counted(3, 2, 20, failed(2)))

    (row,) = await _rows(
        engine, "SELECT failed_unlisted_past, failed_listed_count, failed_listed_base, counts->'failed' FROM runs"
    )
    assert row == (3, 2, 1, 2)


async def test_a_new_run_of_a_job_keeps_the_history_and_may_repeat_checkpoint_ids(writer, target, engine):
    first = job([completed(1), completed(2)])
    second = replace(restarted(first, started_at=NOW - timedelta(minutes=5)), checkpoints=(failed(1),))
    await writer.write(observation(target, first))
    await writer.write(observation(target, second, at=NOW + timedelta(seconds=2)))
    await writer.write(observation(target, first, second, at=NOW + timedelta(seconds=4)))

    assert await _rows(engine, "SELECT count(*) FROM jobs") == [(1,)]
    assert await _rows(
        engine,
        "SELECT checkpoint_id, status FROM checkpoints c JOIN runs r ON r.id = c.run_id ORDER BY r.started_at, 1",
    ) == [(1, "completed"), (2, "completed"), (1, "failed")]
    assert await _rows(engine, "SELECT kind FROM job_events ORDER BY at") == [("run-started",), ("run-started",)]


async def test_one_id_on_two_days_of_one_run_is_two_checkpoints_even_if_both_are_written_twice(writer, target, engine):
    both = (completed(0, triggered_at=NOW - timedelta(days=1)), completed(0, triggered_at=NOW - timedelta(minutes=1)))
    for at_s in (0, 2):
        await writer.write(observation(target, job(both), at=NOW + timedelta(seconds=at_s)))

    assert await _rows(engine, "SELECT count(*), count(DISTINCT triggered_on) FROM checkpoints") == [(2, 2)]
    assert await _rows(engine, "SELECT count(*) FROM checkpoint_details") == [(4,)]


async def test_targets_of_one_deployment_share_a_job_and_other_deployments_do_not(engine, clock):
    targets, writer = TargetRepository(engine), IngestWriter(engine, clock=clock)
    labelled = {"deployment": "prod"}
    found = [
        (await targets.add(NewTarget(f"http://{host}", host, TargetOrigin.API, labels=labels), at=NOW)).id
        for host, labels in (("a", labelled), ("b", labelled), ("c", {}))
    ]
    for number, target_id in enumerate(found):
        await writer.write(observation(target_id, job([completed(1)]), at=NOW + timedelta(seconds=number)))

    assert await _rows(engine, "SELECT deployment, count(*) FROM jobs GROUP BY 1 ORDER BY 1") == [
        ("http://c", 1),
        ("prod", 1),
    ]
    assert await _rows(engine, "SELECT count(*) FROM runs") == [(3,)]


def _stream():
    """Yield the observed job and the time of eight consecutive polls.

    During these polls, checkpoints start, progress and finish, and other readings change.
    """
    for number in range(8):
        at = NOW + timedelta(seconds=2 * number)
        checkpoints = [c for i in range(4) for c in _life(i, number)]
        seen = replace(
            job(checkpoints),
            progress=tuple(
                progress(c.header.checkpoint_id, c.header.acknowledged_count, at)
                for c in checkpoints
                if not c.header.status.is_terminal
            ),
            pressure=(pressure(SOURCE, at), pressure(SINK, at, busy=number / 10)),
            barriers=((0, barrier_events(2 * number)),),
            exceptions=((NOW, "boom"),) if number > 4 else (),
            restart_count=number // 4,
            counts=CheckpointCounts(0, 4, 0, 3, 1),
        )
        yield seen, at


def _life(checkpoint_id, poll):
    age = poll - checkpoint_id
    if age < 0:
        return []
    if age < 3:
        return [in_progress(checkpoint_id, acknowledged_count=age, with_details=age > 1)]
    return [failed(checkpoint_id) if checkpoint_id == 2 else completed(checkpoint_id)]


async def _store(engine):
    tables = {
        "checkpoints": "run_id, checkpoint_id, triggered_on, status, acknowledged_count, start_delay_max_ms",
        "checkpoint_details": "*",
        "pressure": "*",
        "late_barriers": "*",
        "progress_points": "*",
        "live_progress": "*",
        "barrier_events": "*",
        "job_events": "*",
        "runs": "id, checkpoint_count, failed_listed_count, restart_count, counts, observed_at, first_observed_at",
    }
    return {t: sorted(map(repr, await _rows(engine, f"SELECT {c} FROM {t}"))) for t, c in tables.items()}


@over_seeds(1, more=5)
async def test_repeated_and_shuffled_polls_give_the_same_store(engine, clock, databases, seed):
    polls = [observation(TargetId("x"), seen, at=at) for seen, at in _stream()]
    rnd = random.Random(seed)
    shuffled = polls + rnd.sample(polls, 4)
    rnd.shuffle(shuffled)
    # Whichever poll is written first creates the run. The events of restarts are those of the newest observation.
    with databases.migrated() as other:
        second = create_store_engine(other)
        stores = []
        for store, order in ((engine, polls), (second, shuffled)):
            target = (await TargetRepository(store).add(NewTarget("http://f", "f", TargetOrigin.API), at=NOW)).id
            writer = IngestWriter(store, clock=clock)
            for poll in order:
                await writer.write(replace(poll, target_id=target))
            stores.append(await _store(store))
        await second.dispose()

    for table, rows in stores[0].items():
        assert stores[1][table] == rows, f"seed={seed}: {table} differs"
    assert len(stores[0]["checkpoints"]) == 4
    assert len(stores[0]["pressure"]) == 16


async def test_concurrent_writers_of_one_target_store_everything_once(engine, clock, target):
    polls = [observation(target, seen, at=at) for seen, at in _stream()]
    writers = [IngestWriter(engine, clock=clock) for _ in range(3)]
    async with asyncio.TaskGroup() as group:
        for writer in writers:
            for poll in polls:
                group.create_task(writer.write(poll))

    assert await _rows(engine, "SELECT count(*), checkpoint_count FROM checkpoints, runs GROUP BY 2") == [(4, 4)]
    assert await _rows(engine, "SELECT count(*) FROM checkpoint_details") == [(8,)]
    assert await _rows(engine, "SELECT count(*) FROM pressure") == [(16,)]
    assert await _rows(engine, "SELECT poll_count <= 8 FROM target_health") == [(True,)]


async def test_targets_of_one_deployment_create_the_same_jobs_without_a_deadlock(engine, clock):
    targets = TargetRepository(engine)
    names = [f"job-{n}" for n in range(6)]
    async with asyncio.TaskGroup() as group:
        for number in range(4):
            new = NewTarget(f"http://t{number}", "t", TargetOrigin.API, labels={"deployment": "one"})
            at = (await targets.add(new, at=NOW)).id
            # Every second target uses the run ids in reverse order.
            runs = names if number % 2 else names[::-1]
            jobs = [job([completed(1)], name=n, run=f"{runs.index(n)}") for n in names]
            group.create_task(IngestWriter(engine, clock=clock).write(observation(at, *jobs)))

    assert await _rows(engine, "SELECT (SELECT count(*) FROM jobs), (SELECT count(*) FROM runs)") == [(6, 24)]


async def test_observations_that_wait_together_are_stored_in_one_transaction_and_an_unknown_target_fails_alone(
    engine, clock
):
    targets = TargetRepository(engine)
    ids = [(await targets.add(NewTarget(f"http://t{n}", "t", TargetOrigin.API), at=NOW)).id for n in range(5)]
    writer = IngestWriter(engine, clock=clock)
    # The first write creates the partitions.
    await writer.write(observation(ids[0], job([completed(1)]), at=NOW))
    later = NOW + timedelta(seconds=1)
    polls = [observation(i, job([completed(1), completed(2)], name=f"j{n}"), at=later) for n, i in enumerate(ids)]
    polls.insert(2, observation(TargetId("gone"), job([completed(1)]), at=later))

    found = await asyncio.gather(*(writer.write(poll) for poll in polls), return_exceptions=True)

    assert isinstance(found.pop(2), UnknownEntityError)
    assert [(r.new_count, r.detail_count) for r in found] == [(1, 2)] + [(2, 4)] * 4
    assert await _rows(engine, "SELECT count(*), sum(checkpoint_count) FROM runs") == [(5, 10)]
    # The row of the first write has its own transaction. All other rows share one.
    assert await _rows(engine, "SELECT count(*) FROM checkpoints GROUP BY xmin ORDER BY 1") == [(1,), (9,)]


async def test_values_that_do_not_fit_a_column_are_capped_or_stored_as_missing(writer, target, engine):
    huge = 2**70
    wild = replace(
        completed(1),
        header=replace(
            completed(1).header,
            end_to_end_duration_ms=huge,
            subtask_count=huge,
            acknowledged_count=2**40,
            failure_message="a\0b\ud800c" * 9000,
        ),
        details=(
            replace(
                detail(SOURCE, 1),
                start_delay_ms=(huge, -huge, 5),
                checkpointed_size_bytes=(huge,) * 3,
                unaligned=(huge, 1, 0),
            ),
        ),
    )
    reading = replace(
        pressure(SINK, NOW),
        busy_ratio=(1e300, float("nan"), 0.25),
        idle_ratio=(float("inf"),) * 3,
        records_in_count=(huge, 1, 2),
        records_in_per_s=(float("nan"), 1e300, 1836.2333333333333),
        records_out_per_s=(0.1,) * 3,
    )
    seen = replace(
        job([wild]),
        name="odd \0 name",
        engine_state="\0",
        pressure=(reading,),
        restart_count=huge,
        progress=(progress(7, 2**40, NOW),),
        exceptions=((NOW, "\0\ud800"),),
        problems=("\0",),
    )

    result = await writer.write(observation(target, seen))

    assert (result.new_count, result.detail_count, result.pressure_count) == (1, 1, 1)
    assert await _rows(engine, "SELECT end_to_end_duration_ms, subtask_count FROM checkpoints") == [(None, 2**31 - 1)]
    assert await _rows(engine, "SELECT start_delay_ms, checkpointed_size_bytes, unaligned FROM checkpoint_details") == [
        ([None, None, 5], None, [None, 1, 0])
    ]
    assert await _rows(engine, "SELECT busy_ratio, idle_ratio, records_in_count FROM pressure") == [
        ([None, None, 0.25], None, [None, 1, 2])
    ]
    assert await _rows(engine, "SELECT records_in_per_s, records_out_per_s FROM pressure") == [
        ([None, None, 1836.2333333333333], [0.1])
    ]
    assert await _rows(engine, "SELECT restart_count FROM runs") == [(None,)]


async def test_a_target_with_a_job_that_cannot_be_read_is_partial_and_its_other_jobs_are_current(
    writer, target, engine
):
    targets = TargetRepository(engine)
    well = job([completed(1)], name="well")
    broken = job(name="broken", run="b" * 32)
    unread = replace(broken, state=JobState.UNREADABLE, problems=("x: it has no 'counts'",))
    await writer.write(observation(target, well, broken))
    for seconds in (5, 10):
        await writer.write(observation(target, well, unread, at=NOW + timedelta(seconds=seconds)))

    found = await targets.get(target)
    assert (found.state, found.since) == (TargetState.PARTIAL, NOW + timedelta(seconds=5))
    assert found.reason == "broken cannot be read: x: it has no 'counts'"
    async with engine.connect() as connection:
        states = {r.name: (r.run.state, r.target_state) for r in await list_current(connection)}
        marks = {m.target_state for m in await list_marks(connection)}
    assert states == {
        "well": (JobState.RUNNING, TargetState.OK),
        "broken": (JobState.UNREADABLE, TargetState.PARTIAL),
    }
    assert marks == {TargetState.OK, TargetState.PARTIAL}

    await writer.write(observation(target, well, broken, at=NOW + timedelta(seconds=20)))
    back = await targets.get(target)
    assert (back.state, back.reason, back.since) == (TargetState.OK, None, NOW + timedelta(seconds=20))


async def test_what_a_subtask_reports_after_the_end_of_a_failed_checkpoint_is_added_once(writer, target, engine):
    first = failed(2)
    late = replace(first, details=(first.details[0], detail(SINK, 2)))
    before = await writer.write(observation(target, job([completed(1), first])))
    again = await writer.write(observation(target, job([late]), at=NOW + timedelta(seconds=5)))
    rows = await _rows(engine, "SELECT * FROM checkpoint_details ORDER BY checkpoint_id, vertex_id")
    headers = await _rows(engine, "SELECT * FROM checkpoints ORDER BY checkpoint_id")

    assert (before.detail_count, again.detail_count) == (4, 1)
    assert (again.new_count, again.updated_count) == (0, 0)
    (stored,) = await _rows(
        engine,
        "SELECT ack_delay_ms, sync_duration_ms FROM checkpoint_details WHERE checkpoint_id = 2 AND vertex_id = :v",
        v=SINK,
    )
    # An array whose values are all equal is stored as one.
    assert stored == (list(detail(SINK, 2).ack_delay_ms), [7])
    # Neither a repetition nor the older reading changes anything.
    for found in (late, first):
        result = await writer.write(observation(target, job([found]), at=NOW + timedelta(seconds=9)))
        assert result.detail_count == 0
    assert rows == await _rows(engine, "SELECT * FROM checkpoint_details ORDER BY checkpoint_id, vertex_id")
    assert headers == await _rows(engine, "SELECT * FROM checkpoints ORDER BY checkpoint_id")


async def test_a_failed_poll_is_stored_with_its_reason_and_start_until_the_next_success(writer, target, engine):
    targets = TargetRepository(engine)
    await writer.write(observation(target, job()))
    for seconds in (5, 10):
        await writer.report_failure(
            target, kind=TargetState.UNREACHABLE, reason=f"refused\0 {seconds}", at=NOW + timedelta(seconds=seconds)
        )
    away = await targets.get(target)
    # An older failure that is reported late must not replace the newer one.
    await writer.report_failure(target, kind=TargetState.MALFORMED, reason="old", at=NOW - timedelta(seconds=1))

    assert (away.state, away.reason, away.since) == ("unreachable", "refused\ufffd 10", NOW + timedelta(seconds=5))
    assert (away.last_success_at, away.last_attempt_at) == (NOW, NOW + timedelta(seconds=10))
    assert (await targets.get(target)).state == "unreachable"

    await writer.write(observation(target, job(), at=NOW + timedelta(seconds=20), request_count=9))
    back = await targets.get(target)
    assert (back.state, back.reason, back.since) == ("ok", None, NOW + timedelta(seconds=20))
    assert back.cost is not None
    assert (back.cost.requests_per_poll, back.cost.poll_interval_s) == (7.0, 10.0)


async def test_an_observation_is_stored_whole_or_not_at_all(writer, target, engine):
    broken = replace(job([completed(2)], name="b", run="b"), state=None)

    with pytest.raises(AttributeError):
        await writer.write(observation(target, job([completed(1)], name="a"), broken))

    assert await _rows(engine, "SELECT count(*) FROM checkpoints") == [(0,)]
    assert await _rows(engine, "SELECT count(*) FROM jobs") == [(0,)]
