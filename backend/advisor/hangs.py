"""Measures writes to the checkpoint store that hang now and then, and what they do to checkpoints under other settings.

The models of the twin have writes of the usual duration only. A write that took many times as long as is usual for its
subtask hung, for whatever reason. A subtask with more state than its siblings always takes longer. The models know
that, so it is no hang. How long writes hung in each recorded checkpoint is added to the simulated durations. If some
writes are seen to hang, checkpoints that expired beyond that count as hung for longer than the timeout.

What makes writes hang is not known. It is assumed to come by time: a checkpoint at an interval twice as long waits for
the hangs of two recorded ones. So no longer interval looks harmless only because it was not measured. Samples are drawn
from a fixed seed: the same evidence gives the same numbers.
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
from backend.advisor.situation import Situation, own_async_ms
from backend.analysis.arrays import Floats, stacked

HANG_MIN_MS: Final = 500.0
HANG_FACTOR: Final = 4.0
_USUAL: Final = 0.25
_ONE_IN_20: Final = NormalDist().inv_cdf(0.95)
_SAMPLES: Final = 500
_SEED: Final = 1
_TIMES_MAX: Final = 50


@dataclass(frozen=True, slots=True)
class Hangs:
    """How long writes hung in recorded checkpoints, and at which interval.

    ``delays_ms`` has one value for each checkpoint: 0 if no write hung, and infinite if only the expiry shows the hang.
    It is empty if no write hung in any of them.
    """

    delays_ms: tuple[float, ...] = ()
    interval_ms: float = 1.0

    @classmethod
    def of(cls, known: Situation, interval_ms: float) -> Self:
        """Return the hanging writes of the recorded checkpoints."""
        rows: dict[str, list[Floats]] = {}
        for r in known.recorded:
            for vertex_id in r.phases:
                rows.setdefault(vertex_id, []).append(own_async_ms(known.evidence, vertex_id, r.phases))
        usual = {v: _usual(found) for v, found in rows.items()}
        delays = []
        for r in known.recorded:
            took = {v: own_async_ms(known.evidence, v, r.phases) for v in r.phases}
            delays.append(max((_beyond(ms, usual[v][: ms.size]) for v, ms in took.items()), default=0.0))
        return cls(tuple(delays), interval_ms) if any(delays) else cls()

    @property
    def longest_ms(self) -> float:
        """The longest hang; 0 without any."""
        return max(self.delays_ms, default=0.0)

    def explaining(self, expired_ratio: float, predicted: float) -> Self:
        """Return the hangs with as many endless ones as explain the measured share of expired checkpoints.

        ``predicted`` is the share that would expire without those.
        """
        count = round((expired_ratio - predicted) * len(self.delays_ms))
        if count <= 0:
            return self
        # The checkpoints in which no write is known to have hung are the first of these.
        return replace(self, delays_ms=(*sorted(self.delays_ms)[count:], *([inf] * count)))

    def expired_ratio(
        self, simulated: Interval, duration_ms: Interval, interval_ms: float, timeout_ms: float
    ) -> Interval:
        """Return the share of expired checkpoints if writes hang as measured."""
        if not self.delays_ms:
            return simulated
        count = len(self.delays_ms)
        more = float((self._durations(duration_ms, interval_ms) >= timeout_ms).mean())
        seen = share_interval(min(count, round(more * count)), count)
        low, value, high = (
            p + (1 - p) * q
            for p, q in ((simulated.low, seen.low), (simulated.value, more), (simulated.high, seen.high))
        )
        return Interval(value, min(low, value), max(high, value))

    def durations(self, duration_ms: Interval, interval_ms: float, timeout_ms: float) -> tuple[float, Interval]:
        """Return the mean duration of checkpoints, and their interval of 90 %, if writes hang as measured.

        Without hangs, the mean is the simulated value.
        """
        if not self.delays_ms:
            return duration_ms.value, duration_ms
        found = np.minimum(self._durations(duration_ms, interval_ms), timeout_ms)
        value, high = (float(v) for v in np.quantile(found, (0.5, 0.95)))
        return float(found.mean()), Interval(value, min(duration_ms.low, value), max(high, value))

    def _durations(self, duration_ms: Interval, interval_ms: float) -> Floats:
        """Return simulated durations and what hangs add to them, in which the hangs of the whole interval add up."""
        draws = np.random.default_rng(_SEED)
        times = interval_ms / self.interval_ms
        whole = min(_TIMES_MAX, int(times))
        delays = np.array(self.delays_ms)
        added = delays[draws.integers(delays.size, size=(_SAMPLES, whole))].sum(axis=1)
        part = delays[draws.integers(delays.size, size=_SAMPLES)]
        added += np.where(draws.random(_SAMPLES) < times - whole, part, 0.0)
        spread = 0.0
        if 0 < duration_ms.value < duration_ms.high:
            spread = log(duration_ms.high / duration_ms.value) / _ONE_IN_20
        factors: Floats = np.exp(spread * draws.standard_normal(_SAMPLES))
        found: Floats = duration_ms.value * factors + added
        return found


def _usual(found: Sequence[Floats]) -> Floats:
    """Return the usual duration of each subtask, in milliseconds; infinite for one whose durations are not known."""
    rows = stacked(found)
    usual = np.full(rows.shape[1], inf)
    is_known = ~np.isnan(rows).all(axis=0)
    usual[is_known] = np.nanquantile(rows[:, is_known], _USUAL, axis=0)
    return usual


def _beyond(took_ms: Floats, usual_ms: Floats) -> float:
    """Return by how much a write took longer than is usual for its subtask, at most; 0 if none hung."""
    # A comparison with a duration that is not known is false.
    is_hung = took_ms > np.maximum(HANG_MIN_MS, HANG_FACTOR * usual_ms)
    return float((took_ms - usual_ms)[is_hung].max(initial=0.0))
