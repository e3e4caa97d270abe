"""Decide whether a verdict about a job is right, not decided or wrong. Pure functions on what ``diagnose`` prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from backend.domain.verdict import Confidence, Health, VerdictKind
from tests.simulators.versions.jobs import VersionsJob


class Outcome(StrEnum):
    """How a verdict compares with what was built. A later member is worse."""

    RIGHT = "right"
    NOT_DECIDED = "not decided"
    WRONG = "wrong"
    UNREAD = "unread"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdict on one job, and how it compares. ``why`` says what differs from what was built."""

    job: str
    outcome: Outcome
    confidence: str = ""
    health: str = ""
    kind: str = ""
    vertex: str = ""
    why: str = ""
    sentence: str = ""

    @property
    def is_wrong_and_sure(self) -> bool:
        """Whether the verdict is wrong although its confidence is high."""
        return self.outcome is Outcome.WRONG and self.confidence == Confidence.HIGH.value


def judged(job: VersionsJob, diagnosis: Mapping[str, Any] | None) -> Judged:
    """Compare one job of ``diagnose --format json`` with what was built. None means that ``diagnose`` left it out."""
    if diagnosis is None:
        return Judged(job.name, Outcome.UNREAD, why="diagnose prints nothing about this job")
    verdict, health = diagnosis["verdict"], diagnosis["health"]
    found = Judged(
        job.name,
        Outcome.RIGHT,
        verdict["confidence"],
        health,
        verdict["kind"],
        verdict["vertex"] or "",
        sentence=verdict["sentence"],
    )
    wrongs = list(_differences(job, found))
    if not wrongs:
        return found
    is_open = VerdictKind(found.kind) is VerdictKind.UNDECIDED or Health(health) is Health.TOO_FEW
    outcome = Outcome.NOT_DECIDED if is_open else Outcome.WRONG
    return Judged(
        job.name, outcome, found.confidence, health, found.kind, found.vertex, "; ".join(wrongs), found.sentence
    )


def _differences(job: VersionsJob, found: Judged) -> Iterable[str]:
    kinds = [kind.value for kind in job.kinds]
    if found.kind not in kinds:
        yield f"{found.kind}, built was {' or '.join(kinds)}"
    elif job.vertex is not None and job.vertex not in found.vertex:
        yield f"the vertex is {found.vertex or 'not named'}, built was {job.vertex}"
    healths = [health.value for health in job.healths]
    if healths and found.health not in healths:
        yield f"{found.health}, built was {' or '.join(healths)}"


def worse(one: Judged, other: Judged) -> Judged:
    """Return the worse of two verdicts on the same job. Of two equally bad ones, that of higher confidence."""
    order = list(Outcome)
    sure = [Confidence.LOW.value, Confidence.MEDIUM.value, Confidence.HIGH.value]

    def rank(found: Judged) -> tuple[int, int]:
        return order.index(found.outcome), sure.index(found.confidence) if found.confidence in sure else -1

    return max((one, other), key=rank)
