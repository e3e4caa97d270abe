"""What is dropped, and when: whole days by age or by total size, and what belongs to no kept day any more.

Retention drops partitions, never single checkpoints. By size the oldest day goes first; today and what lies ahead is
never dropped, so a store can exceed its size within one day. Readings older than an hour are thinned.
"""

# ruff: noqa: S608  names of partitions and numbers of this module are put into statements; values are bound.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

import structlog
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.store.engine import writing
from backend.store.partitions import (
    PARTITION_LOCK_KEY,
    Partitions,
    PartitionSize,
    Retention,
    day_of,
    list_partitions,
    partition_name,
)
from backend.store.tables import PARTITIONED

_log = structlog.get_logger(__name__)

# What is seen of open checkpoints is of use while they are open, and a while after.
_LIVE_KEPT = timedelta(days=1)
_PRESSURE_WHOLE = timedelta(hours=1)
_PRESSURE_EVERY_S = 60


@dataclass(frozen=True, slots=True)
class RetentionReport:
    """What one pass dropped."""

    days: tuple[date, ...] = ()
    runs: int = 0


async def apply_retention(engine: AsyncEngine, retention: Retention, now: datetime) -> RetentionReport:
    """Make partitions ahead, drop what is too old or too much, and tidy what hangs on it."""
    await Partitions(engine).ensure_ahead(now)
    days = days_to_drop(await list_partitions(engine), retention, now)
    for day in days:
        await _drop_day(engine, day)
    runs = await _tidy(engine, retention, now)
    if days:
        _log.info("days dropped", days=[str(d) for d in days])
    return RetentionReport(tuple(days), runs)


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


async def _drop_day(engine: AsyncEngine, day: date) -> None:
    for table in PARTITIONED:
        # Each in a transaction of its own: it locks its parent against everyone, so never two parents at once.
        async with writing(engine) as connection:
            await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": PARTITION_LOCK_KEY})
            await connection.execute(text(f"DROP TABLE IF EXISTS {partition_name(table, day)}"))


async def _tidy(engine: AsyncEngine, retention: Retention, now: datetime) -> int:
    oldest = now - retention.max_age
    statements = (
        ("DELETE FROM progress_points WHERE observed_at < :at", now - _LIVE_KEPT),
        ("DELETE FROM live_progress WHERE observed_at < :at", now - _LIVE_KEPT),
        ("DELETE FROM late_barriers WHERE seen_at < :at", oldest),
        ("DELETE FROM job_events WHERE at < :at AND kind = 'exception'", oldest),
        (
            "DELETE FROM run_versions v WHERE v.since < :at AND EXISTS (SELECT 1 FROM run_versions n WHERE"
            " n.run_id = v.run_id AND n.kind = v.kind AND n.since > v.since AND n.since < :at)",
            oldest,
        ),
        # Of the older readings the first of each minute stays.
        (
            "DELETE FROM pressure p USING pressure q WHERE p.observed_at < :at AND q.run_id = p.run_id"
            " AND q.vertex_id = p.vertex_id AND q.observed_on = p.observed_on AND q.observed_at < p.observed_at"
            f" AND floor(extract(epoch FROM q.observed_at) / {_PRESSURE_EVERY_S})"
            f" = floor(extract(epoch FROM p.observed_at) / {_PRESSURE_EVERY_S})"
            " AND q.observed_at >= p.observed_at - make_interval(secs => :every)"
            " AND p.observed_at >= :newest_thinned",
            now - _PRESSURE_WHOLE,
        ),
    )
    for statement, at in statements:
        values: dict[str, object] = {"at": at}
        if ":every" in statement:
            # A pass an hour at least: what is older was thinned before.
            values |= {"every": _PRESSURE_EVERY_S, "newest_thinned": at - 3 * _PRESSURE_WHOLE}
        async with writing(engine) as connection:
            await connection.execute(text(statement), values)
    return await _drop_runs(engine, oldest)


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
