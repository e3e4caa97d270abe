"""Functions that all rules share: building the verdict from a case, and its confidence."""

from __future__ import annotations

from backend.analysis.case import Case
from backend.domain.ids import VertexId
from backend.domain.verdict import Confidence, Evidence, Phase, Verdict, VerdictKind

_RANK = (Confidence.LOW, Confidence.MEDIUM, Confidence.HIGH)
_SURE_COUNT = 3


def draft(
    case: Case,
    kind: VerdictKind,
    reason: str,
    *,
    vertex_id: VertexId | None = None,
    subtasks: tuple[int, ...] = (),
    phase: Phase | None = None,
    evidence: list[Evidence],
    confidence: Confidence | None = None,
    would_decide: tuple[str, ...] = (),
) -> Verdict:
    """Build the verdict. Its sentence is the effect (``case.lead``), then ``reason``: the culprit and the cause.

    ``reason`` has no full stop. ``evidence`` is in the order of its weight, strongest first (``docs/diagnosis.md``).
    """
    sure = case.confidence if confidence is None else confidence
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
    )


def _link(case: Case, kind: VerdictKind, confidence: Confidence) -> str:
    """The words between the effect and the reason."""
    if kind is VerdictKind.NONE:
        return ": "
    if kind is VerdictKind.UNDECIDED:
        return "; "
    if not case.is_suffering:
        return ", but "
    return ", probably because " if confidence is Confidence.LOW else " because "


def weaker(a: Confidence, b: Confidence) -> Confidence:
    """The weaker of two confidences."""
    return min(a, b, key=_RANK.index)


def by_count(count: int) -> Confidence:
    """Confidence in something that was seen ``count`` times."""
    if count < 2:
        return Confidence.LOW
    return Confidence.MEDIUM if count < _SURE_COUNT else Confidence.HIGH


def are(subtasks: tuple[int, ...]) -> str:
    """``is`` or ``are``, to follow the names of these subtasks."""
    return "is" if len(subtasks) == 1 else "are"
