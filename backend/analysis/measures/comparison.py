"""Compares two checkpoints of a job: by vertex, phase and subtask, and finds what differs most.

Every difference is the value of the first checkpoint (``a``) minus that of the second (``b``). If one side did not
report a value, the value and the difference are missing.

The cause is where the longer checkpoint lost its time. The critical path of the longer checkpoint is a chain of steps.
At the end of each step, the longer checkpoint is late by some time compared with the same subtask of the other one. The
step in which this lateness grows most is the cause. The largest phase alone would not be enough: everything downstream
of a slow vertex has a long start delay.

Invariant: the lateness that the steps add sums to the lateness at the end of the path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from backend.analysis.measures.critical_path import CriticalStep, Phases, path_through
from backend.analysis.measures.phases import VertexPhases
from backend.analysis.numbers.arrays import Floats, known_of
from backend.analysis.words import sentences as say
from backend.domain.checkpoint import Checkpoint, CheckpointHeader, CheckpointStatus, SubtaskMeasure
from backend.domain.failure import FailureReason
from backend.domain.ids import VertexId
from backend.domain.micro_batch import BatchPhase
from backend.domain.topology import Topology
from backend.domain.verdict import Basis, Phase

NOISE_MS: Final = 100
"""Durations that differ by less than this are within the noise of a machine, so no cause is named."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two checkpoints, with its graph, its phases and its largest phases.

    ``maxima_ms`` remains if retention has removed the values of the subtasks. ``name`` is how sentences call the
    checkpoint.
    """

    name: str
    checkpoint: Checkpoint
    topology: Topology
    phases: Phases
    maxima_ms: Mapping[Phase, int | None]

    @property
    def header(self) -> CheckpointHeader:
        """The header of the checkpoint."""
        return self.checkpoint.header


@dataclass(frozen=True, slots=True)
class MeasureDifference:
    """One measure of one vertex on both sides.

    A time is the largest of the subtasks, and the subtask with this value is named. Bytes are the sum.
    """

    measure: SubtaskMeasure
    a: int | None
    b: int | None
    a_subtask: int | None = None
    b_subtask: int | None = None

    @property
    def difference(self) -> int | None:
        """The value of ``a`` minus that of ``b``; None if one of them is missing."""
        return None if self.a is None or self.b is None else self.a - self.b


@dataclass(frozen=True, slots=True)
class VertexDifference:
    """All measures of one vertex on both sides. A vertex that only one side has is missing on the other."""

    vertex_id: VertexId
    vertex: str
    measures: tuple[MeasureDifference, ...]


@dataclass(frozen=True, slots=True)
class SubtaskDifference:
    """The measures of one subtask on both sides."""

    subtask: int
    measures: tuple[MeasureDifference, ...]


@dataclass(frozen=True, slots=True)
class Cause:
    """The phase and the subtask in which most of the difference arose.

    ``vertex_id`` and ``subtask`` are None if only the largest phases of the checkpoints are known. ``batch_phase`` is
    set instead of ``phase`` for micro-batches. ``is_at_least`` is whether the longer checkpoint ended before this phase
    was over, so that the difference is only a lower bound. ``phase_difference_ms`` is the difference of the phase at
    this vertex, which contains what arose before it; None if that is not known.
    """

    difference_ms: int
    phase: Phase | None = None
    batch_phase: BatchPhase | None = None
    vertex_id: VertexId | None = None
    vertex: str | None = None
    subtask: int | None = None
    is_at_least: bool = False
    basis: Basis = Basis.MEASURED
    phase_difference_ms: int | None = None


def vertex_differences(a: Side, b: Side) -> tuple[VertexDifference, ...]:
    """Return the differences of every vertex: those in the graph of ``a`` in its order, then all others."""
    names = {v.id: v.name for side in (b, a) for v in side.topology.vertices}
    order = [v.id for side in (a, b) for v in side.topology.vertices]
    reported = dict.fromkeys([*order, *a.phases, *b.phases])
    return tuple(
        VertexDifference(v, names.get(v, v), tuple(_of_vertex(m, a.phases.get(v), b.phases.get(v)) for m in _ARRAYS))
        for v in reported
        if v in a.phases or v in b.phases
    )


def subtask_differences(
    a: Side, b: Side, vertex_id: VertexId, measure: SubtaskMeasure, *, limit: int
) -> tuple[SubtaskDifference, ...]:
    """Return the ``limit`` subtasks of a vertex that differ most in a measure, the largest difference first.

    Subtasks for which the measure is missing on a side come after all others, in the order of their largest difference
    in any time.
    """
    sides = (a.phases.get(vertex_id), b.phases.get(vertex_id))
    count = max((len(phases) for phases in sides if phases is not None), default=0)
    values = {m: [_padded(_values(m, phases), count) for phases in sides] for m in _ARRAYS}
    distance = np.abs(values[measure][0] - values[measure][1])
    times = [np.abs(mine - yours) for m, (mine, yours) in values.items() if not m.is_bytes]
    # ``lexsort`` puts NaN last, and equal differences keep the order of the subtasks.
    chosen = np.lexsort((-np.fmax.reduce(times), -distance))[:limit]
    return tuple(
        SubtaskDifference(
            int(i), tuple(MeasureDifference(m, _number(values[m][0][i]), _number(values[m][1][i])) for m in _ARRAYS)
        )
        for i in chosen
    )


def cause_of(a: Side, b: Side) -> Cause | None:
    """Return where most of the difference arose, or None if it is not known or within the noise."""
    took_a, took_b = a.header.end_to_end_duration_ms, b.header.end_to_end_duration_ms
    if took_a is None or took_b is None or not (_is_timed(a.header) and _is_timed(b.header)):
        return None
    if _is_expired(a.header) and _is_expired(b.header):
        return _known_cause(a, b)
    # An expired checkpoint counts as longer than a completed one, because it would have taken longer than its timeout.
    is_a_longer = (_is_expired(a.header), took_a) >= (_is_expired(b.header), took_b)
    longer, other, sign = (a, b, 1) if is_a_longer else (b, a, -1)
    # If only the longer checkpoint expired, the difference is real even if the measured durations are nearly equal.
    is_known_longer = _is_expired(longer.header) and not _is_expired(other.header)
    if abs(took_a - took_b) < NOISE_MS and not is_known_longer:
        return None
    if a.checkpoint.batch is not None or b.checkpoint.batch is not None:
        return _batch_cause(longer, other, sign)
    return _path_cause(longer, other, sign) or _maxima_cause(longer, other, sign)


def headline(a: Side, b: Side, cause: Cause | None) -> str:
    """Return one sentence that states how long both took, and what differs most."""
    took_a, took_b = a.header.end_to_end_duration_ms, b.header.end_to_end_duration_ms
    is_both_done = a.header.status is b.header.status is CheckpointStatus.COMPLETED
    if is_both_done and took_a is not None and took_b is not None:
        words = f"{a.name} took {say.duration(took_a)}, {b.name} {say.beside(took_b, took_a)}"
        if cause is None and abs(took_a - took_b) < NOISE_MS:
            return f"{words}: they differ by less than {NOISE_MS} ms."
    elif _is_expired(a.header) and _is_expired(b.header):
        return f"{_ended(a)}, {_ended(b)}: {_expired_words(a, b, cause)}."
    else:
        words = f"{_ended(a)}, {_ended(b)}"
    return f"{words}: {_cause_words(cause)}." if cause is not None else f"{words}."


def signed(ms: float) -> str:
    """Return a difference in words, with its sign: ``+12.9 s``, ``-40 ms``, ``0 ms``."""
    sign = "+" if ms > 0 else "-" if ms < 0 else ""
    return f"{sign}{say.duration(abs(ms))}"


def _cause_words(cause: Cause) -> str:
    phase = cause.batch_phase or cause.phase
    least = "at least " if cause.is_at_least else ""
    words = f"{least}{signed(cause.difference_ms)} of {(phase or 'other').replace('-', ' ')}"
    if cause.vertex is not None:
        pending = ", which did not acknowledge" if cause.is_at_least else ""
        whole = cause.phase_difference_ms
        if whole is not None and not cause.is_at_least and abs(whole - cause.difference_ms) >= NOISE_MS:
            # A chart shows the difference of the phase. The two numbers must not look like two answers.
            pending = f" (its largest {_phase_word(cause)} differs by {signed(whole)}, with what arose before it)"
        return f"{words} at {say.vertex(cause.vertex)} subtask {cause.subtask}{pending}"
    return words if cause.batch_phase is not None or cause.phase is None else f"{words}, at the slowest subtask"


def _phase_word(cause: Cause) -> str:
    return "" if cause.phase is None else cause.phase.value.replace("-", " ")


def _expired_words(a: Side, b: Side, cause: Cause | None) -> str:
    """Say what is known of two checkpoints that both expired: how far they came, and the phase that differs most."""
    far = [f"{s.header.acknowledged_count} of {s.header.subtask_count} subtasks in {s.name}" for s in (a, b)]
    words = f"both would have taken longer; acknowledged: {far[0]}, {far[1]}"
    if cause is None:
        return f"{words}; no phase that is known differs by {NOISE_MS} ms"
    least = "at least " if cause.is_at_least else ""
    differs = f"the largest {_phase_word(cause)} of {say.vertex(cause.vertex or '')} differs most"
    return f"{words}; of what is known, {differs}: {least}{signed(cause.difference_ms)} at subtask {cause.subtask}"


def _ended(side: Side) -> str:
    header, name = side.header, side.name
    took = header.end_to_end_duration_ms
    if header.status is CheckpointStatus.IN_PROGRESS:
        return f"{name} has not ended"
    if took is None:
        return f"{name} {'completed' if header.status is CheckpointStatus.COMPLETED else 'failed'}"
    if header.status is CheckpointStatus.COMPLETED:
        return f"{name} took {say.duration(took)}"
    if _is_expired(header):
        return f"{name} expired after {say.duration(took)}"
    reason = f" ({header.failure_reason.value.replace('-', ' ')})" if header.failure_reason else ""
    return f"{name} failed after {say.duration(took)}{reason}"


# --- measures -----------------------------------------------------------------------------------------------------

_ARRAYS: Final = tuple(SubtaskMeasure)
_NAMES: Final[Mapping[SubtaskMeasure, str]] = {
    SubtaskMeasure.DURATION: "ack_ms",
    SubtaskMeasure.START_DELAY: "first_barrier_ms",
    SubtaskMeasure.ALIGNMENT: "alignment_duration_ms",
    SubtaskMeasure.SYNC: "sync_duration_ms",
    SubtaskMeasure.ASYNC: "async_duration_ms",
    SubtaskMeasure.PERSISTED: "persisted_bytes",
    SubtaskMeasure.CHECKPOINTED: "checkpointed_size_bytes",
}


_PHASES: Final[Mapping[SubtaskMeasure, Phase]] = {
    SubtaskMeasure.START_DELAY: Phase.START_DELAY,
    SubtaskMeasure.ALIGNMENT: Phase.ALIGNMENT,
    SubtaskMeasure.SYNC: Phase.SYNC,
    SubtaskMeasure.ASYNC: Phase.ASYNC,
}


def _values(measure: SubtaskMeasure, phases: VertexPhases | None) -> Floats:
    values: Floats = np.empty(0) if phases is None else getattr(phases, _NAMES[measure])
    return values


def _of_vertex(measure: SubtaskMeasure, a: VertexPhases | None, b: VertexPhases | None) -> MeasureDifference:
    (a_value, a_subtask), (b_value, b_subtask) = (_whole(measure, side) for side in (a, b))
    return MeasureDifference(measure, a_value, b_value, a_subtask, b_subtask)


def _whole(measure: SubtaskMeasure, phases: VertexPhases | None) -> tuple[int | None, int | None]:
    """Return the value of a vertex, and the subtask that has it."""
    values = _values(measure, phases)
    reported = known_of(values)
    if not reported.size:
        return None, None
    if measure.is_bytes:
        return int(reported.sum()), None
    if measure is SubtaskMeasure.DURATION and reported.size < values.size:
        # A subtask that has not acknowledged would have been the last one, so the largest duration is not known.
        return None, None
    place = int(np.nanargmax(values))
    return int(values[place]), place


def _padded(values: Floats, count: int) -> Floats:
    return np.concatenate((values, np.full(count - values.size, np.nan)))


def _number(value: float) -> int | None:
    return None if np.isnan(value) else int(value)


# --- the cause ----------------------------------------------------------------------------------------------------


def _is_expired(header: CheckpointHeader) -> bool:
    return header.status is CheckpointStatus.FAILED and header.failure_reason is FailureReason.EXPIRED


def _is_timed(header: CheckpointHeader) -> bool:
    """Return whether the duration of a checkpoint shows how long its phases took."""
    return header.status is CheckpointStatus.COMPLETED or _is_expired(header)


def _path_cause(longer: Side, other: Side, sign: int) -> Cause | None:
    path = path_through(longer.phases, longer.topology, end_ms=longer.header.end_to_end_duration_ms)
    if path is None:
        return None
    before, most = 0.0, 0.0
    critical_step: CriticalStep | None = None
    for step in path.steps:
        at_ms = reached_ms(other.phases, longer.phases, step)
        if at_ms is None:
            continue
        lateness = step.end_ms - at_ms
        if lateness - before > most:
            most, critical_step = lateness - before, step
        before = lateness
    if critical_step is None or round(most) <= 0:
        return None
    own = longer.phases[critical_step.vertex_id][critical_step.subtask]
    measure = next((m for m, phase in _PHASES.items() if phase is critical_step.phase), None)
    whole = None
    if measure is not None:
        there = other.phases.get(critical_step.vertex_id)
        whole = _of_vertex(measure, longer.phases[critical_step.vertex_id], there).difference
    # If the phase was not over at the end of the checkpoint, its duration is only a lower bound.
    is_cut = not own.is_acknowledged and (critical_step.phase is Phase.ACK_WAIT or own.first_barrier_ms is None)
    return Cause(
        sign * round(most),
        phase=critical_step.phase,
        vertex_id=critical_step.vertex_id,
        vertex=critical_step.vertex,
        subtask=critical_step.subtask,
        is_at_least=is_cut,
        basis=Basis.RECONSTRUCTED,
        phase_difference_ms=None if whole is None else sign * whole,
    )


def _known_cause(a: Side, b: Side) -> Cause | None:
    """Return the phase that differs most between two checkpoints that expired, as far as their subtasks reported.

    Neither duration is known: each is at least the timeout. If the side with the larger value has subtasks without one,
    the value is a lower bound, and so is the difference. If the other side has such subtasks, the difference is not
    known.
    """
    causes: list[Cause] = []
    for vertex in vertex_differences(a, b):
        for one in vertex.measures:
            phase, difference = _PHASES.get(one.measure), one.difference
            if phase is None or difference is None or abs(difference) < NOISE_MS:
                continue
            larger, smaller = (a, b) if difference > 0 else (b, a)
            if _is_partly_known(one.measure, smaller.phases[vertex.vertex_id]):
                continue
            is_least = _is_partly_known(one.measure, larger.phases[vertex.vertex_id])
            subtask = one.a_subtask if difference > 0 else one.b_subtask
            cause = Cause(
                difference,
                phase=phase,
                vertex_id=vertex.vertex_id,
                vertex=vertex.vertex,
                subtask=subtask,
                is_at_least=is_least,
                phase_difference_ms=difference,
            )
            causes.append(cause)
    return max(causes, key=lambda cause: abs(cause.difference_ms), default=None)


def _is_partly_known(measure: SubtaskMeasure, phases: VertexPhases) -> bool:
    values = _values(measure, phases)
    return any(np.isnan(values[i]) for i in phases.pending)


def reached_ms(other: Phases, longer: Phases, step: CriticalStep) -> float | None:
    """Return when the other checkpoint had reached the end of a step of the longer one.

    If the other checkpoint has another number of subtasks, its slowest subtask counts.
    """
    phases, own = other.get(step.vertex_id), longer[step.vertex_id]
    if phases is None or not len(phases):
        return None
    match step.phase:
        case Phase.START_DELAY:
            values = phases.first_barrier_ms
        case Phase.ALIGNMENT:
            # The step ends either at the snapshot, which forwards the barrier, or at the last barrier. The time of the
            # same event is used for the other checkpoint.
            is_at_snapshot = step.end_ms == own[step.subtask].snapshot_at_ms
            values = phases.snapshot_at_ms if is_at_snapshot else phases.travel_ms
        case Phase.SYNC:
            values = phases.snapshot_at_ms + phases.sync_duration_ms
        case Phase.ASYNC:
            values = phases.async_end_ms
        case Phase.ACK_WAIT:
            values = phases.ack_ms
    value = values[step.subtask] if len(phases) == len(own) else np.fmax.reduce(values)
    return None if np.isnan(value) else float(value)


def _maxima_cause(longer: Side, other: Side, sign: int) -> Cause | None:
    """Return the phase whose largest value differs most, for checkpoints without the values of their subtasks."""
    differences = [
        (mine - yours, phase)
        for phase, mine in longer.maxima_ms.items()
        if mine is not None and (yours := other.maxima_ms.get(phase)) is not None and mine > yours
    ]
    if not differences:
        return None
    most, phase = max(differences, key=lambda one: one[0])
    return Cause(sign * most, phase=phase)


def slowest_of(phases: VertexPhases) -> int | None:
    """Return the subtask that acknowledged last or, if some did not acknowledge, the one with the latest first barrier.

    Return None if the vertex has no subtasks.
    """
    if not len(phases):
        return None
    if phases.is_complete:
        return phases.slowest_subtask
    pending = phases.pending
    return max(pending, key=lambda i: (-1 if (at := phases.first_barrier_of(i)) is None else at, -i))


def batch_parts(a: Side, b: Side) -> Sequence[tuple[BatchPhase | None, int | None, int | None]]:
    """Return the durations of the parts of two micro-batches. The part None is the rest of the duration."""
    rows: list[tuple[BatchPhase | None, int | None, int | None]] = []
    for phase in BatchPhase:
        both = tuple(None if s.checkpoint.batch is None else s.checkpoint.batch.phase_ms(phase) for s in (a, b))
        if both != (None, None):
            rows.append((phase, both[0], both[1]))
    rest = tuple(_other_ms(s.checkpoint) for s in (a, b))
    return [*rows, (None, rest[0], rest[1])] if rest != (None, None) else rows


def _other_ms(checkpoint: Checkpoint) -> int | None:
    took, batch = checkpoint.header.end_to_end_duration_ms, checkpoint.batch
    if took is None or batch is None or not batch.phases_ms:
        return None
    return max(0, took - sum(ms for _, ms in batch.phases_ms))


def _batch_cause(longer: Side, other: Side, sign: int) -> Cause | None:
    differences = [
        (mine - yours, phase)
        for phase, mine, yours in batch_parts(longer, other)
        if mine is not None and yours is not None and mine > yours
    ]
    if not differences:
        return None
    most, phase = max(differences, key=lambda one: one[0])
    return Cause(sign * most, batch_phase=phase)
