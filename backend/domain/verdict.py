"""Who holds the barrier, in which phase and why. *Late is not guilty* (views.md, "Verdict first")."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from backend.domain.ids import VertexId


class Health(StrEnum):
    """How a job's checkpoints fare."""

    HEALTHY = "healthy"
    SLOW = "slow"
    FAILING = "failing"
    TOO_FEW = "too-few"


class VerdictKind(StrEnum):
    """What limits the job; it may be hidden by unaligned checkpoints and is named all the same."""

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
    """Where a number comes from; every number shown says which."""

    MEASURED = "measured"
    RECONSTRUCTED = "reconstructed"
    PREDICTED = "predicted"


class Confidence(StrEnum):
    """How far the evidence carries."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One row of evidence: a statement a person can check, with its number where it has one.

    ``unit`` is one of ms, bytes, ratio, count, records/s; ``value`` None where the statement is no number.
    """

    statement: str
    metric: str
    basis: Basis = Basis.MEASURED
    value: float | None = None
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer. ``would_decide`` names what is missing where the evidence does not decide."""

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
