"""Decides what delays the barrier, in which phase and why. *Late is not guilty*: the last subtask is seldom the cause.

A job without checkpoints comes first: checkpointing is off, or all checkpoints are refused (``refused``).
Otherwise, the verdict comes from the first of these rules that applies:

1. a subtask did not acknowledge any of the declined checkpoints, or the coordinator itself fails to begin or to
   complete them;
2. a snapshot itself takes long: its sync part, or the store behind its async part;
3. a source emits its barrier late;
4. a full subtask is downstream of a back-pressured one: capacity, skew or straggler, even if unaligned checkpoints
   hide the effect;
5. a subtask does not acknowledge although nothing is back-pressured: the cause is the store;
6. without readings of back-pressure, the barrier waited long in certain queues.

If no rule applies, the verdict is undecided and names the readings that would decide. A Spark query has no barriers:
``verdict_micro_batch`` judges its micro-batches. The verdict does not depend on the order of subtasks.
``docs/diagnosis.md`` describes the rules.
"""

from __future__ import annotations

from dataclasses import replace

from backend.analysis.health import outliers
from backend.analysis.health.outliers import Neighbours
from backend.analysis.measures import snapshots
from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.measures.pressure import backpressured_max
from backend.analysis.numbers.arrays import highest_of, mean_of
from backend.analysis.numbers.statistics import median, ratio
from backend.analysis.queries import verdict_micro_batch
from backend.analysis.verdict import barrier as verdict_barrier
from backend.analysis.verdict import case as cases
from backend.analysis.verdict import completions, pieces, relief, rows, stuck, unsent
from backend.analysis.verdict import outside as verdict_outside
from backend.analysis.verdict import refused as verdict_refused
from backend.analysis.verdict import snapshot as verdict_snapshot
from backend.analysis.verdict import stall as verdict_stall
from backend.analysis.verdict.case import Case
from backend.analysis.verdict.draft import are, draft, weaker, with_second
from backend.analysis.words import sentences as say
from backend.analysis.words.thresholds import (
    BACKPRESSURED_MIN_RATIO,
    NAMED_MIN_MS,
    PERSISTED_MIN_BYTES,
    PHASE_MIN_RATIO,
)
from backend.domain.checkpoint import Checkpoint, CheckpointStatus
from backend.domain.ids import VertexId
from backend.domain.verdict import Confidence, Diagnosis, Evidence, Health, Phase, Verdict, VerdictKind

# The rules by the part of a checkpoint that they explain. Of one part, the first rule that applies is used.
_PARTS = (
    (verdict_snapshot.long_sync,),
    (verdict_snapshot.long_async,),
    (verdict_outside.late_coordinator, verdict_barrier.late_source, unsent.silent_source),
    (
        stuck.stuck_sync,
        unsent.before_forwarding,
        verdict_stall.standing_still,
        verdict_stall.committing,
        completions.after_completions,
        pieces.long_piece,
        verdict_barrier.by_pressure,
        verdict_barrier.by_queue,
    ),
)
# The rules that apply if nothing else explains the checkpoints.
_LAST_RULES = (stuck.unanswered, verdict_barrier.by_travel, lambda case: _hidden(case))
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
_NO_READINGS = "back-pressure of each vertex, read while the job runs"


def diagnose(evidence: JobEvidence, case: Case | None = None) -> Diagnosis:
    """Return the health of the job's checkpoints, and the verdict.

    ``case`` is the case of the job from the same evidence, if the caller has it already.
    """
    if evidence.is_micro_batched:
        return verdict_micro_batch.diagnose(evidence)
    case = case or cases.of_job(evidence)
    return Diagnosis(case.report.health, _verdict(case, evidence.checkpoints))


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
    is_failed = checkpoint.header.status is CheckpointStatus.FAILED
    verdict = _verdict(case, evidence.checkpoints if is_failed else ())
    return verdict if case.neighbours is None else _with_differences(case, case.neighbours, verdict)


def _with_differences(case: Case, neighbours: Neighbours, verdict: Verdict) -> Verdict:
    """Return the verdict with what was different in a checkpoint that took many times as long as its neighbours."""
    walked = case.walked[0]
    found = outliers.explained(
        walked.checkpoint,
        case.evidence,
        neighbours,
        duration_ms=walked.duration_ms,
        path=walked.path,
        phases=walked.phases,
        named=None if verdict.vertex_id is None else (verdict.vertex_id, verdict.subtasks),
    )
    if not found.differences:
        return replace(verdict, outlier=found)
    text = f" What was different: {'; '.join(found.differences)}."
    usual = f"median duration of {say.checkpoints(found.neighbour_count)} before it"
    # The first difference is the place, if it is known. The place has a row of its own.
    others = found.differences if found.extra_ms is None else found.differences[1:]
    rows_ = [rows.number(usual, "end_to_end_duration", found.usual_ms, "ms")]
    if found.extra_ms is not None:
        where = f"{say.vertex(found.vertex or '')} {say.subtasks(found.subtasks)}"
        what = f" in the {say.PHASE_WORDS[found.phase]} {where}" if found.phase else ""
        more = f"time lost{what}, compared with these checkpoints"
        rows_.append(rows.reconstructed(more, found.phase.value if found.phase else "", found.extra_ms, "ms"))
    return replace(
        verdict,
        sentence=verdict.sentence + text,
        detail=None if verdict.detail is None else verdict.detail + text,
        evidence=(*verdict.evidence, *rows_, *(rows.note(words) for words in others)),
        outlier=found,
    )


