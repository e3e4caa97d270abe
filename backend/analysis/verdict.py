"""Who holds the barrier, in which phase and why. *Late is not guilty* (views.md, "Verdict first").

The rules are asked in turn and the first that can tell answers:

1. a subtask that every declined checkpoint waited for;
2. a snapshot that is itself long: its sync part, or the store behind its async part;
3. a source that lets its barrier in late;
4. a full subtask below something held back: capacity, skew or straggler, even where unaligned checkpoints hide it;
5. someone who does not answer, to an expiry or for too long, while nothing is held back: the store;
6. for want of readings, where the barrier's way was long.

Where none can tell, the verdict says so and names what would decide. A Spark query has no barriers: its micro-batches
are judged in ``verdict_micro_batch``. The verdict does not depend on the order of subtasks.
``docs/diagnosis.md`` says the same at length, with the thresholds.
"""

from __future__ import annotations

from backend.analysis import case as cases
from backend.analysis import rows, snapshots, verdict_barrier, verdict_micro_batch, verdict_snapshot
from backend.analysis import sentences as say
from backend.analysis.case import Case
from backend.analysis.evidence import JobEvidence
from backend.analysis.pressure import backpressured_max
from backend.analysis.statistics import mean, median, ratio
from backend.analysis.thresholds import BACKPRESSURED_MIN_RATIO, PERSISTED_MIN_BYTES
from backend.analysis.verdict_draft import are, draft, weaker
from backend.domain.checkpoint import Checkpoint, CheckpointStatus
from backend.domain.ids import VertexId
from backend.domain.verdict import Confidence, Diagnosis, Health, Verdict, VerdictKind

_RULES = (
    verdict_snapshot.long_part,
    verdict_barrier.late_source,
    verdict_barrier.by_pressure,
    verdict_snapshot.unanswered,
    verdict_barrier.by_travel,
    lambda case: _hidden(case),
)


def diagnose(evidence: JobEvidence) -> Diagnosis:
    """The health of the job's checkpoints, and what limits the job."""
    if evidence.is_micro_batched:
        return verdict_micro_batch.diagnose(evidence)
    case = cases.of_job(evidence)
    return Diagnosis(case.report.health, _verdict(case, evidence.checkpoints))


def considered_count(evidence: JobEvidence) -> int:
    """How many checkpoints ``diagnose`` judges: the newest terminal ones, aborts from outside left out."""
    if evidence.is_micro_batched:
        return verdict_micro_batch.count_of(evidence)
    return cases.of_job(evidence).report.judged_count


def checkpoint_verdict(checkpoint: Checkpoint, evidence: JobEvidence) -> Verdict:
    """Who held this one checkpoint; the job's other failures and its readings count as evidence."""
    if evidence.is_micro_batched:
        return verdict_micro_batch.checkpoint_verdict(checkpoint, evidence)
    case = cases.of_checkpoint(checkpoint, evidence)
    is_failed = checkpoint.header.status is CheckpointStatus.FAILED
    return _verdict(case, evidence.checkpoints if is_failed else ())


def _verdict(case: Case, checkpoints: tuple[Checkpoint, ...]) -> Verdict:
    failing = verdict_snapshot.failing_subtask(case, checkpoints)
    if failing is not None:
        return failing
    for rule in _RULES:
        verdict = rule(case)
        if verdict is not None:
            return verdict
    return _undecided(case) if case.is_suffering or not (case.walked or case.loads) else _nothing(case)


def _undecided(case: Case) -> Verdict:
    last = case.walked[-1].path if case.walked else None
    where = ""
    if last is not None:
        name = say.vertex(last.last_vertex)
        where = f"; {name} subtask {last.last_subtask} was the last, which alone proves nothing"
    return draft(
        case,
        VerdictKind.UNDECIDED,
        f"what was read does not tell why{where}" if case.walked else "there is nothing yet to judge by",
        phase=last.dominant_phase if last is not None else None,
        evidence=[*rows.fare(case), *rows.unlisted(case), *rows.restarts(case), *rows.calm(case)],
        confidence=Confidence.LOW,
        would_decide=_would_decide(case),
    )


