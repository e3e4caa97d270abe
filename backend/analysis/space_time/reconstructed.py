"""Reconstructs the trace of a checkpoint from the phases of its subtasks, for an engine that reports no channels.

Such an engine reports when the first and the last barrier reached a subtask, but not which subtask sent them. The first
barrier most likely came from the upstream subtask that forwarded it first, and the last from the one that forwarded it
last. The trace has at most these two arrows for each subtask. It leaves out an arrow that would end before it begins,
which the clocks of two machines can cause.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from backend.analysis.measures.phases import SubtaskPhases, VertexPhases
from backend.analysis.space_time.trace import ChannelTrace, Stretch, Subtask, SubtaskTrace, Trace
from backend.domain.ids import VertexId
from backend.domain.topology import Topology
from backend.domain.verdict import Basis

_POINTWISE = "FORWARD"


def trace_of(phases: Mapping[VertexId, VertexPhases], topology: Topology) -> Trace:
    """Return the trace of the checkpoint with these phases."""
    traces = {(v, s.subtask): _subtask(s) for v, rows in phases.items() for s in rows}
    return Trace(traces, list(_channels(phases, topology, traces)), Basis.RECONSTRUCTED)


def _subtask(s: SubtaskPhases) -> SubtaskTrace:
    is_copying = s.is_alignment_overlaid and s.snapshot_at_ms is not None and s.alignment_end_ms is not None
    blocked_end_ms = s.alignment_end_ms if not is_copying else s.snapshot_at_ms
    is_blocked = s.first_barrier_ms is not None and blocked_end_ms is not None and blocked_end_ms > s.first_barrier_ms
    return SubtaskTrace(
        first_ms=_float(s.first_barrier_ms),
        last_ms=_float(s.alignment_end_ms),
        snapshot_ms=_float(s.snapshot_at_ms),
        sync_end_ms=_float(s.sync_end_ms),
        async_end_ms=_float(s.async_end_ms),
        ack_ms=_float(s.ack_ms),
        blocked=(_stretch(s.first_barrier_ms, blocked_end_ms),) if is_blocked else (),
        recorded=_stretch(s.snapshot_at_ms, s.alignment_end_ms) if is_copying else None,
        logged_bytes=s.persisted_bytes,
        has_finished=s.has_finished,
    )


def _channels(
    phases: Mapping[VertexId, VertexPhases], topology: Topology, traces: Mapping[Subtask, SubtaskTrace]
) -> Iterator[ChannelTrace]:
    for vertex_id, rows in phases.items():
        pointwise: list[VertexId] = []
        every: list[tuple[float, Subtask]] = []
        for edge in topology.edges:
            if edge.target != vertex_id or edge.source not in phases:
                continue
            if edge.ship_strategy == _POINTWISE and len(phases[edge.source]) == len(rows):
                pointwise.append(edge.source)
            else:
                every += _sent([(edge.source, i) for i in range(len(phases[edge.source]))], traces)
        ends = [min(every), max(every)] if every else []
        for i in range(len(rows)):
            sent = [*ends, *_sent([(source, i) for source in pointwise], traces)]
            yield from _arrows(sent, (vertex_id, i), traces[vertex_id, i])


def _sent(senders: Sequence[Subtask], traces: Mapping[Subtask, SubtaskTrace]) -> list[tuple[float, Subtask]]:
    sent = ((traces[sender].snapshot_ms, sender) for sender in senders)
    return [(at_ms, sender) for at_ms, sender in sent if at_ms is not None]


def _arrows(sent: list[tuple[float, Subtask]], receiver: Subtask, received: SubtaskTrace) -> Iterator[ChannelTrace]:
    if not sent:
        return
    first, last = min(sent), max(sent)
    if received.first_ms is not None and first[0] <= received.first_ms:
        yield ChannelTrace(first[1], receiver, first[0], received.first_ms)
    if last[1] != first[1] and received.last_ms is not None and last[0] <= received.last_ms:
        yield ChannelTrace(last[1], receiver, last[0], received.last_ms)


def _stretch(begin_ms: int | None, end_ms: int | None) -> Stretch:
    assert begin_ms is not None
    return Stretch(float(begin_ms), _float(end_ms))


def _float(value: int | None) -> float | None:
    return None if value is None else float(value)
