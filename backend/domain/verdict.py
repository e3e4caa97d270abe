"""The verdict: which subtask holds the barrier, in which phase, and why.

The subtask that is late is not always the cause.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from backend.domain.ids import VertexId


class Health(StrEnum):
    """The health of a job's checkpoints."""

    HEALTHY = "healthy"
    SLOW = "slow"
    FAILING = "failing"
    RESTARTING = "restarting"
    """The checkpoints are well, but the job restarts again and again."""
    INTERMITTENT = "intermittent"
    """Most checkpoints are well, but again and again one takes many times as long or fails."""
    TOO_FEW = "too-few"
    OFF = "off"
    """Checkpointing is off, so no checkpoint protects the state of the job."""


class VerdictKind(StrEnum):
    """The cause that limits the job. A cause is named even if unaligned checkpoints hide its effect."""

    NONE = "none"
    CAPACITY = "capacity"
    STRAGGLER = "straggler"
    SKEW = "skew"
    SYNC = "sync"
    STORE = "store"
    LATE_INPUT = "late-input"
    FAILING_SUBTASK = "failing-subtask"
    CALLBACK = "long-callback"
    COMMIT = "outside-commit"
    COORDINATOR = "coordinator"
    REPLAY = "replay"
    SLOW_HOST = "slow-host"
    RESTARTS = "restarts"
    LOST_ROWS = "lost-rows"
    """Transactions time out before a checkpoint commits them, so the job loses output although nothing fails."""
    REFUSED = "refused"
    """The coordinator refuses to begin a checkpoint, or the tasks decline every checkpoint at once."""
    GROWTH = "growth"
    """What each micro-batch reads or keeps besides its rows grows: the state of a query, or a table's metadata.

    What grows over days in a job of Flink is a sentence below its verdict: the newest checkpoints do not show it.
    """
    CHECKPOINTING_OFF = "checkpointing-off"
    UNDECIDED = "undecided"


class Phase(StrEnum):
    """The phases of a checkpoint at one subtask, in order."""

    START_DELAY = "start-delay"
    ALIGNMENT = "alignment"
    SYNC = "sync"
    ASYNC = "async"
    ACK_WAIT = "ack-wait"


class Basis(StrEnum):
    """Where a number comes from. Every number is shown with its basis."""

    MEASURED = "measured"
    RECONSTRUCTED = "reconstructed"
    PREDICTED = "predicted"


class Confidence(StrEnum):
    """How certain a statement is, given its evidence."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One row of evidence: a statement that a user can check, with a number if the statement has one.

    ``unit`` is one of ms, bytes, ratio, count, records/s. ``value`` is None if the statement has no number. It
    ``is_lower_bound`` if subtasks that had not acknowledged are missing in it.
    """

    statement: str
    metric: str
    basis: Basis = Basis.MEASURED
    value: float | None = None
    unit: str | None = None
    is_lower_bound: bool = False


@dataclass(frozen=True, slots=True)
class SecondCause:
    """The cause that would limit the checkpoints if the first one were cured.

    ``sentence`` names the culprit and the cause. ``share_ratio`` is the share of the duration that the cause takes by
    itself. The shares of both causes may add up to more than one, because causes may overlap in time. It is None if the
    cause limits the job and not the checkpoints, because barriers overtake its queues.
    """

    kind: VerdictKind
    sentence: str
    vertex_id: VertexId | None = None
    vertex: str | None = None
    subtasks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    phase: Phase | None = None
    share_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class LastSubtask:
    """The subtask of the named vertex that the barrier reaches last: in ``last_count`` of ``checkpoint_count``."""

    subtask: int
    last_count: int
    checkpoint_count: int


@dataclass(frozen=True, slots=True)
class Intermittence:
    """How often a cause strikes: in ``struck_count`` of the newest ``checkpoint_count`` checkpoints.

    ``since`` is the trigger of the first of them. ``condition`` is what the struck checkpoints have in common and the
    others lack, in words; None if nothing of the kind was found.
    """

    struck_count: int
    checkpoint_count: int
    since: datetime
    condition: str | None = None


@dataclass(frozen=True, slots=True)
class Outlier:
    """How a checkpoint differs from its neighbours, if it took many times as long.

    The neighbours are ``neighbour_count`` quick checkpoints before it, with a median duration of ``usual_ms``; the
    checkpoint took ``times`` as long. Most of the additional time, ``extra_ms``, arose in ``phase`` at these subtasks
    of the vertex, where the neighbours took ``usual_phase_ms``. These are None if the subtasks are not known.
    ``phase_ms`` is None too if the phase had not ended, and ``usual_phase_ms`` if the neighbours' is not known.
    ``differences`` says what was different in it, in words, where the time was lost first.
    """

    usual_ms: float
    times: float
    neighbour_count: int
    vertex_id: VertexId | None = None
    vertex: str | None = None
    subtasks: tuple[int, ...] = ()
    phase: Phase | None = None
    phase_ms: float | None = None
    usual_phase_ms: float | None = None
    extra_ms: float | None = None
    differences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a job. If ``kind`` is undecided, ``would_decide`` names the evidence that is missing.

    ``share_ratio`` is the share of the duration that the cause takes by itself, reconstructed; None if the cause does
    not take time in the checkpoints, or the share is not known.
    """

    kind: VerdictKind
    sentence: str
    confidence: Confidence
    vertex_id: VertexId | None = None
    vertex: str | None = None
    subtasks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    phase: Phase | None = None
    evidence: tuple[Evidence, ...] = ()
    would_decide: tuple[str, ...] = field(default=())
    headline: str | None = None
    """The sentence as two texts: the culprit or the state in a few words, and then the rest."""
    detail: str | None = None
    share_ratio: float | None = None
    second: SecondCause | None = None
    intermittence: Intermittence | None = None
    outlier: Outlier | None = None
    last: LastSubtask | None = None
    """If the whole vertex is the cause: the one of its subtasks that checkpoints wait for, again and again."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The health of a job's checkpoints, and the verdict on what limits the job."""

    health: Health
    verdict: Verdict
