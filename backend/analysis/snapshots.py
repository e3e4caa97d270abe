"""Checkpoints that are long because a snapshot itself is: its sync part, or the store behind its async part.

A slow sync part shows at its own subtask only. A long async part is input and output only where nothing else keeps it
open: under an aligned timeout upstream tasks hold it until their output barriers are consumed, with unaligned
checkpoints it contains the wait for the last barrier (flink-baseline.md, 3, 12, 14, 15). Those waits are left out here:
of the first kind by looking at vertices without outputs only, of the second by subtracting the overlaid alignment.

A store so slow that a subtask does not acknowledge before the timeout shows by its absence: the others acknowledged at
once, nothing is back-pressured, and no barrier is known to have come late (5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backend.analysis.critical_path import Phases
from backend.analysis.phases import SubtaskPhases
from backend.analysis.statistics import column_means, highest, median
from backend.analysis.thresholds import PHASE_MIN_MS, PHASE_MIN_RATIO, SLOW_MIN_MS, STANDOUT_RATIO
from backend.domain.checkpoint import CheckpointConfig
from backend.domain.ids import VertexId
from backend.domain.topology import Topology
from backend.domain.verdict import Phase


@dataclass(frozen=True, slots=True)
class LongPart:
    """A snapshot part that ruled ``checkpoint_count`` of ``considered_count`` checkpoints.

    ``part_ms`` is the mean of the vertex's largest; ``size_bytes`` the mean a named subtask wrote, where reported.
    """

    vertex_id: VertexId
    subtasks: tuple[int, ...]
    phase: Phase
    part_ms: float
    duration_ms: float
    checkpoint_count: int
    considered_count: int
    size_bytes: float | None = None
    siblings_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Subtasks that did not acknowledge before the timeout, while all others did so at once."""

    vertex_id: VertexId
    subtasks: tuple[int, ...]
    others_ack_ms: float
    checkpoint_count: int
    considered_count: int
    first_barrier_ms: float | None = None


def long_part(
    topology: Topology, config: CheckpointConfig | None, checkpoints: Sequence[tuple[Phases, int]]
) -> LongPart | None:
    """The sync or async part that takes half of at least half of the long ``(phases, duration_ms)``, if one does."""
    considered = [(phases, duration) for phases, duration in checkpoints if duration >= SLOW_MIN_MS]
    if not considered:
        return None
    found = [
        part
        for vertex in topology.vertices
        for phase in (Phase.SYNC, Phase.ASYNC)
        if not (phase is Phase.ASYNC and _may_wait(topology, config, vertex.id))
        and (part := _long_part(vertex.id, phase, considered)) is not None
    ]
    return max(found, key=lambda p: p.part_ms, default=None)


def unanswered(topology: Topology, expired: Sequence[tuple[Phases, int]], *, has_readings: bool) -> Unanswered | None:
    """Who had not answered in at least half of the expired checkpoints, everyone else having done so at once.

    Without readings a vertex right below the sources is not named: they answer at once however full its queues are.
    """
    found = [one for phases, duration in expired if (one := _unanswered(topology, phases, duration)) is not None]
    if not found or len(found) < len(expired) * PHASE_MIN_RATIO:
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
        considered_count=len(expired),
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
    return Unanswered(
        vertex_id, tuple(p.subtask for p in rows), latest, 1, 1, highest(p.first_barrier_ms for p in rows)
    )


def _may_wait(topology: Topology, config: CheckpointConfig | None, vertex_id: VertexId) -> bool:
    """Whether the vertex's async part may stay open until its output barriers are consumed."""
    if config is None or not config.is_unaligned_enabled:
        return False
    return bool(topology.downstream(vertex_id))


def _part_ms(p: SubtaskPhases, phase: Phase) -> float | None:
    value = p.sync_duration_ms if phase is Phase.SYNC else p.own_async_ms
    return None if value is None else float(value)


def _long_part(vertex_id: VertexId, phase: Phase, checkpoints: Sequence[tuple[Phases, int]]) -> LongPart | None:
    rows: list[list[float | None]] = []
    sizes: list[list[float | None]] = []
    durations: list[int] = []
    for phases, duration in checkpoints:
        row = [_part_ms(p, phase) for p in phases.get(vertex_id, ())]
        most = highest(row)
        if most is not None and most >= PHASE_MIN_MS and most >= PHASE_MIN_RATIO * duration:
            rows.append(row)
            sizes.append([p.checkpointed_size_bytes for p in phases[vertex_id]])
            durations.append(duration)
    if not rows or len(rows) < len(checkpoints) * PHASE_MIN_RATIO:
        return None
    means = column_means(rows)
    most = highest(means) or 0.0
    named = tuple(i for i, m in enumerate(means) if m is not None and m >= STANDOUT_RATIO * most)
    if len(named) * 2 > len(means):
        # A store gives out its bandwidth unevenly: with most of its subtasks long, it is the vertex that is.
        named = tuple(range(len(means)))
    size_means = column_means(sizes)
    return LongPart(
        vertex_id=vertex_id,
        subtasks=named,
        phase=phase,
        part_ms=median(highest(r) for r in rows) or most,
        duration_ms=median(durations) or 0.0,
        checkpoint_count=len(rows),
        considered_count=len(checkpoints),
        size_bytes=median(size_means[i] for i in named),
        siblings_ms=median(m for i, m in enumerate(means) if i not in named),
    )
