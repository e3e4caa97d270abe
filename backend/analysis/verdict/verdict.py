"""Decides what delays the barrier, in which phase and why. *Late is not guilty*: the last subtask is seldom the cause.

``rules`` lists the rules in their order. The verdict comes from them in three steps:

1. the first rule that explains everything, for example that checkpointing is off;
2. or else the parts of the checkpoints: the first rule of each part names its cause, and the cause that takes most of
   the time is the verdict. Another one that takes long is the second cause;
3. or else the first rule of the rest. The last one says that the cause is not decided, and what would decide it.

A Spark query has no barriers: ``verdict_micro_batch`` judges its micro-batches. The verdict does not depend on the
order of subtasks. ``docs/diagnosis.md`` describes the rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from backend.analysis.health import outliers
from backend.analysis.health.outliers import Neighbours
from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.numbers.arrays import highest_of
from backend.analysis.numbers.statistics import median
from backend.analysis.queries import verdict_micro_batch
from backend.analysis.verdict import case as cases
from backend.analysis.verdict import evidence_rows as rows
from backend.analysis.verdict import exceptions, loads_without_sync, pods
from backend.analysis.verdict.case import Case
from backend.analysis.verdict.draft import with_second
from backend.analysis.verdict.lost_rows import with_losses
from backend.analysis.verdict.rule import PARTS, Explains, Rule
from backend.analysis.verdict.rules import FULL_RULES, rules_of
from backend.analysis.words import sentences as say
from backend.analysis.words.thresholds import PERSISTED_MIN_BYTES, PHASE_MIN_RATIO
from backend.domain.checkpoint import Checkpoint
from backend.domain.verdict import Diagnosis, Phase, Verdict, VerdictKind

_AT_SOURCES = (VerdictKind.COORDINATOR, VerdictKind.LATE_INPUT)
_OWN_WAIT = (VerdictKind.SYNC, VerdictKind.CALLBACK, VerdictKind.COMMIT)
_WAYS = (
    VerdictKind.CAPACITY,
    VerdictKind.SKEW,
    VerdictKind.STRAGGLER,
    VerdictKind.SLOW_HOST,
    VerdictKind.UNDECIDED,
    VerdictKind.CALLBACK,
    VerdictKind.COMMIT,
)
_FULL = (VerdictKind.CAPACITY, VerdictKind.SKEW, VerdictKind.STRAGGLER, VerdictKind.SLOW_HOST)
_LIMITS = (*_FULL, VerdictKind.CALLBACK)


def diagnose(evidence: JobEvidence, case: Case | None = None) -> Diagnosis:
    """Return the health of the job's checkpoints, and the verdict.

    ``case`` is the case of the job from the same evidence, if the caller has it already.
    """
    if evidence.is_micro_batched:
        return verdict_micro_batch.diagnose(evidence)
    case = case or cases.of_job(evidence)
    verdict = pods.with_ended_pods(case, exceptions.with_ended_transactions(case, _verdict(case)))
    return Diagnosis(case.report.health, with_losses(case, verdict))


def considered_count(evidence: JobEvidence) -> int:
    """Return how many checkpoints ``diagnose`` judges: the newest terminal ones, without those aborted from outside."""
    if evidence.is_micro_batched:
        return verdict_micro_batch.count_of(evidence)
    return cases.of_job(evidence).report.judged_count


def checkpoint_verdict(checkpoint: Checkpoint, evidence: JobEvidence) -> Verdict:
    """Return the verdict on one checkpoint. The job's other failures and its readings count as evidence."""
    if evidence.is_micro_batched:
        return verdict_micro_batch.checkpoint_verdict(checkpoint, evidence)
    case = cases.of_checkpoint(checkpoint, evidence)
    verdict = _verdict(case)
    return verdict if case.neighbours is None else _with_differences(case, case.neighbours, verdict)


def _with_differences(case: Case, neighbours: Neighbours, verdict: Verdict) -> Verdict:
    """Return the verdict with what was different in a checkpoint that took many times as long as its neighbours."""
    walked = case.walked[0]
    explained = outliers.explained(
        walked.checkpoint,
        case.evidence,
        neighbours,
        duration_ms=walked.duration_ms,
        path=walked.path,
        phases=walked.phases,
        named=None if verdict.vertex_id is None else (verdict.vertex_id, verdict.subtasks),
    )
    if not explained.differences:
        return replace(verdict, outlier=explained)
    text = f" What was different: {'; '.join(explained.differences)}."
    usual = f"median duration of {say.checkpoints(explained.neighbour_count)} before it"
    # The first difference is the place, if it is known. The place has a row of its own.
    others = explained.differences if explained.extra_ms is None else explained.differences[1:]
    rows_ = [rows.number(usual, "end_to_end_duration", explained.usual_ms, "ms")]
    if explained.extra_ms is not None:
        where = f"{say.vertex(explained.vertex or '')} {say.subtasks(explained.subtasks)}"
        what = f" in the {say.PHASE_WORDS[explained.phase]} {where}" if explained.phase else ""
        more = f"time lost{what}, compared with these checkpoints"
        rows_.append(
            rows.reconstructed(more, explained.phase.value if explained.phase else "", explained.extra_ms, "ms")
        )
    return replace(
        verdict,
        sentence=verdict.sentence + text,
        detail=None if verdict.detail is None else verdict.detail + text,
        evidence=(*verdict.evidence, *rows_, *(rows.note(words) for words in others)),
        outlier=explained,
    )


