"""Draw histories of a job's state by hours, each with what must be said of its growth.

A family is a state that grows without end, or a healthy pattern that looks like one. Sizes, speeds, the daily rhythm of
the input, noise and gaps are drawn.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import pi, sin
from typing import Final

from backend.analysis.measures.growing import HourValues

NOW: Final = datetime(2026, 11, 27, 12, 0, tzinfo=UTC)
_HOURS: Final = 168
_GB: Final = 1e9


@dataclass(frozen=True, slots=True)
class DrawnHistory:
    """The hours that are known of a job, and since when the job is known."""

    hours: list[HourValues]
    begun_at: datetime


@dataclass(frozen=True, slots=True)
class GrowthFamily:
    """``draw`` makes a history. ``said`` is whether growth is told of it, and ``is_filling`` whether it may end."""

    draw: Callable[[random.Random], DrawnHistory]
    said: bool
    is_filling: bool | None = None


def _history(
    rng: random.Random,
    size: Callable[[float], float],
    *,
    age_days: float,
    rate: Callable[[float], float] = lambda hour: 1.0,
    noise: float = 0.002,
) -> DrawnHistory:
    """Return the newest hours of a job. ``size`` and ``rate`` get the hours since the job began."""
    scale, usual = _GB * rng.uniform(0.3, 40.0), rng.uniform(100.0, 20_000.0)
    gap = rng.randrange(40, 120)
    age_h = age_days * 24
    rows = []
    for n in range(int(min(_HOURS, age_h))):
        since = age_h - min(_HOURS, age_h) + n
        if gap <= n < gap + 3:
            continue
        at = NOW - timedelta(hours=min(_HOURS, age_h) - 1 - n)
        shaken = size(since) * (1 + noise * rng.uniform(-1, 1))
        rows.append(HourValues(at, scale * shaken, 1_000.0, usual * rate(since) * rng.uniform(0.97, 1.03)))
    return DrawnHistory(rows, NOW - timedelta(hours=age_h))


def _daily(rng: random.Random) -> Callable[[float], float]:
    """Return an input that is the same on each day."""
    depth, shift = rng.uniform(0.1, 0.6), rng.uniform(0, 24)
    return lambda hour: 1 + depth * sin(2 * pi * (hour + shift) / 24)


def _held_watermark(rng: random.Random) -> DrawnHistory:
    """Windows never fire from some day on, because one input is idle: the state grows by all records since then."""
    age, held_h = rng.uniform(20, 90), rng.uniform(60, 120)
    usual, speed = 1.0, rng.uniform(0.08, 0.4)
    return _history(rng, lambda h: usual + speed * max(0.0, h - (age * 24 - held_h)), age_days=age, rate=_daily(rng))


def _never_cleaned(rng: random.Random) -> DrawnHistory:
    """Keys are added evenly and none is removed, since the job began some days ago."""
    return _history(rng, lambda h: 0.1 + h, age_days=rng.uniform(3, 9), rate=_daily(rng))


def _old_leak(rng: random.Random) -> DrawnHistory:
    """The same for so long that the state no longer doubles within the days that are known."""
    return _history(rng, lambda h: 0.1 + h, age_days=rng.uniform(15, 75), rate=_daily(rng), noise=0.0005)


def _doubling(rng: random.Random) -> DrawnHistory:
    """Each restore or each self-join multiplies what is kept: the state doubles within two days."""
    every_h = rng.uniform(16, 40)
    return _history(rng, lambda h: 2 ** (h / every_h) / 1e3, age_days=rng.uniform(8, 12), rate=_daily(rng))


def _steady(rng: random.Random) -> DrawnHistory:
    return _history(rng, lambda h: 1.0, age_days=rng.uniform(8, 60), rate=_daily(rng), noise=0.05)


def _daily_windows(rng: random.Random) -> DrawnHistory:
    """The windows of a day fill and fire."""
    return _history(rng, lambda h: 0.05 + h % 24, age_days=rng.uniform(8, 60), rate=_daily(rng))


def _filled_up(rng: random.Random) -> DrawnHistory:
    """A state with a time to live of some days has filled up, and keeps its size."""
    ttl_h = rng.uniform(48, 120)
    return _history(rng, lambda h: min(h, ttl_h), age_days=rng.uniform(16, 60), rate=_daily(rng), noise=0.01)


def _with_input(rng: random.Random) -> DrawnHistory:
    """The input grows for weeks, and the state with it."""
    speed = rng.uniform(0.02, 0.1)
    return _history(rng, lambda h: 1 + speed * h, age_days=rng.uniform(12, 40), rate=lambda h: 1 + speed * h)


def _savepoint(rng: random.Random) -> DrawnHistory:
    """A savepoint and the full checkpoint after it write everything once. The state keeps its size."""
    at_h = rng.uniform(20, 150)
    return _history(rng, lambda h: 1.0 + (0.3 if abs(h % 168 - at_h) < 1 else 0.0), age_days=rng.uniform(8, 60))


def _from_savepoint(rng: random.Random) -> DrawnHistory:
    """The job began with a large state, to which little is added. It may never have an end, and nothing shows that."""
    return _history(rng, lambda h: 1_000 + rng.uniform(0.1, 0.4) * h, age_days=rng.uniform(14, 60))


GROWTH_FAMILIES: Final[Mapping[str, GrowthFamily]] = {
    "held watermark": GrowthFamily(_held_watermark, said=True, is_filling=False),
    "never cleaned": GrowthFamily(_never_cleaned, said=True, is_filling=True),
    "never cleaned, for weeks": GrowthFamily(_old_leak, said=True, is_filling=True),
    "doubles within days": GrowthFamily(_doubling, said=True, is_filling=False),
    "steady state": GrowthFamily(_steady, said=False),
    "windows of a day": GrowthFamily(_daily_windows, said=False),
    "time to live, filled up": GrowthFamily(_filled_up, said=False),
    "grows with its input": GrowthFamily(_with_input, said=False),
    "full write, savepoint": GrowthFamily(_savepoint, said=False),
    "large since a savepoint": GrowthFamily(_from_savepoint, said=False),
}
"""The families by name: those that grow, and then their neighbours."""
