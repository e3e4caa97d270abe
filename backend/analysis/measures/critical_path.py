"""Computes the critical path of one checkpoint: the steps from a source to the last acknowledgement.

The path is found backwards. It begins at the subtask that acknowledged last or, in a checkpoint that did not
complete, at the subtask that the checkpoint waits for. From each subtask it goes to the upstream subtask that most
likely sent the barrier, until it reaches a source. The engine does not report which channel delivered the last
barrier, so this sender is reconstructed. Of the direct predecessors that forwarded the barrier before it arrived, it
is the one that forwarded it last.

Invariant: the steps have no gap and no overlap, and no step has a negative duration.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite

import numpy as np

from backend.analysis.measures.phases import SubtaskPhases, VertexPhases, checkpoint_phases
from backend.analysis.numbers.arrays import Floats, highest_of, missing
from backend.analysis.numbers.cache import kept
from backend.domain.checkpoint import Checkpoint, CheckpointConfig, LateBarrier
from backend.domain.ids import VertexId
from backend.domain.topology import Edge, Topology
from backend.domain.verdict import Basis, Phase

Phases = Mapping[VertexId, VertexPhases]

_POINTWISE = frozenset({"FORWARD"})


@dataclass(frozen=True, slots=True)
class CriticalStep:
    """One phase of one subtask on the path, in milliseconds since the trigger."""

    vertex_id: VertexId
    vertex: str
    subtask: int
    phase: Phase
    start_ms: int
    end_ms: int
    basis: Basis


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The critical path, with the step at the source first.

    ``without_last_ms`` is the time at which all subtasks except the last one on the path had acknowledged.
    ``last_in`` is None until ``with_persistence`` adds it. ``kept_pace_ms`` is the duration that the checkpoint would
    have had if the subtasks that its verdict names had kept pace with their siblings; None if it is not known.
    """

    steps: tuple[CriticalStep, ...]
    last_vertex_id: VertexId
    last_vertex: str
    last_subtask: int
    without_last_ms: int | None
    last_in: str | None = None
    kept_pace_ms: int | None = None

    def phase_ms(self, phase: Phase) -> int:
        """Return the milliseconds of the path that belong to the phase."""
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
    """Return the critical path of one checkpoint, or None if no details of its subtasks are known."""
    phases = checkpoint_phases(checkpoint, config, late_barriers)
    return path_through(phases, topology, end_ms=checkpoint.header.end_to_end_duration_ms)


def path_through(phases: Phases, topology: Topology, *, end_ms: int | None) -> CriticalPath | None:
    """Return the critical path from phases that are already computed.

    ``end_ms`` is the time from the trigger to the end of the checkpoint.
    """
    return kept((phases, topology), ("path", end_ms), lambda: _path_through(phases, topology, end_ms))


def _path_through(phases: Phases, topology: Topology, end_ms: int | None) -> CriticalPath | None:
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
        without_last_ms=_without(phases, vertex_id, subtask, end_ms),
    )


def with_persistence(
    path: CriticalPath,
    checkpoints: Sequence[Checkpoint],
    topology: Topology,
    config: CheckpointConfig | None,
    late_barriers: Mapping[int, Sequence[LateBarrier]] | None = None,
) -> CriticalPath:
    """Return the path, and in ``last_in`` in how many of ``checkpoints`` the same subtask was last.

    ``last_in`` is the text ``last in n of m``. Checkpoints without details of their subtasks do not count.
    """
    late = late_barriers or {}
    lasts = [_last(checkpoint_phases(c, config, late.get(c.header.checkpoint_id, ())), topology) for c in checkpoints]
    known = [last for last in lasts if last is not None]
    if not known:
        return path
    count = known.count((path.last_vertex_id, path.last_subtask))
    return replace(path, last_in=f"last in {count} of {len(known)}")


def kept_pace_ms(
    phases: Phases,
    topology: Topology,
    vertex_id: VertexId,
    subtasks: Collection[int],
    *,
    took_ms: int | None = None,
) -> int | None:
    """Return the duration of the checkpoint if these subtasks had been no later than the latest of their siblings.

    It is never longer than ``took_ms``, the duration of the checkpoint.

    A subtask downstream that waited for their barrier would have been earlier too, by the same time. The result is None
    if an acknowledgement is missing, or if the vertex has no other subtasks.
    """
    rows = phases.get(vertex_id)
    if rows is None or not all(p.is_complete for p in phases.values()):
        return None
    own = np.zeros(len(rows), dtype=bool)
    own[[i for i in subtasks if i < len(rows)]] = True
    if own.all() or not own.any():
        return None
    sent = {v: p.snapshot_at_ms for v, p in phases.items()}
    acks = {v: p.ack_ms for v, p in phases.items()}
    for times in (sent, acks):
        # If the time of a sibling is missing (NaN), the maximum of the siblings is missing too. The times are then not
        # changed.
        latest = np.nan_to_num(times[vertex_id][~own].max(), nan=np.inf)
        times[vertex_id] = np.where(own, np.minimum(times[vertex_id], latest), times[vertex_id])
    for v in _downstream_in_order(topology, vertex_id):
        if v not in phases:
            continue
        edges = _inputs(topology, v, phases)
        before = _latest([(e, phases[e.source].snapshot_at_ms) for e in edges], len(phases[v]))
        after = _latest([(e, sent[e.source]) for e in edges], len(phases[v]))
        # If the time of a sender is missing, it is not known how much earlier the subtask would have been. The gain
        # then counts as 0.
        gained = np.nan_to_num(np.maximum(before - after, 0.0), nan=0.0)
        sent[v], acks[v] = sent[v] - gained, acks[v] - gained
    return shorter(int(max(float(a.max()) for a in acks.values() if a.size)), took_ms)


