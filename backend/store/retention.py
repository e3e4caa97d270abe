"""Keeps the store within its limits: removes old arrays, drops whole days, and deletes rows that no longer have a use.

A day of data passes through these stages. Today it is whole; of the backpressure readings older than an hour, only
the first in each minute stays. When the day is older than the limit for arrays, ``downsampling`` removes the arrays
of its healthy checkpoints. When it is older than the age limit that a rule sets for targets with a certain label, the
runs on these targets are removed. When it is older than every limit, its partitions are dropped.

If the store is larger than its size limit, arrays are removed from the oldest days first, and days are dropped only
if that does not suffice. Today and later days are never changed for size, so the store can exceed its limit within a
day.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

import structlog
from sqlalchemy import delete, exists, func, select, text
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.domain.errors import StoreUnavailableError
from backend.domain.observation import JobEventKind
from backend.store.alerts.episodes import drop_ended_before
from backend.store.downsampling import NO_RULE, Removed, remove_from_day, sweep_drafts
from backend.store.postgres.connections import is_lock_refused, writing
from backend.store.rewriting import drop_statements
from backend.store.schema import tables, watch_tables
from backend.store.schema.choice_tables import choice_claims, setting_choices
from backend.store.schema.partitions import (
    PARTITION_LOCK_KEY,
    Partitions,
    Retention,
    day_of,
    list_partitions,
    size_of_other_tables,
)
from backend.store.stored_days import StoredDay, days_of, read_forecast

_log = structlog.get_logger(__name__)

# The progress of a checkpoint is useful while the checkpoint is open and for some time afterwards, so it is stored
# for a day.
_LIVE_KEPT = timedelta(days=1)
_KINDS_OF_DAYS = (JobEventKind.EXCEPTION, JobEventKind.ROWS_LOST, JobEventKind.POD_ENDED, JobEventKind.RESTORED)
_EVENTS_OF_DAYS = tuple(kind.value for kind in _KINDS_OF_DAYS)
_PRESSURE_WHOLE = timedelta(hours=1)
_PRESSURE_THINNED = timedelta(hours=3)
# A drop that waits for its lock blocks all new readers. So it waits only briefly, and the next pass tries again.
_DROP_LOCK_TIMEOUT = "2s"


@dataclass(frozen=True, slots=True)
class DayStep:
    """One change that retention makes to a day. ``removed`` is None if the day is dropped."""

    day: date
    removed: Removed | None


@dataclass(frozen=True, slots=True)
class RetentionReport:
    """What one pass of retention did: the dropped days, the down-sampled days, and the number of dropped runs."""

    days: tuple[date, ...] = ()
    runs: int = 0
    downsampled: tuple[date, ...] = ()
    is_blocked: bool = False
    """Whether a day was left for the next pass, because a query or another process used it."""


async def apply_retention(engine: AsyncEngine, retention: Retention, now: datetime) -> RetentionReport:
    """Create partitions ahead, bring each day to its stage, and delete rows that depend on dropped days.

    Call it once an hour. A day that a query reads meanwhile is left for the next pass.

    Raises:
        StoreUnavailableError: PostgreSQL is unreachable.
    """
    await Partitions(engine).ensure_ahead(now)
    steps: list[DayStep] = []
    is_blocked = False
    others_bytes = await size_of_other_tables(engine)
    while (step := next_step(days_of(await list_partitions(engine)), others_bytes, retention, now)) is not None:
        if step in steps or not await _take(engine, step, retention):
            is_blocked = True
            _log.warning("a day is left for the next pass: a long query or another process uses it", day=str(step.day))
            break
        steps.append(step)
    if not is_blocked:
        # No day needs to be rewritten now. So an unfinished rewrite was begun under other limits, and is removed.
        for draft in await sweep_drafts(engine):
            _log.info("an abandoned rewrite was removed", table=draft.table, day=str(draft.day))
    runs = await _tidy(engine, retention, now)
    await _warn(engine, retention, now)
    dropped = tuple(s.day for s in steps if s.removed is None)
    downsampled = tuple(s.day for s in steps if s.removed is not None)
    if dropped:
        _log.info("days dropped", days=[str(d) for d in dropped])
    if downsampled:
        _log.info("days down-sampled", days=[str(d) for d in downsampled])
    return RetentionReport(dropped, runs, downsampled, is_blocked)


def next_step(days: Sequence[StoredDay], others_bytes: int, retention: Retention, now: datetime) -> DayStep | None:
    """Return the next change that the limits require, or None if there is none.

    ``days`` are sorted, oldest first. ``others_bytes`` is the size of everything that belongs to no day.
    """
    for found in days:
        if found.day < retention.oldest_day(now):
            return DayStep(found.day, None)
    for found in days:
        wanted = found.removed | _removed_for_age(found.day, retention, now)
        if wanted != found.removed:
            return DayStep(found.day, wanted)
    past = [d for d in days if d.day < day_of(now)]
    if not past or others_bytes + sum(d.size_bytes for d in days) <= retention.max_size_bytes:
        return None
    whole = next((d for d in past if not d.removed.arrays), None)
    if whole is not None:
        return DayStep(whole.day, Removed(arrays=True) | whole.removed)
    return DayStep(past[0].day, None)


def _removed_for_age(day: date, retention: Retention, now: datetime) -> Removed:
    ages = [(str(rule), rule.max_age) for rule in retention.rules] + [(NO_RULE, retention.max_age)]
    return Removed(
        arrays=day < day_of(now - retention.arrays_max_age),
        expired=frozenset(name for name, age in ages if day < day_of(now - age)),
    )


async def _warn(engine: AsyncEngine, retention: Retention, now: datetime) -> None:
    """Log a warning if the size limit will drop days before they reach their age limit."""
    expected = await read_forecast(engine, retention, now)
    if expected.is_short and expected.held_days is not None and expected.needed_bytes is not None:
        _log.warning(
            "the size limit holds fewer days than the age limit promises",
            held_days=round(expected.held_days, 1),
            promised_days=expected.promised_days,
            size_limit_mib=expected.size_limit_bytes // 2**20,
            needed_mib=-(-expected.needed_bytes // 2**20),
        )


async def _take(engine: AsyncEngine, step: DayStep, retention: Retention) -> bool:
    """Make one change. Return False if a lock was not granted in time."""
    if step.removed is None:
        return await _drop_day(engine, step.day)
    return await remove_from_day(engine, step.day, step.removed, retention)


async def _drop_day(engine: AsyncEngine, day: date) -> bool:
    """Drop the partitions of ``day``. Return False if a lock was not granted in time."""
    for table in tables.PARTITIONED:
        # Each partition is dropped in its own transaction. A drop locks the parent table exclusively, and two such
        # locks in one transaction could deadlock.
        try:
            async with writing(engine) as connection:
                await connection.execute(select(func.pg_advisory_xact_lock(PARTITION_LOCK_KEY)))
                await connection.execute(text(f"SET LOCAL lock_timeout = '{_DROP_LOCK_TIMEOUT}'"))
                for statement in drop_statements(table, day):
                    await connection.exec_driver_sql(statement)
        except StoreUnavailableError as error:
            if is_lock_refused(error):
                return False
            raise
    return True


async def _tidy(engine: AsyncEngine, retention: Retention, now: datetime) -> int:
    # ``oldest`` is the first instant of the oldest day that stays, so the rows for that day's checkpoints stay too.
    oldest = datetime.combine(retention.oldest_day(now), time.min, UTC)
    live, rollups_from = now - _LIVE_KEPT, now - max(retention.longest_age, retention.rollups_max_age)
    version, newer = tables.run_versions, tables.run_versions.alias()
    is_replaced = exists().where(
        newer.c.run_id == version.c.run_id,
        newer.c.kind == version.c.kind,
        newer.c.since > version.c.since,
        newer.c.since < oldest,
    )
    event, note = tables.job_events, tables.job_annotations
    statements = (
        delete(tables.progress_points).where(tables.progress_points.c.observed_at < live),
        delete(tables.live_progress).where(tables.live_progress.c.observed_at < live),
        delete(tables.late_barriers).where(tables.late_barriers.c.seen_at < oldest),
        delete(tables.verdicts).where(tables.verdicts.c.triggered_on < oldest.date()),
        *(
            delete(table).where(~exists().where(tables.runs.c.id == table.c.run_id))
            for table in (tables.findings, setting_choices, choice_claims, tables.verdicts)
        ),
        delete(event).where(event.c.at < oldest, event.c.kind.in_(_EVENTS_OF_DAYS)),
        delete(version).where(version.c.since < oldest, is_replaced),
        # Annotations are shown together with hourly values, so they are kept as long as these.
        delete(note).where(func.coalesce(note.c.until, note.c.at) < rollups_from),
        *(
            delete(table).where(table.c.noted_at < rollups_from)
            for table in (watch_tables.cluster_states, watch_tables.cluster_happenings)
        ),
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


# This is SQL text because it needs a window function over the rows that it deletes. The days are bound for both uses
# of the table, so that PostgreSQL can skip partitions.
_THIN_PRESSURE = text(
    "DELETE FROM pressure p USING (SELECT run_id, vertex_id, observed_on, observed_at, row_number() OVER"
    " (PARTITION BY run_id, vertex_id, date_trunc('minute', observed_at) ORDER BY observed_at) AS number"
    " FROM pressure WHERE observed_at >= :since AND observed_at < :until AND observed_on BETWEEN :first AND :last) q"
    " WHERE q.number > 1 AND p.run_id = q.run_id AND p.vertex_id = q.vertex_id AND p.observed_at = q.observed_at"
    " AND p.observed_on = q.observed_on AND p.observed_on BETWEEN :first AND :last"
)


async def _thin_pressure(engine: AsyncEngine, now: datetime) -> None:
    # Of the readings between ``since`` and ``until``, only the first in each minute stays. Earlier passes have
    # thinned the readings before ``since``.
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
