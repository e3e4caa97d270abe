"""Measures the time of the barrier from vertex to vertex, the only evidence if back-pressure could not be read.

A hop of the barrier into a subtask takes as long as the subtask needs for the data queued in front of it. Downstream
of a bottleneck nothing queues, so the bottleneck is the most downstream vertex with a long hop. Hops are
reconstructed from start delays and alignments. They prove less than readings of back-pressure, because they are
uneven under an even load too (flink-baseline.md, 6).

The module also finds a source that emits its barrier late, so that everything downstream of it waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from backend.analysis.measures.critical_path import Phases, sent_ms
from backend.analysis.measures.phases import VertexPhases
from backend.analysis.numbers.arrays import Floats, column_means, highest_of, indices_of, stacked
from backend.analysis.numbers.cache import kept
from backend.analysis.words.thresholds import HOP_MIN_MS, PHASE_MIN_MS, PHASE_MIN_RATIO, STANDOUT_RATIO
from backend.domain.ids import VertexId
from backend.domain.topology import Topology


@dataclass(frozen=True, slots=True, eq=False)
class Hop:
    """The mean time in milliseconds that the barrier took to each subtask of one vertex; NaN if it is not known.

    A hop lasts from when the latest sender forwards the barrier until the last barrier arrives.
    """

    vertex_id: VertexId
    hop_ms: Floats

    @property
    def longest_ms(self) -> float:
        """The longest hop in milliseconds; 0 if no hop is known."""
        return highest_of(self.hop_ms) or 0.0

    @property
    def long_subtasks(self) -> tuple[int, ...]:
        """The subtasks with a long hop, which means that there is a queue in front of them."""
        return indices_of(self.hop_ms >= HOP_MIN_MS)


@dataclass(frozen=True, slots=True)
class LateSource:
    """A source that emitted its barrier late in most checkpoints; ``start_delay_ms`` is the largest mean delay."""

    vertex_id: VertexId
    subtasks: tuple[int, ...]
    start_delay_ms: float
    checkpoint_count: int


def hops(topology: Topology, checkpoints: Sequence[tuple[Phases, int]]) -> tuple[Hop, ...]:
    """Return the mean hops into every vertex that has senders, in topological order.

    A checkpoint is a pair ``(phases, duration_ms)``. If a subtask did not acknowledge and no metric shows its barrier,
    it is assumed to have waited until the end of the checkpoint.
    """
    found = []
    for vertex in topology.vertices:
        rows = [
            _hop_row(topology, phases, vertex.id, duration) for phases, duration in checkpoints if vertex.id in phases
        ]
        means = column_means(stacked(rows))
        if not np.isnan(means).all():
            found.append(Hop(vertex.id, means))
    return tuple(found)


def lowest_long_hop(found: Sequence[Hop]) -> Hop | None:
    """Return the hops into the most downstream vertex at which a hop is long, or None if there is none."""
    return next((h for h in reversed(found) if h.long_subtasks), None)


def late_source(
    topology: Topology, checkpoints: Sequence[tuple[Phases, int]], least_ms: Callable[[int], float]
) -> LateSource | None:
    """Return the source that emitted its barrier late in at least half of the checkpoints, if there is one.

    A checkpoint is a pair ``(phases, duration_ms)``. ``least_ms`` returns the least delay of a checkpoint of a given
    duration that counts as late.
    """
    best: LateSource | None = None
    for vertex in topology.vertices:
        if topology.upstream(vertex.id):
            continue
        rows = [
            _late_row(phases[vertex.id], max(PHASE_MIN_MS, least_ms(duration)))
            for phases, duration in checkpoints
            if vertex.id in phases
        ]
        late = [row for row in rows if row is not None]
        if not late or len(late) < len(checkpoints) * PHASE_MIN_RATIO:
            continue
        means = column_means(stacked(late))
        most = highest_of(means) or 0.0
        named = indices_of(means >= STANDOUT_RATIO * most)
        if best is None or most > best.start_delay_ms:
            best = LateSource(vertex.id, named, most, len(late))
    return best


def _late_row(rows: VertexPhases, least: float) -> Floats | None:
    if (highest_of(rows.first_barrier_ms) or 0.0) < least:
        return None
    # If a subtask's start delay is longer than the time to its acknowledgement, two clocks differ: the source was not
    # late.
    delays = np.where(rows.has_clock_skew, np.nan, rows.first_barrier_ms)
    most = highest_of(delays)
    return delays if most is not None and most >= least else None


def _hop_row(topology: Topology, phases: Phases, vertex_id: VertexId, duration_ms: int) -> Floats:

    def row() -> Floats:
        rows = phases[vertex_id]
        is_awaited = ~rows.is_acknowledged & np.isnan(rows.travel_ms)
        reached = np.where(is_awaited, duration_ms, rows.travel_ms)
        return np.maximum(0.0, reached - sent_ms(topology, vertex_id, phases))

    return kept((phases, topology), ("hops", vertex_id, duration_ms), row)