def shorter(counterfactual_ms: int, took_ms: int | None) -> int:
    """Return the duration of a checkpoint without one of its delays, which is at most what the checkpoint took.

    The time of an acknowledgement can be later than the end that the header reports: the two are read one after the
    other, and an acknowledgement may come after the end of a checkpoint. With clocks that differ, it can be before the
    trigger.
    """
    return max(0, counterfactual_ms if took_ms is None else min(counterfactual_ms, took_ms))


def _downstream_in_order(topology: Topology, vertex_id: VertexId) -> list[VertexId]:
    """Return the vertices downstream of a vertex, each after all its inputs among them."""
    below, queue = set[VertexId](), [vertex_id]
    while queue:
        v = queue.pop()
        fresh = {e.target for e in topology.edges if e.source == v} - below
        below |= fresh
        queue += fresh
    ordered: list[VertexId] = []
    while below:
        ready = [v for v in below if not any(e.target == v and e.source in below for e in topology.edges)]
        if not ready:
            break
        ordered += ready
        below -= set(ready)
    return ordered


def _inputs(topology: Topology, vertex_id: VertexId, phases: Phases) -> list[Edge]:
    return [e for e in topology.inputs(vertex_id) if e.source in phases]


def sent_ms(topology: Topology, vertex_id: VertexId, phases: Phases) -> Floats:
    """Return for each subtask of the vertex the time at which all its senders had forwarded the barrier.

    A subtask forwards its barrier at the start of its snapshot, before the sync part. The value is missing if the
    time of one sender is not known.
    """

    def latest() -> Floats:
        edges = [(e, phases[e.source].snapshot_at_ms) for e in _inputs(topology, vertex_id, phases)]
        return _latest(edges, len(phases.get(vertex_id, ())))

    return kept((phases, topology), ("sent", vertex_id), latest)


def arrived_below_ms(topology: Topology, vertex_id: VertexId, phases: Phases) -> Floats:
    """Return for each subtask of the vertex the time at which the barrier had reached all its downstream subtasks.

    The value is missing if the time at one of them is not known.
    """
    edges = [
        (e, phases[e.target].travel_ms if e.target in phases else missing(0))
        for e in topology.edges
        if e.source == vertex_id
    ]
    return _latest(edges, len(phases.get(vertex_id, ())))


def _latest(edges: Sequence[tuple[Edge, Floats]], count: int) -> Floats:
    """Return, for each of ``count`` subtasks, the latest time at the other ends of its channels.

    Each edge comes with the times of the subtasks at its other end. Working by edge avoids a pass over every channel.
    """
    latest: Floats | None = None
    for edge, times in edges:
        if _is_pointwise(edge, times.size, count):
            ends = times
        else:
            # The maximum of an array with a missing value (NaN) is missing too.
            ends = np.full(count, np.maximum.reduce(times) if times.size else np.nan)
        latest = ends if latest is None else np.maximum(latest, ends)
    return missing(count) if latest is None else latest


def _is_pointwise(edge: Edge, count: int, other_count: int) -> bool:
    return edge.ship_strategy in _POINTWISE and count == other_count


def _last(phases: Phases, topology: Topology) -> tuple[VertexId, int] | None:
    order = {v.id: n for n, v in enumerate(topology.vertices)}
    pending = {v: rows.pending for v, rows in phases.items() if not rows.is_complete}
    if pending:
        # Choose the pending subtask whose first barrier came latest, by its metric. If no metric shows a first
        # barrier, choose the first pending subtask in the order of the job graph.
        known = [
            (highest, -order.get(v, 0), -int(np.nanargmax(first)), v)
            for v in pending
            if (highest := highest_of(first := _of_pending(phases[v]))) is not None
        ]
        if known:
            _, _, subtask, v = max(known, key=lambda x: x[:3])
            return v, -subtask
        v = min(pending, key=lambda v: (order.get(v, len(order)), pending[v][0]))
        return v, pending[v][0]
    latest = [(acks := rows.ack_ms, int(acks.argmax()), v) for v, rows in phases.items() if len(rows)]
    acknowledged = [(float(acks[i]), order.get(v, 0), -i, v) for acks, i, v in latest]
    if not acknowledged:
        return None
    _, _, subtask, v = max(acknowledged, key=lambda x: x[:3])
    return v, -subtask


