"""How every rule puts its answer together: one sentence, the names behind ids, the hosts, the confidence."""

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
    """The verdict; ``reason`` follows the case's lead in the sentence and has no full stop."""
    is_hidden = not case.is_suffering and kind not in (VerdictKind.NONE, VerdictKind.UNDECIDED)
    return Verdict(
        kind=kind,
        sentence=f"{case.lead}{', yet ' if is_hidden else ': '}{reason}.",
        confidence=case.confidence if confidence is None else confidence,
        vertex_id=vertex_id,
        vertex=None if vertex_id is None else case.evidence.vertex_name(vertex_id),
        subtasks=subtasks,
        hosts=() if vertex_id is None else case.evidence.hosts(vertex_id, subtasks),
        phase=phase,
        evidence=tuple(evidence),
        would_decide=would_decide,
    )


def weaker(a: Confidence, b: Confidence) -> Confidence:
    """The weaker of two."""
    return min(a, b, key=_RANK.index)


def by_count(count: int) -> Confidence:
    """Confidence in what was seen ``count`` times."""
    if count < 2:
        return Confidence.LOW
    return Confidence.MEDIUM if count < _SURE_COUNT else Confidence.HIGH


def parallelism(case: Case, vertex_id: VertexId) -> int:
    """Subtasks of the vertex: as planned, else as many as were seen."""
    vertex = case.evidence.topology.vertex(vertex_id)
    if vertex is not None:
        return vertex.parallelism
    return max((len(p) for p in case.subtasks_of(vertex_id)), default=0)


def are(subtasks: tuple[int, ...]) -> str:
    """The verb for so many subtasks."""
    return "is" if len(subtasks) == 1 else "are"
