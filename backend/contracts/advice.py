"""The JSON of advice under ``/api/v1`` and in ``diagnose``: recommendations, predictions and measurements.

``backend.contracts.api`` lists the paths.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, Field

from backend.contracts.comparing_windows import DirectionOut
from backend.contracts.freshness import Dated
from backend.contracts.model import Author, Lines, Model
from backend.domain.advice import THE_SERVICE, AdviceOutcome, AdviceState, AdviceStep, LintLevel, Metric, Mode, Topic
from backend.domain.engines import SettingsFormat
from backend.domain.verdict import Basis, Confidence


def _person(name: str) -> str:
    """Refuse the name that the history gives to Barrierscope itself."""
    if name.strip().lower() == THE_SERVICE:
        raise ValueError(f"{THE_SERVICE!r} is the name of Barrierscope itself")
    return name


OptionalAuthor = Annotated[Author, AfterValidator(_person)] | None


class IntervalOut(Model):
    """A predicted value, with the smallest and the largest value that the model considers possible."""

    value: float
    low: float
    high: float


class ExpectedOut(Model):
    """One metric, as measured before a recommended change and as predicted for the time after it.

    Values are medians over checkpoints, except for ``expired_ratio``, which is the share of checkpoints that expire.
    """

    metric: Metric
    unit: str
    before: float | None
    """The value measured over the last checkpoints; null if not known."""
    is_before_at_least: bool
    """Whether ``before`` is only a lower bound, because some of the checkpoints expired."""
    predicted: IntervalOut
    method: str
    basis: Basis
    before_values: tuple[float | None, ...] = ()
    """The value of each checkpoint in ``checkpoint_ids`` of the recommendation.

    Empty for a metric that single checkpoints do not have.
    """


class AdviceEvidenceOut(Model):
    """A statement that a person can check, with the checkpoints, vertex, subtasks and time window that it refers to."""

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
    values: tuple[float | None, ...] = ()
    """What ``value`` was computed from, oldest first: one for each of ``checkpoint_ids`` or, if there are none, one for
    each reading. Empty if ``value`` was not computed from such values."""


class SettingOut(Model):
    """The settings that a recommendation covers. A setting that it does not cover is null."""

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
    """Where the changelog is kept, if ``has_changelog`` is proposed."""
    parallelism: int | None = None
    vertex_id: str | None = None
    """The vertex that ``parallelism`` is about; null if it is about all that exchange data by key."""
    max_concurrent: int | None = None
    is_unaligned_forced: bool | None = None
    """Whether unaligned checkpoints are on in spite of an exchange for which the engine refuses them."""
    batch_offset_count: int | None = None
    batch_file_count: int | None = None
    is_uncapped: bool = False
    is_debloat_off: bool = False


class CandidateOut(Model):
    """One checkpoint mode with its aligned timeout, and its effect as predicted from the recorded checkpoints."""

    mode: Mode
    aligned_timeout_ms: int | None
    duration_ms: IntervalOut | None
    persisted_bytes: IntervalOut | None
    expired_ratio: float | None
    is_current: bool
    is_proposed: bool


class ChangeOut(Model):
    """One changed key of the configuration, with its current and its proposed value."""

    key: str
    current: str | None
    proposed: str


class DryRunOut(Model):
    """What a change of a running job's settings would do now. Nothing was changed."""

    job_id: str
    target: str
    """The name of the target to which the change would be sent."""
    url: str
    engine_run_id: str
    changes: list[ChangeOut]
    """What would be sent: the keys with their values, and the values that the card knows as current."""
    is_accepted: bool
    """Whether nothing would refuse the change."""
    is_checked: bool
    """Whether the target was asked. It is not if the change would be refused before it is sent."""
    refusals: list[str]
    """Why the change would be refused."""
    as_of: datetime