def _of_pending(rows: VertexPhases) -> Floats:
    """Return the first barriers of the subtasks that did not acknowledge."""
    return np.where(rows.is_acknowledged, np.nan, rows.first_barrier_ms)


def _without(phases: Phases, vertex_id: VertexId, subtask: int, end_ms: int | None) -> int | None:
    own = phases[vertex_id].ack_ms.copy()
    own[subtask] = -np.inf
    longest = float(np.concatenate([own, *(rows.ack_ms for v, rows in phases.items() if v != vertex_id)]).max())
    # If an acknowledgement is missing (NaN), the maximum is missing too.
    return shorter(int(longest), end_ms) if isfinite(longest) else None


def _own_steps(
    steps: list[CriticalStep], topology: Topology, vertex_id: VertexId, p: SubtaskPhases, end_ms: int | None
) -> int:
    """Add the last subtask's own steps, newest first.

    Return the arrival time of the barrier that the subtask waited for, in milliseconds.
    """
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
        # Most of the async part was a wait for the last barrier, so the path goes through that barrier.
        barrier_ms = min(async_end, barrier_ms)
        add(Phase.ASYNC, barrier_ms, async_end)
        return barrier_ms
    add(Phase.ASYNC, sync_end, async_end)
    add(Phase.SYNC, snapshot, sync_end)
    return snapshot


def _walk_up(
    steps: list[CriticalStep], topology: Topology, phases: Phases, vertex_id: VertexId, subtask: int, reached_ms: int
) -> None:
    """Add the steps of the barrier from its arrival at ``reached_ms`` back to the trigger, newest first."""
    while True:
        first_barrier_ms = phases[vertex_id].first_barrier_of(subtask)
        sender = _sender(topology, phases, vertex_id, subtask, reached_ms)
        sent_ms = 0 if sender is None else min(reached_ms, sender[2])
        first = reached_ms if first_barrier_ms is None else min(max(first_barrier_ms, sent_ms), reached_ms)
        basis = Basis.MEASURED if sender is None else Basis.RECONSTRUCTED
        for phase, start, end in ((Phase.ALIGNMENT, first, reached_ms), (Phase.START_DELAY, sent_ms, first)):
            if end > start:
                name = _name(topology, vertex_id)
                steps.append(CriticalStep(vertex_id, name, subtask, phase, start, end, basis))
        if sender is None:
            return
        vertex_id, subtask, reached_ms = sender[0], sender[1], sent_ms


def _sender(
    topology: Topology, phases: Phases, vertex_id: VertexId, subtask: int, reached_ms: int
) -> tuple[VertexId, int, int] | None:
    known = [(e.source, *_sent(e, phases, vertex_id, subtask)) for e in _inputs(topology, vertex_id, phases)]
    senders: list[tuple[float, int, VertexId]] = []
    for source, begin, sent in known:
        if not sent.size:
            continue
        i = int(sent.argmax())
        if not sent[i] <= reached_ms:
            # The latest sender sent too late, or the time of some sender is missing. So take the latest sender that
            # sent in time.
            in_time = np.where(sent <= reached_ms, sent, -1.0)
            i = int(in_time.argmax())
            if in_time[i] < 0.0:
                continue
        senders.append((float(sent[i]), begin + i, source))
    if senders:
        at, i, v = senders[0] if len(senders) == 1 else max(senders, key=lambda t: (t[0], -t[1]))
        return v, i, int(at)
    # If every sender seems to have sent after the arrival, the clocks of two machines differ. The earliest sender is
    # then the best guess.
    for source, begin, sent in known:
        if not np.isnan(sent).all():
            i = int(np.nanargmin(sent))
            senders.append((float(sent[i]), begin + i, source))
    if not senders:
        return None
    at, i, v = min(senders, key=lambda t: t[:2])
    return v, i, int(at)


def _sent(edge: Edge, phases: Phases, vertex_id: VertexId, subtask: int) -> tuple[int, Floats]:
    """Return the senders over this edge: the first one, and when each of them forwarded the barrier.

    The senders have consecutive numbers, beginning with that of the first sender.
    """
    sent = phases[edge.source].sent_ms
    if _is_pointwise(edge, sent.size, len(phases[vertex_id])):
        return subtask, sent[subtask : subtask + 1]
    return 0, sent


def _name(topology: Topology, vertex_id: VertexId) -> str:
    vertex = topology.vertex(vertex_id)
    return vertex.name if vertex is not None else vertex_id
