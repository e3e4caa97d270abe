"""What another checkpoint mode would change: the predicted effects that its cards show."""

from __future__ import annotations

from collections.abc import Sequence

from backend.advisor.advice import UNITS, Expected, Interval, Setting
from backend.advisor.proposing import expect
from backend.advisor.replay import Replay, duration_method, persisted_method, write_ms
from backend.advisor.situation import Situation
from backend.analysis.numbers.statistics import median
from backend.domain.advice import Metric


def of_checkpoints(expected: Sequence[Expected]) -> tuple[Interval, Interval]:
    """Return the predicted duration and the predicted persisted bytes."""
    predicted = {e.metric: e.predicted for e in expected}
    return predicted[Metric.DURATION], predicted[Metric.PERSISTED]


def effects_of(situation: Situation, chosen: Replay, proposed: Setting) -> tuple[Expected, ...]:
    """Return what a replayed mode would change: duration, persisted bytes, expired checkpoints and the restore."""
    before_bytes = median(r.persisted_bytes for r in situation.recorded)
    effects = [
        Expected(
            Metric.DURATION,
            UNITS[Metric.DURATION],
            situation.duration_ms,
            chosen.duration_ms,
            duration_method(situation),
            situation.is_cut_off,
        ),
        Expected(
            Metric.PERSISTED, UNITS[Metric.PERSISTED], before_bytes, chosen.persisted_bytes, persisted_method(situation)
        ),
    ]
    if chosen.expired_ratio is not None:
        count = len(situation.recorded)
        method = f"share of the last {count} checkpoints whose replayed duration reaches the checkpoint timeout"
        effects.append(
            Expected(Metric.EXPIRED, UNITS[Metric.EXPIRED], situation.expired_ratio, chosen.expired_ratio, method)
        )
    expected = situation.predictor.expected(proposed, effects)
    return (*expected, *longer_restore(situation, of_checkpoints(expected)[1]))


def longer_restore(situation: Situation, persisted: Interval) -> tuple[Expected, ...]:
    """Return by how much these persisted bytes make a restore longer; nothing if no rate is known.

    No what-if asks this: its restore is the whole outage.
    """
    longer_ms = restore_ms(situation, persisted)
    method = "persisted bytes, read at the store's speed, then processed at the rate of the slowest vertex"
    return () if longer_ms is None else (expect(Metric.RESTORE, None, longer_ms, method),)


def restore_ms(situation: Situation, persisted: Interval) -> Interval | None:
    """Return the time to read the in-flight data and to process it at the rate of the slowest vertex (CM-7).

    Return None if no rate is known.
    """
    if not situation.drain_bytes_per_ms:
        return None
    speed = min(situation.drain_bytes_per_ms.values())

    def of(size: float, which: str) -> float:
        return size / speed + float(getattr(write_ms(situation, size, size), which))

    return Interval(of(persisted.value, "value"), of(persisted.low, "low"), of(persisted.high, "high"))
