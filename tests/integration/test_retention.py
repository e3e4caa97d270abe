"""Retention drops old days as whole partitions. It preserves all that stored checkpoints and open readers need."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text

from backend.domain.observation import JobState
from backend.store import downsampling
from backend.store import retention as retention_module
from backend.store.ingest import IngestWriter
from backend.store.postgres.connections import reading, session
from backend.store.retention import apply_retention
from backend.store.schema.partitions import (
    DAYS_AHEAD,
    Partitions,
    Retention,
    day_of,
    list_partitions,
    size_of_other_tables,
)
from backend.store.schema.tables import PARTITIONED
from tests.support import observations as made
from tests.support.observations import NOW, SINK, completed, job, observation, restarted

pytestmark = pytest.mark.anyio
_WEEK = Retention()
_DAY = timedelta(days=1)


def _seen(checkpoint_id, at):
    """Return a job with a checkpoint triggered at ``at``, and with a row in every table that belongs to it."""
    return replace(
        job([completed(checkpoint_id, triggered_at=at)]),
        progress=(made.progress(checkpoint_id, 4, at + timedelta(seconds=1)),),
        pressure=(made.pressure(SINK, at),),
        barriers=((checkpoint_id, made.barrier_events(4)),),
        exceptions=((at, f"exception of {checkpoint_id}"),),
    )


async def _write_days(writer, target, clock, days):
    """Write one checkpoint for each of ``days``, which are numbers of days before ``NOW``.

    It is triggered one minute before noon of that day, and its id is the number of days.
    """
    for age in sorted(days, reverse=True):
        clock.at = NOW - age * _DAY
        await writer.write(observation(target, _seen(age, clock.at - timedelta(minutes=1)), at=clock.at))
    clock.at = NOW


async def _one(engine, query):
    async with engine.connect() as connection:
        return (await connection.execute(text(query))).scalar_one()


async def _ids(engine, table, column="checkpoint_id"):
    async with engine.connect() as connection:
        return sorted((await connection.execute(text(f"SELECT DISTINCT {column} FROM {table}"))).scalars())


async def test_partitions_for_today_and_the_next_days_have_every_index_of_their_table(engine):
    await apply_retention(engine, _WEEK, NOW)

    found = await list_partitions(engine)
    assert {p.day for p in found} == {day_of(NOW) + n * _DAY for n in range(DAYS_AHEAD + 1)}
    assert len(found) == len(PARTITIONED) * (DAYS_AHEAD + 1)
    indexes = "SELECT count(*) FROM pg_index WHERE indrelid = '{}'::regclass"
    for table in PARTITIONED:
        own = await _one(engine, indexes.format(table))
        assert await _one(engine, indexes.format(f"{table}_p{NOW:%Y%m%d}")) == own


async def test_days_older_than_the_limit_are_dropped_with_all_their_rows(writer, target, clock, engine):
    await _write_days(writer, target, clock, (0, 3, 7))
    clock.at = NOW + timedelta(hours=23)

    report = await apply_retention(engine, _WEEK, clock.at)

    assert report.days == (day_of(NOW - 7 * _DAY),)
    for table in ("checkpoints", "checkpoint_details", "barrier_events", "late_barriers"):
        assert await _ids(engine, table) == [0, 3], table
    assert await _ids(engine, "job_events", "text") == [
        "exception of 0",
        "exception of 3",
        f"orders started as {'a' * 32}",
    ]
    assert await _ids(engine, "pressure", "observed_on") == [day_of(NOW - 3 * _DAY), day_of(NOW)]
    assert await _ids(engine, "live_progress") == [0]
    assert (await apply_retention(engine, _WEEK, clock.at)).days == ()


async def test_all_rows_of_the_oldest_kept_day_stay_until_the_day_is_dropped(writer, target, clock, engine):
    await _write_days(writer, target, clock, (7,))

    # The checkpoint is now older than seven days, but later hours of its day are not, so the partition of this day
    # stays.
    await apply_retention(engine, _WEEK, NOW + timedelta(hours=11))

    for table in ("checkpoints", "checkpoint_details", "barrier_events", "late_barriers"):
        assert await _ids(engine, table) == [7], table


async def test_the_size_limit_drops_the_oldest_days_first_and_never_today(writer, target, clock, engine):
    await _write_days(writer, target, clock, (0, 1, 2, 3))
    await apply_retention(engine, _WEEK, NOW)
    size_bytes = sum(p.size_bytes for p in await list_partitions(engine)) + await size_of_other_tables(engine)

    report = await apply_retention(engine, Retention(max_size_bytes=size_bytes + 2**20), NOW)
    assert report.days == ()
    report = await apply_retention(engine, Retention(max_size_bytes=1), NOW)

    assert report.days == tuple(day_of(NOW - n * _DAY) for n in (3, 2, 1))
    assert await _ids(engine, "checkpoints") == [0]


async def test_a_server_that_ends_closed_sessions_late_blocks_no_day(writer, target, clock, engine, monkeypatch):
    await _write_days(writer, target, clock, (0, 1, 2, 3))
    opened = []

    @asynccontextmanager
    async def ended_late(engine_, **more):
        async with AsyncExitStack() as stack:
            connection = await stack.enter_async_context(session(engine_, **more))
            yield connection
            opened.append(stack.pop_all())

    monkeypatch.setattr(downsampling, "session", ended_late)

    report = await apply_retention(engine, Retention(max_size_bytes=1), NOW)

    for stack in opened:
        await stack.aclose()
    assert len(opened) > 1
    assert (report.is_blocked, report.days) == (False, tuple(day_of(NOW - n * _DAY) for n in (3, 2, 1)))


async def test_graph_and_settings_of_the_oldest_kept_checkpoint_stay(writer, target, clock, engine):
    for age in (20, 10, 5):
        clock.at = NOW - age * _DAY
        config = replace(made.CONFIG, interval_ms=1000 * age)
        seen = replace(job([completed(age, triggered_at=clock.at)]), config=config)
        await writer.write(observation(target, replace(seen, started_at=NOW - 30 * _DAY), at=clock.at))

    await apply_retention(engine, _WEEK, NOW)

    kept = "SELECT array_agg(document -> 'interval_ms' ORDER BY since)::text FROM run_versions WHERE kind = 'config'"
    assert await _one(engine, kept) == "{10000,5000}"


async def test_runs_and_jobs_without_kept_checkpoints_are_dropped(writer, target, clock, engine):
    old = NOW - 20 * _DAY
    clock.at = old
    gone = replace(job([completed(1, triggered_at=old)], name="gone", run="g"), state=JobState.ENDED, started_at=old)
    early = replace(job([completed(1, triggered_at=old)]), started_at=old, state=JobState.ENDED)
    await writer.write(observation(target, gone, early, at=old))
    clock.at = NOW
    await writer.write(observation(target, replace(restarted(early, started_at=NOW), state=JobState.RUNNING)))

    report = await apply_retention(engine, _WEEK, NOW)

    assert report.runs == 2
    assert await _ids(engine, "jobs", "name") == ["orders"]
    assert await _one(engine, "SELECT count(*) FROM runs") == 1
    assert await _one(engine, "SELECT count(*) FROM targets") == 1


async def test_a_day_with_an_open_reader_is_left_for_the_next_pass(writer, target, clock, engine, monkeypatch):
    await _write_days(writer, target, clock, (0, 7))
    monkeypatch.setattr(retention_module, "_DROP_LOCK_TIMEOUT", "50ms")
    later = NOW + _DAY
    async with reading(engine) as connection:
        query = text("SELECT count(*) FROM checkpoints")
        assert (await connection.execute(query)).scalar_one() == 2

        assert (await apply_retention(engine, _WEEK, later)).days == ()
        assert (await connection.execute(query)).scalar_one() == 2
        assert len((await connection.execute(text("SELECT * FROM checkpoint_details"))).all()) == 4

    assert (await apply_retention(engine, _WEEK, later)).days == (day_of(NOW - 7 * _DAY),)


async def test_creating_partitions_does_not_wait_for_readers_or_writers(engine):
    partitions = Partitions(engine)
    await partitions.ensure([day_of(NOW)])
    async with reading(engine) as connection, engine.begin() as busy:
        await connection.execute(text("SELECT count(*) FROM checkpoints"))
        await busy.execute(text("DELETE FROM checkpoints"))
        # The lock timeout is 10 s. Both transactions stay open until this block ends.
        async with asyncio.timeout(8):
            await partitions.ensure([day_of(NOW + _DAY)])


async def test_a_writer_creates_a_dropped_partition_again(writer, target, engine):
    await writer.write(observation(target, job([completed(1)])))
    await apply_retention(engine, Retention(max_age=timedelta(0), max_size_bytes=1), NOW + 2 * _DAY)
    assert await _one(engine, "SELECT count(*) FROM checkpoints") == 0

    again = await writer.write(observation(target, job([completed(2)]), at=NOW + timedelta(seconds=1)))

    assert again.new_count == 1


async def test_readings_older_than_an_hour_are_thinned_to_one_a_minute(writer, target, engine):
    start = NOW - timedelta(hours=1, minutes=10)
    instants = [start + timedelta(seconds=2 * n) for n in range(60 * 35)]
    seen = replace(job(), pressure=tuple(made.pressure(SINK, at) for at in instants))
    await writer.write(observation(target, seen))

    for _ in range(2):
        await apply_retention(engine, _WEEK, NOW)

    kept = await _ids(engine, "pressure", "observed_at")
    edge = NOW - timedelta(hours=1)
    assert [at for at in kept if at < edge] == [start + timedelta(minutes=n) for n in range(10)]
    assert [at for at in kept if at >= edge] == [at for at in instants if at >= edge]


async def test_retention_and_concurrent_writers_do_not_disturb_each_other(engine, target, clock):
    writer = IngestWriter(engine, clock=clock)
    async with asyncio.TaskGroup() as group:
        for number in range(12):
            at = NOW - (number % 6) * _DAY
            seen = job([completed(number, triggered_at=at)])
            poll = observation(target, seen, at=NOW + timedelta(seconds=number))
            group.create_task(writer.write(poll))
        for _ in range(3):
            group.create_task(apply_retention(engine, Retention(max_size_bytes=2**31), NOW))

    assert await _ids(engine, "checkpoints") == list(range(12))