def _would_decide(case: Case) -> tuple[str, ...]:
    missing: list[str] = []
    if not case.walked:
        missing.append("a checkpoint that has ended: none has yet, or checkpointing is off")
    if not case.loads:
        missing.append("back-pressure of each vertex, read while the job runs")
    if case.walked and not case.long_ones:
        missing.append("the subtasks of these checkpoints, which the engine no longer holds")
    if case.waiting and not any(rows.late(case, v.id) for v in case.evidence.topology.vertices):
        missing.append("first barriers of the subtasks that had not acknowledged, read while a checkpoint is open")
    return tuple(missing) or ("readings taken while a checkpoint is open: the cause may come and go",)


def _hidden(case: Case) -> Verdict | None:
    """Without readings: queues that unaligned barriers persist tell that somebody is held back, but not by whom."""
    if case.loads or case.is_suffering:
        return None
    headers = [w.checkpoint.header for w in case.walked]
    persisted = median(h.persisted_bytes for h in headers)
    each = median(ratio(h.persisted_bytes, h.subtask_count) for h in headers)
    if persisted is None or each is None or each < PERSISTED_MIN_BYTES:
        return None
    return draft(
        case,
        VerdictKind.UNDECIDED,
        f"unaligned checkpoints persist {say.size(persisted)} of queued data each, so something is back-pressured, but "
        "back-pressure could not be read to tell by whom",
        evidence=[*rows.hiding(case), *rows.fare(case)],
        confidence=Confidence.LOW,
        would_decide=_would_decide(case),
    )


def _nothing(case: Case) -> Verdict:
    most = backpressured_max(case.loads)
    is_calm = most is not None and most[1] < BACKPRESSURED_MIN_RATIO
    busy = _busy_for_nobody(case)
    return draft(
        case,
        VerdictKind.NONE,
        f"nothing holds the barrier, {_calm_text(case, most, is_calm=is_calm)}{busy}{_most_of_it(case)}",
        evidence=[*rows.fare(case), *rows.calm(case)],
        confidence=weaker(case.confidence, _how_sure(case, is_calm=is_calm and not busy)),
        would_decide=() if case.loads else ("back-pressure of each vertex, read while the job runs",),
    )


def _calm_text(case: Case, most: tuple[VertexId, float] | None, *, is_calm: bool) -> str:
    if most is None:
        return "back-pressure could not be read"
    if is_calm:
        text = "no vertex is back-pressured"
        return f"{text} more than {say.percent(most[1])} of the time" if most[1] >= 0.005 else text
    return f"{case.name(most[0])} is back-pressured {say.percent(most[1])}, but nothing below it is full"


def _busy_for_nobody(case: Case) -> str:
    """A full vertex or subtask that nothing waits for: a clause that says what it may come to."""
    for vertex in case.evidence.topology.vertices:
        load = case.loads.get(vertex.id)
        if load is None or not case.evidence.topology.upstream(vertex.id):
            continue
        full = tuple(i for i in load.known_subtasks if load.is_full(i))
        if full:
            where = say.where(case.name(vertex.id), full, vertex.parallelism)
            busy = say.percent(mean(load.busy[i] for i in full) or 0.0)
            return f"; {where} {are(full)} busy {busy}, so it has nothing left should the load grow"
    return ""


def _most_of_it(case: Case) -> str:
    """The part that takes most of checkpoints that may take as long: a clause."""
    part = snapshots.long_part(case.evidence.topology, case.evidence.config, case.long_ones)
    if part is None:
        return ""
    took, where = say.duration(part.part_ms), case.name(part.vertex_id)
    return f"; {took} is the {part.phase.value} part of {where}, which the settings leave time for"


def _how_sure(case: Case, *, is_calm: bool) -> Confidence:
    if not case.loads:
        return Confidence.LOW
    return Confidence.HIGH if is_calm and case.report.health is Health.HEALTHY else Confidence.MEDIUM
