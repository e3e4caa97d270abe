"""Converts values to the API's shapes. Field names change; numbers do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from backend.analysis.measures.delay import VertexDelay, vertex_delays
from backend.analysis.measures.phases import VertexPhases
from backend.contracts import api
from backend.domain.checkpoint import CheckpointConfig
from backend.domain.checkpoint_mode import course_of_checkpoint, mode_of_checkpoint
from backend.domain.ids import VertexId
from backend.domain.topology import Placement, Topology
from backend.services.graph_layout import layout
from backend.store.checkpoints.reader import CheckpointRecord
from backend.store.jobs.reader import RunRecord
from backend.store.jobs.restored import Taken

API_ROOT = "/api/v1"
PLACED_MAX: Final = 8_000
"""Subtasks of a job whose hosts, TaskManagers, attempts and states are all in its document."""


def checkpoint_link(job_id: str, run_id: str, checkpoint_id: int) -> str:
    """Return the API path of a checkpoint."""
    return f"{API_ROOT}/jobs/{job_id}/runs/{run_id}/checkpoints/{checkpoint_id}"


def checkpoint_out(
    record: CheckpointRecord, *, is_lost: bool, config: CheckpointConfig | None = None
) -> api.CheckpointOut:
    """Convert one checkpoint, without the data of its subtasks, to the API's shape.

    ``config`` has the settings of its run, which tell an at-least-once checkpoint from an aligned one.
    """
    h = record.header
    return api.CheckpointOut.of(
        record,
        h,
        mode=mode_of_checkpoint(h, config),
        course=course_of_checkpoint(h, config),
        is_lost=is_lost,
        is_lower_bound=h.is_partly_acknowledged,
        subtask_count=h.subtask_count or None,
        acknowledged_count=h.acknowledged_count if h.subtask_count else None,
        link=checkpoint_link(record.job_id, record.run_id, h.checkpoint_id),
    )


def counts_out(run: RunRecord, taken: Taken | None = None) -> api.CountsOut | None:
    """Convert the counters of the checkpoint coordinator. Return None if the run has no counters.

    ``taken``: the run that took the checkpoint from which this run was restored; None if it is not known.
    """
    if run.counts is None:
        return None
    origin, out = run.counts.restored_from, None
    if origin is not None:
        found = {} if taken is None else {"job_id": taken.job_id, "run_id": taken.run_id}
        if taken is not None and origin.job is None:
            found["job"] = taken.job
        link = None if taken is None else checkpoint_link(taken.job_id, taken.run_id, origin.checkpoint_id)
        out = api.RestoredFromOut.of(origin, link=link, **found)
    return api.CountsOut.of(run.counts, failed_unlisted=run.failed_unlisted_count, restored_from=out)


def graph_out(
    topology: Topology, placements: Sequence[Placement], *, vertex_id: str | None = None
) -> tuple[list[api.VertexOut], list[api.EdgeOut]]:
    """Convert the job graph to edges and vertices, each vertex with its position and its subtasks' hosts.

    If the job has more than ``PLACED_MAX`` subtasks, only the vertex ``vertex_id`` has the hosts of its subtasks.
    """
    places = layout(topology)
    is_small = sum(v.parallelism for v in topology.vertices) <= PLACED_MAX
    where = {p.vertex_id: p for p in placements if is_small or p.vertex_id == vertex_id}
    vertices = [
        api.VertexOut.of(vertex, where.get(vertex.id), layer=places[vertex.id][0], row=places[vertex.id][1])
        for vertex in topology.vertices
    ]
    return vertices, [api.EdgeOut.model_validate(edge) for edge in topology.edges]


def host_of(placements: Sequence[Placement], vertex_id: VertexId, subtask: int) -> str | None:
    """Return the host on which a subtask runs, or None if it is unknown."""
    placed = next((p for p in placements if p.vertex_id == vertex_id), None)
    return placed.hosts[subtask] if placed is not None and subtask < len(placed.hosts) else None


def phases_out(
    topology: Topology,
    placements: Sequence[Placement],
    phases: Mapping[VertexId, VertexPhases],
    subtasks: Mapping[VertexId, Sequence[int]] | None = None,
) -> list[api.VertexPhasesOut]:
    """Return the rows of the Gantt chart: the graph's vertices in topological order, then all other vertices.

    ``subtasks`` has the subtasks to show of each vertex. Without it, all are shown.
    """
    known = [v.id for v in topology.vertices if v.id in phases]
    order = known + [v for v in phases if v not in set(known)]
    names = {v.id: v.name for v in topology.vertices}
    delays = vertex_delays(topology, phases)
    hosts: dict[VertexId, Sequence[str | None]] = {p.vertex_id: p.hosts for p in placements}
    shown = {v: range(len(phases[v])) for v in order} if subtasks is None else subtasks
    return [_vertex_phases(delays[v], names.get(v, v), hosts.get(v, ()), phases[v], shown[v]) for v in order]


def _vertex_phases(
    delay: VertexDelay, name: str, hosts: Sequence[str | None], phases: VertexPhases, subtasks: Sequence[int]
) -> api.VertexPhasesOut:
    return api.VertexPhasesOut.of(
        delay,
        vertex=name,
        acknowledged_count=phases.acknowledged_count,
        finished_count=int(phases.has_finished.sum()),
        subtask_count=len(phases),
        slowest_subtask=phases.slowest_subtask,
        subtasks=[api.SubtaskPhasesOut.of(phases[i], host=hosts[i] if i < len(hosts) else None) for i in subtasks],
    )
