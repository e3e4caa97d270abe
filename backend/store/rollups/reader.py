"""Reads hourly rollups. Hours without a valid rollup are computed from their checkpoints, with the same results.

A rollup is valid only if it has certainly seen every transaction that wrote a checkpoint of its hour. All other hours
of a range are computed from the checkpoints. So pages are complete and current even if Spark does not run.
Definitions: ``domain.rollup``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    ARRAY,
    CTE,
    BigInteger,
    ColumnElement,
    Integer,
    RowMapping,
    Select,
    Text,
    all_,
    and_,
    any_,
    bindparam,
    case,
    cast,
    false,
    func,
    literal,
    literal_column,
    or_,
    select,
    true,
    union_all,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.analysis.health.failures import reasons_without_fault
from backend.analysis.numbers.log_buckets import BOUNDS, Buckets
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.failure import FailureReason
from backend.domain.rollup import DURATION_MAX_MS, HOUR, HourRollup, Measure, MeasureRollup, hour_of
from backend.store.postgres.statements import duration_after, one_of
from backend.store.schema import tables
from backend.store.schema.partitions import day_of
from backend.store.schema.rows import value_of

_FAR = datetime(2200, 1, 1, tzinfo=UTC)
_C = tables.checkpoints.c
# The constants are literals. With bound values, PostgreSQL would not recognise that the expression in GROUP BY equals
# the one in the column list.
_HOUR: ColumnElement[datetime] = func.date_trunc(
    literal_column("'hour'"), _C.triggered_at, literal_column("'UTC'"), type_=_C.triggered_at.type
)
_MOST_MS = literal_column(str(DURATION_MAX_MS), BigInteger)
# Not LEAST, which ignores NULL: a checkpoint without a duration would have ended after the longest one.
_COMPLETED_AT = duration_after(
    _C.triggered_at,
    case((_C.end_to_end_duration_ms > _MOST_MS, _MOST_MS), else_=_C.end_to_end_duration_ms),
)
_IS_COMPLETED = _C.status == literal_column(f"'{CheckpointStatus.COMPLETED.value}'")
_IS_FAILED = _C.status == literal_column(f"'{CheckpointStatus.FAILED.value}'")
_IS_EXPIRED = and_(
    _IS_FAILED, func.coalesce(_C.failure_reason, "") == literal_column(f"'{FailureReason.EXPIRED.value}'")
)
# Whether a job restarts is not known of an hour, so a suspended coordinator counts.
_NO_FAULT = literal(sorted(r.value for r in reasons_without_fault(has_restarts=True)), ARRAY(Text))
_IS_FAULT = and_(_IS_FAILED, func.coalesce(_C.failure_reason, "") != all_(_NO_FAULT))
_REASONS = func.jsonb_each_text(tables.rollups.c.failed_by_reason).table_valued("key", "value")
_WITHOUT_FAULT = case(
    (
        tables.rollups.c.failed_count > 0,
        select(func.coalesce(func.sum(cast(_REASONS.c.value, BigInteger)), 0))
        .where(_REASONS.c.key == any_(_NO_FAULT))
        .correlate(tables.rollups)
        .scalar_subquery(),
    ),
    else_=0,
)
"""How many of the failures of a rollup count against nobody. Spark and SQL store all failures of an hour by reason."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """A time range, split into the hours with valid rollups and the gaps (from, to) between them."""

    hours: tuple[datetime, ...]
    gaps: tuple[tuple[datetime, datetime], ...]


@dataclass(frozen=True, slots=True)
class CheckpointTotals:
    """The totals over one job's checkpoints in a range: counts, and the durations in buckets.

    ``failed_count`` leaves out failures that were aborted from outside, such as by a task that had just finished. The
    durations are those of completed and of expired checkpoints; ``expired_min_ms`` is the least of an expired one.
    """

    completed_count: int
    failed_count: int
    last_completed_at: datetime | None
    duration_buckets: Buckets
    expired_min_ms: int | None = None


async def cover(connection: AsyncConnection, since: datetime, until: datetime | None) -> Coverage:
    """Split the range from ``since`` to ``until`` into hours with valid rollups and gaps.

    The gaps must be read from the checkpoints. If ``until`` is None, the range has no end.
    """
    end = until or _FAR
    if end <= since:
        return Coverage((), ())
    hours = await _complete_hours(connection, since, end)
    gaps: list[tuple[datetime, datetime]] = []
    at = since
    for hour in hours:
        if at < hour:
            gaps.append((at, hour))
        at = hour + HOUR
    if at < end:
        gaps.append((at, end))
    return Coverage(tuple(hours), tuple(gaps))


async def totals_of(
    connection: AsyncConnection, job_ids: Sequence[str], since: datetime, until: datetime | None = None
) -> Mapping[str, CheckpointTotals]:
    """Return the totals of each job's checkpoints that were triggered in a range.

    A job without checkpoints in the range is absent.
    """
    covered = await cover(connection, since, until)
    values = {"jobs": list(job_ids), "hours": list(covered.hours)} | _gap_values(covered.gaps)
    found: dict[str, dict[int, int]] = {}
    expired: dict[str, int] = {}
    for job_id, bucket, number, expired_min in await connection.execute(_buckets(len(covered.gaps)), values):
        found.setdefault(job_id, {})[bucket] = number
        if expired_min is not None:
            expired[job_id] = min(expired_min, expired.get(job_id, expired_min))
    return {
        job_id: CheckpointTotals(completed, failed, last, found.get(job_id, {}), expired.get(job_id))
        for job_id, completed, failed, last in await connection.execute(_counts(len(covered.gaps)), values)
    }


# The queries depend only on the number of gaps, which has few different values. So each query is built once and
# cached.
def _tail(gap_count: int) -> CTE:
    """Return a CTE with the completed and failed checkpoints of jobs in the gaps, without savepoints."""
    return (
        select(
            _C.job_id,
            _C.status,
            _IS_FAULT.label("is_fault"),
            _IS_EXPIRED.label("is_expired"),
            _C.end_to_end_duration_ms.label("value"),
            case((_IS_COMPLETED, _COMPLETED_AT)).label("completed_at"),
        )
        .where(one_of(_C.job_id, "jobs"), _C.kind == "checkpoint", _C.status != "in-progress", _in_gaps(gap_count))
        .cte("tail")
        .prefix_with("MATERIALIZED")
    )


@lru_cache(maxsize=64)
def _counts(gap_count: int) -> Select[Any]:
    """Return the query that selects (job, completed count, failed count, last completion).

    It reads the rollups of the hours and the checkpoints in the gaps.
    """
    hourly, tail = tables.rollups.c, _tail(gap_count)
    parts = union_all(
        select(
            hourly.job_id,
            hourly.completed_count.label("completed"),
            (hourly.failed_count - _WITHOUT_FAULT).label("failed"),
            hourly.last_completed_at.label("last"),
        ).where(one_of(hourly.job_id, "jobs"), one_of(hourly.hour, "hours")),
        select(
            tail.c.job_id,
            cast(tail.c.status == CheckpointStatus.COMPLETED.value, Integer),
            cast(tail.c.is_fault, Integer),
            tail.c.completed_at,
        ),
    ).subquery("parts")
    completed, failed = func.sum(parts.c.completed), func.sum(parts.c.failed)
    return (
        select(parts.c.job_id, cast(completed, BigInteger), cast(failed, BigInteger), func.max(parts.c["last"]))
        .group_by(parts.c.job_id)
        .having(completed + failed > 0)
    )


@lru_cache(maxsize=64)
def _buckets(gap_count: int) -> Select[Any]:
    """Return the query that selects (job, bucket, number of durations in the bucket, least of an expired checkpoint).

    The last value is the least of the hours that have the bucket, so the least over all buckets counts. The query reads
    the same rollups and checkpoints as ``_counts``.
    """
    measured, tail = tables.rollup_measures.c, _tail(gap_count)
    arrays = func.unnest(measured.bucket_index, measured.bucket_count)
    stored = arrays.table_valued("bucket", "number").render_derived("b").lateral()
    bounds = literal(list(BOUNDS), ARRAY(BigInteger))
    bucket = case((tail.c.value > 0, func.width_bucket(tail.c.value - literal_column("1"), bounds)), else_=-1)
    worked_out = select(tail.c.job_id, bucket.label("bucket"), tail.c.is_expired, tail.c.value).where(
        or_(tail.c.status == CheckpointStatus.COMPLETED.value, tail.c.is_expired), tail.c.value.is_not(None)
    )
    counted = worked_out.subquery("worked_out")
    parts = union_all(
        select(measured.job_id, stored.c.bucket, stored.c.number, measured.expired_min)
        .join_from(tables.rollup_measures, stored, true())
        .where(
            one_of(measured.job_id, "jobs"),
            one_of(measured.hour, "hours"),
            measured.measure == Measure.DURATION.value,
        ),
        select(
            *(counted.c.job_id, counted.c.bucket, func.count()),
            func.min(counted.c.value).filter(counted.c.is_expired),
        ).group_by(counted.c.job_id, counted.c.bucket),
    ).subquery("parts")
    return (
        select(
            *(parts.c.job_id, parts.c.bucket, cast(func.sum(parts.c.number), BigInteger)),
            func.min(parts.c.expired_min),
        )
        .group_by(parts.c.job_id, parts.c.bucket)
        .order_by(parts.c.job_id, parts.c.bucket)
    )


async def hours_of(
    connection: AsyncConnection, job_id: str, since: datetime, until: datetime, *, limit: int
) -> list[HourRollup]:
    """Return the newest ``limit`` hours of one job that begin in a range and have checkpoints, newest first."""
    whole = (_next_hour(since), _next_hour(until))
    covered = await cover(connection, *whole)
    rolled_up = await _rolled_up(connection, job_id, covered.hours, limit)
    worked_out = await _worked_out(connection, job_id, covered.gaps, limit)
    return sorted([*rolled_up, *worked_out], key=lambda r: r.hour, reverse=True)[:limit]


def _marks() -> Select[Any]:
    schedule = tables.pipeline_schedule.c
    # If the database was copied to another server, stored transaction ids may lie ahead of that server's ids. Such
    # ids mean nothing there, so they are ignored.
    own_ids = func.pg_snapshot_xmax(func.pg_current_snapshot())
    return select(schedule.complete_xid, schedule.complete_hour).where(
        schedule.complete_xid.is_not(None), schedule.complete_xid <= cast(cast(own_ids, Text), BigInteger)
    )


def _unchanged_hours() -> Select[Any]:
    """Return the query for the rolled-up hours of a range whose checkpoints have not changed since the rollup."""
    rolled = tables.rollup_hours
    since, until = bindparam("since", type_=tables.Instant), bindparam("until", type_=tables.Instant)
    rolled_up, xid = rolled.alias(), bindparam("xid", type_=BigInteger)
    changed = (
        select(_HOUR)
        .join_from(tables.checkpoints, rolled_up, rolled_up.c.hour == _HOUR)
        .where(
            *(_C.kind == "checkpoint", _C.changed_xid >= xid, _C.changed_xid >= rolled_up.c.horizon_xid),
            *(_C.triggered_at >= since, _C.triggered_at < until),
            _C.triggered_on.between(bindparam("first"), bindparam("last")),
        )
    )
    return (
        select(rolled.c.hour)
        .where(rolled.c.hour >= since, rolled.c.hour + HOUR <= until, rolled.c.hour.not_in(changed))
        .order_by(rolled.c.hour)
    )


_MARKS = _marks()
_UNCHANGED_HOURS = _unchanged_hours()


async def _complete_hours(connection: AsyncConnection, since: datetime, until: datetime) -> list[datetime]:
    mark = (await connection.execute(_MARKS)).first()
    if mark is None:
        return []
    end = min(until, mark.complete_hour)
    values = {"since": since, "until": end, "first": day_of(since), "last": day_of(end), "xid": mark.complete_xid}
    return list((await connection.execute(_UNCHANGED_HOURS, values)).scalars())


def _in_gaps(count: int) -> ColumnElement[bool]:
    """Return the condition that a checkpoint is in one of the gaps, which ``_gap_values`` binds.

    The days in the condition let PostgreSQL skip partitions.
    """
    conditions = (
        and_(
            *(_C.triggered_at >= bindparam(f"since_{n}"), _C.triggered_at < bindparam(f"until_{n}")),
            _C.triggered_on.between(bindparam(f"first_{n}"), bindparam(f"last_{n}")),
        )
        for n in range(count)
    )
    return or_(false(), *conditions)


def _gap_values(gaps: Sequence[tuple[datetime, datetime]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for n, (since, until) in enumerate(gaps):
        values |= {f"since_{n}": since, f"until_{n}": until, f"first_{n}": day_of(since), f"last_{n}": day_of(until)}
    return values


_OF_HOURS = (
    select(tables.rollups)
    .where(tables.rollups.c.job_id == bindparam("job"), one_of(tables.rollups.c.hour, "hours"))
    .order_by(tables.rollups.c.hour.desc())
    .limit(bindparam("limit"))
)
_OF_MEASURES = select(tables.rollup_measures).where(
    tables.rollup_measures.c.job_id == bindparam("job"),
    one_of(tables.rollup_measures.c.hour, "hours"),
    # A later version of the program may roll up other measures too. This version does not read them.
    tables.rollup_measures.c.measure.in_([m.value for m in Measure]),
)


async def _rolled_up(
    connection: AsyncConnection, job_id: str, hours: Sequence[datetime], limit: int
) -> list[HourRollup]:
    if not hours:
        return []
    values = {"job": job_id, "hours": list(hours), "limit": limit}
    rows = (await connection.execute(_OF_HOURS, values)).mappings().all()
    measures: dict[datetime, dict[Measure, MeasureRollup]] = {}
    shown = {"job": job_id, "hours": [row["hour"] for row in rows]}
    for row in (await connection.execute(_OF_MEASURES, shown)).mappings():
        value = value_of(MeasureRollup, row, total=int(row["total"]))
        measures.setdefault(row["hour"], {})[Measure(row["measure"])] = value
    return [
        value_of(HourRollup, row, measures=_in_order(measures.get(row["hour"], {})), is_rolled_up=True) for row in rows
    ]


async def _worked_out(
    connection: AsyncConnection, job_id: str, gaps: Sequence[tuple[datetime, datetime]], limit: int
) -> list[HourRollup]:
    values = {"job": job_id, "limit": limit} | _gap_values(gaps)
    rows = (await connection.execute(_hourly(len(gaps)), values)).mappings()
    return [value_of(HourRollup, row, measures=_measures(row), is_rolled_up=False) for row in rows]


_QUANTILES: ColumnElement[Any] = literal_column("ARRAY[0.5, 0.95, 0.99]")


def _numbers(measure: Measure) -> list[ColumnElement[Any]]:
    """Return the columns for one measure over the checkpoints of a group. The quantiles form one array."""
    column = _C[measure.value]
    is_counted = or_(_IS_COMPLETED, _IS_EXPIRED) if measure.is_censored else _IS_COMPLETED
    quantiles = func.percentile_cont(_QUANTILES).within_group(column)
    of_all = {"count": func.count(column), "min": func.min(column), "max": func.max(column), "sum": func.sum(column)}
    numbers = [
        number.filter(is_counted).label(f"{measure.value} {name}")
        for name, number in (of_all | {"quantiles": quantiles}).items()
    ]
    return [*numbers, *(_limits(measure, column) if measure.is_censored else ())]


def _limits(measure: Measure, column: ColumnElement[int]) -> tuple[ColumnElement[Any], ...]:
    """Return the columns ``expired_min`` and ``exact_max`` of one measure."""
    # The second is SQL text, because it is an aggregate over an aggregate.
    expired, counted = f"status = 'failed' AND failure_reason = '{FailureReason.EXPIRED.value}'", "status = 'completed'"
    exact_max: ColumnElement[int] = literal_column(
        f"(SELECT max(v) FROM unnest(array_agg({measure.value}) FILTER (WHERE {counted})) v"  # noqa: S608  our columns
        f" WHERE v < min({measure.value}) FILTER (WHERE {expired}))"
    )
    return func.min(column).filter(_IS_EXPIRED).label(f"{measure.value} expired"), exact_max.label(
        f"{measure.value} exact"
    )


@lru_cache(maxsize=64)
def _hourly(gap_count: int) -> Select[Any]:
    """Return the query that computes the hours of a job without a rollup from its checkpoints."""
    return (
        select(
            _HOUR.label("hour"),
            func.count().label("triggered_count"),
            func.count().filter(_IS_COMPLETED).label("completed_count"),
            func.count().filter(_IS_FAILED).label("failed_count"),
            # The number of failures by reason. This is SQL text because it is an aggregate over an aggregate.
            literal_column(
                "(SELECT coalesce(jsonb_object_agg(reason, number), '{}') FROM (SELECT reason, count(*) AS number FROM"
                " unnest(array_agg(coalesce(failure_reason, 'unknown')) FILTER (WHERE status = 'failed')) reason"
                " GROUP BY reason) r)"
            ).label("failed_by_reason"),
            func.max(_COMPLETED_AT).filter(_IS_COMPLETED).label("last_completed_at"),
            func.max(_C.triggered_at).filter(_IS_COMPLETED).label("restorable_at"),
            *(column for measure in Measure for column in _numbers(measure)),
        )
        .where(_C.job_id == bindparam("job"), _C.kind == "checkpoint", _in_gaps(gap_count))
        .group_by(_HOUR)
        .order_by(_HOUR.desc())
        .limit(bindparam("limit"))
    )


def _measures(row: RowMapping) -> Mapping[Measure, MeasureRollup]:
    measure_rollups = {}
    for m in Measure:
        count, low, high, total, quantiles = (
            row[f"{m.value} {name}"] for name in ("count", "min", "max", "sum", "quantiles")
        )
        if count:
            limits = [row[f"{m.value} {name}"] for name in ("expired", "exact")] if m.is_censored else []
            measure_rollups[m] = MeasureRollup(count, low, high, int(total), *quantiles, *limits)
    return measure_rollups


def _next_hour(instant: datetime) -> datetime:
    return hour_of(instant - timedelta(microseconds=1)) + HOUR


def _in_order(measures: Mapping[Measure, MeasureRollup]) -> Mapping[Measure, MeasureRollup]:
    return {measure: measures[measure] for measure in Measure if measure in measures}
