"""The critical path of one checkpoint: the steps from a source to the last acknowledgement.

The path starts at the subtask that acknowledged last; in a checkpoint that did not complete, at the subtask that it
waits for. It goes up to the subtask that most likely sent the barrier, until a source. The engine does not report which
channel was last, so the sender is reconstructed: the direct predecessor that forwarded the barrier latest, but not
after it arrived.

Invariant: the steps have no gap and no overlap, and none is negative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from backend.analysis.phases import SubtaskPhases, checkpoint_phases
from backend.analysis.statistics import highest
from backend.domain.checkpoint import Checkpoint, CheckpointConfig, LateBarrier
from backend.domain.ids import VertexId
from backend.domain.topology import Edge, Topology
from backend.domain.verdict import Basis, Phase

Phases = Mapping[VertexId, tuple[SubtaskPhases, ...]]

_POINTWISE = frozenset({"FORWARD"})


@dataclass(frozen=True, slots=True)
class CriticalStep:
    """One piece of the path, in milliseconds since the trigger."""

    vertex_id: VertexId
    vertex: str
    subtask: int
    phase: Phase
    start_ms: int
    end_ms: int
    basis: Basis


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The path, source first. ``with_persistence`` fills in ``last_in``."""

    steps: tuple[CriticalStep, ...]
    last_vertex_id: VertexId
    last_vertex: str
    last_subtask: int
    without_last_ms: int | None
    last_in: str | None = None

    def phase_ms(self, phase: Phase) -> int:
        """Milliseconds of the path spent in one phase."""
        return sum(s.end_ms - s.start_ms for s in self.steps if s.phase is phase)

    @property
    def dominant_phase(self) -> Phase | None:
        """The phase with the largest part of the path, the earlier one on a tie; None if the path is empty."""
        spent = {p: self.phase_ms(p) for p in Phase}
        best = max(Phase, key=lambda p: spent[p])
        return best if spent[best] > 0 else None


def critical_path(
    checkpoint: Checkpoint,
    topology: Topology,
    config: CheckpointConfig | None,
    late_barriers: Sequence[LateBarrier] = (),
) -> CriticalPath | None:
    """The critical path of one checkpoint; None if no subtask's detail is known."""
    phases = checkpoint_phases(checkpoint, config, late_barriers)
    return path_through(phases, topology, end_ms=checkpoint.header.end_to_end_duration_ms)


def path_through(phases: Phases, topology: Topology, *, end_ms: int | None) -> CriticalPath | None:
    """As ``critical_path``, from phases already computed; ``end_ms`` is the checkpoint's end since its trigger."""
    last = _last(phases, topology)
    if last is None:
        return None
    vertex_id, subtask = last
    steps: list[CriticalStep] = []
    reached_ms = _own_steps(steps, topology, vertex_id, phases[vertex_id][subtask], end_ms)
    _walk_up(steps, topology, phases, vertex_id, subtask, reached_ms)
    steps.reverse()
    return CriticalPath(
        steps=tuple(steps),
        last_vertex_id=vertex_id,
        last_vertex=_name(topology, vertex_id),
        last_subtask=subtask,
        without_last_ms=_without(phases, vertex_id, subtask),
    )


def with_persistence(
    path: CriticalPath,
    checkpoints: Sequence[Checkpoint],
    topology: Topology,
    config: CheckpointConfig | None,
    late_barriers: Mapping[int, Sequence[LateBarrier]] | None = None,
) -> CriticalPath:
    """The path with ``last in n of m``: how often the same subtask was last in ``checkpoints`` with detail."""
    late = late_barriers or {}
    lasts = [_last(checkpoint_phases(c, config, late.get(c.header.checkpoint_id, ())), topology) for c in checkpoints]
    known = [last for last in lasts if last is not None]
    if not known:
        return path
    count = known.count((path.last_vertex_id, path.last_subtask))
    return replace(path, last_in=f"last in {count} of {len(known)}")


def forwarded_ms(phases: SubtaskPhases) -> int | None:
    """When the subtask forwarded its barrier: at the start of its snapshot, before the sync part."""
    return phases.snapshot_at_ms


def senders(topology: Topology, vertex_id: VertexId, subtask: int, phases: Phases) -> list[tuple[VertexId, int]]:
    """The subtasks with a known detail and a channel to this one."""
    found: list[tuple[VertexId, int]] = []
    for edge in _inputs(topology, vertex_id, phases):
        count = len(phases[edge.source])
        if _is_pointwise(edge, count, len(phases.get(vertex_id, ()))):
            found.append((edge.source, subtask))
        else:
            found.extend((edge.source, i) for i in range(count))
    return found


def _inputs(topology: Topology, vertex_id: VertexId, phases: Phases) -> list[Edge]:
    return [e for e in topology.edges if e.target == vertex_id and e.source in phases]


def sent_ms(topology: Topology, vertex_id: VertexId, phases: Phases) -> tuple[float | None, ...]:
    """By subtask of the vertex: when all its senders had forwarded the barrier; None if one's time is not known."""
    edges = [(e, [forwarded_ms(p) for p in phases[e.source]]) for e in _inputs(topology, vertex_id, phases)]
    return _latest(edges, len(phases.get(vertex_id, ())))


def arrived_below_ms(topology: Topology, vertex_id: VertexId, phases: Phases) -> tuple[float | None, ...]:
    """By subtask of the vertex: when the barrier had reached all subtasks below it; None if one's is not known."""
    edges = [(e, [p.travel_ms for p in phases.get(e.target, ())]) for e in topology.edges if e.source == vertex_id]
    return _latest(edges, len(phases.get(vertex_id, ())))


