"""Statistics over many checkpoints of many jobs, from rollups if there are any, else from the checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, literal_column, select, true
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.analysis.log_buckets import quantile
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.ids import RunId
from backend.store.postgres.statements import duration_after, each
from backend.store.rollups.reader import totals_of
from backend.store.schema import tables
from backend.store.schema.rows import value_of


@dataclass(frozen=True, slots=True)
class DayStatistics:
    """Statistics of one job's checkpoints (no savepoints) triggered in a window; durations are of completed ones.

    Counts are exact. Percentiles come from log buckets, with an error of at most 1 %.
    """

    completed_count: int = 0
    failed_count: int = 0
    duration_p50_ms: float | None = None
    duration_p99_ms: float | None = None
    last_completed_at: datetime | None = None


async def statistics_of(
    connection: AsyncConnection, job_ids: Sequence[str], since: datetime
) -> Mapping[str, DayStatistics]:
    """Statistics of each job over its checkpoints triggered at or after ``since``."""
    return {
        job_id: DayStatistics(
            completed_count=totals.completed_count,
            failed_count=totals.failed_count,
            duration_p50_ms=quantile(totals.duration_buckets, 0.5),
            duration_p99_ms=quantile(totals.duration_buckets, 0.99),
            last_completed_at=totals.last_completed_at,
        )
        for job_id, totals in (await totals_of(connection, job_ids, since)).items()
    }


@dataclass(frozen=True, slots=True)
class LastCompleted:
    """The newest completed checkpoint or savepoint of a job; ``at`` is its completion on the engine's clock."""

    run_id: RunId
    checkpoint_id: int
    at: datetime


_HEADER = tables.checkpoints.c
_JOBS = each(_HEADER.job_id, "jobs")
_NEWEST = (
    select(tables.checkpoints)
    .where(_HEADER.job_id == _JOBS.c.job_id, _HEADER.status == CheckpointStatus.COMPLETED.value)
    .order_by(_HEADER.triggered_at.desc(), _HEADER.checkpoint_id.desc())
    .limit(literal_column("1"))
    .lateral("newest")
)
_LAST_COMPLETED = select(
    *(_NEWEST.c.job_id, _NEWEST.c.run_id, _NEWEST.c.checkpoint_id),
    duration_after(_NEWEST.c.triggered_at, func.coalesce(_NEWEST.c.end_to_end_duration_ms, 0)).label("at"),
).select_from(_JOBS.join(_NEWEST, true()))


async def last_completed_of(connection: AsyncConnection, job_ids: Sequence[str]) -> Mapping[str, LastCompleted]:
    """The newest completed checkpoint of each job that has one."""
    rows = (await connection.execute(_LAST_COMPLETED, {"jobs": list(job_ids)})).mappings()
    return {row["job_id"]: value_of(LastCompleted, row) for row in rows}
