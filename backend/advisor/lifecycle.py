"""The states of a recommendation after it is first made: applied, verified, regressed, rolled back, expired.

A recommendation with its state is called a card. A change counts as applied only if the engine itself reports the
proposed settings, because settings in a job's code override the settings files. The functions are pure;
``backend.services`` calls them and stores the result. Invariant: a card only moves forward, and a dismissed, expired
or rolled back card never moves again.

An applied card is measured on the first five checkpoints. If there were at least ten before the change, it is measured
again when 10 and 20 have ended, and these are compared with those before. A card is regressed if they are clearly worse
than before and worse than predicted: a change that was predicted to make them longer is no regression. Whether more of
them expire is compared on the first five already.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from backend.advisor.advice import Interval, Setting
from backend.advisor.thresholds import VERIFY_MIN_COUNT
from backend.analysis.measures.effects import EFFECT_MIN_COUNT, LOOKS_MAX, Effect, effect
from backend.analysis.measures.windows import Direction, Tally, failure_change, signed
from backend.analysis.numbers.statistics import median
from backend.analysis.words import sentences as say
from backend.domain.advice import AdviceState, Metric, Mode
from backend.domain.checkpoint import CheckpointConfig, CheckpointHeader, CheckpointKind, CheckpointStatus
from backend.domain.failure import FailureReason

EXPIRES_AFTER = timedelta(minutes=10)
"""A card expires if the rules have not made its recommendation for this long. A shorter pause has no effect, unless the
settings that a new card would change are no longer in force. Such a card expires at once.
"""

DISMISSED_FOR = timedelta(days=30)
"""A dismissed recommendation is not made again for this long, unless the settings change."""

LOOKS = tuple(EFFECT_MIN_COUNT * (i + 1) for i in range(LOOKS_MAX))
"""A verified card is measured again when so many checkpoints have ended after the change."""

WATCHED_FOR = timedelta(days=1)
"""A verified card is watched for a regression for this long after the change. Later, something else changed."""

WORSE_MIN_RATIO = 0.1
"""Checkpoints that take less than this share longer than before are no regression."""

ROLLED_BACK_FOR = timedelta(days=1)
"""A recommendation that was rolled back is not made again for this long, unless the settings change."""


@dataclass(frozen=True, slots=True)
class Card:
    """A recommendation as it was made, with its state. The times are by this service's clock, not the engine's.

    ``before_ms`` are the durations of the checkpoints before the change, and ``before`` counts how these ended.
    ``measured_count`` is the number of checkpoints after the change on which the card was measured last.
    """

    state: AdviceState
    created_at: datetime
    last_given_at: datetime
    applied_at: datetime | None
    current: Setting
    proposed: Setting
    expected: tuple[tuple[Metric, Interval], ...]
    before_ms: tuple[float, ...] = ()
    before: Tally | None = None
    measured_count: int = 0
    roll_back: SentRollBack | None = None
    """The last roll back that was sent to the target, and did not fail."""


@dataclass(frozen=True, slots=True)
class SentRollBack:
    """A roll back that this service sent: by itself (``is_automatic``), for ``reason``, or because a person asked."""

    is_automatic: bool
    reason: str = ""


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
    parallelism: Mapping[str, int] = field(default_factory=dict)
    """The parallelism of each vertex, by its id."""


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
    """A step of a card: its next state, and the reason. ``effect`` is that of the change on the duration."""

    state: AdviceState
    reason: str
    at: datetime
    measured: tuple[Measured, ...] = ()
    checkpoint_ids: tuple[int, ...] = ()
    effect: Effect | None = None


_Holds = Callable[[Setting, CheckpointConfig, Mapping[str, int]], bool | None]


def _equal(wanted: object, reported: object) -> bool | None:
    return None if reported is None else reported == wanted


def _mode_holds(wanted: Setting, config: CheckpointConfig, _: Mapping[str, int]) -> bool | None:
    if config.is_unaligned_enabled is None:
        return None
    if wanted.mode is Mode.ALIGNED:
        return not config.is_unaligned_enabled
    return config.is_unaligned_enabled and (config.aligned_timeout_ms or 0) == (wanted.aligned_timeout_ms or 0)


def _backend_holds(wanted: Setting, config: CheckpointConfig, _: Mapping[str, int]) -> bool | None:
    # Engines report the class of the backend, such as EmbeddedRocksDBStateBackend.
    return None if config.state_backend is None else (wanted.state_backend or "") in config.state_backend.lower()


def _parallelism_holds(wanted: Setting, _: CheckpointConfig, parallelism: Mapping[str, int]) -> bool | None:
    return None if wanted.vertex_id is None else _equal(wanted.parallelism, parallelism.get(wanted.vertex_id))


def _of_config(name: str) -> _Holds:
    return lambda wanted, config, _: _equal(getattr(wanted, name), getattr(config, name))


def _cap_holds(wanted: Setting, config: CheckpointConfig, _: Mapping[str, int]) -> bool | None:
    # An engine that has the setting reports no value if there is no cap.
    return config.inflight_cap_bytes == wanted.inflight_cap_bytes


IN_FORCE: Mapping[str, _Holds | None] = {
    "mode": _mode_holds,
    "inflight_cap_bytes": _cap_holds,
    # Without a value, debloating may be off, or the engine may not report it.
    "debloat_target_ms": _of_config("debloat_target_ms"),
    "is_uncapped": lambda _, config, __: config.inflight_cap_bytes is None,
    "is_debloat_off": lambda _, config, __: config.debloat_target_ms is None,
    "interval_ms": _of_config("interval_ms"),
    "min_pause_ms": _of_config("min_pause_ms"),
    "timeout_ms": _of_config("timeout_ms"),
    "tolerable_failed_count": _of_config("tolerable_failed_count"),
    "state_backend": _backend_holds,
    "parallelism": _parallelism_holds,
    "max_concurrent": _of_config("max_concurrent"),
    "aligned_timeout_ms": None,
    "is_unaligned_forced": None,
    "changelog_directory": None,
    "vertex_id": None,
    "debloat_period_ms": None,
    "floating_buffer_count": None,
    "retained_count": None,
    "is_incremental": None,
    "has_changelog": None,
    "batch_offset_count": None,
    "batch_file_count": None,
}
"""For each field of ``Setting``, how to see that it is in force.

