"""Reads the other runs of Spark queries: each restart of a query is a run of its own, with the same query id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.analysis.measures.evidence import OtherRun
from backend.domain.ids import RunId

OTHER_RUNS_MAX: Final = 12
# A run's id at its engine is the query's id, a slash and its own id. The query's id is kept in the checkpoint folder,
# so two queries that use one folder have one id, though their names differ.
# A run that is polled is observed for as long as its log is listed, also after its driver was killed. So its last
# report is the end of its newest batch.
_OTHERS = text(
    "SELECT own.id, r.started_at, r.heard_at, r.ended_at, e.text, r.name, r.is_silent"
    " FROM runs own CROSS JOIN LATERAL ("
    " SELECT o.id, o.started_at, o.ended_at, o.state = 'unknown' AS is_silent,"
    " CASE WHEN o.ended_at IS NOT NULL OR o.capabilities IS NULL OR o.capabilities ? 'is_pushed' THEN o.observed_at"
    " ELSE coalesce((SELECT c.triggered_at + coalesce(c.end_to_end_duration_ms, 0) * interval '1 ms'"
    " FROM checkpoints c WHERE c.run_id = o.id AND c.triggered_on BETWEEN (o.started_at AT TIME ZONE 'UTC')::date"
    " AND (o.observed_at AT TIME ZONE 'UTC')::date + 1"
    " ORDER BY c.checkpoint_id DESC LIMIT 1), o.started_at) END AS heard_at,"
    " CASE WHEN o.job_id <> own.job_id THEN j.name END AS name FROM runs o JOIN jobs j ON j.id = o.job_id"
    # The runs of one job may have their states from different targets that report it.
    " WHERE (o.target_id = own.target_id OR o.job_id = own.job_id) AND o.id <> own.id"
    " AND split_part(o.engine_run_id, '/', 1) = split_part(own.engine_run_id, '/', 1)"
    " ORDER BY o.started_at DESC, o.id DESC LIMIT :limit) r"
    " LEFT JOIN LATERAL (SELECT x.text FROM job_events x WHERE x.run_id = r.id AND x.kind = 'exception'"
    " ORDER BY x.at DESC LIMIT 1) e ON true"
    " WHERE own.id = ANY(CAST(:runs AS text[])) ORDER BY own.id, r.started_at DESC, r.id DESC"
)


async def other_runs_of(connection: AsyncConnection, run_ids: Sequence[RunId]) -> Mapping[RunId, tuple[OtherRun, ...]]:
    """Return the newest other runs of the query of each run, newest first."""
    other_runs: dict[RunId, list[OtherRun]] = {}
    if not run_ids:
        return {}
    values = {"runs": list(run_ids), "limit": OTHER_RUNS_MAX}
    for run_id, *values_of_run in (await connection.execute(_OTHERS, values)).all():
        other_runs.setdefault(run_id, []).append(OtherRun(*values_of_run))
    return {run_id: tuple(rows) for run_id, rows in other_runs.items()}
