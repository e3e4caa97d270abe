"""The JSON of advice under ``/api/v1`` and in ``diagnose``: recommendations, their predictions and later measurements.

``backend.contracts.api`` lists the paths.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from backend.contracts.model import Model
from backend.domain.advice import AdviceState, Metric, Mode, Topic
from backend.domain.verdict import Basis, Confidence


class IntervalOut(Model):
    """A predicted value, with the smallest and largest value that the model allows."""

    value: float
    low: float
    high: float


class ExpectedOut(Model):
    """One predicted change: the median over the next checkpoints; for ``expired_ratio``, the share that expires."""

    metric: Metric
    unit: str
    before: float | None
    """Measured over the last checkpoints; null if not known."""
    is_before_at_least: bool
    """Whether ``before`` is a lower bound, because checkpoints expired."""
    predicted: IntervalOut
    method: str
    basis: Basis


class AdviceEvidenceOut(Model):
    """A statement that a person can check, with its checkpoints, vertex, subtasks and time window."""

    statement: str
    metric: str
    basis: Basis
    value: float | None = None
    unit: str | None = None
    vertex: str | None = None
    subtasks: tuple[int, ...] = ()
    checkpoint_ids: tuple[int, ...] = ()
    since: datetime | None = None
    until: datetime | None = None


class SettingOut(Model):
    """The settings that a recommendation covers; null if it does not cover a setting."""

    mode: Mode | None = None
    aligned_timeout_ms: int | None = None
    inflight_cap_bytes: int | None = None
    debloat_target_ms: int | None = None


class CandidateOut(Model):
    """One way to take checkpoints, evaluated on the recorded checkpoints."""

    mode: Mode
    aligned_timeout_ms: int | None
    duration_ms: IntervalOut | None
    persisted_bytes: IntervalOut | None
    expired_ratio: float | None
    is_current: bool
    is_proposed: bool


class ChangeOut(Model):
    """One line of the configuration diff."""

    key: str
    current: str | None
    proposed: str


class HowToOut(Model):
    """How to make and undo the change. ``patch`` is the request body for an engine that can change settings live."""

    file: str
    lines: list[str]
    rollback_lines: list[str]
    needs_restart: bool
    patch: dict[str, str] = Field(default_factory=dict)
    rollback_patch: dict[str, str] = Field(default_factory=dict)


class PreconditionOut(Model):
    """A condition that must hold before the change; ``is_met`` is null if it cannot be read."""

    text: str
    is_met: bool | None


class RecommendationOut(Model):
    """One recommended change, with the facts needed to judge it."""

    topic: Topic
    kind: str
    rules: list[str]
    headline: str
    reason: str
    current: SettingOut
    proposed: SettingOut
    changes: list[ChangeOut]
    expected: list[ExpectedOut]
    candidates: list[CandidateOut]
    evidence: list[AdviceEvidenceOut]
    confidence: Confidence
    confidence_reason: str
    preconditions: list[PreconditionOut]
    risks: list[str]
    will_not_cure: list[str]
    withdrawn_if: list[str]
    how_to: HowToOut
    checkpoint_ids: list[int]


class SilenceOut(Model):
    """Why there is no recommendation on a topic."""

    topic: Topic
    rule: str
    reason: str
    vertex: str | None = None
    subtasks: tuple[int, ...] = ()
    evidence: tuple[AdviceEvidenceOut, ...] = ()


class AdviceOut(Model):
    """The advice that ``diagnose`` prints for a job: recommendations, and the reasons for topics without one."""

    recommendations: list[RecommendationOut]
    silences: list[SilenceOut]
    considered_count: int


class MeasuredOut(Model):
    """One prediction and the value that the checkpoints after the change measured."""

    metric: Metric
    unit: str
    predicted: IntervalOut
    measured: float
    is_inside: bool
    checkpoint_count: int
    basis: Basis = Basis.MEASURED


class LifeEventOut(Model):
    """A change of a card's state."""

    at: datetime
    state: AdviceState
    reason: str


class CardOut(Model):
    """A recommendation with its state and history."""

    id: str
    job_id: str
    run_id: str
    state: AdviceState
    state_reason: str
    created_at: datetime
    updated_at: datetime
    applied_at: datetime | None = None
    can_apply: bool
    """Whether ``apply`` can make the change: only if the engine can change settings of a running job."""
    recommendation: RecommendationOut
    measured: tuple[MeasuredOut, ...] = ()
    """Predictions compared with measurements, after the change was applied and enough checkpoints have ended."""
    measured_ids: tuple[int, ...] = ()
    history: tuple[LifeEventOut, ...] = ()


class JobAdviceOut(Model):
    """The advice for a job now. ``cards``: open and applied ones, and the newest verified or rolled-back ones."""

    job: str
    job_id: str
    as_of: datetime
    considered_count: int
    cards: list[CardOut]
    silences: list[SilenceOut]


class DismissIn(Model):
    """Why a recommendation is not wanted."""

    reason: Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00]*\S[^\x00]*$")]
