"""Finds checkpoints that are long because a snapshot is long: its sync part, or the store behind its async part.

A slow sync part shows only at its own subtask. A long async part is a sign of slow input and output only if nothing
else keeps the part open. With an aligned timeout, the async part of an upstream task lasts until its output barriers
are consumed. With unaligned checkpoints, the async part includes the wait for the last barrier (flink-baseline.md, 3,
12, 14, 15). So only the time after these waits counts: after the barrier had reached all downstream subtasks, and after
the last barrier had reached the task.

All vertices write to the same store. If several have a long async part, the one that wrote the most is named.

If a store is so slow that a subtask does not acknowledge before the timeout, there is no async part to measure. There
are then three signs: the other subtasks acknowledged early, nothing is back-pressured, and no barrier is known to be
late (flink-baseline.md, 5).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from backend.analysis.measures.critical_path import Phases, arrived_below_ms
from backend.analysis.measures.phases import VertexPhases, longest_ms
from backend.analysis.measures.pressure import ancestors, descendants
from backend.analysis.numbers.arrays import (
    Flags,
    Floats,
    column_means,
    highest_of,
    indices_of,
    known_of,
    median_of,
    missing,
    stacked,
)
from backend.analysis.numbers.statistics import highest, median
from backend.analysis.words.thresholds import GRADED_RATIO, PHASE_MIN_MS, PHASE_MIN_RATIO, SLOW_MIN_MS, STANDOUT_RATIO
from backend.domain.checkpoint import CheckpointConfig
from backend.domain.ids import VertexId
from backend.domain.topology import Topology
from backend.domain.verdict import Phase

# So many checkpoints with a long sync part are enough if the others do not tell.
_LATE_MIN = 2


@dataclass(frozen=True, slots=True)
class LongPart:
    """A snapshot part that took most of the time in ``checkpoint_count`` of ``considered_count`` checkpoints.

    ``part_ms`` is the longest part of a subtask, as the median over the checkpoints. ``size_bytes`` is what one of
    ``subtasks`` typically wrote, and ``total_bytes`` what all subtasks of the vertex wrote, if reported. ``likewise``
    are other vertices with a long part in the same phase.
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
    """Subtasks that did not acknowledge before the timeout although all others acknowledged early."""

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
    least_ms: Callable[[int], float] = lambda duration_ms: PHASE_MIN_RATIO * duration_ms,
    is_calm: bool = False,
    phase: Phase | None = None,
) -> LongPart | None:
    """Return the sync or async part that makes checkpoints long, or None. ``phase`` asks for one of the two only.

    A checkpoint is a pair ``(phases, duration_ms)``. A part is long if it takes at least ``least_ms(duration_ms)``. It
    must be long in at least half of the long checkpoints. ``held_back`` are the back-pressured vertices. The async part
    of such a vertex is left out if it may include the time that barriers wait in output queues.

    If ``is_calm``, the checkpoints are well, and all of them are considered, not only the long ones. An async part may
    include the wait for the barriers of other subtasks, because subtasks share files of in-flight data. This wait is
    then left out.
    """
    considered = [(phases, duration) for phases, duration in checkpoints if is_calm or duration >= SLOW_MIN_MS]
    if not considered:
        return None
    asked_phases = [
        p for p in (Phase.SYNC, Phase.ASYNC) if phase in (None, p) and _may_be_long(considered, p, least_ms)
    ]
    parts = [
        part
        for vertex in topology.vertices
        for asked in (_Asked(topology, config, vertex.id, p, is_calm) for p in asked_phases)
        if not (asked.may_wait and vertex.id in held_back)
        and (part := _long_part(asked, considered, least_ms)) is not None
    ]
    longest = max(parts, key=lambda p: p.part_ms, default=None)
    if longest is None:
        return None
    alike = [p for p in parts if p.phase is longest.phase and p.part_ms >= STANDOUT_RATIO * longest.part_ms]
    if longest.phase is Phase.ASYNC:
        longest = max(alike, key=lambda p: (p.total_bytes or 0.0, p.part_ms))
    return replace(longest, likewise=tuple(p for p in alike if p is not longest))


def _may_be_long(checkpoints: Sequence[tuple[Phases, int]], phase: Phase, least_ms: Callable[[int], float]) -> bool:
    """Return whether enough checkpoints have a long part at any vertex; most jobs have none, so this saves time."""
    count = sum(_is_long(longest_ms(phases, phase), least_ms(duration)) for phases, duration in checkpoints)
    return count >= len(checkpoints) * PHASE_MIN_RATIO or (phase is Phase.SYNC and count >= _LATE_MIN)


def _is_long(part_ms: float, least_ms: float) -> bool:
    return part_ms >= max(PHASE_MIN_MS, least_ms)


