"""Writes to the checkpoint store that hang now and then, and what they do to checkpoints under any settings.

The tiers simulate only writes of the usual duration. The model has, for each recorded checkpoint, the time by which
hanging writes delayed its end (``StoreModel.hangs``). These delays are added to the durations that a tier simulated: in
every what-if, in the calibration, and if the advisor chooses settings. A hang delays nothing if a barrier came later
anyway. It is added only if a what-if lets barriers overtake data, which they did not do before (``uncovered``).

If writes are seen to delay some checkpoint, but more checkpoints expired than the simulation and these delays explain,
the others of the expired ones count as hung for longer than any timeout.

What makes writes hang is not known. It is assumed to come by time: if the time from one trigger to the next is twice
as long, a checkpoint waits for the hangs of two recorded ones. So no longer interval looks harmless only because it was
not measured. Checkpoints that take longer than the interval delay the next trigger, so that time depends on the hangs
too. Samples are drawn from a fixed seed: the same evidence gives the same numbers.

One hang can last for several checkpoints, and the next checkpoints are few. So the interval of the share that expires
comes from ``next_share``, for the next ``NEXT_COUNT`` checkpoints. It is wider if recorded checkpoints that follow one
another are alike. It does not allow for hangs that come by bytes and not by time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, log
from statistics import NormalDist
from typing import Final, Self

import numpy as np

from backend.advisor.advice import Interval
from backend.advisor.twin.model.next_shares import next_share
from backend.analysis.measures.effects import EFFECT_MIN_COUNT, autocorrelation
from backend.analysis.numbers.arrays import Floats

NEXT_COUNT: Final = EFFECT_MIN_COUNT
"""The interval of the share that expires is meant for so many next checkpoints: the fewest that can show an effect.