class HowToOut(Model):
    """How to make and undo the change.

    ``patch`` and ``rollback_patch`` are request bodies for an engine that can change the settings of a running job.
    For other engines they are empty.
    """

    file: str
    lines: list[str]
    rollback_lines: list[str]
    needs_restart: bool
    patch: dict[str, str] = Field(default_factory=dict)
    rollback_patch: dict[str, str] = Field(default_factory=dict)
    steps: list[str] = Field(default_factory=list)
    """What a person does in place of the lines, or in addition to them, as sentences. Empty if the lines suffice."""


class ExportOut(Model):
    """Changed settings in one form in which people deploy jobs, to copy or to pipe into another command."""

    format: SettingsFormat
    title: str
    text: str
    where: str
    """Where the text goes, and which settings it leaves out because a job cannot have them."""


class PreconditionOut(Model):
    """A condition that must hold before the change is made. ``is_met`` is null if the condition cannot be read."""

    text: str
    is_met: bool | None


class RecommendationOut(Model):
    """One recommended change, with the facts that a person needs to judge it."""

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
    unpredicted: tuple[str, ...] = ()
    """What the advice does not predict, each with the reason."""
    chosen_by: str | None = None
    """The tier of the simulation that chose the settings; null if rules and replayed checkpoints chose them."""
    predicted_by: str | None = None
    """The tier of the what-if whose numbers are shown; null if the rule predicts, as by replayed checkpoints."""


class SilenceOut(Model):
    """The reason why there is no recommendation on a topic."""

    topic: Topic
    rule: str
    reason: str
    vertex: str | None = None
    subtasks: tuple[int, ...] = ()
    evidence: tuple[AdviceEvidenceOut, ...] = ()


class LintOut(Model):
    """A setting that is known to cause trouble, or an error of the engine's version that concerns checkpoints."""

    code: str
    level: LintLevel
    headline: str
    detail: str
    cure: str
    source: str
    """The address of a page that describes the problem."""


class AdviceOut(Model):
    """The advice that ``diagnose`` prints for a job: the recommendations, and the reason for each topic without one."""

    recommendations: list[RecommendationOut]
    silences: list[SilenceOut]
    considered_count: int
    lints: list[LintOut] = []


class MeasuredOut(Model):
    """One prediction, and the value that was measured on the checkpoints after the change."""

    metric: Metric
    unit: str
    predicted: IntervalOut
    measured: float
    is_inside: bool
    checkpoint_count: int
    basis: Basis = Basis.MEASURED
    values: tuple[float | None, ...] = ()
    """The value of each checkpoint in ``measured_ids``. Empty for a metric that single checkpoints do not have."""


class EffectOut(Model):
    """The effect of a change on the durations: the medians before and after it, and their difference.

    The interval of 95 % takes into account that the durations are skewed and resemble their neighbours. The direction
    is ``unclear`` if it contains 0.
    """

    unit: str = "ms"
    before: float
    after: float
    difference: float
    low: float
    high: float
    direction: DirectionOut
    before_count: int
    after_count: int
    autocorrelation: float
    """That of neighbouring checkpoints, from 0 to 0.9."""
    basis: Basis = Basis.RECONSTRUCTED


class LifeEventOut(Model):
    """One entry in the history of a recommendation. ``state`` is its state after the entry."""

    at: datetime
    kind: AdviceStep = AdviceStep.STATE
    """``apply``: the change was sent to the target. ``roll-back``: a roll back was sent; the state changes later.

    ``guarded-apply``: as ``apply``, with an automatic roll back if the checkpoints are worse. ``auto-roll-back``:
    Barrierscope sent the roll back by itself. The entry after each says what the target answered.
    """
    state: AdviceState
    reason: str
    outcome: AdviceOutcome | None = None
    """What is known of the request that the entry records or answers: ``awaited``, ``sent``, ``refused``,
    ``unanswered`` or ``cut-short``. Null for every other entry."""
    author: str | None = None
    """Who took the step: ``the service``, or a person's name as it was typed, which is not verified. Null for a person
    who gave no name."""


