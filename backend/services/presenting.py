"""From values to the JSON of our API: names change here, numbers do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Literal

from backend.analysis.critical_path import CriticalPath
from backend.analysis.phases import SubtaskPhases
from backend.contracts import api
from backend.domain.checkpoint import CheckpointConfig
from backend.domain.ids import VertexId
from backend.domain.topology import Placement, Topology
from backend.domain.verdict import Verdict
from backend.services.jobs.graph_layout import layout
from backend.store.checkpoints.reader import CheckpointRecord
from backend.store.jobs.reader import RunRecord

Mode = Literal["aligned", "unaligned", "aligned-with-timeout", "at-least-once"]
API_ROOT = "/api/v1"


def verdict_out(verdict: Verdict) -> api.VerdictOut:
    """A verdict."""
    return api.VerdictOut(
        kind=verdict.kind,
        vertex=verdict.vertex,
        vertex_id=verdict.vertex_id,
        subtasks=list(verdict.subtasks),
        hosts=list(verdict.hosts),
        phase=verdict.phase,
        sentence=verdict.sentence,
        evidence=[
            api.EvidenceOut(statement=e.statement, metric=e.metric, basis=e.basis, value=e.value, unit=e.unit)
            for e in verdict.evidence
        ],
        confidence=verdict.confidence,
        would_decide=list(verdict.would_decide),
    )


def mode_of(config: CheckpointConfig | None) -> Mode | None:
    """How a job takes its checkpoints, by its settings; None where they are not known."""
    if config is None or (config.mode is None and config.is_unaligned_enabled is None):
        return None
    if config.mode is not None and config.mode.lower().replace("-", "_") == "at_least_once":
        return "at-least-once"
    if not config.is_unaligned_enabled:
        return "aligned"
    return "aligned-with-timeout" if config.aligned_timeout_ms else "unaligned"


def checkpoint_link(job_id: str, run_id: str, checkpoint_id: int) -> str:
    """Path of a checkpoint in this API."""
    return f"{API_ROOT}/jobs/{job_id}/runs/{run_id}/checkpoints/{checkpoint_id}"


def checkpoint_out(record: CheckpointRecord, *, is_lost: bool) -> api.CheckpointOut:
    """One checkpoint, without its subtasks."""
    h = record.header
    mode: Literal["aligned", "unaligned"] | None = None
    if h.is_unaligned is not None:
        mode = "unaligned" if h.is_unaligned else "aligned"
    return api.CheckpointOut(
        job_id=record.job_id,
        run_id=record.run_id,
        checkpoint_id=h.checkpoint_id,
        kind=h.kind,
        status=h.status,
        mode=mode,
        triggered_at=h.triggered_at,
        latest_ack_at=h.latest_ack_at,
        end_to_end_duration_ms=h.end_to_end_duration_ms,
        is_lost=is_lost,
        checkpointed_size_bytes=h.checkpointed_size_bytes,
        full_state_size_bytes=h.full_state_size_bytes,
        processed_bytes=h.processed_bytes,
        persisted_bytes=h.persisted_bytes,
        subtask_count=h.subtask_count or None,
        acknowledged_count=h.acknowledged_count if h.subtask_count else None,
        failure_reason=h.failure_reason,
        failure_message=h.failure_message,
        failed_at=h.failed_at,
        start_delay_max_ms=record.start_delay_max_ms,
        alignment_max_ms=record.alignment_max_ms,
        sync_max_ms=record.sync_max_ms,
        async_max_ms=record.async_max_ms,
        link=checkpoint_link(record.job_id, record.run_id, h.checkpoint_id),
    )


def run_out(run: RunRecord) -> api.RunOut:
    """One life of a job."""
    return api.RunOut(
        id=run.id,
        engine_run_id=run.engine_run_id,
        target_id=run.target_id,
        started_at=run.started_at,
        ended_at=run.ended_at,
        state=run.state,
        engine_state=run.engine_state,
        restart_count=run.restart_count,
        checkpoint_count=run.checkpoint_count,
    )


def counts_out(run: RunRecord) -> api.CountsOut | None:
    """The coordinator's counters."""
    if run.counts is None:
        return None
    return api.CountsOut(**asdict(run.counts), failed_unlisted=run.failed_unlisted_count)


def config_out(config: CheckpointConfig | None) -> api.CheckpointConfigOut | None:
    """Settings in force."""
    return None if config is None else api.CheckpointConfigOut(**asdict(config))


def graph_out(topology: Topology, placements: Sequence[Placement]) -> tuple[list[api.VertexOut], list[api.EdgeOut]]:
    """The job graph with its drawing and where its subtasks run."""
    places = layout(topology)
    where = {p.vertex_id: p for p in placements}
    vertices = []
    for vertex in topology.vertices:
        layer, row = places[vertex.id]
        placed = where.get(vertex.id)
        vertices.append(
            api.VertexOut(
                id=vertex.id,
                name=vertex.name,
                parallelism=vertex.parallelism,
                max_parallelism=vertex.max_parallelism,
                layer=layer,
                row=row,
                hosts=list(placed.hosts) if placed else [],
                task_managers=list(placed.task_managers) if placed else [],
                attempts=list(placed.attempts) if placed else [],
                statuses=list(placed.statuses) if placed else [],
            )
        )
    edges = [api.EdgeOut(source=e.source, target=e.target, ship_strategy=e.ship_strategy) for e in topology.edges]
    return vertices, edges


def host_of(placements: Sequence[Placement], vertex_id: VertexId, subtask: int) -> str | None:
    """Where a subtask runs, if that is known."""
    placed = next((p for p in placements if p.vertex_id == vertex_id), None)
    return placed.hosts[subtask] if placed is not None and subtask < len(placed.hosts) else None


def phases_out(
    topology: Topology, placements: Sequence[Placement], phases: Mapping[VertexId, tuple[SubtaskPhases, ...]]
) -> list[api.VertexPhasesOut]:
    """The Gantt's rows: vertices in topological order, then those the graph does not know."""
    known = [v.id for v in topology.vertices if v.id in phases]
    order = known + [v for v in phases if v not in set(known)]
    names = {v.id: v.name for v in topology.vertices}
    return [_vertex_phases(v, names.get(v, v), placements, phases[v]) for v in order]


def _vertex_phases(
    vertex_id: VertexId, name: str, placements: Sequence[Placement], phases: tuple[SubtaskPhases, ...]
) -> api.VertexPhasesOut:
    acknowledged = [p for p in phases if p.is_acknowledged and p.ack_ms is not None]
    slowest = max(acknowledged, key=lambda p: p.ack_ms or 0, default=None)
    return api.VertexPhasesOut(
        vertex_id=vertex_id,
        vertex=name,
        acknowledged_count=sum(p.is_acknowledged for p in phases),
        subtask_count=len(phases),
        slowest_subtask=slowest.subtask if slowest is not None else None,
        subtasks=[api.SubtaskPhasesOut(**asdict(p), host=host_of(placements, vertex_id, p.subtask)) for p in phases],
    )


def path_out(path: CriticalPath | None) -> api.CriticalPathOut | None:
    """What the duration consists of."""
    if path is None:
        return None
    return api.CriticalPathOut(
        steps=[api.CriticalStepOut(**asdict(step)) for step in path.steps],
        last_vertex=path.last_vertex,
        last_subtask=path.last_subtask,
        without_last_ms=path.without_last_ms,
        last_in=path.last_in,
    )
