"""Computes statistics of many jobs' checkpoints, from hourly rollups if valid, otherwise from checkpoints."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Integer, Text, all_, and_, bindparam, func, literal_column, or_, select, true
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.analysis.numbers.log_buckets import quantile, reached, rounded
from backend.domain.checkpoint import CheckpointKind, CheckpointStatus
from backend.domain.failure import FailureReason
from backend.domain.ids import RunId
from backend.domain.rollup import is_lower_bound
from backend.store.checkpoints.reader import has_status
from backend.store.postgres.statements import duration_after, each
from backend.store.rollups.reader import CheckpointTotals, totals_of
from backend.store.schema import tables
from backend.store.schema.rows import value_of


@dataclass(frozen=True, slots=True)
class DayStatistics:
    """Statistics of the checkpoints of one job that were triggered in a time window, without savepoints.

    Durations are those of completed and of expired checkpoints. Counts are exact. Percentiles come from log buckets,
    with an error of at most 1 %. One that is interpolated from a value at or above ``expired_min_ms`` is a lower bound
    (``domain.rollup``).
    """

    completed_count: int = 0
    failed_count: int = 0
    duration_p50_ms: float | None = None
    duration_p99_ms: float | None = None
    last_completed_at: datetime | None = None
    is_p50_lower_bound: bool = False
    is_p99_lower_bound: bool = False
    expired_min_ms: float | None = None
    """The least duration of an expired checkpoint, rounded as the percentiles are."""


async def statistics_of(
    connection: AsyncConnection, job_ids: Sequence[str], since: datetime
) -> Mapping[str, DayStatistics]:
    """Return the statistics of each job over its checkpoints triggered at or after ``since``."""
    by_job = await totals_of(connection, job_ids, since)
    return {job_id: _statistics(totals) for job_id, totals in by_job.items()}


def _statistics(totals: CheckpointTotals) -> DayStatistics:
    least_ms = None if totals.expired_min_ms is None else rounded(totals.expired_min_ms)
    return DayStatistics(
        completed_count=totals.completed_count,
        failed_count=totals.failed_count,
        duration_p50_ms=quantile(totals.duration_buckets, 0.5),
        duration_p99_ms=quantile(totals.duration_buckets, 0.99),
        last_completed_at=totals.last_completed_at,
        is_p50_lower_bound=is_lower_bound(reached(totals.duration_buckets, 0.5), least_ms),
        is_p99_lower_bound=is_lower_bound(reached(totals.duration_buckets, 0.99), least_ms),
        expired_min_ms=least_ms,
    )


@dataclass(frozen=True, slots=True)
class LastCompleted:
    """The newest completed checkpoint or savepoint of a job. ``at`` is when it completed, on the engine's clock."""

    run_id: RunId
    checkpoint_id: int
    at: datetime


_HEADER = tables.checkpoints.c
_JOBS = each(_HEADER.job_id, "jobs")
_NEWEST = (
    select(tables.checkpoints)
    .where(_HEADER.job_id == _JOBS.c.job_id, has_status(CheckpointStatus.COMPLETED))
    .order_by(_HEADER.triggered_on.desc(), _HEADER.triggered_at.desc(), _HEADER.checkpoint_id.desc())
    .limit(literal_column("1"))
    .lateral("newest")
)
LAST_COMPLETED = select(
    *(_NEWEST.c.job_id, _NEWEST.c.run_id, _NEWEST.c.checkpoint_id),
    duration_after(_NEWEST.c.triggered_at, func.coalesce(_NEWEST.c.end_to_end_duration_ms, 0)).label("at"),
).select_from(_JOBS.join(_NEWEST, true()))


async def last_completed_of(connection: AsyncConnection, job_ids: Sequence[str]) -> Mapping[str, LastCompleted]:
    """Return the newest completed checkpoint or savepoint of each job. A job without one is absent."""
    rows = (await connection.execute(LAST_COMPLETED, {"jobs": list(job_ids)})).mappings()
    return {row["job_id"]: value_of(LastCompleted, row) for row in rows}


_RUNS = each(_HEADER.run_id, "runs")
_IS_OF_RUN = and_(_HEADER.run_id == _RUNS.c.run_id, _HEADER.kind == CheckpointKind.CHECKPOINT.value)
_LAST_DONE = (
    select(_HEADER.triggered_on, _HEADER.triggered_at)
    .where(_IS_OF_RUN, has_status(CheckpointStatus.COMPLETED))
    .order_by(_HEADER.triggered_on.desc(), _HEADER.triggered_at.desc())
    .limit(literal_column("1"))
    .lateral("done")
)
_FAILED_SINCE = (
    select(_HEADER.checkpoint_id)
    .where(
        _IS_OF_RUN,
        has_status(CheckpointStatus.FAILED),
        # A failure without a reason counts, because an empty text equals none of the reasons.
        func.coalesce(_HEADER.failure_reason, "") != all_(bindparam("reasons", type_=ARRAY(Text))),
        # The condition on the day lets PostgreSQL skip partitions.
        or_(_LAST_DONE.c.triggered_on.is_(None), _HEADER.triggered_on >= _LAST_DONE.c.triggered_on),
        or_(_LAST_DONE.c.triggered_at.is_(None), _HEADER.triggered_at > _LAST_DONE.c.triggered_at),
    )
    .limit(bindparam("most", type_=Integer))
    .lateral("failed")
)
_FAILURES_IN_ROW = (
    select(_RUNS.c.run_id, func.count())
    .select_from(_RUNS.outerjoin(_LAST_DONE, true()).join(_FAILED_SINCE, true()))
    .group_by(_RUNS.c.run_id)
)


async def failures_in_row(
    connection: AsyncConnection, run_ids: Sequence[str], *, but: Collection[FailureReason], limit: int
) -> Mapping[str, int]:
    """Return how many checkpoints of each run failed since its last completed one, without savepoints.

    Failures with a reason in ``but`` do not count. At most ``limit`` failures of each run are counted. A run without
    such a failure is absent.
    """
    values = {"runs": list(run_ids), "reasons": sorted(r.value for r in but), "most": limit}
    return {row[0]: row[1] for row in await connection.execute(_FAILURES_IN_ROW, values)}
