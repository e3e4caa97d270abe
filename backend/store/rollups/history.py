"""Reads the durations of a job's checkpoints over a long range, in steps of whole hours.

If an hour has a valid rollup, the rollup is read. For the other hours, at most a given number of checkpoints is read,
newest first, so that the cost does not depend on how many checkpoints the range has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ARRAY, BigInteger, BindParameter, Date, TextClause, bindparam, func, literal_column, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.analysis.numbers.log_buckets import BOUNDS, Buckets, merge, quantile, reached, rounded
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.failure import FailureReason
from backend.domain.rollup import HOUR, Measure, hour_of, is_lower_bound
from backend.store.postgres.statements import one_of
from backend.store.rollups.reader import cover
from backend.store.schema import tables
from backend.store.schema.partitions import day_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class StepRecord:
    """The checkpoints that were triggered within one step. The durations are those of the completed and expired ones.

    A duration is a lower bound if it is at or above the least one of an expired checkpoint (``domain.rollup``).
    """

    at: datetime
    completed_count: int
    failed_count: int
    p50_ms: float | None
    p95_ms: float | None
    max_ms: int | None
    hours: int
    """The number of hours with checkpoints."""
    rolled_up_hours: int
    """The number of these hours that were read from a rollup."""
    is_p50_lower_bound: bool = False
    is_p95_lower_bound: bool = False
    is_max_lower_bound: bool = False


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of a range, newest first. ``HistoryOut`` explains the two instants."""

    records: Sequence[StepRecord]
    rolled_up_until: datetime | None
    left_out_before: datetime | None


@dataclass(frozen=True, slots=True)
class _Hour:
    hour: datetime
    completed_count: int
    failed_count: int
    p50_ms: float | None
    p95_ms: float | None
    max_ms: int | None
    is_rolled_up: bool
    buckets: Buckets = field(default_factory=dict)
    expired_min_ms: int | None = None
    exact_max_ms: int | None = None


async def count_up_to(
    connection: AsyncConnection, job_id: str, since: datetime | None, until: datetime, *, most: int
) -> int:
    """Return the number of a job's stored checkpoints in a range, but at most ``most``."""
    values = {"job": job_id, "since": since or _EPOCH, "until": until, "most": most}
    return int((await connection.execute(_COUNT, _with_days(values))).scalar_one())


async def first_instants(
    connection: AsyncConnection, job_id: str, since: datetime, until: datetime
) -> tuple[datetime | None, datetime | None]:
    """Return the trigger of a job's oldest stored checkpoint in a range, and its oldest rolled-up hour in it."""
    row = (await connection.execute(_FIRST, _with_days({"job": job_id, "since": since, "until": until}))).one()
    return row[0], row[1]


async def steps_of(
    connection: AsyncConnection, job_id: str, since: datetime, until: datetime, *, step: timedelta, rows_max: int
) -> Steps:
    """Return the steps of a range. Steps begin at multiples of ``step`` since 1970, in UTC.

    ``step`` is a whole number of hours. For hours without a rollup, at most ``rows_max`` checkpoints are read.
    """
    begin, end = step_of(since, step), hour_of(until - timedelta(microseconds=1)) + HOUR
    covered = await cover(connection, begin, end)
    left_out_before = await _cut(connection, job_id, covered.gaps, rows_max)
    gaps = [(max(a, left_out_before), b) for a, b in covered.gaps if left_out_before < b] if left_out_before else (
        covered.gaps
    )  # fmt: skip
    with_buckets = step > HOUR
    hours = [
        *await _rolled_up(connection, job_id, covered.hours, with_buckets=with_buckets),
        *await _computed(connection, job_id, gaps, with_buckets=with_buckets),
    ]
    rolled_up_until = covered.hours[-1] + HOUR if covered.hours else None
    return Steps(_in_steps(hours, step), rolled_up_until, left_out_before)


async def rolled_up_buckets(
    connection: AsyncConnection, job_id: str, since: datetime, until: datetime
) -> tuple[int, Buckets, int | None]:
    """Return the durations in a job's stored rollups of the hours in a range, and how many hours have durations.

    The last value is the least duration of an expired checkpoint, or None if none expired.
    """
    values = {"job": job_id, "measure": Measure.DURATION.value, "since": since, "until": until}
    rows = (await connection.execute(_BUCKETS_BETWEEN, values)).all()
    buckets = merge(pair for index, count, _ in rows for pair in zip(index, count, strict=True))
    return len(rows), buckets, min((e for *_, e in rows if e is not None), default=None)


