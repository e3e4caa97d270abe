"""The states of a recommendation after it is first made: applied, verified by measurements, rolled back, expired.

A recommendation with its state is called a card. A change counts as applied only if the engine itself reports the
proposed settings, because settings in a job's code override the settings files. The functions are pure;
``backend.services`` calls them and stores the result. Invariant: a card only moves forward, and a dismissed, expired
or rolled back card never moves again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from backend.advisor.advice import Interval, Setting
from backend.advisor.thresholds import VERIFY_MIN_COUNT
from backend.analysis.statistics import median
from backend.domain.advice import AdviceState, Metric, Mode
from backend.domain.checkpoint import CheckpointConfig, CheckpointHeader, CheckpointKind, CheckpointStatus
from backend.domain.failure import FailureReason

EXPIRES_AFTER = timedelta(minutes=10)
"""A card expires if the rules have not made its recommendation for this long. A shorter pause has no effect."""

DISMISSED_FOR = timedelta(days=30)
"""A dismissed recommendation is not made again for this long, unless the settings change."""

ROLLED_BACK_FOR = timedelta(days=1)
"""A recommendation that was rolled back is not made again for this long, unless the settings change."""


@dataclass(frozen=True, slots=True)
class Card:
    """A recommendation as it was made, with its state. The times are by this service's clock, not the engine's."""

    state: AdviceState
    created_at: datetime
    last_given_at: datetime
    applied_at: datetime | None
    current: Setting
    proposed: Setting
    expected: tuple[tuple[Metric, Interval], ...]


@dataclass(frozen=True, slots=True)
class Observed:
    """What is known about the job when the next state of a card is decided.

    ``settings_since`` is when the job's current settings were first seen. ``checkpoints`` were taken under these
    settings. ``is_given`` means that the rules still make the recommendation. If they do not, ``why_not`` says so, and
    why.
    """

    now: datetime
    config: CheckpointConfig | None
    settings_since: datetime | None
    checkpoints: Sequence[CheckpointHeader]
    is_given: bool
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """One prediction, and the value that was measured on the checkpoints after the change."""

    metric: Metric
    predicted: Interval
    measured: float
    checkpoint_count: int
    values: tuple[float | None, ...] = ()
    """The value of each of these checkpoints. Empty for a metric that single checkpoints do not have."""

    @property
    def is_inside(self) -> bool:
        """Whether the measured value is inside the predicted interval."""
        return self.predicted.low <= self.measured <= self.predicted.high


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a card: its next state, and the reason."""

    state: AdviceState
    reason: str
    at: datetime
    measured: tuple[Measured, ...] = ()
    checkpoint_ids: tuple[int, ...] = ()


def is_in_force(wanted: Setting, config: CheckpointConfig | None) -> bool | None:
    """Return whether the engine's settings equal those in ``wanted``, or None if the engine does not report them."""
    if config is None:
        return None
    parts = list(_parts_in_force(wanted, config))
    if False in parts:
        return False
    return None if None in parts or not parts else True


def _parts_in_force(wanted: Setting, config: CheckpointConfig) -> Iterator[bool | None]:
    if wanted.debloat_target_ms is not None:
        # Without a value, debloating may be off, or the engine may not report it.
        reported_ms = config.debloat_target_ms
        yield None if reported_ms is None else reported_ms == wanted.debloat_target_ms
    if wanted.is_debloat_off:
        yield config.debloat_target_ms is None
    if wanted.inflight_cap_bytes is not None or wanted.is_uncapped:
        yield config.inflight_cap_bytes == wanted.inflight_cap_bytes
    for value, reported in (
        (wanted.interval_ms, config.interval_ms),
        (wanted.min_pause_ms, config.min_pause_ms),
        (wanted.timeout_ms, config.timeout_ms),
    ):
        if value is not None:
            yield None if reported is None else reported == value
    if wanted.mode is not None:
        yield _has_mode(wanted, config)


def _has_mode(wanted: Setting, config: CheckpointConfig) -> bool | None:
    if config.is_unaligned_enabled is None:
        return None
    if wanted.mode is Mode.ALIGNED:
        return not config.is_unaligned_enabled
    return config.is_unaligned_enabled and (config.aligned_timeout_ms or 0) == (wanted.aligned_timeout_ms or 0)


def next_step(card: Card, seen: Observed) -> Step | None:
    """Return the step that moves the card to its next state, or None if the card keeps its state."""
    holds = is_in_force(card.proposed, seen.config)
    if card.state.is_open:
        if holds:
            at = max(card.created_at, seen.settings_since or seen.now)
            return Step(AdviceState.APPLIED, "the engine reports the proposed settings", at)
        if not seen.is_given and seen.now - card.last_given_at >= EXPIRES_AFTER:
            return Step(AdviceState.EXPIRED, seen.why_not, seen.now)
        return None
    if card.state in (AdviceState.APPLIED, AdviceState.VERIFIED):
        if holds is False:
            return Step(AdviceState.ROLLED_BACK, "the engine reports other settings again", seen.now)
        return _verified(card, seen) if card.state is AdviceState.APPLIED else None
    return None


def is_suppressed(state: AdviceState, decided_at: datetime, before: Setting, now: Setting, at: datetime) -> bool:
    """Return whether an earlier dismissal or rollback of the same kind of advice still prevents the recommendation.

    ``before`` are the settings under which the earlier card was made, ``now`` the current ones. ``at`` is the current
    time.
    """
    kept = {AdviceState.DISMISSED: DISMISSED_FOR, AdviceState.ROLLED_BACK: ROLLED_BACK_FOR}.get(state)
    return kept is not None and before == now and at - decided_at < kept


def _verified(card: Card, seen: Observed) -> Step | None:
    after = [c for c in seen.checkpoints if _counts(c)]
    if len(after) < VERIFY_MIN_COUNT:
        return None
    found = tuple(
        Measured(metric, predicted, value, len(after), _each(metric, after))
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
    match metric:
        case Metric.DURATION | Metric.PERSISTED:
            return median(_each(metric, after))
        case Metric.EXPIRED:
            return sum(c.failure_reason is FailureReason.EXPIRED for c in after) / len(after)
    return None


def _each(metric: Metric, after: Sequence[CheckpointHeader]) -> tuple[float | None, ...]:
    match metric:
        case Metric.DURATION:
            return tuple(c.end_to_end_duration_ms for c in after)
        case Metric.PERSISTED:
            return tuple(c.persisted_bytes if c.status is CheckpointStatus.COMPLETED else None for c in after)
    return ()
