"""What becomes of advice: given, applied, verified beside what was predicted, rolled back, expired.

Only what the engine itself reports counts as applied: settings made in a job's code override files. The next step is a
function of values; who stores it and when is decided elsewhere. Invariant: a card moves forward only, and a decided one
(dismissed, expired, rolled back) never again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from backend.advisor.advice import Interval, Setting
from backend.advisor.thresholds import VERIFY_MIN_COUNT
from backend.analysis.statistics import median
from backend.domain.advice import AdviceState, Metric, Mode
from backend.domain.checkpoint import CheckpointConfig, CheckpointHeader, CheckpointKind, CheckpointStatus
from backend.domain.failure import FailureReason

EXPIRES_AFTER = timedelta(minutes=10)
"""Advice that the rules no longer give for so long is no longer valid: a lull does not end it."""

DISMISSED_FOR = timedelta(days=30)
"""What was dismissed is not given again for so long, unless the settings change."""

ROLLED_BACK_FOR = timedelta(days=1)
"""The same, of what was undone."""


@dataclass(frozen=True, slots=True)
class Card:
    """A recommendation as it was given, and what became of it so far. Instants are our clock."""

    state: AdviceState
    created_at: datetime
    last_given_at: datetime
    applied_at: datetime | None
    current: Setting
    proposed: Setting
    expected: tuple[tuple[Metric, Interval], ...]


@dataclass(frozen=True, slots=True)
class Observed:
    """What is known of the job now. ``settings_since`` is when the settings in force were first seen.

    ``checkpoints`` are those taken under these settings.
    """

    now: datetime
    config: CheckpointConfig | None
    settings_since: datetime | None
    checkpoints: Sequence[CheckpointHeader]
    is_given: bool
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """One prediction beside what the checkpoints after the change measured."""

    metric: Metric
    predicted: Interval
    measured: float
    checkpoint_count: int

    @property
    def is_inside(self) -> bool:
        """Whether the interval held."""
        return self.predicted.low <= self.measured <= self.predicted.high


@dataclass(frozen=True, slots=True)
class Step:
    """The next state of a card, and why."""

    state: AdviceState
    reason: str
    at: datetime
    measured: tuple[Measured, ...] = ()
    checkpoint_ids: tuple[int, ...] = ()


def is_in_force(wanted: Setting, config: CheckpointConfig | None) -> bool | None:
    """Whether the settings that the engine reports are these; None where it does not report them."""
    if config is None or wanted.debloat_target_ms is not None:
        return None
    if wanted.inflight_cap_bytes is not None:
        return config.inflight_cap_bytes == wanted.inflight_cap_bytes
    if wanted.mode is None or config.is_unaligned_enabled is None:
        return None
    if wanted.mode is Mode.ALIGNED:
        return not config.is_unaligned_enabled
    return config.is_unaligned_enabled and (config.aligned_timeout_ms or 0) == (wanted.aligned_timeout_ms or 0)


def next_step(card: Card, seen: Observed) -> Step | None:
    """What happens to a card now; None where nothing does."""
    holds = is_in_force(card.proposed, seen.config)
    if card.state.is_open:
        if holds:
            at = max(card.created_at, seen.settings_since or seen.now)
            return Step(AdviceState.APPLIED, "the engine reports the proposed settings", at)
        if not seen.is_given and seen.now - card.last_given_at >= EXPIRES_AFTER:
            return Step(AdviceState.EXPIRED, f"the rules no longer give it: {seen.why_not}", seen.now)
        return None
    if card.state in (AdviceState.APPLIED, AdviceState.VERIFIED):
        if holds is False:
            return Step(AdviceState.ROLLED_BACK, "the engine reports other settings again", seen.now)
        return _verified(card, seen) if card.state is AdviceState.APPLIED else None
    return None


def is_suppressed(state: AdviceState, decided_at: datetime, before: Setting, now: Setting, at: datetime) -> bool:
    """Whether a decision on earlier advice of the same kind still keeps it from being given again."""
    kept = {AdviceState.DISMISSED: DISMISSED_FOR, AdviceState.ROLLED_BACK: ROLLED_BACK_FOR}.get(state)
    return kept is not None and before == now and at - decided_at < kept


def _verified(card: Card, seen: Observed) -> Step | None:
    after = [c for c in seen.checkpoints if _counts(c)]
    if len(after) < VERIFY_MIN_COUNT:
        return None
    found = tuple(
        Measured(metric, predicted, value, len(after))
        for metric, predicted in card.expected
        if (value := _measured(metric, after)) is not None
    )
    inside = sum(m.is_inside for m in found)
    text = f"{inside} of {len(found)} predictions held over {len(after)} checkpoints"
    return Step(AdviceState.VERIFIED, text, seen.now, found, tuple(c.checkpoint_id for c in after))


def _counts(header: CheckpointHeader) -> bool:
    if header.kind is not CheckpointKind.CHECKPOINT or not header.status.is_terminal:
        return False
    return header.status is CheckpointStatus.COMPLETED or header.failure_reason is FailureReason.EXPIRED


def _measured(metric: Metric, after: Sequence[CheckpointHeader]) -> float | None:
    completed = [c for c in after if c.status is CheckpointStatus.COMPLETED]
    match metric:
        case Metric.DURATION:
            return median(c.end_to_end_duration_ms for c in after)
        case Metric.PERSISTED:
            return median(c.persisted_bytes for c in completed)
        case Metric.EXPIRED:
            return sum(c.failure_reason is FailureReason.EXPIRED for c in after) / len(after)
    return None
