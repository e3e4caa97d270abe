"""What the advisor says: recommendations, each with its evidence and prediction, and the reasons for silence.

Invariant: every prediction has an interval and says how it was computed; nothing missing is a number. Durations are
milliseconds, sizes bytes. A recommendation never proposes what its engine cannot do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from backend.domain.advice import Metric, Mode, Topic
from backend.domain.verdict import Basis, Confidence

UNITS = {Metric.DURATION: "ms", Metric.PERSISTED: "bytes", Metric.EXPIRED: "ratio", Metric.RESTORE: "ms"}


@dataclass(frozen=True, slots=True)
class Interval:
    """A value that is expected, between the least and the most that the model allows."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Expected:
    """One predicted change of the median over the next checkpoints (of ``EXPIRED``: their share).

    ``before`` is what the last checkpoints measured; ``is_before_at_least`` where they were cut off by their timeout.
    """

    metric: Metric
    unit: str
    before: float | None
    predicted: Interval
    method: str
    is_before_at_least: bool = False
    basis: Basis = Basis.PREDICTED


@dataclass(frozen=True, slots=True)
class EvidenceRow:
    """A statement a person can check: what was read, of which checkpoints, vertex and subtasks, in which window."""

    statement: str
    metric: str
    basis: Basis = Basis.MEASURED
    value: float | None = None
    unit: str | None = None
    vertex: str | None = None
    subtasks: tuple[int, ...] = ()
    checkpoint_ids: tuple[int, ...] = ()
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """The settings that advice is about, as an engine reports them when they are in force; None is *not part of it*."""

    mode: Mode | None = None
    aligned_timeout_ms: int | None = None
    inflight_cap_bytes: int | None = None
    debloat_target_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to take checkpoints, and what it would have done to the recorded ones."""

    mode: Mode
    aligned_timeout_ms: int | None
    duration_ms: Interval | None
    persisted_bytes: Interval | None
    expired_ratio: float | None
    is_current: bool = False
    is_proposed: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """One line of the configuration diff; ``current`` None where the value in force is not reported."""

    key: str
    current: str | None
    proposed: str


@dataclass(frozen=True, slots=True)
class HowTo:
    """How the change is made on this engine, and undone.

    ``patch`` and ``rollback_patch`` are bodies for an engine whose settings change while it runs; else empty.
    """

    file: str
    lines: tuple[str, ...]
    rollback_lines: tuple[str, ...]
    needs_restart: bool
    patch: Mapping[str, str] = field(default_factory=dict)
    rollback_patch: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Precondition:
    """Something that must hold first; ``is_met`` None where it cannot be read."""

    text: str
    is_met: bool | None


@dataclass(frozen=True, slots=True)
class Recommendation:
    """One change that is worth making, and everything needed to judge it."""

    topic: Topic
    rules: tuple[str, ...]
    headline: str
    reason: str
    current: Setting
    proposed: Setting
    changes: tuple[Change, ...]
    expected: tuple[Expected, ...]
    candidates: tuple[Candidate, ...]
    evidence: tuple[EvidenceRow, ...]
    confidence: Confidence
    confidence_reason: str
    preconditions: tuple[Precondition, ...]
    risks: tuple[str, ...]
    will_not_cure: tuple[str, ...]
    withdrawn_if: tuple[str, ...]
    how_to: HowTo
    checkpoint_ids: tuple[int, ...]

    @property
    def kind(self) -> str:
        """What is proposed, without its numbers: two pieces of advice of one kind are the same advice."""
        mode = self.proposed.mode.value if self.proposed.mode is not None else "same-mode"
        return f"{self.topic.value}/{mode}"


@dataclass(frozen=True, slots=True)
class Silence:
    """Why nothing is advised on a topic; ``rule`` is the one that holds it back."""

    topic: Topic
    rule: str
    reason: str
    vertex: str | None = None
    subtasks: tuple[int, ...] = ()
    evidence: tuple[EvidenceRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Advice:
    """What is advised on one job, and why not where nothing is."""

    recommendations: tuple[Recommendation, ...]
    silences: tuple[Silence, ...]
    considered_count: int


def recommendation_id(job_id: str, kind: str, began_at: datetime) -> str:
    """The id of a card: a job, what is advised to it, and when that began."""
    text = f"{job_id}\n{kind}\n{began_at.isoformat()}"
    return "a" + hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
