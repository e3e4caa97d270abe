"""Rules for a case without a known cause: nothing holds the barrier, or the cause is not decided."""

from __future__ import annotations

from dataclasses import dataclass

from backend.analysis.measures import snapshots
from backend.analysis.measures.pressure import backpressured_max
from backend.analysis.numbers.arrays import mean_of
from backend.analysis.numbers.statistics import median, ratio
from backend.analysis.verdict import evidence_rows as rows
from backend.analysis.verdict.case import Case
from backend.analysis.verdict.draft import are, draft, weaker
from backend.analysis.verdict.rule import UNREAD, WELL, Explains, Rule
from backend.analysis.words import sentences as say
from backend.analysis.words.thresholds import (
    BACKPRESSURED_MIN_RATIO,
    NAMED_MIN_MS,
    PERSISTED_MIN_BYTES,
    PHASE_MIN_RATIO,
)
from backend.domain.ids import VertexId
from backend.domain.verdict import Confidence, Evidence, Health, Verdict, VerdictKind

_NO_READINGS = "back-pressure of each vertex, read while the job runs"


def _is_unread(case: Case) -> bool:
    """Return whether only the durations of the checkpoints are known, and they are not short by themselves."""
    is_short = case.typical_ms is not None and case.typical_ms < NAMED_MIN_MS
    return not is_short and not case.loads and all(w.path is None for w in case.walked)


def _tell_undecided(case: Case, missing: tuple[str, ...]) -> Verdict:
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
        would_decide=missing,
    )


def _unknown_text(case: Case) -> str:
    if not case.walked:
        return "there is nothing to judge"
    if case.is_suffering or not _is_unread(case):
        return "the cause is not known"
    return "what takes this time is not known, because neither their subtasks nor back-pressure could be read"


def _would_decide(case: Case) -> tuple[str, ...]:
    """Return what would decide the verdict if nothing else does. It is never empty."""
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


UNDECIDED = Rule("undecided", Explains.THE_REST, (), _would_decide, _tell_undecided)


def _find_persisted(case: Case) -> float | None:
    """Return how many bytes of queued data each unaligned checkpoint persists; None if it is no queue.

    The queued data shows that something is back-pressured, but not its cause.
    """
    headers = [w.checkpoint.header for w in case.walked]
    persisted = median(h.persisted_bytes for h in headers)
    each = median(ratio(h.persisted_bytes, h.subtask_count) for h in headers)
    return None if each is None or each < PERSISTED_MIN_BYTES else persisted


def _tell_persisted(case: Case, persisted: float) -> Verdict:
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


PERSISTED_QUEUES = Rule(
    "persisted queues without readings", Explains.THE_REST, (UNREAD, WELL), _find_persisted, _tell_persisted
)


@dataclass(frozen=True, slots=True)
class _Calm:
    """That nothing holds the barrier. ``most`` is the most back-pressured vertex and its ratio, if it was read."""

    most: tuple[VertexId, float] | None


def _find_calm(case: Case) -> _Calm | None:
    is_known = bool(case.walked or case.loads) and not _is_unread(case)
    return _Calm(backpressured_max(case.loads)) if is_known else None


def _tell_calm(case: Case, calm: _Calm) -> Verdict:
    most = calm.most
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


NOTHING = Rule("nothing holds the barrier", Explains.THE_REST, (WELL,), _find_calm, _tell_calm)


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