A card is measured on the first 5, 10 and 20 checkpoints (``lifecycle``). A share of 5 varies more than one of 10, and
one of 20 less. On drawn jobs, this interval holds all three about as often (docs/evidence/hanging-stores.md).
"""
_ONE_IN_20: Final = NormalDist().inv_cdf(0.95)
_SAMPLES: Final = 500
_SEED: Final = 1
_TIMES_MAX: Final = 50
"""The hangs of at most so many recorded periods are drawn. Those of a longer time are as many times these."""
_CORRELATED_MIN: Final = 5
_ROUNDS_MAX: Final = 40
_CLOSE_RATIO: Final = 0.002
"""Hangs delay triggers, and a later trigger meets more hangs. The iteration ends when the period changes by less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When checkpoints are triggered, and the timeout at which they expire."""

    interval_ms: float
    timeout_ms: float
    min_pause_ms: float = 0.0
    max_concurrent: int = 1

    def period_ms(self, durations_ms: Floats) -> float:
        """Return the mean time from one trigger to the next, if checkpoints take so long."""
        if self.max_concurrent > 1 or not durations_ms.size:
            return self.interval_ms
        return float(np.maximum(self.interval_ms, durations_ms + self.min_pause_ms).mean())


@dataclass(frozen=True, slots=True)
class Hangs:
    """By how much hanging writes delayed recorded checkpoints, and the mean time from one trigger to the next.

    ``delays_ms`` has one delay for each checkpoint that completed, and ``expired_ms`` one for each that expired, the
    longest first. A delay is the time by which hanging writes made the checkpoint end later; 0 if none hung in it. Both
    are empty if no write hung in any. The last ``endless_count`` of those that expired count as hung for longer than
    any timeout. These are the ones with the shortest delays, because a long delay explains by itself why a checkpoint
    expired.

    ``hidden_ms`` has one value for each delay, in the order of ``delays_ms`` and then ``expired_ms``: by how much it
    would be longer if barriers took no time. ``travel_ms`` is the time that the last barrier usually took. ``order``
    has their indexes in the order in which they were triggered; without it, consecutive checkpoints count as
    independent.
    """

    delays_ms: tuple[float, ...] = ()
    expired_ms: tuple[float, ...] = ()
    period_ms: float = 1.0
    endless_count: int = 0
    hidden_ms: tuple[float, ...] = ()
    travel_ms: float = 0.0
    order: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """The number of recorded checkpoints; 0 if no write is seen to delay one."""
        is_any = self.endless_count or any(self.delays_ms) or any(self.expired_ms)
        return len(self.delays_ms) + len(self.expired_ms) if is_any else 0

    @property
    def all_ms(self) -> tuple[float, ...]:
        """The delay of each recorded checkpoint by hangs; infinite if only the expiry shows the end of the hang."""
        return (*self.known_ms, *([inf] * self.endless_count))

    @property
    def known_ms(self) -> tuple[float, ...]:
        """The delay of each recorded checkpoint by hangs, without those that count as endless."""
        return (*self.delays_ms, *self.expired_ms[: len(self.expired_ms) - self.endless_count])

    @property
    def longest_ms(self) -> float:
        """The longest delay by hangs; 0 without any."""
        return max(self.all_ms, default=0.0)

    def explaining(self, predicted: float) -> Self:
        """Return the hangs with as many endless ones as explain how many of the recorded checkpoints expired.

        ``predicted`` is the share that would expire without those.
        """
        if not self.count:
            return self
        missing = round(len(self.expired_ms) - predicted * self.count)
        return replace(self, endless_count=max(0, min(missing, len(self.expired_ms))))

    def without_endless(self) -> Self:
        """Return the hangs of which a write shows the length."""
        return replace(self, endless_count=0)

    def uncovered(self, travel_ms: float) -> Self:
        """Return the hangs as they would be if the last barrier takes ``travel_ms``.

        A hang that ended before a late barrier came then delays the checkpoint too. If barriers take no time, the whole
        of this hidden delay counts, and if they are only faster than before, a part of it in proportion.
        """
        share = 1.0 - min(1.0, travel_ms / self.travel_ms) if self.travel_ms > 0 else 0.0
        if not share or not any(self.hidden_ms):
            return self
        whole = len(self.delays_ms)
        delays_ms = [
            ms + share * more for ms, more in zip((*self.delays_ms, *self.expired_ms), self.hidden_ms, strict=True)
        ]
        return replace(self, delays_ms=tuple(delays_ms[:whole]), expired_ms=tuple(delays_ms[whole:]), hidden_ms=())

    def correlation(self, timeout_ms: float) -> float:
        """Return the correlation, 0 to 0.9, of what hangs do to a checkpoint and to the next one.

        Checkpoints that expired count as delayed by the whole timeout, whatever is known of their writes.
        """
        whole = len(self.delays_ms)
        values = [min(self.delays_ms[n], timeout_ms) if n < whole else timeout_ms for n in self.order]
        return autocorrelation([np.array(values)]) if len(values) >= _CORRELATED_MIN else 0.0

    def on(self, durations_ms: Sequence[float], when: Schedule, *, count: int = _SAMPLES) -> tuple[float, ...]:
        """Return durations of simulated checkpoints with what hangs add: ``count`` of them, if writes hang at all.

        Those that reach the timeout expire, and have its length.
        """
        if not self.count or not durations_ms:
            return tuple(durations_ms)
        simulated = np.resize(np.array(durations_ms), _SAMPLES)
        found = np.minimum(simulated + self._added(simulated, when), when.timeout_ms)
        return tuple(found[:count].tolist())

    def expired_ratio(self, simulated: Interval, duration_ms: Interval, when: Schedule) -> Interval:
        """Return the share of expired checkpoints if writes hang as measured, with its interval for ``NEXT_COUNT``.

        In 90 % of cases, the interval holds the share of the next ``NEXT_COUNT`` checkpoints. ``simulated`` is the
        share that expires without hangs, so only the others can expire because of them. ``duration_ms`` may contain
        the timeout.
        """
        if not self.count:
            return simulated
        durations = _sampled(duration_ms, most_ms=when.timeout_ms)
        ends = durations < when.timeout_ms
        slower = durations + self._added(durations, when)
        late = slower[ends] >= when.timeout_ms
        more = float(late.mean()) if late.size else 0.0
        # A checkpoint at twice the interval meets the hangs of two recorded ones, so half as many of it were seen. They
        # are also twice as far apart.
        periods = when.period_ms(np.minimum(slower, when.timeout_ms)) / self.period_ms
        alike = self.correlation(when.timeout_ms) ** periods
        seen = next_share(more, self.count / periods, next_count=NEXT_COUNT, correlation=alike)
        low, value, high = (
            p + (1 - p) * q
            for p, q in ((simulated.low, seen.low), (simulated.value, more), (simulated.high, seen.high))
        )
        return Interval(value, min(low, value), max(high, value))

    def durations(self, duration_ms: Interval, when: Schedule) -> Interval:
        """Return the durations of checkpoints, and their interval of 90 %, if writes hang as measured."""
        if not self.count:
            return duration_ms
        durations = _sampled(duration_ms)
        added = self._added(durations, when)
        found = np.minimum(durations + added, when.timeout_ms)
        value, high = (float(v) for v in np.quantile(found, (0.5, 0.95)))
        # Checkpoints in which no write hangs are the quickest, unless hardly any are left.
        low = duration_ms.low + float(np.quantile(added, 0.05, method="lower"))
        return Interval(value, min(low, value), max(min(duration_ms.high, when.timeout_ms), high))

    def samples(self, duration_ms: float, when: Schedule) -> Floats:
        """Return durations of single checkpoints if writes hang as measured, and this one if none hangs."""
        return np.array(self.on((duration_ms,), when))

    def _added(self, durations_ms: Floats, when: Schedule) -> Floats:
        """Return what hangs add to these durations."""
        added, before_ms = np.zeros(durations_ms.size), 0.0
        for _ in range(_ROUNDS_MAX):
            period_ms = when.period_ms(np.minimum(durations_ms + added, when.timeout_ms))
            if abs(period_ms - before_ms) <= _CLOSE_RATIO * period_ms:
                break
            added, before_ms = self._within(period_ms, durations_ms.size), period_ms
        return added

    def _within(self, period_ms: float, count: int) -> Floats:
        """Return the hangs of so many periods. The hangs of a recorded period are drawn for each that is in it."""
        draws = np.random.default_rng(_SEED)
        times = period_ms / self.period_ms
        drawn = min(float(_TIMES_MAX), times)
        whole = int(drawn)
        delays = np.array(self.all_ms)
        added: Floats = delays[draws.integers(delays.size, size=(count, whole))].sum(axis=1)
        part = delays[draws.integers(delays.size, size=count)]
        added += np.where(draws.random(count) < drawn - whole, part, 0.0)
        return added * max(1.0, times / _TIMES_MAX)


def _sampled(duration_ms: Interval, *, most_ms: float = inf) -> Floats:
    """Return durations whose distribution has this median and this 95 % quantile.

    If at least half of them are cut at ``most_ms``, the 95 % quantile says nothing. The distribution then has the 5 %
    quantile.
    """
    spread, (low, value, high) = 0.0, (duration_ms.low, duration_ms.value, duration_ms.high)
    if 0 < low < most_ms <= value:
        spread = log(value / low) / _ONE_IN_20
    elif 0 < value < high:
        spread = log(high / value) / _ONE_IN_20
    draws = np.random.default_rng(_SEED + 1).standard_normal(_SAMPLES)
    found: Floats = value * np.exp(spread * (draws - np.median(draws)))
    return found


NO_HANGS: Final = Hangs()
"""A store whose writes never hang, as far as is known."""