def _verdict(case: Case) -> Verdict:
    whole, rest = (rules_of(kind) for kind in (Explains.EVERYTHING, Explains.THE_REST))
    verdict = _first_of(case, whole) or _of_parts(case) or _first_of(case, rest)
    if verdict is None:
        raise AssertionError("the last rule always applies")
    return verdict


def _first_of(case: Case, rules: Iterable[Rule[Any]]) -> Verdict | None:
    """Return the verdict by the first of these rules that applies."""
    return next((v for rule in rules if (v := rule.verdict_of(case)) is not None), None)


def _of_parts(case: Case) -> Verdict | None:
    """Return the verdict on the part of the checkpoints that takes most of the time, with a second cause.

    Return None if no part has a cause, or if measured parts explain less than half of the time.
    """
    verdicts = [v for part in PARTS if (v := _first_of(case, rules_of(part))) is not None]
    beside = _beside_sync(case, verdicts)
    if beside is not None:
        verdicts = [*(v for v in verdicts if v.kind not in _WAYS), beside]
    if not verdicts:
        return None
    # The sort is stable, so the order of the parts decides if two causes explain equally much.
    # If the checkpoints are well, what limits the job comes before what takes the time of its checkpoints.
    ordered = sorted(verdicts, key=lambda v: (v.kind not in _LIMITS and not case.is_suffering, -(v.share_ratio or 0.0)))
    first, others = ordered[0], ordered[1:]
    rest = [v for v in others if (v is beside and _takes_long(case, v)) or _is_another(case, first, v)]
    is_measured = first.phase in (Phase.SYNC, Phase.ASYNC, Phase.ACK_WAIT) or first.kind in _AT_SOURCES
    explained = (first.share_ratio or 0.0) + sum(v.share_ratio or 0.0 for v in rest)
    if is_measured and explained < PHASE_MIN_RATIO:
        return None
    if rest:
        return with_second(case, first, rest[0])
    overtaken = next((v for v in others if _is_overtaken(case, first, v, is_beside=v is beside)), None)
    return with_second(case, first, overtaken, is_overtaken=True)


def _beside_sync(case: Case, verdicts: list[Verdict]) -> Verdict | None:
    """Return the verdict on how barriers travel, from loads without the effect of a long sync part.

    It is used if the travel shows no other cause, or only one at the vertex of the sync part, where the queue may be an
    effect of the sync part.
    """
    sync = next((v for v in verdicts if v.kind is VerdictKind.SYNC and v.vertex_id is not None), None)
    if not case.is_suffering or sync is None or sync.vertex_id is None:
        return None
    if any(v.kind in _WAYS and v.vertex_id != sync.vertex_id for v in verdicts):
        return None
    if loads_without_sync.is_endless(case, sync.vertex_id, sync.subtasks):
        return None
    relieved = loads_without_sync.without_sync(case, sync.vertex_id)
    verdict = None if relieved is None else _first_of(relieved, FULL_RULES)
    return verdict if verdict is not None and (_takes_long(case, verdict) or _keeps_queue(case, verdict)) else None


def _is_overtaken(case: Case, first: Verdict, other: Verdict, *, is_beside: bool) -> bool:
    """Return whether ``other`` is a full vertex or subtask that takes no time because barriers overtake its queues."""
    config = case.evidence.config
    if config is None or not config.overtakes or other.kind not in _FULL:
        return False
    if first.kind in _OWN_WAIT and other.vertex_id == first.vertex_id:
        return False
    is_full = case.suspect is not None and case.suspect.vertex_id == other.vertex_id
    return is_full or (is_beside and _keeps_queue(case, other))


def _keeps_queue(case: Case, verdict: Verdict) -> bool:
    """Return whether checkpoints persist a queue in front of the vertex.

    A vertex that keeps up when no sync part runs has worked off its queue before the next checkpoint begins.
    """
    config = case.evidence.config
    if config is None or not config.overtakes or verdict.vertex_id is None:
        return False
    persisted = median(highest_of(phases.persisted_bytes) for phases in case.subtasks_of(verdict.vertex_id))
    return persisted is not None and persisted >= PERSISTED_MIN_BYTES


def _takes_long(case: Case, verdict: Verdict) -> bool:
    typical_ms = case.typical_ms or 0.0
    share = verdict.share_ratio or 0.0
    return share > 0 and share * typical_ms >= case.least_ms(typical_ms)


def _is_another(case: Case, first: Verdict, other: Verdict) -> bool:
    """Return whether ``other`` is a cause of its own that takes much of the time, and not an effect of ``first``."""
    if other.kind is VerdictKind.UNDECIDED or not _takes_long(case, other):
        return False
    # While a subtask is in its sync part, or stands still, records queue up in front of it.
    is_effect = first.kind in _OWN_WAIT and other.vertex_id == first.vertex_id and other.phase is not Phase.ASYNC
    return not is_effect
