"""The JSON of advice under ``/api/v1``, and of ``diagnose``: what is advised, predicted, and measured afterwards.

Paths are listed in ``backend.contracts.api``.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from backend.contracts.api import Model
from backend.domain.advice import AdviceState, Metric, Mode, Topic
from backend.domain.verdict import Basis, Confidence


class IntervalOut(Model):
    """A predicted value, between the least and the most that the model allows."""

    value: float
    low: float
    high: float


class ExpectedOut(Model):
    """One predicted change: the median over the next checkpoints; of ``expired_ratio`` their share."""

    metric: Metric
    unit: str
    before: float | None
    """Measured over the last checkpoints; null where that is not known."""
    is_before_at_least: bool
    """Whether those were cut off by their timeout, so that it would have been more."""
    predicted: IntervalOut
    method: str
    basis: Basis


class AdviceEvidenceOut(Model):
    """A statement a person can check: of which checkpoints, vertex and subtasks, read in which window."""

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
    """The settings that advice is about; null is not part of it."""

    mode: Mode | None = None
    aligned_timeout_ms: int | None = None
    inflight_cap_bytes: int | None = None
    debloat_target_ms: int | None = None


class CandidateOut(Model):
    """One way to take checkpoints, replayed on the recorded ones."""

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
    """How the change is made, and undone. ``patch`` is the body for an engine whose settings change while it runs."""

    file: str
    lines: list[str]
    rollback_lines: list[str]
    needs_restart: bool
    patch: dict[str, str] = Field(default_factory=dict)
    rollback_patch: dict[str, str] = Field(default_factory=dict)


class PreconditionOut(Model):
    """Something that must hold first; null where it cannot be read."""

    text: str
    is_met: bool | None


class RecommendationOut(Model):
    """One change that is worth making, and everything needed to judge it."""

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
    """Why nothing is advised on a topic."""

    topic: Topic
    rule: str
    reason: str
    vertex: str | None = None
    subtasks: tuple[int, ...] = ()
    evidence: tuple[AdviceEvidenceOut, ...] = ()


class AdviceOut(Model):
    """What ``diagnose`` prints of a job: what is advised, and why not where nothing is."""

    recommendations: list[RecommendationOut]
    silences: list[SilenceOut]
    considered_count: int


class MeasuredOut(Model):
    """One prediction beside what the checkpoints after the change measured."""

    metric: Metric
    unit: str
    predicted: IntervalOut
    measured: float
    is_inside: bool
    checkpoint_count: int
    basis: Basis = Basis.MEASURED


class LifeEventOut(Model):
    """Something that happened to a card."""

    at: datetime
    state: AdviceState
    reason: str


class CardOut(Model):
    """A recommendation and what became of it."""

    id: str
    job_id: str
    run_id: str
    state: AdviceState
    state_reason: str
    created_at: datetime
    updated_at: datetime
    applied_at: datetime | None = None
    can_apply: bool
    """Whether ``apply`` can do it: only where settings change while the job runs."""
    recommendation: RecommendationOut
    measured: tuple[MeasuredOut, ...] = ()
    """Beside the predictions, once it was applied and enough checkpoints have ended since."""
    measured_ids: tuple[int, ...] = ()
    history: tuple[LifeEventOut, ...] = ()


class JobAdviceOut(Model):
    """What is advised on a job now. ``cards``: open, or applied and not yet verified; the newest verified one too."""

    job: str
    job_id: str
    as_of: datetime
    considered_count: int
    cards: list[CardOut]
    silences: list[SilenceOut]


class DismissIn(Model):
    """Why a recommendation is not wanted."""

    reason: Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00]*\S[^\x00]*$")]