@dataclass(frozen=True, slots=True)
class RolledUp:
    """What the stored rollups have of a range: its whole hours. ``buckets`` are those of the durations."""

    completed_count: int
    failed_by_reason: Mapping[FailureReason, int]
    buckets: Buckets
    expired_min_ms: int | None


async def rolled_up(connection: AsyncConnection, job_id: str, since: datetime, until: datetime) -> RolledUp | None:
    """Return what a job's stored rollups have of a range, or None if there are none in it."""
    values = {"job": job_id, "since": since, "until": until}
    rows = (await connection.execute(_COUNTS_BETWEEN, values)).all()
    if not rows:
        return None
    failed: dict[FailureReason, int] = {}
    for _, reasons in rows:
        for reason, count in reasons.items():
            failed[FailureReason(reason)] = failed.get(FailureReason(reason), 0) + count
    _, buckets, expired_min_ms = await rolled_up_buckets(connection, job_id, since, until)
    return RolledUp(sum(done for done, _ in rows), dict(sorted(failed.items())), buckets, expired_min_ms)


def step_of(instant: datetime, step: timedelta) -> datetime:
    """Return the start of the step that contains ``instant``."""
    return _EPOCH + (instant - _EPOCH) // step * step


def _in_steps(hours: Iterable[_Hour], step: timedelta) -> list[StepRecord]:
    groups: dict[datetime, list[_Hour]] = {}
    for hour in hours:
        groups.setdefault(step_of(hour.hour, step), []).append(hour)
    return [_step(at, groups[at], is_hour=step == HOUR) for at in sorted(groups, reverse=True)]


def _step(at: datetime, hours: Sequence[_Hour], *, is_hour: bool) -> StepRecord:
    expired_min = min((h.expired_min_ms for h in hours if h.expired_min_ms is not None), default=None)
    if is_hour:
        p50_ms, p95_ms = hours[0].p50_ms, hours[0].p95_ms
        is_p50_bound, is_p95_bound = (is_lower_bound(v, expired_min, hours[0].exact_max_ms) for v in (p50_ms, p95_ms))
    else:
        limit_ms = None if expired_min is None else rounded(expired_min)
        buckets = merge(pair for h in hours for pair in h.buckets.items())
        p50_ms, p95_ms = quantile(buckets, 0.5), quantile(buckets, 0.95)
        is_p50_bound, is_p95_bound = (is_lower_bound(reached(buckets, q), limit_ms) for q in (0.5, 0.95))
    max_ms = max((h.max_ms for h in hours if h.max_ms is not None), default=None)
    return StepRecord(
        at=at,
        completed_count=sum(h.completed_count for h in hours),
        failed_count=sum(h.failed_count for h in hours),
        p50_ms=p50_ms,
        p95_ms=p95_ms,
        max_ms=max_ms,
        hours=len(hours),
        rolled_up_hours=sum(h.is_rolled_up for h in hours),
        is_p50_lower_bound=is_p50_bound,
        is_p95_lower_bound=is_p95_bound,
        is_max_lower_bound=is_lower_bound(max_ms, expired_min),
    )


_ROLLUP, _MEASURE = tables.rollups.c, tables.rollup_measures.c
_OF_HOURS = (
    select(
        *(_ROLLUP.hour, _ROLLUP.completed_count, _ROLLUP.failed_count),
        *(_MEASURE.p50, _MEASURE.p95, _MEASURE.maximum, _MEASURE.expired_min, _MEASURE.exact_max),
        *(_MEASURE.bucket_index, _MEASURE.bucket_count),
    )
    .select_from(
        tables.rollups.outerjoin(
            tables.rollup_measures,
            (_MEASURE.job_id == _ROLLUP.job_id)
            & (_MEASURE.hour == _ROLLUP.hour)
            & (_MEASURE.measure == literal_column(f"'{Measure.DURATION.value}'")),
        )
    )
    .where(_ROLLUP.job_id == bindparam("job"), one_of(_ROLLUP.hour, "hours"))
)
_COUNTS_BETWEEN = select(_ROLLUP.completed_count, _ROLLUP.failed_by_reason).where(
    _ROLLUP.job_id == bindparam("job"), _ROLLUP.hour >= bindparam("since"), _ROLLUP.hour + HOUR <= bindparam("until")
)
_BUCKETS_BETWEEN = select(_MEASURE.bucket_index, _MEASURE.bucket_count, _MEASURE.expired_min).where(
    _MEASURE.job_id == bindparam("job"),
    _MEASURE.measure == bindparam("measure"),
    _MEASURE.hour >= bindparam("since"),
    _MEASURE.hour + HOUR <= bindparam("until"),
)


