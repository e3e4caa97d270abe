"""Reconstructs barrier events from the phases of subtasks, if the engine reports no barrier events.

The reconstructed events name no channels. Each event is as reliable as the phase from which it comes (views.md V3). An
unknown phase yields no event.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.measures.phases import SubtaskPhases, checkpoint_phases
from backend.contracts.barriers import BarrierEventOut
from backend.domain.barriers import BarrierEventKind
from backend.domain.checkpoint import Checkpoint, LateBarrier
from backend.domain.errors import TooLargeError
from backend.domain.ids import VertexId

EVENTS_MAX: Final = 12_000
"""Events in one answer, which takes about 150 bytes for each."""
_PER_SUBTASK = 6


def reconstructed_events(
    checkpoint: Checkpoint, evidence: JobEvidence, late: Sequence[LateBarrier], *, vertex: str | None = None
) -> list[BarrierEventOut]:
    """Return the events, or those of one vertex, sorted by time.

    Events at the same time are in the order of vertices, then subtasks, then phases.

    Raises:
        TooLargeError: there may be more events than one answer has.
    """
    phases = checkpoint_phases(checkpoint, evidence.config, late)
    if vertex is not None:
        phases = {v: found for v, found in phases.items() if v == vertex}
    check_events(_PER_SUBTASK * sum(map(len, phases.values())))
    order = {v.id: i for i, v in enumerate(evidence.topology.vertices)}
    events: list[tuple[int, int, int, int, BarrierEventKind, VertexId]] = []
    for vertex_id, subtasks in phases.items():
        is_sink = not evidence.topology.downstream(vertex_id)
        for subtask in subtasks:
            for step, (kind, at_ms) in enumerate(_events(subtask, is_sink=is_sink)):
                events.append((at_ms, order.get(vertex_id, len(order)), subtask.subtask, step, kind, vertex_id))
    events.sort(key=lambda e: e[:4])
    return [
        BarrierEventOut(kind=kind, vertex_id=vertex_id, subtask=subtask, at_ms=float(at_ms), lamport=i)
        for i, (at_ms, _, subtask, _, kind, vertex_id) in enumerate(events)
    ]


def check_events(count: int) -> None:
    """Raise an error if an answer would have too many events.

    Raises:
        TooLargeError: there are more than ``EVENTS_MAX`` events.
    """
    if count > EVENTS_MAX:
        raise TooLargeError(
            "answer",
            f"these are up to {count:,} events, and one answer has at most {EVENTS_MAX:,}",
            field="vertex",
            fix="name one vertex with `vertex`",
        )


def _events(phases: SubtaskPhases, *, is_sink: bool) -> Iterator[tuple[BarrierEventKind, int]]:
    # A task emits its barrier when its snapshot begins, which is before the sync phase.
    steps = (
        (BarrierEventKind.BARRIER_RECEIVED, phases.first_barrier_ms),
        (BarrierEventKind.BARRIER_EMITTED, None if is_sink else phases.snapshot_at_ms),
        (BarrierEventKind.SNAPSHOT_SYNC_START, phases.snapshot_at_ms),
        (BarrierEventKind.SNAPSHOT_SYNC_END, phases.sync_end_ms),
        (BarrierEventKind.SNAPSHOT_ASYNC_END, phases.async_end_ms),
        (BarrierEventKind.ACKED, phases.ack_ms),
    )
    for kind, at_ms in steps:
        if at_ms is not None:
            yield kind, at_ms
