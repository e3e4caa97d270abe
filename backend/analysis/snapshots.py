"""Checkpoints that are long because a snapshot is long: its sync part, or the store behind its async part.

A slow sync part shows only at its own subtask. A long async part is input and output only if nothing else keeps it
open. With an aligned timeout, upstream tasks hold it until their output barriers are consumed; with unaligned
checkpoints, it includes the wait for the last barrier (flink-baseline.md, 3, 12, 14, 15). Only the time after these
waits counts: after the barrier had reached all subtasks below, and after the last barrier had reached the task.

Writers share a store: if several vertices have a long async part, the one that wrote the most is named.

If a store is so slow that a subtask does not acknowledge before the timeout, there is no async part to measure. The
signs are then: the others acknowledged at once, nothing is back-pressured, and no barrier is known to be late (5).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from backend.analysis.critical_path import Phases, arrived_below_ms
from backend.analysis.phases import SubtaskPhases
from backend.analysis.statistics import column_means, highest, known, median
from backend.analysis.thresholds import GRADED_RATIO, PHASE_MIN_MS, PHASE_MIN_RATIO, SLOW_MIN_MS, STANDOUT_RATIO
from backend.domain.checkpoint import CheckpointConfig
from backend.domain.ids import VertexId
from backend.domain.topology import Topology
from backend.domain.verdict import Phase


@dataclass(frozen=True, slots=True)
class LongPart:
    """A snapshot part that took most of ``checkpoint_count`` of ``considered_count`` checkpoints.

    ``part_ms`` is the median of the vertex's largest. ``size_bytes`` is what a named subtask typically wrote,
    ``total_bytes`` what all subtasks wrote, if reported. ``likewise`` are other vertices that are long in this phase.
    """

    vertex_id: VertexId
    subtasks: tuple[int, ...]
    phase: Phase
    part_ms: float
    checkpoint_count: int
    considered_count: int
    size_bytes: float | None = None
    siblings_ms: float | None = None
    total_bytes: float | None = None
    likewise: tuple[LongPart, ...] = ()


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Subtasks that did not acknowledge before the timeout although all others did at once."""

    vertex_id: VertexId
    subtasks: tuple[int, ...]
    others_ack_ms: float
    checkpoint_count: int
    first_barrier_ms: float | None = None


def long_part(
    topology: Topology,
    config: CheckpointConfig | None,
    checkpoints: Sequence[tuple[Phases, int]],
    *,
    held_back: Collection[VertexId] = (),
) -> LongPart | None:
    """The sync or async part that takes half of the duration, in at least half of the long ``(phases, duration_ms)``.

    If barriers may wait in output queues, the async part of a vertex in ``held_back`` is left out.
    """
    considered = [(phases, duration) for phases, duration in checkpoints if duration >= SLOW_MIN_MS]
    if not considered:
        return None
    found = [
        part
        for vertex in topology.vertices
        for asked in (_Asked(topology, config, vertex.id, phase) for phase in (Phase.SYNC, Phase.ASYNC))
        if not (asked.may_wait and vertex.id in held_back) and (part := _long_part(asked, considered)) is not None
    ]
    longest = max(found, key=lambda p: p.part_ms, default=None)
    if longest is None:
        return None
    alike = [p for p in found if p.phase is longest.phase and p.part_ms >= STANDOUT_RATIO * longest.part_ms]
    if longest.phase is Phase.ASYNC:
        longest = max(alike, key=lambda p: (p.total_bytes or 0.0, p.part_ms))
    return replace(longest, likewise=tuple(p for p in alike if p is not longest))


def unanswered(topology: Topology, waiting: Sequence[tuple[Phases, int]], *, has_readings: bool) -> Unanswered | None:
    """The subtasks that did not acknowledge in at least half of ``waiting`` although all others did at once.

    Without readings a vertex directly below the sources is not named: sources acknowledge at once even if its queues
    are full.
    """
    found = [one for phases, duration in waiting if (one := _unanswered(topology, phases, duration)) is not None]
    if not found or len(found) < len(waiting) * PHASE_MIN_RATIO:
        return None
    names = [one.vertex_id for one in found]
    vertex_id = max(sorted(set(names)), key=names.count)
    same = [one for one in found if one.vertex_id == vertex_id]
    if not has_readings and not any(topology.upstream(u) for u in topology.upstream(vertex_id)):
        return None
    always = frozenset.intersection(*(frozenset(one.subtasks) for one in same))
    return Unanswered(
        vertex_id=vertex_id,
        subtasks=tuple(sorted(always)) or same[-1].subtasks,
        others_ack_ms=median(one.others_ack_ms for one in same) or 0.0,
        checkpoint_count=len(same),
        first_barrier_ms=median(one.first_barrier_ms for one in same),
    )