def _latest(edges: Sequence[tuple[Edge, Sequence[float | None]]], count: int) -> tuple[float | None, ...]:
    """The latest time at the other ends, for each of ``count`` subtasks; one pass for each edge, not each channel."""
    ends: list[Sequence[float | None]] = []
    for edge, times in edges:
        if _is_pointwise(edge, len(times), count):
            ends.append(times)
        else:
            is_known = bool(times) and all(t is not None for t in times)
            ends.append([highest(times) if is_known else None] * count)
    columns = zip(*ends, strict=True) if ends else iter([()] * count)
    return tuple(None if not c or any(t is None for t in c) else highest(c) for c in columns)


def _is_pointwise(edge: Edge, count: int, other_count: int) -> bool:
    return edge.ship_strategy in _POINTWISE and count == other_count


def _last(phases: Phases, topology: Topology) -> tuple[VertexId, int] | None:
    order = {v.id: n for n, v in enumerate(topology.vertices)}
    pending = [(v, p) for v, rows in phases.items() for p in rows if not p.is_acknowledged]
    if pending:
        # The latest first barrier that a gauge showed; without gauges, the first subtask of the graph.
        known = [(v, p) for v, p in pending if p.first_barrier_ms is not None]
        if known:
            v, p = max(known, key=lambda x: (x[1].first_barrier_ms or 0, -order.get(x[0], 0), -x[1].subtask))
        else:
            v, p = min(pending, key=lambda x: (order.get(x[0], len(order)), x[1].subtask))
        return v, p.subtask
    acknowledged = [(v, p) for v, rows in phases.items() for p in rows if p.ack_ms is not None]
    if not acknowledged:
        return None
    v, p = max(acknowledged, key=lambda x: (x[1].ack_ms or 0, order.get(x[0], 0), -x[1].subtask))
    return v, p.subtask


def _without(phases: Phases, vertex_id: VertexId, subtask: int) -> int | None:
    others = [p.ack_ms for v, rows in phases.items() for p in rows if (v, p.subtask) != (vertex_id, subtask)]
    if any(a is None for a in others):
        return None
    longest = highest(others)
    return None if longest is None else int(longest)


def _own_steps(
    steps: list[CriticalStep], topology: Topology, vertex_id: VertexId, p: SubtaskPhases, end_ms: int | None
) -> int:
    """Add the last subtask's own steps, newest first; return when the barrier that it waited for had arrived."""
    name = _name(topology, vertex_id)

    def add(phase: Phase, start: int, end: int, basis: Basis = Basis.RECONSTRUCTED) -> None:
        if end > start:
            steps.append(CriticalStep(vertex_id, name, p.subtask, phase, start, end, basis))

    if p.ack_ms is None or p.snapshot_at_ms is None or p.async_end_ms is None or p.sync_end_ms is None:
        end = p.ack_ms if p.ack_ms is not None else end_ms
        first = p.first_barrier_ms
        if p.ack_ms is None and first is not None and end is not None and first < end:
            add(Phase.ACK_WAIT, max(0, first), end)
        return max(0, first if first is not None else (end or 0))
    ack = max(0, p.ack_ms)
    async_end, sync_end = (max(0, min(ack, t)) for t in (p.async_end_ms, p.sync_end_ms))
    snapshot = max(0, min(ack, p.snapshot_at_ms))
    add(Phase.ACK_WAIT, async_end, ack)
    barrier_ms = p.alignment_end_ms or 0
    if p.is_alignment_overlaid and barrier_ms - snapshot >= (async_end - snapshot) / 2:
        # The async part mostly waited for the last barrier: the path goes through that barrier.
        barrier_ms = min(async_end, barrier_ms)
        add(Phase.ASYNC, barrier_ms, async_end)
        return barrier_ms
    add(Phase.ASYNC, sync_end, async_end)
    add(Phase.SYNC, snapshot, sync_end)
    return snapshot


def _walk_up(
    steps: list[CriticalStep], topology: Topology, phases: Phases, vertex_id: VertexId, subtask: int, reached_ms: int
) -> None:
    """Add the steps of the barrier that arrived at ``reached_ms``, newest first, back to the trigger."""
    while True:
        p = phases[vertex_id][subtask]
        sender = _sender(topology, phases, vertex_id, subtask, reached_ms)
        sent_ms = 0 if sender is None else min(reached_ms, sender[2])
        first = reached_ms if p.first_barrier_ms is None else min(max(p.first_barrier_ms, sent_ms), reached_ms)
        name = _name(topology, vertex_id)
        basis = Basis.MEASURED if sender is None else Basis.RECONSTRUCTED
        for phase, start, end in ((Phase.ALIGNMENT, first, reached_ms), (Phase.START_DELAY, sent_ms, first)):
            if end > start:
                steps.append(CriticalStep(vertex_id, name, subtask, phase, start, end, basis))
        if sender is None:
            return
        vertex_id, subtask, reached_ms = sender[0], sender[1], sent_ms


def _sender(
    topology: Topology, phases: Phases, vertex_id: VertexId, subtask: int, reached_ms: int
) -> tuple[VertexId, int, int] | None:
    times = [
        (v, i, max(0, sent))
        for v, i in senders(topology, vertex_id, subtask, phases)
        if (sent := forwarded_ms(phases[v][i])) is not None
    ]
    if not times:
        return None
    # The clocks of two machines differ: if every sender seems later than the arrival, the earliest is the best guess.
    in_time = [t for t in times if t[2] <= reached_ms]
    if in_time:
        return max(in_time, key=lambda t: (t[2], -t[1]))
    return min(times, key=lambda t: (t[2], t[1]))


def _name(topology: Topology, vertex_id: VertexId) -> str:
    vertex = topology.vertex(vertex_id)
    return vertex.name if vertex is not None else vertex_id
