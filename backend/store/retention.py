"""Retention: drops whole days by age or total size, and deletes rows that belong to no kept day.

Retention drops partitions, never single checkpoints. For size, the oldest day goes first. Today and later days are
never dropped for size, so a store can exceed its size within one day. Readings older than an hour are thinned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

import structlog
from psycopg.errors import LockNotAvailable
from sqlalchemy import delete, exc, exists, text
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.domain.errors import StoreUnavailableError
from backend.domain.observation import JobEventKind
from backend.store.alerts.episodes import drop_ended_before
from backend.store.postgres.connections import writing
from backend.store.schema import tables
from backend.store.schema.partitions import (
    PARTITION_LOCK_KEY,
    Partitions,
    PartitionSize,
    Retention,
    day_of,
    list_partitions,
    partition_name,
)

_log = structlog.get_logger(__name__)

# Live readings are useful while a checkpoint is open, and for some time after.
_LIVE_KEPT = timedelta(days=1)
_PRESSURE_WHOLE = timedelta(hours=1)
_PRESSURE_THINNED = timedelta(hours=3)
# Dropping waits only briefly, else the next pass tries again: a waiting drop blocks all new readers.
_DROP_LOCK_TIMEOUT = "2s"


@dataclass(frozen=True, slots=True)
class RetentionReport:
    """The days and the number of runs that one pass dropped."""

    days: tuple[date, ...] = ()
    runs: int = 0


async def apply_retention(engine: AsyncEngine, retention: Retention, now: datetime) -> RetentionReport:
    """Create partitions ahead, drop days beyond age or size, and delete dependent rows. Meant for once an hour.

    Days that a query reads meanwhile are left for the next pass.

    Raises:
        StoreUnavailableError: PostgreSQL is unreachable.

    """
    await Partitions(engine).ensure_ahead(now)
    days = days_to_drop(await list_partitions(engine), retention, now)
    dropped: list[date] = []
    for day in days:
        if not await _drop_day(engine, day):
            _log.warning("days not dropped yet: a long query reads them", days=[str(d) for d in days[len(dropped) :]])
            break
        dropped.append(day)
    runs = await _tidy(engine, retention, now)
    if dropped:
        _log.info("days dropped", days=[str(d) for d in dropped])
    return RetentionReport(tuple(dropped), runs)


def days_to_drop(partitions: Sequence[PartitionSize], retention: Retention, now: datetime) -> list[date]:
    """Return the days to drop, oldest first: those too old, then as many of the oldest as the size requires."""
    sizes: dict[date, int] = {}
    for partition in partitions:
        sizes[partition.day] = sizes.get(partition.day, 0) + partition.size_bytes
    total = sum(sizes.values())
    dropped: list[date] = []
    for day in sorted(sizes):
        is_old = day < retention.oldest_day(now)
        if not is_old and (total <= retention.max_size_bytes or day >= day_of(now)):
            break
        dropped.append(day)
        total -= sizes[day]
    return dropped


async def _drop_day(engine: AsyncEngine, day: date) -> bool:
    """Drop the partitions of ``day``; return False if the lock on one was not granted in time."""
    for table in tables.PARTITIONED:
        # One transaction each: a drop locks its parent table exclusively, and two such locks at once could deadlock.
        try:
            async with writing(engine) as connection:
                await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": PARTITION_LOCK_KEY})
                await connection.execute(text(f"SET LOCAL lock_timeout = '{_DROP_LOCK_TIMEOUT}'"))
                await connection.execute(text(f"DROP TABLE IF EXISTS {partition_name(table, day)}"))
        except StoreUnavailableError as error:
            if _is_lock_timeout(error):
                return False
            raise
    return True


def _is_lock_timeout(error: StoreUnavailableError) -> bool:
    return isinstance(error.__cause__, exc.OperationalError) and isinstance(error.__cause__.orig, LockNotAvailable)


async def _tidy(engine: AsyncEngine, retention: Retention, now: datetime) -> int:
    # The first instant of the oldest kept day: rows that belong to that day's checkpoints stay.
    oldest = datetime.combine(retention.oldest_day(now), time.min, UTC)
    live, rollups_from = now - _LIVE_KEPT, now - max(retention.max_age, retention.rollups_max_age)
    version, newer = tables.run_versions, tables.run_versions.alias()
    is_replaced = exists().where(
        newer.c.run_id == version.c.run_id,
        newer.c.kind == version.c.kind,
        newer.c.since > version.c.since,
        newer.c.since < oldest,
    )
    event = tables.job_events
    statements = (
        delete(tables.progress_points).where(tables.progress_points.c.observed_at < live),
        delete(tables.live_progress).where(tables.live_progress.c.observed_at < live),
        delete(tables.late_barriers).where(tables.late_barriers.c.seen_at < oldest),
        delete(event).where(event.c.at < oldest, event.c.kind == JobEventKind.EXCEPTION.value),
        delete(version).where(version.c.since < oldest, is_replaced),
        *(
            delete(table).where(table.c.hour < rollups_from)
            for table in (tables.rollups, tables.rollup_measures, tables.rollup_hours)
        ),
    )
    for statement in statements:
        async with writing(engine) as connection:
            await connection.execute(statement)
    async with writing(engine) as connection:
        await drop_ended_before(connection, oldest)
    await _thin_pressure(engine, now)
    return await _drop_runs(engine, oldest)


# Text: a window over the rows that the same statement deletes. The days are bound twice to skip partitions.
_THIN_PRESSURE = text(
    "DELETE FROM pressure p USING (SELECT run_id, vertex_id, observed_on, observed_at, row_number() OVER"
    " (PARTITION BY run_id, vertex_id, date_trunc('minute', observed_at) ORDER BY observed_at) AS number"
    " FROM pressure WHERE observed_at >= :since AND observed_at < :until AND observed_on BETWEEN :first AND :last) q"
    " WHERE q.number > 1 AND p.run_id = q.run_id AND p.vertex_id = q.vertex_id AND p.observed_at = q.observed_at"
    " AND p.observed_on = q.observed_on AND p.observed_on BETWEEN :first AND :last"
)


async def _thin_pressure(engine: AsyncEngine, now: datetime) -> None:
    # Of older readings only the first in each minute stays. Earlier passes thinned those before the window.
    until = (now - _PRESSURE_WHOLE).replace(second=0, microsecond=0)
    since = until - _PRESSURE_THINNED
    values = {"since": since, "until": until, "first": day_of(since), "last": day_of(until)}
    async with writing(engine) as connection:
        await connection.execute(_THIN_PRESSURE, values)


async def _drop_runs(engine: AsyncEngine, oldest: datetime) -> int:
    run, job, target, checkpoint = tables.runs.c, tables.jobs.c, tables.targets.c, tables.checkpoints.c
    has_checkpoints = exists().where(checkpoint.job_id == run.job_id, checkpoint.run_id == run.id)
    async with writing(engine) as connection:
        gone = await connection.execute(delete(tables.runs).where(run.observed_at < oldest, ~has_checkpoints))
        await connection.execute(delete(tables.jobs).where(~exists().where(run.job_id == job.id)))
        await connection.execute(
            delete(tables.targets).where(target.removed_at < oldest, ~exists().where(run.target_id == target.id))
        )
        return gone.rowcount
