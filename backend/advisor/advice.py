"""The result of the advisor: recommendations with evidence and predictions, or the reasons for giving none.

Invariants: every prediction has an interval and names its method. A missing value is None, never a number. A
recommendation proposes only what its engine can do. Durations are in milliseconds, sizes in bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from backend.domain.advice import LintEffect, LintLevel, Metric, Mode, Topic
from backend.domain.verdict import Basis, Confidence

UNITS = {
    Metric.DURATION: "ms",
    Metric.PERSISTED: "bytes",
    Metric.EXPIRED: "ratio",
    Metric.RESTORE: "ms",
    Metric.WRITTEN: "bytes",
    Metric.OPEN_RATIO: "ratio",
    Metric.REPLAYED: "ms",
    Metric.RECOVERY: "ms",
    Metric.LOST: "ratio",
    Metric.FAILOVERS: "1/day",
    Metric.STORED: "bytes",
    Metric.THROUGHPUT: "records/s",
}


@dataclass(frozen=True, slots=True)
class Interval:
    """An expected value, with the smallest and the largest value that the model allows."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Expected:
    """The predicted change of one metric.

    The prediction is for the median over the next checkpoints. For ``EXPIRED``, it is for the share of the next
    checkpoints that expire. ``before`` is the value measured on the last checkpoints. ``is_before_at_least`` means that
    the checkpoint timeout cut these checkpoints off, so that the true value is larger than ``before``.
    ``before_values`` has the value of each checkpoint of the recommendation; it is empty for a metric that single
    checkpoints do not have.
    """

    metric: Metric
    unit: str
    before: float | None
    predicted: Interval
    method: str
    is_before_at_least: bool = False
    basis: Basis = Basis.PREDICTED
    before_values: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class EvidenceRow:
    """A fact that a person can check, with its value, checkpoints, vertex, subtasks and time window.

    ``values`` are what ``value`` was computed from, oldest first: one for each of the checkpoints or, without
    checkpoints, one for each reading.
    """

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
    values: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Setting:
    """The settings that a recommendation is about, with their current or their proposed values.

    None means that the recommendation is not about the setting, or that the setting has no value.
    """

    mode: Mode | None = None
    aligned_timeout_ms: int | None = None
    inflight_cap_bytes: int | None = None
    debloat_target_ms: int | None = None
    debloat_period_ms: int | None = None
    floating_buffer_count: int | None = None
    interval_ms: int | None = None
    min_pause_ms: int | None = None
    timeout_ms: int | None = None
    tolerable_failed_count: int | None = None
    retained_count: int | None = None
    state_backend: str | None = None
    is_incremental: bool | None = None
    has_changelog: bool | None = None
    changelog_directory: str | None = None
    parallelism: int | None = None
    vertex_id: str | None = None
    """The vertex that ``parallelism`` is about; None if it is about all that exchange data by key."""
    max_concurrent: int | None = None
    is_unaligned_forced: bool | None = None
    """Whether unaligned checkpoints are on in spite of an exchange for which the engine refuses them."""
    batch_offset_count: int | None = None
    batch_file_count: int | None = None
    is_uncapped: bool = False
    is_debloat_off: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """A mode with its aligned timeout, and what is predicted under it."""

    mode: Mode
    aligned_timeout_ms: int | None
    duration_ms: Interval | None
    persisted_bytes: Interval | None
    expired_ratio: float | None
    is_current: bool = False
    is_proposed: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """One changed line of the configuration; ``current`` is None if the engine does not report the current value."""

    key: str
    current: str | None
    proposed: str


@dataclass(frozen=True, slots=True)
class HowTo:
    """How to make the change on this engine, and how to undo it.

    ``patch`` and ``rollback_patch`` are bodies of PATCH requests for an engine that can change the settings of a
    running job. For other engines they are empty.
    """

    file: str
    lines: tuple[str, ...]
    rollback_lines: tuple[str, ...]
    needs_restart: bool
    patch: Mapping[str, str] = field(default_factory=dict)
    rollback_patch: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[str, ...] = ()
    """What a person does in place of the changed lines, or in addition to them, as sentences."""


@dataclass(frozen=True, slots=True)
class Precondition:
    """A condition that must hold before the change is made; ``is_met`` is None if the advisor cannot check it."""

    text: str
    is_met: bool | None


@dataclass(frozen=True, slots=True)
class Recommendation:
    """One recommended change, with the evidence, predictions, conditions and risks that a person needs to judge it."""

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
    unpredicted: tuple[str, ...] = ()
    """What the advice does not predict, each with the reason."""
    direction: str | None = None
    """A word that tells opposite advice on one topic apart, such as ``raise``; None on the topics with a mode."""
    chosen_by: str | None = None
    """The tier of the simulation that chose the settings; None if rules and replayed checkpoints chose them."""
    predicted_by: str | None = None
    """The tier of the what-if whose numbers are shown; None if the rule predicts, as by replayed checkpoints."""

    @property
    def kind(self) -> str:
        """The topic and the proposed mode, without numbers such as a timeout.

        Recommendations of the same kind count as the same advice. Those that raise a setting and those that lower it
        are of different kinds.
        """
        if self.direction is not None:
            return f"{self.topic.value}/{self.direction}"
        mode = self.proposed.mode.value if self.proposed.mode is not None else "same-mode"
        return f"{self.topic.value}/{mode}"


@dataclass(frozen=True, slots=True)
class NoAdvice:
    """The reason for giving no recommendation on a topic, and the rule from which the reason follows."""

    topic: Topic
    rule: str
    reason: str
    vertex: str | None = None
    subtasks: tuple[int, ...] = ()
    evidence: tuple[EvidenceRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Lint:
    """One finding about the settings or the version of a job.

    ``cure`` says what to do. ``source`` is the address of a page that describes the problem. ``effect`` says what the
    lint means for advice to enable unaligned checkpoints.
    """

    code: str
    level: LintLevel
    headline: str
    detail: str
    cure: str
    source: str
    effect: LintEffect = LintEffect.NONE


@dataclass(frozen=True, slots=True)
class ChosenBy:
    """What chose mode, in-flight data and interval. ``tier`` is None if rules and replayed checkpoints did.

    ``text`` is a sentence: what the simulation compared, or why it could not choose.
    """

    tier: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Advice:
    """The recommendations for a job, the reason for giving none on any other topic, and the lints of its settings.

    ``chosen_by`` is None if the settings cannot be chosen by what they lose.
    """

    recommendations: tuple[Recommendation, ...]
    silences: tuple[NoAdvice, ...]
    considered_count: int
    lints: tuple[Lint, ...] = ()
    chosen_by: ChosenBy | None = None
    is_choice_due: bool = False
    """Whether the fast simulation should choose settings again (``tier_choice``)."""
    is_answer_due: bool = False
    """Whether it should answer what the cards ask (``predictor``), also if it need not choose."""


def recommendation_id(job_id: str, kind: str, began_at: datetime) -> str:
    """Return the id of a recommendation: a hash of the job, the kind of recommendation and when it was first made."""
    text = f"{job_id}\n{kind}\n{began_at.isoformat()}"
    return "a" + hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
