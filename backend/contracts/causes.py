"""Wire shapes of what explains a checkpoint beside its first cause.

They are a second cause, how often a cause strikes, what was different in one checkpoint, and the critical path.
"""

from __future__ import annotations

from datetime import datetime

from backend.contracts.model import Model
from backend.domain.verdict import Basis, Phase, VerdictKind


class CausePageOut(Model):
    """The page of a cause: how it looks, how it differs from others, what cures it and what does not."""

    cause: str
    """A kind of verdict, or ``growth``."""
    markdown: str


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


class LastSubtaskOut(Model):
    """The subtask of the named vertex that the barrier reaches last, and in how many of the judged checkpoints."""

    subtask: int
    last_count: int
    checkpoint_count: int


class NamesLast(Model):
    """A verdict that may name one subtask beside those that are the cause."""

    last: LastSubtaskOut | None = None
    """If the whole vertex is the cause: the subtask that checkpoints wait for again and again; otherwise null."""


class IntermittenceOut(Model):
    """How often a cause strikes: in ``struck_count`` of the newest ``checkpoint_count`` checkpoints.

    ``since`` is the trigger of the first of them. ``condition`` says in words what they have in common and the other
    checkpoints lack; null if nothing of the kind was found.
    """

    struck_count: int
    checkpoint_count: int
    since: datetime
    condition: str | None


class CriticalStepOut(Model):
    """One step of the critical path, from the source to the last acknowledgement."""

    vertex_id: str
    vertex: str
    subtask: int
    phase: Phase
    start_ms: int
    end_ms: int
    basis: Basis


class CriticalPathOut(Model):
    """The steps that determine the end-to-end duration of a checkpoint."""

    steps: list[CriticalStepOut]
    last_vertex: str | None
    last_subtask: int | None
    without_last_ms: int | None
    """The end-to-end duration that the checkpoint would have had without the subtask that acknowledged last."""
    last_in: str | None = None
    """How often the same subtask was last in the compared checkpoints, such as ``last in 11 of 11``."""
    kept_pace_ms: int | None = None
    """The end-to-end duration if the subtasks that the verdict names had been no later than their siblings.

    Null if the checkpoint did not complete, or if the verdict names no subtask or all subtasks of a vertex.
    """


class OutlierOut(Model):
    """How a checkpoint differs from the quick ones before it, if it took many times as long.

    ``usual_ms`` is the median duration of these ``neighbour_count`` checkpoints, and ``times`` how many times as long
    this one took. Most of the additional time, ``extra_ms`` (reconstructed), arose in ``phase`` at these subtasks. It
    is null if the values of the subtasks are not known. ``phase_ms`` is null if the phase had not ended, and
    ``usual_phase_ms`` if it is not known what is usual. ``differences`` says what was different in it.
    """

    usual_ms: float
    times: float
    neighbour_count: int
    vertex: str | None = None
    vertex_id: str | None = None
    subtasks: list[int] = []
    phase: Phase | None = None
    phase_ms: float | None = None
    usual_phase_ms: float | None = None
    extra_ms: float | None = None
    differences: list[str] = []