async def _rolled_up(
    connection: AsyncConnection, job_id: str, hours: Sequence[datetime], *, with_buckets: bool
) -> list[_Hour]:
    if not hours:
        return []
    rows = (await connection.execute(_OF_HOURS, {"job": job_id, "hours": list(hours)})).all()
    return [
        _Hour(
            *(hour, completed, failed, p50, p95, longest),
            is_rolled_up=True,
            buckets=_buckets(index, count) if with_buckets else {},
            expired_min_ms=expired_min,
            exact_max_ms=exact_max,
        )
        for hour, completed, failed, p50, p95, longest, expired_min, exact_max, index, count in rows
    ]


def _buckets(index: Sequence[int] | None, count: Sequence[int] | None) -> Buckets:
    return dict(zip(index or (), count or (), strict=True))


# These are SQL texts because a join with the gaps, which are bound as arrays, is longer in SQLAlchemy Core. The days
# let PostgreSQL skip partitions.
_GAPS = (
    "(SELECT * FROM unnest(CAST(:sinces AS timestamptz[]), CAST(:untils AS timestamptz[]), CAST(:firsts AS date[]),"
    " CAST(:lasts AS date[])) AS u(since, until, first, last)) g"
)
_IN_GAP = (
    "c.job_id = :job AND c.triggered_at >= g.since AND c.triggered_at < g.until"
    " AND c.triggered_on BETWEEN g.first AND g.last"
)
_IS_EXPIRED = f"c.status = '{CheckpointStatus.FAILED}' AND c.failure_reason = '{FailureReason.EXPIRED}'"
_IS_COUNTED = f"(c.status = '{CheckpointStatus.COMPLETED}' OR ({_IS_EXPIRED}))"
_ARRAYS: tuple[BindParameter[Any], ...] = (
    *(bindparam(name, type_=ARRAY(tables.Instant)) for name in ("sinces", "untils")),
    *(bindparam(name, type_=ARRAY(Date)) for name in ("firsts", "lasts")),
)


def _of_gaps(query: str) -> TextClause:
    words = query.format(gaps=_GAPS, in_gap=_IN_GAP, counted=_IS_COUNTED, expired=_IS_EXPIRED)
    return text(words).bindparams(*_ARRAYS)


# The number of checkpoints in each gap, up to a limit.
_COUNTS = _of_gaps(
    "SELECT g.since, t.number FROM {gaps} CROSS JOIN LATERAL"
    " (SELECT count(*) AS number FROM (SELECT 1 FROM checkpoints c WHERE {in_gap} LIMIT :most) l) t"
)
_COUNTED_AT_ONCE = 8
_COMPUTED = _of_gaps(
    "SELECT date_trunc('hour', c.triggered_at, 'UTC') AS hour, count(*) FILTER (WHERE c.status = 'completed'),"
    " count(*) FILTER (WHERE c.status = 'failed'),"
    " percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY c.end_to_end_duration_ms) FILTER (WHERE {counted}),"
    " max(c.end_to_end_duration_ms) FILTER (WHERE {counted}), min(c.end_to_end_duration_ms) FILTER (WHERE {expired}),"
    " (SELECT max(v) FROM unnest(array_agg(c.end_to_end_duration_ms) FILTER (WHERE c.status = 'completed')) v"
    " WHERE v < min(c.end_to_end_duration_ms) FILTER (WHERE {expired}))"
    " FROM {gaps} JOIN checkpoints c ON {in_gap} WHERE c.kind = 'checkpoint' GROUP BY 1"
)
_COMPUTED_BUCKETS = _of_gaps(
    "SELECT date_trunc('hour', c.triggered_at, 'UTC') AS hour, CASE WHEN c.end_to_end_duration_ms > 0"
    " THEN width_bucket(c.end_to_end_duration_ms - 1, CAST(:bounds AS bigint[])) ELSE -1 END AS bucket, count(*)"
    " FROM {gaps} JOIN checkpoints c ON {in_gap}"
    " WHERE c.kind = 'checkpoint' AND {counted} AND c.end_to_end_duration_ms IS NOT NULL GROUP BY 1, 2"
).bindparams(bindparam("bounds", list(BOUNDS), type_=ARRAY(BigInteger)))