def _unanswered(topology: Topology, phases: Phases, duration_ms: int) -> Unanswered | None:
    soon_ms = duration_ms * PHASE_MIN_RATIO
    latest = highest(p.ack_ms for rows in phases.values() for p in rows)
    if latest is None or latest > soon_ms:
        return None
    pending = {v.id: [p for p in phases.get(v.id, ()) if not p.is_acknowledged] for v in topology.vertices}
    most = max((len(rows) for rows in pending.values()), default=0)
    if most == 0 or any((p.first_barrier_ms or 0) > soon_ms for rows in pending.values() for p in rows):
        return None
    vertex_id = next(v for v in reversed(pending) if len(pending[v]) == most)
    rows = pending[vertex_id]
    return Unanswered(vertex_id, tuple(p.subtask for p in rows), latest, 1, highest(p.first_barrier_ms for p in rows))


@dataclass(frozen=True, slots=True)
class _Asked:
    """The vertex and the phase whose part is examined."""

    topology: Topology
    config: CheckpointConfig | None
    vertex_id: VertexId
    phase: Phase

    def parts_ms(self, phases: Phases) -> list[float | None]:
        """By subtask, the part without waits for barriers; None if it is not known."""
        there = phases.get(self.vertex_id, ())
        if self.phase is Phase.SYNC:
            return [p.sync_duration_ms for p in there]
        if not self.may_wait:
            return [p.own_async_ms for p in there]
        released = arrived_below_ms(self.topology, self.vertex_id, phases)
        return [_since(r, p) for r, p in zip(released, there, strict=True)]

    @property
    def may_wait(self) -> bool:
        """Whether the part may stay open until the output barriers are consumed."""
        if self.phase is not Phase.ASYNC:
            return False
        is_enabled = self.config is not None and bool(self.config.is_unaligned_enabled)
        return is_enabled and bool(self.topology.downstream(self.vertex_id))


def _since(released_ms: float | None, p: SubtaskPhases) -> float | None:
    own = p.own_async_ms
    if own is None or released_ms is None or p.async_end_ms is None:
        return None
    return min(float(own), max(0.0, p.async_end_ms - released_ms))


def _long_part(asked: _Asked, checkpoints: Sequence[tuple[Phases, int]]) -> LongPart | None:
    rows: list[list[float | None]] = []
    sizes: list[list[float | None]] = []
    silent: list[list[float | None]] = []
    for phases, duration in checkpoints:
        there = phases.get(asked.vertex_id, ())
        row = asked.parts_ms(phases)
        most = highest(row)
        if most is not None and most >= PHASE_MIN_MS and most >= PHASE_MIN_RATIO * duration:
            rows.append(row)
            sizes.append([p.checkpointed_size_bytes for p in there])
            silent.append([float(not p.is_acknowledged) for p in there])
    if not rows or len(rows) < len(checkpoints) * PHASE_MIN_RATIO:
        return None
    means = column_means(rows)
    named = _standing_out(means, column_means(silent))
    size_means = column_means(sizes)
    return LongPart(
        vertex_id=asked.vertex_id,
        subtasks=named,
        phase=asked.phase,
        part_ms=median(highest(r) for r in rows) or 0.0,
        checkpoint_count=len(rows),
        considered_count=len(checkpoints),
        size_bytes=median(size_means[i] for i in named),
        siblings_ms=median(m for i, m in enumerate(means) if i not in named),
        total_bytes=sum(known(size_means)) if known(size_means) else None,
    )


def _standing_out(means: Sequence[float | None], silent: Sequence[float | None]) -> tuple[int, ...]:
    """The subtasks with about the longest part, or that mostly did not acknowledge; all if that is most of them.

    A store serves its writers one after the other, so their parts grow from the first to the last. If half of them are
    long and the rest are not quick, the whole vertex is slow.
    """
    most = highest(means) or 0.0
    named = [
        i
        for i, (m, s) in enumerate(zip(means, silent, strict=True))
        if (m is not None and m >= STANDOUT_RATIO * most) or (s or 0.0) > PHASE_MIN_RATIO
    ]
    rest = median(m for i, m in enumerate(means) if i not in named)
    is_graded = rest is not None and rest >= GRADED_RATIO * most and len(named) * 2 >= len(means)
    return tuple(range(len(means))) if len(named) * 2 > len(means) or is_graded else tuple(named)
