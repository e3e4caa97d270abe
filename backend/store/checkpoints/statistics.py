"""Numbers over many checkpoints: how the last day went, for every job at once, from rollups as far as they reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.analysis.log_buckets import quantile
from backend.domain.ids import RunId
from backend.store.rollups.reader import totals_of


@dataclass(frozen=True, slots=True)
class DayStatistics:
    """Checkpoints of one job (savepoints aside) triggered in a window; durations are of the completed ones.

    Counts are exact. Percentiles are told from log buckets, within ``log_buckets.RELATIVE_ERROR_MAX`` (1 %).
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
    """The newest completed checkpoint of a job, savepoints too; ``at``: when it was complete, by the engine's clock."""

    run_id: RunId
    checkpoint_id: int
    at: datetime


async def last_completed_of(connection: AsyncConnection, job_ids: Sequence[str]) -> Mapping[str, LastCompleted]:
    """The newest completed checkpoint of each job that has one."""
    query = text(
        "SELECT i.id, c.run_id, c.checkpoint_id, c.triggered_at + c.end_to_end_duration_ms * interval '1 ms'"
        " FROM unnest(CAST(:jobs AS text[])) AS i(id) CROSS JOIN LATERAL"
        " (SELECT run_id, checkpoint_id, triggered_at, coalesce(end_to_end_duration_ms, 0) AS end_to_end_duration_ms"
        " FROM checkpoints WHERE job_id = i.id AND status = 'completed'"
        " ORDER BY triggered_at DESC, checkpoint_id DESC LIMIT 1) c"
    )
    rows = (await connection.execute(query, {"jobs": list(job_ids)})).all()
    return {job: LastCompleted(RunId(run), number, at) for job, run, number, at in rows}
