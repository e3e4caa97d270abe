"""The rule about subtasks that forwarded the barrier early, do not acknowledge, and are full: no queue is the cause.

A full subtask below one that is held back looks like key skew, a straggler or a lack of capacity. But a subtask
forwards the barrier before its sync part, and a subtask downstream acknowledges only after it got the barriers of all
its inputs. So if all subtasks downstream acknowledged early, no queue and no record delayed the barrier: the time goes
to the snapshot. While the sync part lasts, the queue in front of the subtask fills, and the subtask counts as busy.
What it reads while the checkpoint waits tells the sync part, in which it reads nothing, from the async part.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from backend.analysis.measures import pressure, snapshots
from backend.analysis.measures.snapshots import Unanswered
from backend.analysis.numbers.arrays import mean_of
from backend.analysis.verdict import barrier_waits
from backend.analysis.verdict import evidence_rows as rows
from backend.analysis.verdict.case import Case
from backend.analysis.verdict.draft import draft, weaker
from backend.analysis.verdict.rule import FULL, WAITING, Explains, Rule
from backend.analysis.words import sentences as say
from backend.domain.verdict import Confidence, Evidence, Phase, Verdict, VerdictKind

# Two readings show what is read while a checkpoint waits if nearly all of the time between them is in that time.
_INSIDE_RATIO = 0.9


@dataclass(frozen=True, slots=True)
class _Forwarded:
    """The subtasks that did not acknowledge, and the phase in which they are; None if the readings do not show it."""

    unanswered: Unanswered
    phase: Phase | None


def _find_forwarded(case: Case) -> _Forwarded | None:
    topology = case.evidence.topology
    unanswered = snapshots.unanswered(topology, case.waiting, has_readings=True)
    if unanswered is None:
        return None
    below = pressure.descendants(topology, unanswered.vertex_id)
    is_known = [
        bool(below) and all(v in phases and not phases[v].pending for v in below)
        for phases, _ in case.waiting
        if unanswered.vertex_id in phases and phases[unanswered.vertex_id].pending
    ]
    is_often = len(is_known) * 2 >= len(case.walked)
    return _Forwarded(unanswered, _phase_of(case, unanswered)) if is_known and is_often and all(is_known) else None


def _phase_of(case: Case, unanswered: Unanswered) -> Phase | None:
    reads = barrier_waits.reads_in(
        case, unanswered.vertex_id, unanswered.subtasks, _spans(case, unanswered), overlap_min=_INSIDE_RATIO
    )
    if reads is None:
        return None
    if not reads.are_few:
        return Phase.ASYNC
    load = case.loads.get(unanswered.vertex_id)
    # A subtask with nothing to read reads nothing either, but it is idle.
    return Phase.SYNC if load is not None and set(unanswered.subtasks) <= set(load.full_subtasks) else None


def _spans(case: Case, unanswered: Unanswered) -> list[tuple[datetime, datetime]]:
    """Return the times in which a checkpoint waited for these subtasks only, also one that is open and not overdue."""
    judged = {w.checkpoint.header.checkpoint_id for w in case.walked}
    newer = [] if case.is_of_one else [w for w in case.open_ones if w.checkpoint.header.checkpoint_id not in judged]
    waits = [
        (w.checkpoint.header.triggered_at, w.duration_ms)
        for w in (*case.walked, *newer)
        if unanswered.vertex_id in w.phases and set(w.phases[unanswered.vertex_id].pending) >= set(unanswered.subtasks)
    ]
    return [
        (at + timedelta(milliseconds=unanswered.others_ack_ms), at + timedelta(milliseconds=duration_ms))
        for at, duration_ms in waits
        if duration_ms > unanswered.others_ack_ms
    ]


def _tell_forwarded(case: Case, forwarded: _Forwarded) -> Verdict:
    one = forwarded.unanswered
    vertex = case.name(one.vertex_id)
    where = say.where(vertex, one.subtasks, case.subtask_count(one.vertex_id))
    its, it = ("its", "it") if len(one.subtasks) == 1 else ("their", "they")
    kind, rest = {
        Phase.SYNC: (VerdictKind.SYNC, f"{it} read hardly a record since, as in a sync part that does not end"),
        Phase.ASYNC: (VerdictKind.STORE, f"{it} read on, so {its} snapshot does not reach the store"),
        None: (VerdictKind.UNDECIDED, f"the time goes to {its} sync or async part, and not to a queue"),
    }[forwarded.phase]
    return draft(
        case,
        kind,
        f"{where} forwarded the barrier but did not acknowledge: {rest}",
        vertex_id=one.vertex_id,
        subtasks=one.subtasks,
        phase=forwarded.phase,
        explained_ms=case.typical_ms,
        evidence=[
            rows.number(f"checkpoints that {where} had not acknowledged", "pending", one.checkpoint_count, "count"),
            rows.number(
                "latest acknowledgement of the others, median", "latest_ack_timestamp", one.others_ack_ms, "ms"
            ),
            rows.note(f"the subtasks downstream of {vertex} acknowledged, so it had forwarded the barrier"),
            *_full(case),
            *rows.fare(case),
            *rows.late(case, one.vertex_id),
            *rows.settings(case),
        ],
        confidence=Confidence.LOW if forwarded.phase is None else weaker(case.confidence, Confidence.MEDIUM),
        would_decide=()
        if forwarded.phase is not None
        else (
            f"records read by {say.subtasks(one.subtasks)} while a checkpoint waits, from readings some seconds apart:"
            " none in the sync part, as many as before in the async part",
        ),
    )


def _full(case: Case) -> list[Evidence]:
    """Return a row on the full subtasks, which the barrier passed all the same."""
    suspect = case.suspect
    if suspect is None:
        return []
    where = say.where(case.name(suspect.vertex_id), suspect.full, case.subtask_count(suspect.vertex_id))
    busy = mean_of(case.loads[suspect.vertex_id].busy[list(suspect.full)]) or 0.0
    return [rows.number(f"{where} busy, although no barrier waited long for a queue there", "busyRatio", busy, "ratio")]


FORWARDED = Rule("barrier forwarded, not acknowledged", Explains.WAY, (WAITING, FULL), _find_forwarded, _tell_forwarded)