None for a setting that no engine reports for a job, and for a field that belongs to another one: ``aligned_timeout_ms``
and ``is_unaligned_forced`` to ``mode``, ``changelog_directory`` to ``has_changelog``, and ``vertex_id`` to
``parallelism``.
"""
_PARTS = frozenset({"aligned_timeout_ms", "is_unaligned_forced", "changelog_directory", "vertex_id"})
# A setting that is to be turned off has no value, so these say so. False means that they are not proposed.
_OFF = frozenset({"is_uncapped", "is_debloat_off"})


def is_in_force(
    wanted: Setting, config: CheckpointConfig | None, parallelism: Mapping[str, int] | None = None
) -> bool | None:
    """Return whether the engine's settings equal those in ``wanted``, or None if the engine does not report them all.

    ``parallelism`` has that of each vertex, by its id.
    """
    if config is None:
        return None
    answers: list[bool | None] = []
    for name, holds in IN_FORCE.items():
        value = getattr(wanted, name)
        if name in _PARTS or value is None or (name in _OFF and not value):
            continue
        answers.append(None if holds is None else holds(wanted, config, parallelism or {}))
    if False in answers:
        return False
    return (bool(answers) and None not in answers) or None


def next_step(card: Card, seen: Observed) -> Step | None:
    """Return the step that moves the card to its next state, or None if the card keeps its state."""
    holds = is_in_force(card.proposed, seen.config, seen.parallelism)
    if card.state.is_open:
        if holds:
            # A new parallelism is no new setting of the checkpoints.
            since = seen.now if card.proposed.parallelism is not None else seen.settings_since
            at = max(card.created_at, since or seen.now)
            watched = f"{_watched_count(card)} checkpoints are watched from now on"
            return Step(AdviceState.APPLIED, f"the engine reports the proposed settings; {watched}", at)
        if not seen.is_given and seen.now - card.last_given_at >= EXPIRES_AFTER:
            return Step(AdviceState.EXPIRED, seen.why_not, seen.now)
        # A person who accepted a card may make its changes one after the other.
        is_outdated = is_in_force(card.current, seen.config, seen.parallelism) is False
        if card.state is AdviceState.NEW and not seen.is_given and is_outdated:
            return Step(AdviceState.EXPIRED, "the settings that it would change are no longer in force", seen.now)
        return None
    if card.state.is_in_force:
        if holds is False:
            return Step(AdviceState.ROLLED_BACK, _undone_words(card, seen), seen.now)
        return None if card.state is AdviceState.REGRESSED else _verified(card, seen)
    return None


def _undone_words(card: Card, seen: Observed) -> str:
    """Return who undid the change, and why, as far as that is known."""
    sent = card.roll_back
    is_as_before = is_in_force(card.current, seen.config, seen.parallelism)
    reports = "the engine reports the earlier settings again" if is_as_before else "the engine reports other settings"
    # A roll back that was sent explains only its own settings. Another change came from elsewhere.
    if sent is None or is_as_before is False:
        return f"undone outside of Barrierscope: {reports}"
    if sent.is_automatic:
        return f"rolled back automatically by Barrierscope, because {sent.reason}; {reports}"
    return f"rolled back by a person in Barrierscope; {reports}"


def is_suppressed(state: AdviceState, decided_at: datetime, before: Setting, now: Setting, at: datetime) -> bool:
    """Return whether an earlier dismissal or rollback of the same kind of advice still prevents the recommendation.

    ``before`` are the settings under which the earlier card was made, ``now`` the current ones. ``at`` is the current
    time.
    """
    kept = {AdviceState.DISMISSED: DISMISSED_FOR, AdviceState.ROLLED_BACK: ROLLED_BACK_FOR}.get(state)
    return kept is not None and before == now and at - decided_at < kept


@dataclass(frozen=True, slots=True)
class Watched:
    """How far a change that is in force was watched: ``checkpoint_count`` of ``of_count`` checkpoints have ended.

    ``is_over`` means that no further ones are compared with those before: all have ended, the change was found to be
    worse, or a day has passed.
    """

    checkpoint_count: int
    of_count: int
    is_over: bool


def watched(card: Card, seen: Observed) -> Watched | None:
    """Return how far the change of a card was watched; None if the change is not in force."""
    if not card.state.is_in_force:
        return None
    of_count = _watched_count(card)
    count = min(of_count, max(card.measured_count, len(_after(card, seen))))
    is_late = card.applied_at is not None and seen.now - card.applied_at > WATCHED_FOR
    is_judged = card.state is not AdviceState.APPLIED
    is_over = card.state is AdviceState.REGRESSED or (is_judged and (is_late or card.measured_count >= of_count))
    return Watched(count, of_count, is_over)


def _watched_count(card: Card) -> int:
    """Return how many checkpoints after the change are watched: more if enough before it can be compared with them."""
    return LOOKS[-1] if len(card.before_ms) >= EFFECT_MIN_COUNT else VERIFY_MIN_COUNT


def _after(card: Card, seen: Observed) -> list[CheckpointHeader]:
    """Return the checkpoints after the change that count."""
    # A new parallelism is no new setting of the checkpoints, so those from before the change are among these.
    since = card.applied_at if card.proposed.parallelism is not None else None
    return [c for c in seen.checkpoints if _counts(c) and (since is None or c.triggered_at >= since)]


def _verified(card: Card, seen: Observed) -> Step | None:
    after = _after(card, seen)
    if len(after) < _next_look(card, seen):
        return None
    measured = tuple(
        Measured(metric, predicted, value, len(after), _each(metric, after))
        for metric, predicted in card.expected
        if (value := _measured(metric, after)) is not None
    )
    inside = sum(m.is_inside for m in measured)
    text = f"{inside} of {len(measured)} predictions held over {len(after)} checkpoints"
    if not measured:
        text = f"{len(after)} checkpoints ended since, and none of them can show the effect"
    ids = tuple(c.checkpoint_id for c in after)
    moved = effect(card.before_ms, [ms for ms in _each(Metric.DURATION, after) if ms is not None])
    worse = _worse(card, after, measured, moved)
    if worse is not None:
        return Step(AdviceState.REGRESSED, worse, seen.now, measured, ids, moved)
    return Step(AdviceState.VERIFIED, text, seen.now, measured, ids, moved)


def _next_look(card: Card, seen: Observed) -> float:
    """Return the number of checkpoints after the change at which the card is measured next."""
    if card.state is AdviceState.APPLIED:
        return VERIFY_MIN_COUNT
    is_watched = card.applied_at is not None and seen.now - card.applied_at <= WATCHED_FOR
    if not is_watched or len(card.before_ms) < EFFECT_MIN_COUNT:
        return math.inf
    return next((look for look in LOOKS if look > card.measured_count), math.inf)


def _worse(
    card: Card, after: Sequence[CheckpointHeader], measured: Sequence[Measured], moved: Effect | None
) -> str | None:
    """Return in words how the checkpoints are worse than before the change and than predicted; None if they are not."""
    above = {m.metric for m in measured if m.measured > m.predicted.high}
    unpredicted = {Metric.DURATION, Metric.EXPIRED} - {metric for metric, _ in card.expected}
    if card.before is not None and Metric.EXPIRED in above | unpredicted:
        expired = sum(c.failure_reason is FailureReason.EXPIRED for c in after)
        now = Tally(len(after) - expired, expired)
        # Checkpoints that expire take the longest of all to come, so these few count already if they are clear.
        if failure_change(card.before, now, count_min=VERIFY_MIN_COUNT) is Direction.HIGHER:
            return (
                f"{expired} of {len(after)} checkpoints expired after the change,"
                f" {card.before.failed_count} of {card.before.ended_count} before it"
            )
    if moved is None or Metric.DURATION not in above | unpredicted:
        return None
    is_much = moved.difference > WORSE_MIN_RATIO * moved.before
    if moved.direction is not Direction.HIGHER or not is_much:
        return None
    return (
        f"checkpoints take {say.duration(moved.after)} after the change, {say.duration(moved.before)} before it"
        f" ({signed(moved.difference)}, 95 % interval {signed(moved.low)} to {signed(moved.high)})"
    )


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
        case Metric.WRITTEN:
            return median(_each(metric, after))
        case Metric.OPEN_RATIO:
            return open_ratio(after)
    return None


def open_ratio(headers: Sequence[CheckpointHeader]) -> float | None:
    """Return the share of the time in which a checkpoint ran, from the first to the last trigger; None if unknown.

    The ids must be consecutive, because a checkpoint that is missing ran for an unknown time.
    """
    ordered = sorted(headers, key=lambda h: h.triggered_at)
    if len(ordered) < 2 or ordered[-1].checkpoint_id - ordered[0].checkpoint_id != len(ordered) - 1:
        return None
    span_ms = (ordered[-1].triggered_at - ordered[0].triggered_at) / timedelta(milliseconds=1)
    durations = [h.end_to_end_duration_ms for h in ordered[:-1]]
    if span_ms <= 0 or None in durations:
        return None
    return min(1.0, sum(d or 0 for d in durations) / span_ms)


def _each(metric: Metric, after: Sequence[CheckpointHeader]) -> tuple[float | None, ...]:
    match metric:
        case Metric.DURATION:
            return tuple(c.end_to_end_duration_ms for c in after)
        case Metric.WRITTEN:
            done = CheckpointStatus.COMPLETED
            return tuple(c.checkpointed_size_bytes if c.status is done else None for c in after)
        case Metric.PERSISTED:
            return tuple(c.persisted_bytes if c.status is CheckpointStatus.COMPLETED else None for c in after)
    return ()
