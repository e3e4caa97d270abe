"""Readers return exactly what was written: missing values stay missing, and pages have no gaps or repeats."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text

from backend.analysis.numbers.log_buckets import GAMMA
from backend.domain.checkpoint import Checkpoint, CheckpointCounts, CheckpointStatus, SavepointFormat
from backend.domain.errors import UnknownEntityError
from backend.domain.failure import FailureReason
from backend.domain.observation import JobState, KnownRun
from backend.domain.protocols import Protocol
from backend.domain.rollup import is_lower_bound
from backend.domain.target import TargetOrigin
from backend.domain.topology import Topology, Vertex
from backend.store.checkpoints import reader as checkpoints
from backend.store.checkpoints.reader import CheckpointFilter
from backend.store.checkpoints.statistics import LastCompleted, last_completed_of, statistics_of
from backend.store.jobs import pressure
from backend.store.jobs import reader as jobs
from backend.store.postgres.connections import reading
from backend.store.schema.partitions import day_of
from backend.store.targets.targets import NewTarget, TargetRepository
from tests.support import observations as made
from tests.support.observations import NOW, SINK, SOURCE, completed, failed, in_progress, job, observation, restarted

pytestmark = pytest.mark.anyio
_EVERYTHING = CheckpointFilter()


@pytest.fixture
async def connection(engine):
    async with reading(engine) as opened:
        yield opened


def _at(seconds):
    return NOW + timedelta(seconds=seconds)


async def _only_job(connection):
    (record,) = await jobs.list_current(connection)
    return record


async def _ids(connection, job_id, wanted=_EVERYTHING, before=None, limit=100):
    found = await checkpoints.list_checkpoints(connection, job_id, wanted, before=before, limit=limit)
    return [r.header.checkpoint_id for r in found]


# --- checkpoints ---------------------------------------------------------------------------------------------------


async def test_a_checkpoint_is_read_as_it_was_written(writer, target, connection):
    header = replace(
        made.header(3),
        processed_bytes=5,
        persisted_bytes=0,
        external_path="s3://c/3",
        is_discarded=False,
        savepoint_format=SavepointFormat.NATIVE,
        is_unaligned=True,
        protocol=Protocol.CHANDY_LAMPORT,
    )
    await writer.write(observation(target, job([Checkpoint(header, completed(3).details), failed(4), in_progress(5)])))

    run_id = (await _only_job(connection)).run.id
    record = await checkpoints.get_checkpoint(connection, run_id, 3)

    assert record.header == header
    assert [(await checkpoints.get_checkpoint(connection, run_id, i)).header for i in (4, 5)] == [
        failed(4).header,
        in_progress(5).header,
    ]
    assert (record.start_delay_max_ms, record.alignment_max_ms, record.sync_max_ms, record.async_max_ms) == (
        33,
        18,
        7,
        12,
    )
    with pytest.raises(UnknownEntityError, match="no checkpoint '6'"):
        await checkpoints.get_checkpoint(connection, run_id, 6)


async def test_details_are_read_with_their_missing_values_and_only_for_checkpoints_that_have_some(
    writer, target, connection
):
    bare = Checkpoint(made.header(3))
    await writer.write(observation(target, job([completed(1), failed(2), bare])))
    records = await checkpoints.list_checkpoints(
        connection, (await _only_job(connection)).id, _EVERYTHING, before=None, limit=9
    )

    found = await checkpoints.details_of(connection, [r.place for r in records])

    by_id = {place.checkpoint_id: sorted(d, key=lambda x: x.vertex_id) for place, d in found.items()}
    assert by_id == {
        1: sorted(completed(1).details, key=lambda d: d.vertex_id),
        2: sorted(failed(2).details, key=lambda d: d.vertex_id),
    }
    assert by_id[2][0].pending == (1,)
    assert await checkpoints.details_of(connection, []) == {}


async def test_details_that_come_later_are_added_and_raise_the_maxima(writer, target, connection):
    await writer.write(observation(target, job([Checkpoint(made.header(1))])))
    await writer.write(observation(target, job([completed(1)]), at=_at(2)))

    record = await checkpoints.get_checkpoint(connection, (await _only_job(connection)).run.id, 1)

    assert record.start_delay_max_ms == 31
    assert len((await checkpoints.details_of(connection, [record.place]))[record.place]) == 2


async def test_pages_by_cursor_have_no_gaps_or_repeats_even_with_equal_trigger_times(writer, target, connection):
    # The job has two runs. In each run, two checkpoints share each trigger time. The triggers are on four days.
    made_at = [_at(-600 + i // 2) - timedelta(days=3 - i // 4) for i in range(14)]
    first = job([completed(i, triggered_at=at) for i, at in enumerate(made_at)])
    second = replace(
        restarted(first, started_at=_at(-300)),
        checkpoints=tuple(completed(i, triggered_at=at) for i, at in enumerate(made_at)),
    )
    await writer.write(observation(target, first, second))
    job_id = (await _only_job(connection)).id

    seen = []
    before = None
    while page := await checkpoints.list_checkpoints(connection, job_id, _EVERYTHING, before=before, limit=5):
        seen += page
        before = page[-1].cursor

    assert len(seen) == len({r.cursor for r in seen}) == 28
    assert [r.cursor for r in seen] == sorted((r.cursor for r in seen), reverse=True)


async def test_filters_combine_and_work_across_midnight(writer, target, connection):
    midnight = NOW.replace(hour=0)
    listed = [
        completed(1, triggered_at=midnight - timedelta(seconds=1)),
        failed(2),
        completed(3, triggered_at=midnight),
        completed(4, triggered_at=midnight + timedelta(seconds=1)),
    ]
    await writer.write(observation(target, job(listed)))
    record = await _only_job(connection)

    async def ids(**wanted):
        return await _ids(connection, record.id, CheckpointFilter(**wanted))

    assert await ids() == [2, 4, 3, 1]
    assert await ids(status=CheckpointStatus.FAILED) == [2]
    assert await ids(since=midnight) == [2, 4, 3]
    assert await ids(until=midnight) == [1]
    assert await ids(since=midnight, until=midnight + timedelta(seconds=1)) == [3]
    assert await ids(since=midnight - timedelta(hours=1), status=CheckpointStatus.COMPLETED) == [4, 3, 1]
    assert await ids(run_id="r-other") == []
    assert await ids(run_id=record.run.id) == [2, 4, 3, 1]
    assert await _ids(connection, "j-other") == []
    assert await _ids(connection, "j-other", CheckpointFilter(run_id=record.run.id)) == []


async def test_the_neighbours_of_a_checkpoint_are_of_its_run_and_in_order(writer, target, connection):
    first = job([completed(i) for i in range(1, 8)])
    other = replace(restarted(first, started_at=_at(-60)), checkpoints=(completed(4), failed(5)))
    await writer.write(observation(target, first, other))
    run_id = next(r.id for r in await jobs.list_runs(connection, (await _only_job(connection)).id, before=None, limit=9)
                  if r.started_at == first.started_at)  # fmt: skip
    record = await checkpoints.get_checkpoint(connection, run_id, 4)

    async def around(of, before, after):
        found = await checkpoints.list_around(connection, of, before=before, after=after)
        return [(r.run_id == run_id, r.header.checkpoint_id) for r in found]

    assert await around(record, 2, 1) == [(True, 2), (True, 3), (True, 4), (True, 5)]
    assert await around(record, 0, 0) == [(True, 4)]
    edge = await checkpoints.get_checkpoint(connection, run_id, 1)
    assert await around(edge, 3, 1) == [(True, 1), (True, 2)]


async def test_the_last_healthy_checkpoint_before_another_is_completed_and_fast_enough(writer, target, connection):
    # Each checkpoint takes 300 ms plus its id in milliseconds.
    await writer.write(observation(target, job([completed(1), completed(20), failed(21), completed(22)])))
    run_id = (await _only_job(connection)).run.id
    record = await checkpoints.get_checkpoint(connection, run_id, 22)

    async def last(faster_than_ms=None):
        found = await checkpoints.last_completed_before(connection, record, faster_than_ms=faster_than_ms)
        return None if found is None else found.header.checkpoint_id

    assert await last() == 20
    assert await last(320) == 1
    assert await last(301) is None


async def test_the_newest_checkpoints_of_several_runs_are_read_for_each_run_oldest_first(writer, target, connection):
    one, two = job([completed(i) for i in range(5)]), job([failed(9)], name="b", run="b")
    await writer.write(observation(target, one, two))
    runs = {r.name: r.run.id for r in await jobs.list_current(connection)}

    found = await checkpoints.recent_of_runs(
        connection, [*runs.values(), "r-none"], limit=3, since=day_of(NOW - timedelta(days=8))
    )

    assert {k: [r.header.checkpoint_id for r in v] for k, v in found.items()} == {
        runs["orders"]: [2, 3, 4],
        runs["b"]: [9],
        "r-none": [],
    }


async def test_statistics_cover_only_the_window_and_percentiles_are_within_the_error_bound(writer, target, connection):
    old = completed(0, triggered_at=NOW - timedelta(days=2))
    await writer.write(observation(target, job([old, *(completed(i) for i in range(1, 5)), failed(5), in_progress(6)])))
    job_id = (await _only_job(connection)).id

    found = (await statistics_of(connection, [job_id, "j-none"], NOW - timedelta(days=1)))[job_id]

    assert (found.completed_count, found.failed_count) == (4, 1)
    assert found.duration_p50_ms == pytest.approx(302.5, rel=(GAMMA - 1) / (GAMMA + 1))
    assert found.duration_p99_ms == pytest.approx(303.97, rel=(GAMMA - 1) / (GAMMA + 1))
    assert found.last_completed_at == completed(4).header.latest_ack_at
    assert await statistics_of(connection, ["j-none"], NOW) == {}


async def test_expired_checkpoints_count_in_the_percentiles_with_the_time_until_they_expired(
    writer, target, connection
):
    """A job whose every checkpoint expires showed the durations from before."""
    expired = [
        replace(c, header=replace(c.header, end_to_end_duration_ms=60_000, failure_reason=FailureReason.EXPIRED))
        for c in map(failed, range(2, 12))
    ]
    await writer.write(observation(target, job([completed(0), completed(1), *expired])))
    job_id = (await _only_job(connection)).id

    found = (await statistics_of(connection, [job_id], NOW - timedelta(days=1)))[job_id]

    assert found.duration_p50_ms == pytest.approx(60_000, rel=0.01)
    assert is_lower_bound(found.duration_p50_ms, found.expired_min_ms)
    assert found.duration_p99_ms == pytest.approx(60_000, rel=0.01)
    assert not is_lower_bound(302.0, found.expired_min_ms)
    assert (found.is_p50_lower_bound, found.is_p99_lower_bound) == (True, True)


@pytest.mark.parametrize(("completed_count", "is_bound"), [(1, True), (2, False)])
async def test_a_percentile_between_a_completed_and_an_expired_checkpoint_is_a_lower_bound(
    writer, target, connection, completed_count, is_bound
):
    one = failed(9)
    late = replace(one.header, end_to_end_duration_ms=60_000, failure_reason=FailureReason.EXPIRED)
    rows = [completed(n) for n in range(completed_count)]
    await writer.write(observation(target, job([*rows, replace(one, header=late)])))
    job_id = (await _only_job(connection)).id

    found = (await statistics_of(connection, [job_id], NOW - timedelta(days=1)))[job_id]

    assert found.duration_p50_ms is not None
    assert found.duration_p50_ms < 59_000
    assert found.is_p50_lower_bound == is_bound


async def test_a_checkpoint_that_a_finished_task_declines_is_no_failure_of_the_job(writer, target, connection):
    closing = failed(3)
    closing = replace(closing, header=replace(closing.header, failure_reason=FailureReason.DECLINED_TASK_CLOSING))
    await writer.write(observation(target, job([completed(1), completed(2), closing, failed(4)])))
    job_id = (await _only_job(connection)).id

    found = (await statistics_of(connection, [job_id], NOW - timedelta(days=1)))[job_id]

    assert (found.completed_count, found.failed_count) == (2, 1)


async def test_the_last_completed_checkpoint_is_the_newest_one_that_completed(writer, target, connection):
    one = job([completed(0), completed(1), failed(2), in_progress(3)])
    await writer.write(observation(target, one, job([failed(9)], name="b", run="b")))
    found = {r.name: r for r in await jobs.list_current(connection)}
    header = completed(1).header

    last = await last_completed_of(connection, [*(r.id for r in found.values()), "j-none"])

    ended_at = header.triggered_at + timedelta(milliseconds=header.end_to_end_duration_ms)
    assert last == {found["orders"].id: LastCompleted(found["orders"].run.id, 1, ended_at)}


# --- checkpoints in progress, and values that only the runtime reports ---------------------------------------------


async def test_an_open_checkpoint_has_its_last_progress_and_the_curve_up_to_it(writer, target, connection):
    for seconds, acknowledged in ((0, 3), (2, 4), (4, 5)):
        at = _at(seconds)
        seen = replace(
            job([in_progress(1, acknowledged_count=acknowledged, with_details=seconds == 2)]),
            progress=(made.progress(1, acknowledged, at),),
        )
        await writer.write(observation(target, seen, at=at))
    run_id = (await _only_job(connection)).run.id

    live = await checkpoints.live_of(connection, run_id, 1)
    assert live is not None
    assert live.progress == replace(made.progress(1, 5, _at(4)), late_barriers=())
    assert live.points == ((_at(0), 3), (_at(2), 4), (_at(4), 5))
    assert live.details == in_progress(1, with_details=True).details
    late = await checkpoints.late_barriers_of(connection, [run_id], _at(-60))
    assert late == {run_id: {1: made.progress(1, 3, _at(0)).late_barriers}}
    assert await checkpoints.late_barriers_of(connection, [run_id], _at(1)) == {}
    assert await checkpoints.live_of(connection, run_id, 2) is None


async def test_barrier_events_are_read_in_order_and_the_fullest_reading_is_kept(writer, target, connection):
    for count, at in ((4, 0), (40, 2), (6, 4)):
        seen = replace(job([completed(1), completed(2)]), barriers=((1, made.barrier_events(count)),))
        await writer.write(observation(target, seen, at=_at(at)))
    run_id = (await _only_job(connection)).run.id
    with_events, without = [(await checkpoints.get_checkpoint(connection, run_id, i)).place for i in (1, 2)]

    assert await checkpoints.barriers_of(connection, with_events) == made.barrier_events(40)
    assert await checkpoints.has_barriers(connection, with_events)
    assert await checkpoints.barriers_of(connection, without) is None
    assert not await checkpoints.has_barriers(connection, without)


# --- backpressure --------------------------------------------------------------------------------------------------


async def test_readings_are_read_as_written_and_values_not_requested_differ_from_values_not_answered(
    writer, target, connection
):
    readings = (made.pressure(SOURCE, NOW), made.pressure(SINK, NOW, busy=0.123456))
    await writer.write(observation(target, replace(job(), pressure=readings)))
    run_id = (await _only_job(connection)).run.id

    found = await pressure.readings_between(connection, [run_id], NOW, NOW)

    assert sorted(found[run_id], key=lambda r: r.vertex_id) == sorted(readings, key=lambda r: r.vertex_id)
    assert found[run_id][0].in_pool_usage_ratio == ()
    assert found[run_id][0].idle_ratio == (None, None, None)
    assert await pressure.newest_reading_at(connection, {run_id: NOW, "r-none": NOW}) == {run_id: NOW}


async def test_rates_are_read_as_the_engine_reported_them_and_old_rows_have_none(writer, target, engine, connection):
    rates = (1836.2333333333333, None, 0.0)
    readings = (
        replace(made.pressure(SOURCE, NOW), records_out_per_s=(33.1,) * 3),
        replace(made.pressure(SINK, NOW), records_in_per_s=rates, records_out_per_s=(None,) * 3),
    )
    await writer.write(observation(target, replace(job(), pressure=readings)))
    run_id = (await _only_job(connection)).run.id

    found = (await pressure.readings_between(connection, [run_id], NOW, NOW))[run_id]

    assert {r.vertex_id: (r.records_in_per_s, r.records_out_per_s) for r in found} == {
        SOURCE: ((), (33.1,) * 3),
        SINK: (rates, (None,) * 3),
    }
    async with engine.begin() as other:
        # An older version stored neither the arrays nor their bits.
        await other.execute(
            text("UPDATE pressure SET records_in_per_s = NULL, records_out_per_s = NULL, asked = asked & 4095")
        )
    old = (await pressure.readings_between(connection, [run_id], NOW, NOW))[run_id]
    assert {(r.records_in_per_s, r.records_out_per_s) for r in old} == {((), ())}


async def test_readings_are_found_by_a_range_across_midnight_and_by_a_start_for_each_run(writer, target, connection):
    midnight = NOW.replace(hour=0)
    instants = [midnight + timedelta(seconds=s) for s in (-2, 0, 2)]
    for name in ("a", "b"):
        seen = replace(job(name=name, run=name), pressure=tuple(made.pressure(SINK, at) for at in instants))
        await writer.write(observation(target, seen, at=_at(ord(name))))
    a, b = (r.run.id for r in sorted(await jobs.list_current(connection), key=lambda r: r.name))

    def instants_of(found):
        return {run: [r.observed_at for r in readings] for run, readings in found.items()}

    between = await pressure.readings_between(connection, [a], instants[0], instants[1])
    since = await pressure.readings_since(connection, {a: instants[1], b: instants[2]})
    assert instants_of(between) == {a: instants[:2]}
    assert instants_of(since) == {a: instants[1:], b: instants[2:]}
    assert await pressure.readings_since(connection, {}) == {}


async def test_a_series_has_means_over_reporting_subtasks_sums_of_queues_and_a_limited_length(
    writer, target, connection
):
    same = replace(made.pressure(SOURCE, NOW), queued_out_bytes=(7, 7, 7), queued_in_bytes=(1, 1, 1))
    silent = replace(made.pressure(SINK, NOW), busy_ratio=(None,) * 3, queued_out_bytes=())
    many = tuple(made.pressure(SOURCE, _at(-2 * i)) for i in range(1, 40))
    await writer.write(observation(target, replace(job(), pressure=(same, silent, *many))))
    run_id = (await _only_job(connection)).run.id

    sink, source = await pressure.series(connection, [run_id], NOW, _at(1), limit=100)
    thinned = await pressure.series(connection, [run_id], _at(-100), _at(1), limit=10)

    assert (source.vertex_id, source.busy_ratio, source.queued_bytes) == (SOURCE, pytest.approx(0.5), 24)
    assert (sink.busy_ratio, sink.idle_ratio, sink.queued_bytes) == (None, None, None)
    assert sink.backpressured_ratio == pytest.approx((0.1 + 0.123456 + 0.25) / 3, abs=1e-6)
    assert 5 <= len({p.at for p in thinned}) <= 10
    assert [p.at for p in thinned] == sorted(p.at for p in thinned)


# --- jobs, runs, events --------------------------------------------------------------------------------------------


async def test_unended_runs_have_the_newest_terminal_checkpoint_that_is_stored(writer, target, connection):
    started = made.job(run="b" * 32)
    ended = replace(made.job([made.completed(3)], run="c" * 32, name="payments"), state=JobState.ENDED)
    first = made.job([made.completed(8), made.failed(9), made.in_progress(10)], name="users")
    await writer.write(made.observation(target, first, started, ended))
    assert await jobs.list_unended(connection, target) == {
        (first.engine_run_id, first.started_at): KnownRun("users", 9),
        (started.engine_run_id, started.started_at): KnownRun("orders", None),
    }


async def test_a_job_has_its_current_run(writer, target, connection):
    old = replace(job([failed(1)]), restart_count=2)
    new = replace(restarted(old, started_at=_at(-60)), checkpoints=(completed(1),), restart_count=0)
    ended = replace(old, state=JobState.ENDED, engine_state="CANCELED", ended_at=_at(-61))
    await writer.write(observation(target, old, at=_at(-70)))
    await writer.write(observation(target, ended, new))

    record = await _only_job(connection)
    runs = await jobs.list_runs(connection, record.id, before=None, limit=1)
    more = await jobs.list_runs(connection, record.id, before=(runs[0].started_at, runs[0].id), limit=5)

    assert (record.name, record.target_name, record.target_state) == ("orders", "flink", "ok")
    assert (record.run.started_at, record.run.state, record.run.checkpoint_count) == (_at(-60), JobState.RUNNING, 1)
    assert record.run.placements == old.placements
    assert runs == [record.run]
    assert [(r.state, r.ended_at, r.restart_count) for r in more] == [(JobState.ENDED, _at(-61), 2)]
    assert await jobs.get_job(connection, record.id) == record
    assert await jobs.get_run(connection, record.id, record.run.id) == record.run
    with pytest.raises(UnknownEntityError, match="no job 'j-none'"):
        await jobs.get_job(connection, "j-none")
    with pytest.raises(UnknownEntityError, match="no run"):
        await jobs.get_run(connection, "j-none", record.run.id)


async def test_a_job_of_a_removed_target_leaves_the_list_and_keeps_its_history(writer, target, connection, engine):
    await writer.write(observation(target, job([completed(1)])))
    job_id = (await _only_job(connection)).id
    await TargetRepository(engine).remove(target, at=_at(5))

    assert await jobs.list_current(connection) == []
    record = await jobs.get_job(connection, job_id)
    assert (record.target_state, await _ids(connection, job_id)) == ("paused", [1])


async def test_failures_that_were_never_listed_are_counted_separately(writer, target, connection):
    counts = CheckpointCounts(restored=1, total=9, in_progress=0, completed=5, failed=4, restored_at=NOW)
    await writer.write(observation(target, replace(job([failed(1), completed(2)]), counts=counts)))

    run = (await _only_job(connection)).run

    assert run.counts == counts
    assert run.failed_unlisted_count == 3


async def test_graph_and_settings_are_read_as_of_an_instant(writer, target, connection):
    rescaled = Topology((Vertex(SOURCE, "Source: orders", 8, 128), *made.TOPOLOGY.vertices[1:]), made.TOPOLOGY.edges)
    unaligned = replace(made.CONFIG, is_unaligned_enabled=True, aligned_timeout_ms=0)
    await writer.write(observation(target, job()))
    await writer.write(observation(target, replace(job(), topology=rescaled, config=unaligned), at=_at(10)))
    await writer.write(observation(target, replace(job(), topology=None, config=None), at=_at(20)))
    run_id = (await _only_job(connection)).run.id

    for at, topology, config in (
        (_at(-(10**5)), made.TOPOLOGY, made.CONFIG),
        (_at(9), made.TOPOLOGY, made.CONFIG),
        (_at(10), rescaled, unaligned),
        (_at(10**5), rescaled, unaligned),
    ):
        assert await jobs.shape_at(connection, run_id, at) == jobs.RunShape(topology, config)
    shapes = await jobs.newest_shapes(connection, [run_id, "r-none"])
    assert shapes == {run_id: jobs.RunShape(rescaled, unaligned), "r-none": jobs.RunShape(Topology(()), None)}


async def test_settings_of_the_cluster_have_versions_and_events_of_their_own(writer, target, connection):
    three = replace(job(), cluster_settings=(("num-retained", "3"), ("segment-size", "32 kb")))
    one = replace(three, cluster_settings=(("num-retained", "1"),), config=replace(made.CONFIG, interval_ms=7))
    await writer.write(observation(target, job()))
    await writer.write(observation(target, three, at=_at(5)))
    await writer.write(observation(target, one, at=_at(10)))
    found = await _only_job(connection)

    before = await jobs.shape_at(connection, found.run.id, _at(9))
    after = (await jobs.newest_shapes(connection, [found.run.id]))[found.run.id]
    events = await jobs.list_events(connection, found.id, before=None, limit=10)

    assert before.cluster_settings == (("num-retained", "3"), ("segment-size", "32 kb"))
    assert after.cluster_settings == (("num-retained", "1"),)
    changes = [e.text for e in events if e.kind == "configuration-changed"]
    assert sorted(changes) == [
        f"interval_ms: {made.CONFIG.interval_ms} -> 7",
        "num-retained: 3 -> 1, segment-size: 32 kb -> not reported",
    ]


async def test_each_event_is_listed_once_newest_first_and_paged(writer, target, connection):
    first = replace(job(), restart_count=3, exceptions=((_at(-30), "lost a TaskManager"),))
    unaligned = replace(made.CONFIG, is_unaligned_enabled=True)
    polls = [
        (0, first),
        (5, replace(first, restart_count=4)),
        (10, replace(first, restart_count=4, config=unaligned)),
        (15, replace(first, restart_count=4, config=unaligned, state=JobState.ENDED, engine_state="FAILED")),
    ]
    for seconds, seen in polls * 2:
        await writer.write(observation(target, seen, at=_at(seconds)))
    record = await _only_job(connection)

    events = await jobs.list_events(connection, record.id, before=None, limit=50)
    first_page = await jobs.list_events(connection, record.id, before=None, limit=2)
    last = first_page[-1]
    second_page = await jobs.list_events(
        connection, record.id, before=(last.at, last.run_id, last.kind, last.key), limit=50
    )

    assert [(e.kind, e.at, e.text) for e in events] == [
        ("run-ended", _at(15), "ended FAILED"),
        ("configuration-changed", _at(10), "is_unaligned_enabled: false -> true"),
        ("restarted", _at(5), "restart 4 of this run"),
        ("exception", _at(-30), "lost a TaskManager"),
        ("run-started", first.started_at, f"orders started as {'a' * 32}"),
    ]
    assert first_page + second_page == events
    assert await jobs.newest_exceptions(connection, [record.run.id]) == {
        record.run.id: ((_at(-30), "lost a TaskManager"),)
    }


async def test_a_restart_event_names_the_exception_before_it_and_a_restart_without_one_names_none(
    writer, target, connection
):
    before, lost = (_at(2), "count: OutOfMemoryError: heap\n  at Heap.java"), (_at(4), "TaskManager lost")
    polls = [
        (0, replace(job(), restart_count=0)),
        # The collector already sees this exception while the job is restarting.
        (3, replace(job(), restart_count=0, exceptions=(before,))),
        (5, replace(job(), restart_count=1, exceptions=(before, lost))),
        (9, replace(job(), restart_count=2, exceptions=(before, lost))),
    ]
    for seconds, seen in [*polls, polls[-1]]:
        await writer.write(observation(target, seen, at=_at(seconds)))

    events = await jobs.list_events(connection, (await _only_job(connection)).id, before=None, limit=9)

    assert [(e.at, e.text) for e in events if e.kind == "restarted"] == [
        (_at(9), "restart 2 of this run"),
        (_at(5), "restart 1 of this run: TaskManager lost"),
    ]


async def test_a_new_run_with_another_parallelism_has_a_rescaled_event(writer, target, connection):
    rescaled = Topology((Vertex(SOURCE, "Source: orders", 8, 128), *made.TOPOLOGY.vertices[1:]), made.TOPOLOGY.edges)
    await writer.write(observation(target, job()))
    again = replace(restarted(job(), started_at=_at(60)), topology=rescaled)
    await writer.write(observation(target, again, at=_at(62)))

    events = await jobs.list_events(connection, (await _only_job(connection)).id, before=None, limit=9)

    assert [(e.kind, e.text) for e in events if e.kind == "rescaled"] == [
        ("rescaled", "parallelism Source: orders: 3 -> 8")
    ]


# --- targets -------------------------------------------------------------------------------------------------------


async def test_targets_are_added_changed_removed_and_added_again(engine):
    targets = TargetRepository(engine)
    new = NewTarget("http://a:8081", "a", TargetOrigin.API, labels={"team": "x"})
    added = await targets.add(new, at=NOW)
    changed = await targets.change(added.id, name="b", labels={}, is_enabled=False)

    assert (added.state, added.labels, added.cost) == ("pending", {"team": "x"}, None)
    assert (changed.name, changed.labels, changed.state) == ("b", {}, "paused")

    await targets.remove(added.id, at=NOW)
    with pytest.raises(UnknownEntityError):
        await targets.get(added.id)
    with pytest.raises(UnknownEntityError):
        await targets.remove(added.id, at=NOW)
    with pytest.raises(UnknownEntityError):
        await targets.change(added.id, name="c")

    revived = await targets.add(new, at=_at(9))
    assert (revived.id, revived.is_enabled, revived.added_at) == (added.id, True, _at(9))
    assert [t.id for t in await targets.list_all()] == [added.id]
