"""Wire shapes of what a verdict says beside its first cause: a second cause, and how often a cause strikes."""

from __future__ import annotations

from datetime import datetime

from backend.contracts.model import Model
from backend.domain.verdict import Phase, VerdictKind


class SecondCauseOut(Model):
    """The cause that would limit the checkpoints if the first one were cured.

    ``share_ratio`` is the share of the duration that the cause takes by itself (0..1), reconstructed. The shares of two
    causes that overlap in time add up to more than one.
    """

    kind: VerdictKind
    sentence: str
    vertex: str | None
    vertex_id: str | None
    subtasks: list[int]
    hosts: list[str]
    phase: Phase | None
    share_ratio: float | None


class IntermittenceOut(Model):
    """How often a cause strikes: in ``struck_count`` of the newest ``checkpoint_count`` checkpoints.

    ``since`` is the trigger of the first of them. ``condition`` says in words what they have in common and the other
    checkpoints lack; null if nothing of the kind was found.
    """

    struck_count: int
    checkpoint_count: int
    since: datetime
    condition: str | None
