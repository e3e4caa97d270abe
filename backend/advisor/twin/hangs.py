"""Writes to the checkpoint store that hang now and then, and what they do to checkpoints under any settings.

The tiers simulate writes of the usual duration only. How long writes hung in each recorded checkpoint is part of the
model (``StoreModel.hangs``), and is added to the durations that a tier simulated: in every what-if, in the calibration,
and if the advisor chooses settings. If some writes are seen to hang, checkpoints that expired beyond what the
simulation and those writes explain count as hung for longer than any timeout.

What makes writes hang is not known. It is assumed to come by time: if the time from one trigger to the next is twice
as long, a checkpoint waits for the hangs of two recorded ones. So no longer interval looks harmless only because it was
not measured. Checkpoints that take longer than the interval delay the next trigger, so that time depends on the hangs
too. Samples are drawn from a fixed seed: the same evidence gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, log
from statistics import NormalDist
from typing import Final, Self

import numpy as np

from backend.advisor.advice import Interval
from backend.advisor.proposing import share_interval
from backend.analysis.arrays import Floats

_ONE_IN_20: Final = NormalDist().inv_cdf(0.95)
_SAMPLES: Final = 500
_SEED: Final = 1
_TIMES_MAX: Final = 50
_ROUNDS: Final = 4
"""So often is computed how hangs delay triggers, and how many hangs come until the next trigger."""


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
    """How long writes hung in recorded checkpoints, and the mean time from the trigger of one to that of the next.

    ``delays_ms`` has one value for each checkpoint that completed, and ``expired_ms`` one for each that expired, the
    longest first: 0 if no write is seen to hang. Both are empty if no write is seen to hang in any of them.
    ``endless_count`` is how many of those that expired count as hung for longer than any timeout, the first of them.
    """

    delays_ms: tuple[float, ...] = ()
    expired_ms: tuple[float, ...] = ()
    period_ms: float = 1.0
    endless_count: int = 0

    @property
    def count(self) -> int:
        """The number of recorded checkpoints; 0 if no write is seen to hang."""
        return len(self.delays_ms) + len(self.expired_ms)

    @property
    def all_ms(self) -> tuple[float, ...]:
        """How long writes hung in each recorded checkpoint; infinite if only the expiry shows the end of the hang."""
        return (*self.delays_ms, *([inf] * self.endless_count), *self.expired_ms[self.endless_count :])

    @property
    def longest_ms(self) -> float:
        """The longest hang; 0 without any."""
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
        """Return the share of expired checkpoints if writes hang as measured."""
        if not self.count:
            return simulated
        durations = _sampled(duration_ms)
        more = float((durations + self._added(durations, when) >= when.timeout_ms).mean())
        seen = share_interval(min(self.count, round(more * self.count)), self.count)
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
        added = np.zeros(durations_ms.size)
        for _ in range(_ROUNDS):
            period_ms = when.period_ms(np.minimum(durations_ms + added, when.timeout_ms))
            added = self._within(period_ms, durations_ms.size)
        return added

    def _within(self, period_ms: float, count: int) -> Floats:
        """Return the hangs of so many periods. The hangs of a recorded period are drawn for each that is in it."""
        draws = np.random.default_rng(_SEED)
        times = period_ms / self.period_ms
        whole = min(_TIMES_MAX, int(times))
        delays = np.array(self.all_ms)
        added: Floats = delays[draws.integers(delays.size, size=(count, whole))].sum(axis=1)
        part = delays[draws.integers(delays.size, size=count)]
        added += np.where(draws.random(count) < times - whole, part, 0.0)
        return added


def _sampled(duration_ms: Interval) -> Floats:
    """Return durations whose distribution has this median and this 95 % quantile."""
    spread = 0.0
    if 0 < duration_ms.value < duration_ms.high:
        spread = log(duration_ms.high / duration_ms.value) / _ONE_IN_20
    draws = np.random.default_rng(_SEED + 1)
    found: Floats = duration_ms.value * np.exp(spread * draws.standard_normal(_SAMPLES))
    return found


NO_HANGS: Final = Hangs()
"""A store whose writes never hang, as far as is known."""