def _verdict(case: Case, checkpoints: tuple[Checkpoint, ...]) -> Verdict:
    if not case.is_of_one and (none := verdict_refused.switched_off(case)) is not None:
        return none
    if case.report.refusal is not None:
        none = verdict_outside.replaying(case) or verdict_refused.refused(case)
        if none is not None:
            return none
    failing = verdict_snapshot.failing_subtask(case, checkpoints)
    if failing is not None:
        return failing
    refusing = verdict_snapshot.refusing_store(case)
    if refusing is not None:
        return refusing
    failing = verdict_outside.failing_coordinator(case)
    if failing is not None:
        return failing
    outside = verdict_outside.restart_loop(case) or (None if case.is_of_one else verdict_outside.replaying(case))
    if outside is not None:
        return outside
    found = [v for rules in _PARTS if (v := next(filter(None, (rule(case) for rule in rules)), None)) is not None]
    beside = _beside_sync(case, found)
    if beside is not None:
        found = [*(v for v in found if v.kind not in _WAYS), beside]
    if found:
        # The sort is stable, so the order of the parts decides if two causes explain equally much.
        # If the checkpoints are well, what limits the job comes before what takes the time of its checkpoints.
        ordered = sorted(found, key=lambda v: (v.kind not in _FULL and not case.is_suffering, -(v.share_ratio or 0.0)))
        first, others = ordered[0], ordered[1:]
        rest = [v for v in others if (v is beside and _takes_long(case, v)) or _is_another(case, first, v)]
        is_measured = first.phase in (Phase.SYNC, Phase.ASYNC, Phase.ACK_WAIT) or first.kind in _AT_SOURCES
        explained = (first.share_ratio or 0.0) + sum(v.share_ratio or 0.0 for v in rest)
        if not is_measured or explained >= PHASE_MIN_RATIO:
            if rest:
                return with_second(case, first, rest[0])
            overtaken = next((v for v in others if _is_overtaken(case, first, v, is_beside=v is beside)), None)
            return with_second(case, first, overtaken, is_overtaken=True)
    for rule in _LAST_RULES:
        verdict = rule(case)
        if verdict is not None:
            return verdict
    is_known = not case.is_suffering and (case.walked or case.loads) and not _is_unread(case)
    return _nothing(case) if is_known else _undecided(case)


def _is_unread(case: Case) -> bool:
    """Return whether only the durations of the checkpoints are known, and they are not short by themselves."""
    is_short = case.typical_ms is not None and case.typical_ms < NAMED_MIN_MS
    return not is_short and not case.loads and all(w.path is None for w in case.walked)


def _beside_sync(case: Case, found: list[Verdict]) -> Verdict | None:
    """Return the verdict on the way of the barriers that shows when the effect of a long sync part is taken out.

    It is asked for if the way shows nothing, or only the vertex of the sync part, where the queue may be its effect.
    """
    sync = next((v for v in found if v.kind is VerdictKind.SYNC and v.vertex_id is not None), None)
    if not case.is_suffering or sync is None or sync.vertex_id is None:
        return None
    if any(v.kind in _WAYS and v.vertex_id != sync.vertex_id for v in found):
        return None
    if relief.is_endless(case, sync.vertex_id, sync.subtasks):
        return None
    relieved = relief.without_sync(case, sync.vertex_id)
    verdict = None if relieved is None else verdict_barrier.by_pressure(relieved)
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


def _undecided(case: Case) -> Verdict:
    last = case.walked[-1].path if case.walked else None
    seen: list[Evidence] = []
    if last is not None:
        who = f"{say.vertex(last.last_vertex)} subtask {last.last_subtask}"
        seen = [rows.note(f"{who} was last in the newest checkpoint, which alone proves nothing")]
    return draft(
        case,
        VerdictKind.UNDECIDED,
        _unknown_text(case),
        phase=last.dominant_phase if last is not None else None,
        evidence=[
            *rows.restarts(case),
            *rows.fare(case),
            *rows.unlisted(case),
            *seen,
            *rows.calm(case),
            *rows.settings(case),
        ],
        confidence=Confidence.LOW,
        would_decide=_would_decide(case),
    )


