"""Rules about the coordinator: it cannot begin or complete checkpoints, sends its triggers late, or counts late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from backend.analysis.measures.acknowledgements import wait_of_all_ms
from backend.analysis.numbers.arrays import highest_of, median_of
from backend.analysis.numbers.statistics import median
from backend.analysis.verdict import barrier_waits
from backend.analysis.verdict import evidence_rows as rows
from backend.analysis.verdict.case import Case, Walked
from backend.analysis.verdict.draft import by_count, draft, weaker
from backend.analysis.verdict.rule import FAILED, SUFFERING, Explains, Rule
from backend.analysis.words import sentences as say
from backend.analysis.words.thresholds import (
    PHASE_MIN_MS,
    PHASE_MIN_RATIO,
    SIBLINGS_BUSY_RATIO,
)
from backend.domain.checkpoint import CheckpointHeader
from backend.domain.failure import FailureReason
from backend.domain.ids import VertexId
from backend.domain.verdict import Confidence, Phase, Verdict, VerdictKind

_AT_END = frozenset({FailureReason.FINALIZE_FAILURE})
_TRIGGERING = "while triggering"
# What the coordinator fails to do, when the checkpoints failed, and what its log decides.
_CANNOT_COMPLETE = (
    "cannot complete them: all subtasks have acknowledged, so no subtask is the cause",
    "after all acknowledgements",
    "it cannot write the metadata of the checkpoint, or cannot record the checkpoint where it looks for it after a"
    " failure (ZooKeeper, Kubernetes)",
)
_CANNOT_BEGIN = (
    "cannot begin them: it fails while it triggers them, before any subtask has answered",
    "before any acknowledgement",
    "it cannot write the state of a source enumerator or of another operator's coordinator, cannot make the directory"
    " of the checkpoint, or cannot count its id up (ZooKeeper, Kubernetes)",
)
_ONE_PROCESS = (
    "the garbage collection logs of the JobManager and of the TaskManager that runs all subtasks: if that one stood"
    " still, it looks the same"
)
_SOURCES_MIN = 2
# Two sources that are held back may begin together by chance.
_HELD_SOURCES_MIN = 3
# Start delays that are at least this share of the longest one are equally long.
_ALIKE_RATIO = 0.7
# The mailboxes of idle tasks take a message within this time.
_TOGETHER_MS = 20
# Two readings belong to a wait if at least this share of the time between them does.
_INSIDE_RATIO = 0.6


@dataclass(frozen=True, slots=True)
class _CoordinatorFailures:
    """The failures of the coordinator itself, and whether they come after all acknowledgements or before any."""

    failed: tuple[CheckpointHeader, ...]
    is_at_end: bool


def _find_failing_coordinator(case: Case) -> _CoordinatorFailures | None:
    """Return the failures of the coordinator itself to begin or to complete checkpoints.

    Flink's reason says which of the two failed. A failure to complete comes after the last acknowledgement. A failure
    to begin comes before the first one, while the coordinator makes the checkpoint's directory, takes an id and asks
    the coordinators of operators, such as source enumerators, for their state.
    """
    failed = [w.checkpoint.header for w in case.walked if w.is_failed]
    ends = [h for h in failed if h.failure_reason in _AT_END and not h.is_partly_acknowledged]
    begins = [h for h in failed if _fails_at_begin(h)]
    found = max(ends, begins, key=len)
    if not found or 2 * len(found) < len(case.walked):
        return None
    return _CoordinatorFailures(tuple(found), is_at_end=found is ends)


def _tell_failing_coordinator(case: Case, failures: _CoordinatorFailures) -> Verdict:
    failed = failures.failed
    said = next((f' ("{h.failure_message}")' for h in reversed(failed) if h.failure_message), "")
    what = _CANNOT_COMPLETE if failures.is_at_end else _CANNOT_BEGIN
    return draft(
        case,
        VerdictKind.COORDINATOR,
        f"the coordinator (JobManager) {what[0]}",
        evidence=[
            rows.number(f"checkpoints that failed {what[1]}", "failureReason", len(failed), "count"),
            rows.note(f"failure reason: {failed[-1].failure_reason or ''}{said}"),
            *rows.restarts(case),
            *rows.fare(case),
            *rows.settings(case),
        ],
        confidence=by_count(len(failed)),
        would_decide=(f"the exception in the JobManager's log: {what[2]}",),
    )


FAILING_COORDINATOR = Rule(
    "failing coordinator", Explains.EVERYTHING, (FAILED,), _find_failing_coordinator, _tell_failing_coordinator
)


def _fails_at_begin(header: CheckpointHeader) -> bool:
    is_trigger = header.failure_reason is FailureReason.TRIGGER_FAILURE
    # Other I/O failures have this reason too.
    is_io = header.failure_reason is FailureReason.IO_FAILURE and _TRIGGERING in (header.failure_message or "").lower()
    return (is_trigger or is_io) and not header.acknowledged_count


def _find_late_acknowledgements(case: Case) -> list[float] | None:
    """Return for how long acknowledgements waited at the coordinator, by checkpoint, if the subtasks were in time."""
    waits = [w for w in case.walked if w.phases]
    late = [ms for w in waits if (ms := _ack_wait_ms(case, w)) is not None]
    return late if late and len(late) >= PHASE_MIN_RATIO * len(waits) else None


def _tell_late_acknowledgements(case: Case, late: list[float]) -> Verdict:
    took = median(late) or 0.0
    is_alone = len({m for p in case.evidence.placements for m in p.task_managers if m}) == 1
    whose = "no subtask is the cause" if is_alone else "no subtask and no host is the cause"
    return draft(
        case,
        VerdictKind.COORDINATOR,
        f"the coordinator (JobManager) is late: it counts acknowledgements {say.duration(took)} after the subtasks"
        " have finished",
        phase=Phase.ACK_WAIT,
        explained_ms=took,
        evidence=[
            rows.reconstructed("longest wait of an acknowledgement, median", "ack - async end", took, "ms"),
            rows.number("checkpoints in which acknowledgements waited", "latest_ack_timestamp", len(late), "count"),
            rows.note(f"subtasks of all vertices wait, so {whose}"),
            *rows.fare(case),
            *rows.calm(case),
            *rows.settings(case),
        ],
        confidence=weaker(case.confidence, Confidence.LOW) if is_alone else case.confidence,
        would_decide=(_ONE_PROCESS,) if is_alone else (),
    )


LATE_ACKNOWLEDGEMENTS = Rule(
    "acknowledgements counted late",
    Explains.TRIGGERS,
    (SUFFERING,),
    _find_late_acknowledgements,
    _tell_late_acknowledgements,
)


@dataclass(frozen=True, slots=True)
class _LateTrigger:
    """By how much all sources get the trigger late, and whether none of them was busy or held back."""

    late_ms: float
    are_free: bool


def _find_late_trigger(case: Case) -> _LateTrigger | None:
    waits = [w for w in case.walked if w.phases]
    sources = [v.id for v in case.evidence.topology.vertices if not case.evidence.topology.upstream(v.id)]
    if any(v not in case.loads for v in sources):
        # Without readings, a source that is busy looks the same.
        return None
    are_free = all(_is_free(case, v) for v in sources)
    triggers = [(w, ms) for w in waits if (ms := _trigger_ms(case, w, sources, are_free=are_free)) is not None]
    if not triggers or len(triggers) < PHASE_MIN_RATIO * len(waits):
        return None
    if not are_free and not _flow_on(case, sources, triggers):
        return None
    return _LateTrigger(median(ms for _, ms in triggers) or 0.0, are_free)


def _tell_late_trigger(case: Case, late_trigger: _LateTrigger) -> Verdict:
    took = late_trigger.late_ms
    free, held = ", and none of them is busy", "; sources that are held back would begin at different times"
    why = free if late_trigger.are_free else held
    return draft(
        case,
        VerdictKind.COORDINATOR,
        f"the coordinator (JobManager) is late: its trigger reaches every source only after {say.duration(took)}",
        phase=Phase.START_DELAY,
        explained_ms=took,
        evidence=[
            rows.number("start delay of the sources, median", "start_delay", took, "ms"),
            rows.note(f"all sources begin late by the same time{why}"),
            *rows.fare(case),
            *rows.calm(case),
            *rows.settings(case),
        ],
    )


LATE_TRIGGER = Rule("trigger sent late", Explains.TRIGGERS, (SUFFERING,), _find_late_trigger, _tell_late_trigger)


def _ack_wait_ms(case: Case, walked: Walked) -> float | None:
    """Return the longest wait of an acknowledgement, if subtasks of all vertices wait; None otherwise."""
    return wait_of_all_ms(walked.phases, max(PHASE_MIN_MS, case.least_ms(walked.duration_ms)))


def _trigger_ms(case: Case, walked: Walked, sources: Sequence[VertexId], *, are_free: bool) -> float | None:
    """Return the start delay of the sources if all are equally late; None otherwise.

    Sources that are held back take the trigger when they get room in their output, each at another time. So they must
    be late by nearly the same number of milliseconds.
    """
    rows_ = [walked.phases[v].first_barrier_ms for v in sources if v in walked.phases]
    delays = np.concatenate(rows_) if rows_ else np.empty(0)
    if delays.size < (_SOURCES_MIN if are_free else _HELD_SOURCES_MIN) or np.isnan(delays).any():
        return None
    least, longest = float(delays.min()), float(delays.max())
    is_long = least >= max(PHASE_MIN_MS, case.least_ms(walked.duration_ms))
    are_alike = least >= _ALIKE_RATIO * longest if are_free else longest - least <= _TOGETHER_MS
    return median_of(delays) if is_long and are_alike else None


def _flow_on(case: Case, sources: Sequence[VertexId], triggers: Sequence[tuple[Walked, float]]) -> bool:
    """Return whether no vertex after the sources is known to stand still while the sources waited for the trigger.

    If such a vertex stands still, all sources wait for room, and get it at the same time.
    """
    spans = [(at := w.checkpoint.header.triggered_at, at + timedelta(milliseconds=ms)) for w, ms in triggers]
    for vertex_id in dict.fromkeys(v for s in sources for v in case.evidence.topology.downstream(s)):
        subtasks = range(case.subtask_count(vertex_id))
        reads = barrier_waits.reads_in(case, vertex_id, subtasks, spans, overlap_min=_INSIDE_RATIO)
        if reads is not None and reads.are_few:
            return False
    return True


def _is_free(case: Case, vertex_id: VertexId) -> bool:
    """Return whether the readings show that the source could have taken the trigger at once.

    A source of which the engine reports no busy time, or no back-pressure, may be busy or held back all the time.
    """
    load = case.loads[vertex_id]
    held = highest_of(load.busy), highest_of(load.backpressured)
    return all(share is not None and share < SIBLINGS_BUSY_RATIO for share in held)
