"""The verdict: which subtask holds the barrier, in which phase, and why. A late subtask is not always the cause."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from backend.domain.ids import VertexId


class Health(StrEnum):
    """The health of a job's checkpoints."""

    HEALTHY = "healthy"
    SLOW = "slow"
    FAILING = "failing"
    TOO_FEW = "too-few"


class VerdictKind(StrEnum):
    """What limits the job. It is named also if unaligned checkpoints hide its effect."""

    NONE = "none"
    CAPACITY = "capacity"
    STRAGGLER = "straggler"
    SKEW = "skew"
    SYNC = "sync"
    STORE = "store"
    LATE_INPUT = "late-input"
    FAILING_SUBTASK = "failing-subtask"
    UNDECIDED = "undecided"


class Phase(StrEnum):
    """The phases of a subtask's checkpoint, in order."""

    START_DELAY = "start-delay"
    ALIGNMENT = "alignment"
    SYNC = "sync"
    ASYNC = "async"
    ACK_WAIT = "ack-wait"


class Basis(StrEnum):
    """The origin of a number. Every number is shown with its basis."""

    MEASURED = "measured"
    RECONSTRUCTED = "reconstructed"
    PREDICTED = "predicted"


class Confidence(StrEnum):
    """The confidence that the evidence allows."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One row of evidence: a statement that a user can check, with its number if it has one.

    ``unit`` is one of ms, bytes, ratio, count, records/s. ``value`` is None if the statement has no number.
    """

    statement: str
    metric: str
    basis: Basis = Basis.MEASURED
    value: float | None = None
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a job. ``would_decide`` names the missing evidence if the verdict is undecided."""

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


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The health of a job's checkpoints and what limits the job."""

    health: Health
    verdict: Verdict