def unanswered(topology: Topology, waiting: Sequence[tuple[Phases, int]], *, has_readings: bool) -> Unanswered | None:
    """Return the subtasks that did not acknowledge although all others acknowledged early.

    They are returned only if this happened in at least half of ``waiting``. Without readings, a vertex directly
    downstream of the sources is not named, because sources acknowledge at once even if the vertex's queues are full.
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
    latest = highest(highest_of(rows.ack_ms) for rows in phases.values())
    if latest is None or latest > soon_ms:
        return None
    pending = {v.id: phases[v.id].pending if v.id in phases else () for v in topology.vertices}
    most = max((len(subtasks) for subtasks in pending.values()), default=0)
    if most == 0 or any(
        (_first_ms(phases[v], subtasks) or 0.0) > soon_ms for v, subtasks in pending.items() if subtasks
    ):
        return None
    vertex_id = next(v for v in reversed(pending) if len(pending[v]) == most)
    if any(_is_held_at(topology, phases, above) for above in ancestors(topology, vertex_id)):
        # The barrier may never have come.
        return None
    subtasks = pending[vertex_id]
    return Unanswered(vertex_id, subtasks, latest, 1, _first_ms(phases[vertex_id], subtasks))


def _is_held_at(topology: Topology, phases: Phases, vertex_id: VertexId) -> bool:
    """Return whether the barrier may have stopped at a vertex: some of its subtasks acknowledged, and none below it.

    If a subtask below acknowledged, it had the barriers of all subtasks above it.
    """
    rows = phases.get(vertex_id)
    if rows is None or not 0 < len(rows.pending) < len(rows):
        return False
    return not any(phases[v].is_acknowledged.any() for v in descendants(topology, vertex_id) if v in phases)


def _first_ms(rows: VertexPhases, subtasks: tuple[int, ...]) -> float | None:
    return highest_of(rows.first_barrier_ms[list(subtasks)])


@dataclass(frozen=True, slots=True)
class _Asked:
    """One vertex and one phase, whose durations are examined."""

    topology: Topology
    config: CheckpointConfig | None
    vertex_id: VertexId
    phase: Phase
    is_calm: bool = False

    def parts_ms(self, phases: Phases) -> Floats:
        """Return the duration of the part by subtask, without waits for barriers; missing if it is not known."""
        rows = phases.get(self.vertex_id)
        if rows is None:
            return missing(0)
        if self.phase is Phase.SYNC:
            return rows.sync_duration_ms
        if self.is_calm and self.config is not None and self.config.overtakes:
            last_ms = highest(highest_of(one.travel_ms) for one in phases.values()) or 0.0
            return np.minimum(rows.own_async_ms, np.maximum(0.0, rows.async_end_ms - last_ms))
        if not self.may_wait:
            return rows.own_async_ms
        released = arrived_below_ms(self.topology, self.vertex_id, phases)
        return np.minimum(rows.own_async_ms, np.maximum(0.0, rows.async_end_ms - released))

    @property
    def may_wait(self) -> bool:
        """Whether this is an async part that may last until downstream subtasks have read the barriers."""
        if self.phase is not Phase.ASYNC:
            return False
        return self.config is not None and self.config.overtakes and bool(self.topology.downstream(self.vertex_id))


def _long_part(
    asked: _Asked, checkpoints: Sequence[tuple[Phases, int]], least_ms: Callable[[int], float]
) -> LongPart | None:
    rows: list[Floats] = []
    longest_ms: list[float] = []
    there: list[VertexPhases] = []
    for phases, duration in checkpoints:
        row = asked.parts_ms(phases)
        most = highest_of(row)
        if most is not None and _is_long(most, least_ms(duration)):
            rows.append(row)
            longest_ms.append(most)
            there.append(phases[asked.vertex_id])
    silent_count = _silent_count(asked, checkpoints, rows)
    if not rows or len(rows) < (len(checkpoints) - silent_count) * PHASE_MIN_RATIO:
        return None
    means = column_means(stacked(rows))
    is_named = _standing_out(means, column_means(stacked([(~p.is_acknowledged).astype(float) for p in there])))
    size_means = column_means(stacked([p.checkpointed_size_bytes for p in there]))
    sizes = known_of(size_means)
    return LongPart(
        vertex_id=asked.vertex_id,
        subtasks=indices_of(is_named),
        phase=asked.phase,
        part_ms=median(longest_ms) or 0.0,
        checkpoint_count=len(rows),
        considered_count=len(checkpoints),
        size_bytes=median_of(size_means[is_named]),
        siblings_ms=median_of(means[~is_named]),
        total_bytes=sum(sizes.tolist()) if sizes.size else None,
    )


def _silent_count(asked: _Asked, checkpoints: Sequence[tuple[Phases, int]], long: Sequence[Floats]) -> int:
    """Return how many checkpoints do not tell whether the subtasks with a long sync part had one, too.

    A subtask whose sync part outlasts the timeout does not acknowledge in time. Flink keeps an acknowledgement that
    arrives later, with its sync part, but not all of them: a task that is in its sync part meanwhile does not begin the
    checkpoints that ended before. So two late acknowledgements tell more than many that are missing.
    """
    if asked.phase is not Phase.SYNC or len(long) < _LATE_MIN:
        return 0
    means = column_means(stacked(long))
    named = set(indices_of(means >= STANDOUT_RATIO * (highest_of(means) or 0.0)))
    # A sync part that ended in time does not outlast the timeout.
    ends = [(highest_of(p[asked.vertex_id].ack_ms[list(named)]), ms) for p, ms in checkpoints if asked.vertex_id in p]
    if sum(end is not None and end > ms for end, ms in ends) < _LATE_MIN:
        return 0
    return sum(
        bool(named.intersection(phases[asked.vertex_id].pending))
        for phases, _ in checkpoints
        if asked.vertex_id in phases
    )


def _standing_out(means: Floats, silent: Floats) -> Flags:
    """Return which subtasks have a part at least half as long as the longest one, or mostly did not acknowledge.

    A store serves its writers one after the other, so their parts grow from the first to the last. All subtasks are
    returned if more than half of them stand out, or if half of them do and the rest are not quick: the whole vertex
    is then slow.
    """
    most = highest_of(means) or 0.0
    is_named = (means >= STANDOUT_RATIO * most) | (silent > PHASE_MIN_RATIO)
    count = np.count_nonzero(is_named)
    rest = median_of(means[~is_named])
    is_graded = rest is not None and rest >= GRADED_RATIO * most and count * 2 >= means.size
    return np.ones_like(is_named) if count * 2 > means.size or is_graded else is_named
