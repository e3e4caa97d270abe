"""The JSON of a backtest of one job: what warnings, verdicts and advice would have said of its past checkpoints.

Everything is computed from what was known at each moment. ``backend.contracts.api`` lists the paths.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

from pydantic import Field

from backend.contracts.advice import ChangeOut
from backend.contracts.model import Model, Rfc3339, StrictInt
from backend.contracts.simulations import QueuedWorkOut
from backend.domain.advice import AdviceState, Metric, Topic
from backend.domain.backtest import Part
from backend.domain.verdict import Basis, Confidence, Health, Phase, VerdictKind

CHECKPOINTS_MAX: Final = 2_000
"""The largest number of checkpoints that one request replays."""


class BacktestIn(Model):
    """A backtest of a job: over its newest checkpoints, at most ``checkpoint_count`` of them."""

    parts: Annotated[list[Part], Field(min_length=1, max_length=len(Part))] = list(Part)
    """What to replay."""
    checkpoint_count: Annotated[StrictInt, Field(ge=1, le=CHECKPOINTS_MAX)] = 500
    since: Rfc3339 | None = None
    """Leave out the checkpoints that were triggered earlier."""


class WarningScoreOut(Model):
    """How a way to warn of timeouts would have fared."""

    expired_count: int
    caught_count: int
    """Number of expired checkpoints that were warned of before they expired."""
    recall_ratio: float | None
    lead_median_ratio: float | None
    """The median share of the timeout that was left at the first warning; 0 for a checkpoint without one."""
    page_count: int
    """Number of episodes of warnings."""
    false_page_count: int
    """Number of episodes in which no checkpoint expired."""


class WarningOut(Model):
    """A warning that would have been given."""

    checkpoint_id: int
    run_id: str
    at: datetime
    age_ms: float
    timeout_ms: float
    expiry_ratio: float | None
    """The predicted probability that the checkpoint expires. Null for a checkpoint that cannot be predicted."""
    is_expired: bool
    """Whether it expired."""
    ended_after_ms: float


class WarningReplayOut(Model):
    """The replayed warnings. ``plain_rule`` warns after 80 % of the timeout."""

    checkpoint_count: int
    skipped_count: int
    """Number of checkpoints that were left out, because their acknowledgements are not stored."""
    predicted: WarningScoreOut
    plain_rule: WarningScoreOut
    warnings: list[WarningOut] = []
    """The newest 200, oldest first."""


class EpisodeOut(Model):
    """A cause that the verdict would have named, again and again."""

    kind: VerdictKind
    vertex: str | None
    vertex_id: str | None
    subtasks: list[int]
    phase: Phase | None
    health: Health
    confidence: Confidence
    sentence: str
    """The sentence of the first statement, as ``health`` and ``confidence``."""
    run_id: str
    first_at: datetime
    first_checkpoint_id: int
    last_at: datetime
    last_checkpoint_id: int
    checkpoint_count: int
    """Number of checkpoints from the first to the last statement."""
    said_count: int
    """Number of these checkpoints at which the verdict named the cause."""
    unnamed_count: int
    """Number of checkpoints just before the first statement that were said to be slow or failing without a cause."""
    followed_count: int
    held_count: int
    """Of the ``followed_count`` checkpoints after the first statement, those in which the named place was the slowest.

    Reconstructed from the critical path.
    """
    stored_count: int
    stored_same_count: int
    """Of the ``stored_count`` checkpoints with a stored verdict, those whose stored verdict names the same cause."""


class VerdictReplayOut(Model):
    """The replayed verdicts. ``kinds`` counts the checkpoints by the cause that the verdict named."""

    checkpoint_count: int
    kinds: dict[VerdictKind, int]
    episode_count: int
    stable_ratio: float | None
    held_ratio: float | None
    agreed_ratio: float | None
    """The share of the stored verdicts that name the same cause; null if none is stored."""
    episodes: list[EpisodeOut]
    """Oldest first, at most 100."""


class ReplayedPredictionOut(Model):
    """A predicted metric, and its measured value if the change was made."""

    metric: Metric
    unit: str
    before: float | None
    value: float
    low: float
    high: float
    method: str
    basis: Basis
    """The basis of ``value``."""
    measured: float | None
    """Measured over ``measured_count`` checkpoints after the change; null if the change was not made."""
    measured_count: int
    is_inside: bool | None


class ReplayedEffectOut(Model):
    """The effect of a change on the durations: the medians in milliseconds, and an interval of 95 %."""

    before: float
    after: float
    difference: float
    low: float
    high: float
    direction: str


class ReplayedCardOut(Model):
    """A card that the rules would have opened."""

    topic: Topic
    kind: str
    rules: list[str]
    headline: str
    confidence: Confidence
    changes: list[ChangeOut]
    predictions: list[ReplayedPredictionOut]
    run_id: str
    opened_at: datetime
    opened_checkpoint_id: int
    last_given_at: datetime
    given_count: int
    """Number of checkpoints at which the rules gave it."""
    state: AdviceState
    state_at: datetime
    state_reason: str
    applied_at: datetime | None
    effect: ReplayedEffectOut | None


class AdviceReplayOut(Model):
    """The replayed advice. ``held_count`` of ``predicted_count`` measured values were inside the predicted interval."""

    checkpoint_count: int
    opened_count: int
    withdrawn_count: int
    applied_count: int
    regressed_count: int
    rolled_back_count: int
    predicted_count: int
    held_count: int
    cards: list[ReplayedCardOut]
    """Oldest first, at most 100."""


class BacktestResultOut(Model):
    """The result of a backtest. A part that was not asked for is null."""

    warning: WarningReplayOut | None
    verdict: VerdictReplayOut | None
    advice: AdviceReplayOut | None


class BacktestOut(QueuedWorkOut):
    """A backtest: its request, its state and, if it is completed, its result."""

    job_id: str
    request: BacktestIn
    result: BacktestResultOut | None = None
