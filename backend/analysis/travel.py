"""The time of the barrier from vertex to vertex: the only evidence if back-pressure could not be read.

A hop of the barrier into a subtask takes as long as the data queued before it. Below a bottleneck nothing queues, so
the lowest vertex with a long hop is the end of the queue. Hops are reconstructed from start delays and alignments and
show less than readings: they are uneven under an even load too (flink-baseline.md, 6).

Also here: a source that emits its barrier late, so that everything below it waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backend.analysis.critical_path import Phases, sent_ms
from backend.analysis.phases import SubtaskPhases
from backend.analysis.statistics import column_means, highest
from backend.analysis.thresholds import HOP_MIN_MS, PHASE_MIN_MS, PHASE_MIN_RATIO, STANDOUT_RATIO
from backend.domain.ids import VertexId
from backend.domain.topology import Topology


@dataclass(frozen=True, slots=True)
class Hop:
    """Mean milliseconds from the latest sender's forwarding to the last barrier, by subtask of one vertex."""

    vertex_id: VertexId
    hop_ms: tuple[float | None, ...]

    @property
    def longest_ms(self) -> float:
        """The longest hop; 0 if none is known."""
        return highest(self.hop_ms) or 0.0

    @property
    def long_subtasks(self) -> tuple[int, ...]:
        """The subtasks with a queue before them."""
        return tuple(i for i, h in enumerate(self.hop_ms) if h is not None and h >= HOP_MIN_MS)


@dataclass(frozen=True, slots=True)
class LateSource:
    """A source that emitted its barrier late in most checkpoints; ``start_delay_ms`` is the largest mean delay."""

    vertex_id: VertexId
    subtasks: tuple[int, ...]
    start_delay_ms: float
    checkpoint_count: int


def hops(topology: Topology, checkpoints: Sequence[tuple[Phases, int]]) -> tuple[Hop, ...]:
    """The mean hop into every vertex with senders, over ``(phases, duration_ms)``, in topological order.

    A subtask without an acknowledgement and without a gauge value waited until the end at least.
    """
    found = []
    for vertex in topology.vertices:
        rows = [
            _hop_row(topology, phases, vertex.id, duration) for phases, duration in checkpoints if vertex.id in phases
        ]
        means = column_means([row for row in rows if row])
        if any(m is not None for m in means):
            found.append(Hop(vertex.id, means))
    return tuple(found)


def lowest_long_hop(found: Sequence[Hop]) -> Hop | None:
    """The last hop, in topological order, with a queue."""
    return next((h for h in reversed(found) if h.long_subtasks), None)


def late_source(topology: Topology, checkpoints: Sequence[tuple[Phases, int]]) -> LateSource | None:
    """The source that emitted its barrier late in at least half of the checkpoints, if there is one.

    Each checkpoint is given as ``(phases, duration_ms)``.
    """
    best: LateSource | None = None
    for vertex in topology.vertices:
        if topology.upstream(vertex.id):
            continue
        rows = [_late_row(phases.get(vertex.id, ()), duration) for phases, duration in checkpoints]
        late = [row for row in rows if row is not None]
        if not late or len(late) < len(checkpoints) * PHASE_MIN_RATIO:
            continue
        means = column_means(late)
        most = highest(means) or 0.0
        named = tuple(i for i, m in enumerate(means) if m is not None and m >= STANDOUT_RATIO * most)
        if best is None or most > best.start_delay_ms:
            best = LateSource(vertex.id, named, most, len(late))
    return best


def _late_row(rows: Sequence[SubtaskPhases], duration_ms: int) -> list[float | None] | None:
    # A start delay longer than its own acknowledgement is a difference of clocks, not a late source.
    delays = [None if p.first_barrier_ms is None or p.has_clock_skew else float(p.first_barrier_ms) for p in rows]
    most = highest(delays)
    is_late = most is not None and most >= PHASE_MIN_MS and most >= PHASE_MIN_RATIO * duration_ms
    return delays if is_late else None


def _hop_row(topology: Topology, phases: Phases, vertex_id: VertexId, duration_ms: int) -> list[float | None]:
    row: list[float | None] = []
    for p, sent in zip(phases[vertex_id], sent_ms(topology, vertex_id, phases), strict=True):
        reached = p.travel_ms if p.is_acknowledged or p.travel_ms is not None else duration_ms
        row.append(None if reached is None or sent is None else max(0.0, reached - sent))
    return row