def _unknown_text(case: Case) -> str:
    if not case.walked:
        return "there is nothing to judge"
    if case.is_suffering or not _is_unread(case):
        return "the cause is not known"
    return "what takes this time is not known, because neither their subtasks nor back-pressure could be read"


def _would_decide(case: Case) -> tuple[str, ...]:
    missing: list[str] = []
    if not case.walked:
        missing.append("a checkpoint that completed or expired: none is known")
    if not case.loads:
        missing.append(_NO_READINGS)
    if case.walked and not case.long_ones:
        missing.append("the subtasks of these checkpoints, which the engine no longer holds")
    if case.waiting and not any(rows.late(case, v.id) for v in case.evidence.topology.vertices):
        missing.append("first barriers of the subtasks that had not acknowledged, read while a checkpoint is open")
    return tuple(missing) or ("readings taken while a checkpoint is open: the cause may come and go",)


def _hidden(case: Case) -> Verdict | None:
    """Return an undecided verdict if unaligned checkpoints persist queued data and back-pressure could not be read.

    The queued data shows that something is back-pressured, but not its cause.
    """
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
        f"each persists {say.size(persisted)} of queued data, so something is back-pressured",
        evidence=[
            *rows.hiding(case),
            rows.note("back-pressure could not be read, so its cause is not known"),
            *rows.fare(case),
            *rows.settings(case),
        ],
        confidence=Confidence.LOW,
        would_decide=_would_decide(case),
    )


def _nothing(case: Case) -> Verdict:
    most = backpressured_max(case.loads)
    is_calm = most is not None and most[1] < BACKPRESSURED_MIN_RATIO
    busy = _full_without_effect(case)
    unexplained = [] if most is None or is_calm else [rows.note(f"no subtask below {case.name(most[0])} is full")]
    return draft(
        case,
        VerdictKind.NONE,
        f"nothing holds the barrier{_calm_text(case, most, is_calm=is_calm)}{_where_the_time_goes(case)}",
        evidence=[*rows.fare(case), *busy, *unexplained, *_longest_part(case), *rows.calm(case), *rows.settings(case)],
        confidence=weaker(case.confidence, _how_sure(case, is_calm=is_calm and not busy)),
        would_decide=() if case.loads else (_NO_READINGS,),
    )


def _where_the_time_goes(case: Case) -> str:
    """Return which phase of which subtask takes most of the newest completed checkpoint, to end a sentence.

    The text is empty if the checkpoint is too quick for this to matter, or if no phase takes most of it.
    """
    newest = next((w for w in reversed(case.walked) if w.is_completed), None)
    if newest is None or newest.path is None or newest.duration_ms < NAMED_MIN_MS:
        return ""
    longest = max(newest.path.steps, key=lambda s: s.end_ms - s.start_ms, default=None)
    share = 0.0 if longest is None else (longest.end_ms - longest.start_ms) / newest.duration_ms
    if longest is None or share < PHASE_MIN_RATIO:
        return ""
    what = say.PHASE_WORDS[longest.phase]
    where = f"{say.vertex(longest.vertex)} subtask {longest.subtask}"
    took = say.duration(newest.duration_ms)
    number = newest.checkpoint.header.checkpoint_id
    return f"; {say.percent(share)} of the {took} of checkpoint {number} is the {what} {where}"


def _calm_text(case: Case, most: tuple[VertexId, float] | None, *, is_calm: bool) -> str:
    if most is None:
        return ", but back-pressure could not be read"
    if is_calm:
        return " and no vertex is back-pressured"
    return f", but {case.name(most[0])} is back-pressured {say.percent(most[1])} of the time"


def _full_without_effect(case: Case) -> list[Evidence]:
    """Return a row on the first vertex with full subtasks. Nothing waits for them yet, but they have no reserve."""
    for vertex in case.evidence.topology.vertices:
        load = case.loads.get(vertex.id)
        if load is None or not case.evidence.topology.upstream(vertex.id):
            continue
        full = load.full_subtasks
        if full:
            where = say.where(case.name(vertex.id), full, vertex.parallelism)
            text = f"{where} {are(full)} nearly always busy: no reserve if the load grows"
            return [rows.number(text, "busyRatio", mean_of(load.busy[list(full)]) or 0.0, "ratio")]
    return []


def _longest_part(case: Case) -> list[Evidence]:
    """Return a row on the snapshot part that takes most of the time of long checkpoints.

    These checkpoints are long, but the interval and the timeout leave enough time for them.
    """
    part = snapshots.long_part(case.evidence.topology, case.evidence.config, case.long_ones)
    if part is None:
        return []
    text = f"{case.name(part.vertex_id)}: {part.phase.value} part, for which the settings leave enough time"
    return [rows.number(text, part.phase.value, part.part_ms, "ms")]


def _how_sure(case: Case, *, is_calm: bool) -> Confidence:
    if not case.loads:
        return Confidence.LOW
    return Confidence.HIGH if is_calm and case.report.health is Health.HEALTHY else Confidence.MEDIUM
