"""What is dropped, and when: whole days by age or by total size, and what belongs to no kept day any more.

Retention drops partitions, never single checkpoints. By size the oldest day goes first; today and what lies ahead is
never dropped, so a store can exceed its size within one day. Readings older than an hour are thinned.
"""

# ruff: noqa: S608  names of partitions and numbers of this module are put into statements; values are bound.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

import structlog
from psycopg.errors import LockNotAvailable
from sqlalchemy import exc, text
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.domain.errors import StoreUnavailableError
from backend.store.alerts.episodes import drop_ended_before
from backend.store.postgres.connections import writing
from backend.store.schema.partitions import (
    PARTITION_LOCK_KEY,
    Partitions,
    PartitionSize,
    Retention,
    day_of,
    list_partitions,
    partition_name,
)
from backend.store.schema.tables import PARTITIONED

_log = structlog.get_logger(__name__)

# What is seen of open checkpoints is of use while they are open, and a while after.
_LIVE_KEPT = timedelta(days=1)
_PRESSURE_WHOLE = timedelta(hours=1)
_PRESSURE_THINNED = timedelta(hours=3)
# A partition is dropped between two queries, or at the next pass: who waits for its lock holds up all new readers.
_DROP_LOCK_TIMEOUT = "2s"


@dataclass(frozen=True, slots=True)
class RetentionReport:
    """What one pass dropped."""

    days: tuple[date, ...] = ()
    runs: int = 0


async def apply_retention(engine: AsyncEngine, retention: Retention, now: datetime) -> RetentionReport:
    """Make partitions ahead, drop what is too old or too much, and tidy what hangs on it. For once an hour.

    Days that somebody reads meanwhile are left for the next pass.

    Raises:
        StoreUnavailableError: PostgreSQL is away.

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
    """The days that go, oldest first: those too old, then as many of the oldest as the size demands."""
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
    """Drop the partitions of ``day``; False where one is in use for longer than the wait for its lock."""
    for table in PARTITIONED:
        # Each in a transaction of its own: it locks its parent against everyone, so never two parents at once.
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
    # From the first instant of the oldest day that is kept on: what hangs on its checkpoints stays with them.
    oldest = datetime.combine(retention.oldest_day(now), time.min, UTC)
    statements: tuple[tuple[str, datetime], ...] = (
        ("DELETE FROM progress_points WHERE observed_at < :at", now - _LIVE_KEPT),
        ("DELETE FROM live_progress WHERE observed_at < :at", now - _LIVE_KEPT),
        ("DELETE FROM late_barriers WHERE seen_at < :at", oldest),
        ("DELETE FROM job_events WHERE at < :at AND kind = 'exception'", oldest),
        (
            "DELETE FROM run_versions v WHERE v.since < :at AND EXISTS (SELECT 1 FROM run_versions n WHERE"
            " n.run_id = v.run_id AND n.kind = v.kind AND n.since > v.since AND n.since < :at)",
            oldest,
        ),
    )
    oldest_rollup = now - max(retention.max_age, retention.rollups_max_age)
    statements += tuple(
        (f"DELETE FROM {table} WHERE hour < :at", oldest_rollup)
        for table in ("rollups", "rollup_measures", "rollup_hours")
    )
    for statement, at in statements:
        async with writing(engine) as connection:
            await connection.execute(text(statement), {"at": at})
    async with writing(engine) as connection:
        await drop_ended_before(connection, oldest)
    await _thin_pressure(engine, now)
    return await _drop_runs(engine, oldest)


async def _thin_pressure(engine: AsyncEngine, now: datetime) -> None:
    # Of older readings the first of each minute stays. What is older than the window was thinned by earlier passes.
    until = (now - _PRESSURE_WHOLE).replace(second=0, microsecond=0)
    since = until - _PRESSURE_THINNED
    in_days = "observed_on BETWEEN CAST(:since AS timestamptz)::date AND CAST(:until AS timestamptz)::date"
    statement = text(
        "DELETE FROM pressure p USING (SELECT run_id, vertex_id, observed_on, observed_at, row_number() OVER"
        " (PARTITION BY run_id, vertex_id, date_trunc('minute', observed_at) ORDER BY observed_at) AS number"
        f" FROM pressure WHERE observed_at >= :since AND observed_at < :until AND {in_days}) q"
        " WHERE q.number > 1 AND p.run_id = q.run_id AND p.vertex_id = q.vertex_id AND p.observed_at = q.observed_at"
        f" AND p.observed_on = q.observed_on AND p.{in_days}"
    )
    async with writing(engine) as connection:
        await connection.execute(statement, {"since": since, "until": until})


async def _drop_runs(engine: AsyncEngine, oldest: datetime) -> int:
    async with writing(engine) as connection:
        gone = await connection.execute(
            text(
                "DELETE FROM runs r WHERE r.observed_at < :at"
                " AND NOT EXISTS (SELECT 1 FROM checkpoints c WHERE c.job_id = r.job_id AND c.run_id = r.id)"
            ),
            {"at": oldest},
        )
        await connection.execute(text("DELETE FROM jobs j WHERE NOT EXISTS (SELECT 1 FROM runs WHERE job_id = j.id)"))
        await connection.execute(
            text(
                "DELETE FROM targets t WHERE t.removed_at < :at"
                " AND NOT EXISTS (SELECT 1 FROM runs WHERE target_id = t.id)"
            ),
            {"at": oldest},
        )
        return gone.rowcount
