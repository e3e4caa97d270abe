"""Numbers over many checkpoints, worked out where they lie: how the last day went, for every job at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.domain.ids import RunId


@dataclass(frozen=True, slots=True)
class DayStatistics:
    """Checkpoints of one job (savepoints aside) triggered in a window; durations are of the completed ones."""

    completed_count: int = 0
    failed_count: int = 0
    duration_p50_ms: float | None = None
    duration_p99_ms: float | None = None
    last_completed_at: datetime | None = None


async def statistics_of(
    connection: AsyncConnection, job_ids: Sequence[str], since: datetime
) -> Mapping[str, DayStatistics]:
    """Statistics of each job over its checkpoints triggered at or after ``since``, exact percentiles."""
    query = text(
        "SELECT job_id, count(*) FILTER (WHERE status = 'completed'), count(*) FILTER (WHERE status = 'failed'),"
        " percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP (ORDER BY end_to_end_duration_ms)"
        " FILTER (WHERE status = 'completed'),"
        " max(triggered_at + end_to_end_duration_ms * interval '1 ms') FILTER (WHERE status = 'completed')"
        " FROM checkpoints WHERE job_id = ANY(:jobs) AND kind = 'checkpoint' AND status <> 'in-progress'"
        " AND triggered_at >= :since AND triggered_on >= CAST(:since AS timestamptz)::date GROUP BY job_id"
    )
    found: dict[str, DayStatistics] = {}
    for job_id, completed, failed, percentiles, last in await connection.execute(
        query, {"jobs": list(job_ids), "since": since}
    ):
        p50, p99 = percentiles or (None, None)
        found[job_id] = DayStatistics(completed, failed, p50, p99, last)
    return found


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
