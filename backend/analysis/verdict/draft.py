"""Builds a verdict from a case, and compares confidences. All rules share these functions."""

from __future__ import annotations

import re
from dataclasses import replace

from backend.analysis.numbers.statistics import ratio
from backend.analysis.verdict.case import Case
from backend.analysis.words import sentences as say
from backend.domain.ids import VertexId
from backend.domain.text import capitalised
from backend.domain.verdict import Confidence, Evidence, Phase, SecondCause, Verdict, VerdictKind

_RANK = (Confidence.LOW, Confidence.MEDIUM, Confidence.HIGH)
_SURE_COUNT = 3
_STATES = (VerdictKind.UNDECIDED, VerdictKind.RESTARTS, VerdictKind.CHECKPOINTING_OFF)
# The rows of the second cause follow the strongest ones of the first.
_FIRST_ROWS = 3
_SECOND_ROWS = 2


def draft(
    case: Case,
    kind: VerdictKind,
    reason: str,
    *,
    vertex_id: VertexId | None = None,
    subtasks: tuple[int, ...] = (),
    phase: Phase | None = None,
    evidence: list[Evidence],
    explained_ms: float | None = None,
    confidence: Confidence | None = None,
    would_decide: tuple[str, ...] = (),
) -> Verdict:
    """Build the verdict. Its sentence is the effect (``case.lead``) and then ``reason``: the culprit and the cause.

    ``reason`` has no full stop. ``explained_ms`` is the time that the cause takes by itself. ``evidence`` is in the
    order of its weight, strongest first (``docs/diagnosis.md``).
    """
    sure = case.confidence if confidence is None else confidence
    headline, detail = two_lines(case, kind, sure, reason, None if vertex_id is None else case.name(vertex_id))
    return Verdict(
        kind=kind,
        sentence=f"{case.lead}{_link(case, kind, sure)}{reason}.",
        confidence=sure,
        vertex_id=vertex_id,
        vertex=None if vertex_id is None else case.evidence.vertex_name(vertex_id),
        subtasks=subtasks,
        hosts=() if vertex_id is None else case.evidence.hosts(vertex_id, subtasks),
        phase=phase,
        evidence=tuple(evidence),
        would_decide=would_decide,
        headline=headline,
        detail=detail,
        share_ratio=None if explained_ms is None else _share(case, explained_ms),
        intermittence=case.intermittence,
    )


def _share(case: Case, explained_ms: float) -> float | None:
    share = ratio(explained_ms, case.typical_ms)
    return None if share is None else say.rounded(min(1.0, share))


def with_second(case: Case, first: Verdict, second: Verdict | None, *, is_overtaken: bool = False) -> Verdict:
    """Return the verdict with ``second`` as what would limit the checkpoints if the first cause were cured.

    If it ``is_overtaken``, it limits the job and not the checkpoints, because barriers overtake its queues.
    """
    if second is None:
        return first
    reason = second.sentence.removeprefix(case.lead).removesuffix(".")
    reason = re.sub(r"^(; |: |, but |,? because |, probably because )", "", reason)
    cause = SecondCause(
        kind=second.kind,
        sentence=reason,
        vertex_id=second.vertex_id,
        vertex=second.vertex,
        subtasks=second.subtasks,
        hosts=second.hosts,
        phase=second.phase,
        share_ratio=None if is_overtaken else second.share_ratio,
    )
    more = f" In addition, {reason}; barriers overtake its queues." if is_overtaken else f" After that, {reason}."
    return replace(
        first,
        sentence=first.sentence + more,
        detail=None if first.detail is None else first.detail + more,
        second=cause,
        evidence=(*first.evidence[:_FIRST_ROWS], *second.evidence[:_SECOND_ROWS], *first.evidence[_FIRST_ROWS:]),
    )


def two_lines(case: Case, kind: VerdictKind, sure: Confidence, reason: str, vertex: str | None) -> tuple[str, str]:
    """Return the sentence as a headline and the text below it.

    If a cause is known and the checkpoints suffer from it, the headline is the first part of ``reason``. Otherwise it
    is the state of the checkpoints.
    """
    if kind is VerdictKind.NONE or _is_state(kind, sure):
        return case.lead, f"{_capital(reason, vertex)}."
    if not case.is_suffering:
        return case.lead, f"But {reason}."
    # The name of a vertex may contain a colon, as in "Source: orders", so the name is hidden from the search below.
    hidden = reason if vertex is None else reason.replace(vertex, "_" * len(vertex))
    # The headline ends where an explanation begins, or a message of the engine in quotes.
    match = re.search(r': | \("', hidden)
    first, rest = (reason, "") if match is None else (reason[: match.start()], reason[match.start() :])
    # A pronoun at the end stands for the checkpoints that ``case.lead`` names. The headline does not contain ``lead``,
    # so a noun replaces the pronoun.
    first = re.sub(r"\bthem$", "the checkpoints", re.sub(r"\backnowledge it$", "acknowledge the checkpoint", first))
    headline = f"Probable cause: {first}" if sure is Confidence.LOW else _capital(first, vertex)
    return headline, f"{case.lead}{rest}."


def _is_state(kind: VerdictKind, confidence: Confidence) -> bool:
    """Return whether the verdict tells the state of the checkpoints, and no cause of it."""
    return kind in _STATES or (kind is VerdictKind.REFUSED and confidence is Confidence.LOW)


def _capital(text: str, vertex: str | None) -> str:
    """Return the text with a capital letter at its start, unless it starts with the name of the vertex."""
    return text if vertex is not None and text.startswith(vertex) else capitalised(text)


def _link(case: Case, kind: VerdictKind, confidence: Confidence) -> str:
    """Return the words between the effect and the reason."""
    if kind is VerdictKind.NONE:
        return ": "
    if _is_state(kind, confidence):
        return "; "
    if not case.is_suffering:
        return ", but "
    if confidence is Confidence.LOW:
        return ", probably because "
    # The lead ends with when the cause strikes, if that is known.
    return ", because " if case.intermittence is not None and case.intermittence.condition is not None else " because "


def weaker(a: Confidence, b: Confidence) -> Confidence:
    """Return the weaker of two confidences."""
    return min(a, b, key=_RANK.index)


def by_count(count: int) -> Confidence:
    """Return the confidence in something that was seen ``count`` times."""
    if count < 2:
        return Confidence.LOW
    return Confidence.MEDIUM if count < _SURE_COUNT else Confidence.HIGH


def are(subtasks: tuple[int, ...]) -> str:
    """Return ``is`` or ``are``, to follow the names of these subtasks."""
    return "is" if len(subtasks) == 1 else "are"
