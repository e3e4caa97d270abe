"""Space-time diagrams of the fake API's checkpoints, and traces of real runs of the reference runtime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from backend.analysis.measures.cut import check_cut
from backend.analysis.space_time import measured, reconstructed
from backend.analysis.space_time.folding import LaneVertex, fold
from backend.contracts.api import CheckpointDetailOut, JobDetailOut
from backend.contracts.space_time import SpaceTimeOut
from backend.domain.barriers import BarrierEvent
from backend.domain.ids import VertexId
from backend.domain.topology import Edge, Topology, Vertex
from backend.runtime.engine.jobfile import JobSpec
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.measure.measures import CheckpointState, MeasuredCheckpoint
from backend.services.checkpoints.space_time import space_time_out
from tests.support.runtime_jobs import late_triggers, small_job


@dataclass(frozen=True, slots=True)
class Run:
    """The trace of one completed checkpoint of a real run, and its job."""

    record: MeasuredCheckpoint
    events: tuple[BarrierEvent, ...]
    topology: Topology

    @property
    def vertices(self) -> list[LaneVertex]:
        """The vertices with the numbers of their subtasks."""
        return [LaneVertex(v.id, v.name, v.parallelism) for v in self.topology.vertices]


def checkpoint_of(protocol: str, *, seed: int = 1, config: dict[str, object] | None = None, nth: int = 2) -> Run:
    """Run a small job, and return one of its completed checkpoints, the first if ``nth`` is 0."""
    spec = small_job(
        protocol, seed=seed, fuzz=1 + seed, task_managers=2, record_bytes=1500, plan=tuple(late_triggers()),
        config=config or {}, parallelism=2,
    )  # fmt: skip
    return runs_of(spec)[nth]


def runs_of(spec: JobSpec, until_us: int = 1_500_000) -> list[Run]:
    """Run a job, and return all its completed checkpoints, oldest first."""
    engine = JobEngine(replace(spec, config=replace(spec.config, history_size=200)))
    engine.run_until(until_us)
    graph = engine.env.graph
    topology = Topology(
        tuple(Vertex(VertexId(v.id), v.id, v.parallelism) for v in graph.vertices),
        tuple(Edge(VertexId(e.source), VertexId(e.target)) for e in graph.edges),
    )
    found = []
    for record in reversed(engine.coordinator.history):
        events = engine.barriers(record.id)
        if events is not None and record.state is CheckpointState.COMPLETED:
            found.append(Run(record, events, topology))
    return found


def space_time_of(detail: CheckpointDetailOut, job: JobDetailOut, opened: Sequence[str] = ()) -> SpaceTimeOut:
    """Return the diagram of a checkpoint of the fake API. That of the job ``jruntime`` is a real trace."""
    wanted = {VertexId(v) for v in opened}
    if job.id == "jruntime":
        run = checkpoint_of("unaligned")
        diagram, trace = fold(measured.trace_of(run.events), run.vertices), measured.trace_of(run.events)
        check = check_cut(run.events, is_completed=True)
        return space_time_out(diagram, trace.basis, check, trace.end_ms, run.topology)
    topology = Topology(
        tuple(Vertex(VertexId(v.id), v.name, v.parallelism) for v in job.vertices),
        tuple(Edge(VertexId(e.source), VertexId(e.target)) for e in job.edges),
    )
    phases = {VertexId(v.vertex_id): v.subtasks for v in detail.vertices}
    trace = reconstructed.trace_of(phases, topology)  # type: ignore[arg-type]
    vertices = [LaneVertex(VertexId(v.vertex_id), v.vertex, v.subtask_count) for v in detail.vertices]
    path = [] if detail.critical_path is None else detail.critical_path.steps
    diagram = fold(trace, vertices, opened=wanted, pinned=[(VertexId(s.vertex_id), s.subtask) for s in path])
    return space_time_out(diagram, trace.basis, None, max(trace.end_ms, detail.end_to_end_duration_ms or 0), topology)