class WatchOut(Model):
    """How far a change in force was watched: ``checkpoint_count`` of ``of_count`` checkpoints have ended (measured).

    They are judged when 5, 10 and 20 have ended; only the first 5 if fewer than ten were known before the change. Of
    the first 5, only the expired ones are compared with those before.
    """

    checkpoint_count: int
    of_count: int
    is_over: bool
    """Whether the last judgement was made: all have ended, the change was found to be worse, or a day has passed."""


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
    computed_at: datetime | None = None
    """When the numbers of ``recommendation`` were computed. Null if a version before this field computed them.

    The numbers of a new recommendation are computed again every minute. Those of an accepted or applied one stay.
    """
    can_apply: bool
    """Whether ``apply`` can make the change, which needs an engine that can change the settings of a running job."""
    is_applying: bool = False
    """Whether the change was sent in the last 5 minutes, and the engine has not reported the new settings yet."""
    is_guarded: bool = False
    """Whether Barrierscope rolls the sent change back by itself if the checkpoints are worse after it."""
    can_roll_back: bool = False
    """Whether ``roll-back`` can undo the applied change, for which the engine must have reported the values before."""
    is_rolling_back: bool = False
    """Whether a roll back was sent in the last 5 minutes, and the engine has not reported the earlier settings yet."""
    recommendation: RecommendationOut
    exports: tuple[ExportOut, ...] = ()
    """The changes in each form that the engine takes."""
    measured: tuple[MeasuredOut, ...] = ()
    """Predictions compared with measurements. Empty until enough checkpoints have ended after the change."""
    effect: EffectOut | None = None
    """The effect on the duration. Null until at least ten checkpoints before and after the change can be compared."""
    watch: WatchOut | None = None
    """How far the change was watched. Null if it is not in force, and in the list of all recommendations."""
    measured_ids: tuple[int, ...] = ()
    measured_run_id: str | None = None
    """The run of the checkpoints in ``measured_ids``, which differs from ``run_id`` if the change needed a restart.

    Null if nothing is measured yet.
    """
    history: tuple[LifeEventOut, ...] = ()


class ChosenByOut(Model):
    """What chose mode, in-flight data and interval: a tier of the simulation, or rules and replayed checkpoints."""

    tier: str | None
    """``fast`` if the fast simulation chose; null if rules and replayed checkpoints did."""
    text: str
    """A sentence: what was compared, or why the simulation did not choose."""


class JobAdviceOut(Dated):
    """The current advice for a job.

    ``cards`` has the open and applied recommendations, and the newest verified or rolled-back ones.
    """

    job: str
    job_id: str
    as_of: datetime
    considered_count: int
    cards: list[CardOut]
    silences: list[SilenceOut]
    lints: list[LintOut] = []
    """The settings and errors of the version to check, the most serious ones first."""
    chosen_by: ChosenByOut | None = None
    """Null if the settings cannot be chosen by what they lose, for example without known failures."""


class ApplyIn(Model):
    """How a recommendation is to be applied."""

    is_guarded: bool = False
    """Whether Barrierscope rolls the change back by itself if the checkpoints are worse after it.

    Worse: they take clearly longer than before, by more than 10 %, and longer than predicted; or clearly more of them
    expire. Durations are judged when 10 and 20 checkpoints have ended after the change, for a day at most, and
    expired ones after 5 already.
    """
    author: OptionalAuthor = None
    """Who applies it, for the history. The name is not verified."""


class DecisionIn(Model):
    """Who accepts a recommendation, or rolls it back."""

    author: OptionalAuthor = None
    """The name for the history. It is not verified."""


class DismissIn(Model):
    """The user's reason for dismissing a recommendation."""

    reason: Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00]*\S[^\x00]*$"), Lines]
    author: OptionalAuthor = None