def _gap_values(job_id: str, gaps: Sequence[tuple[datetime, datetime]]) -> dict[str, object]:
    return {
        "job": job_id,
        "sinces": [since for since, _ in gaps],
        "untils": [until for _, until in gaps],
        "firsts": [day_of(since) for since, _ in gaps],
        "lasts": [day_of(until) for _, until in gaps],
    }


async def _cut(
    connection: AsyncConnection, job_id: str, gaps: Sequence[tuple[datetime, datetime]], rows_max: int
) -> datetime | None:
    """Return the hour before which the gaps are left out, because they have more than ``rows_max`` checkpoints."""
    rest, newest_first = rows_max, gaps[::-1]
    for i in range(0, len(newest_first), _COUNTED_AT_ONCE):
        some = newest_first[i : i + _COUNTED_AT_ONCE]
        rows = await connection.execute(_COUNTS, _gap_values(job_id, some) | {"most": rows_max + 1})
        counts: dict[datetime, int] = {row.since: row.number for row in rows}
        for since, until in some:
            if counts[since] > rest:
                values = _with_days({"job": job_id, "since": since, "until": until, "rest": rest})
                found: datetime = (await connection.execute(_NTH_NEWEST, values)).scalar_one()
                # The hour of this checkpoint would be incomplete, so it is left out too.
                return hour_of(found) + HOUR
            rest -= counts[since]
    return None


async def _computed(
    connection: AsyncConnection, job_id: str, gaps: Sequence[tuple[datetime, datetime]], *, with_buckets: bool
) -> list[_Hour]:
    values = _gap_values(job_id, gaps)
    buckets: dict[datetime, dict[int, int]] = {}
    if with_buckets:
        for hour, bucket, number in await connection.execute(_COMPUTED_BUCKETS, values):
            buckets.setdefault(hour, {})[bucket] = number
    return [
        _Hour(
            *(hour, completed, failed, p50, p95, longest),
            is_rolled_up=False,
            buckets=buckets.get(hour, {}),
            expired_min_ms=expired_min,
            exact_max_ms=exact_max,
        )
        for hour, completed, failed, quantiles, longest, expired_min, exact_max in await connection.execute(
            _COMPUTED, values
        )
        for p50, p95 in [quantiles or (None, None)]
    ]


_C = tables.checkpoints.c
_IN_RANGE = (
    _C.job_id == bindparam("job"),
    _C.triggered_at >= bindparam("since"),
    _C.triggered_at < bindparam("until"),
    _C.triggered_on.between(bindparam("first"), bindparam("last")),
)
_COUNT = select(func.count()).select_from(
    select(literal_column("1")).where(*_IN_RANGE).limit(bindparam("most")).subquery("counted")
)
_NTH_NEWEST = (
    select(_C.triggered_at)
    .where(*_IN_RANGE)
    .order_by(_C.triggered_on.desc(), _C.triggered_at.desc())
    .offset(bindparam("rest"))
    .limit(literal_column("1"))
)
_FIRST = select(
    select(_C.triggered_at)
    .where(*_IN_RANGE)
    .order_by(_C.triggered_on, _C.triggered_at)
    .limit(literal_column("1"))
    .scalar_subquery(),
    select(func.min(_ROLLUP.hour))
    .where(_ROLLUP.job_id == bindparam("job"), _ROLLUP.hour >= bindparam("since"), _ROLLUP.hour < bindparam("until"))
    .scalar_subquery(),
)


def _with_days(values: dict[str, object]) -> dict[str, object]:
    since, until = values["since"], values["until"]
    assert isinstance(since, datetime)
    assert isinstance(until, datetime)
    return values | {"first": day_of(since), "last": day_of(until)}
