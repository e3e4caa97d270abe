"""Compares a measure of the checkpoints in two windows of time: before and after an instant, such as a change.

The windows may also be those of two jobs. ``names`` are then the words that distinguish these.

Each window gives a distribution. The intervals of its median and its 95th percentile come from order statistics: the
number of values below a quantile is binomially distributed, whatever the distribution of the values is. The interval of
one window contains the quantile with a probability of 97.5 %. The interval of the difference reaches from the lowest to
the highest difference between the two intervals, so it contains the difference with a probability of 95 %. If there are
too few values for an interval, the windows cannot be compared. The intervals assume that the values are independent.
Consecutive checkpoints are not fully independent, so a difference whose interval barely excludes zero proves little.

An expired checkpoint counts with the time until it expired, a lower bound of the time that it needed. A quantile at or
above such a value is a lower bound too, and an interval that reaches such a value has no upper end. So the difference
of two quantiles is a lower bound, an upper bound or not known if one or both are lower bounds.

Source: Conover (1999), Practical Nonparametric Statistics, 3.2.
Invariant: the result does not depend on the order of the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from typing import Final

import numpy as np
from numpy.typing import NDArray

from backend.analysis.numbers.log_buckets import BOUNDS, Buckets, rounded
from backend.analysis.numbers.statistics import quantile
from backend.analysis.words import sentences as say
from backend.domain.rollup import Measure

# The probability that an interval of 97.5 % lies wholly below, or wholly above, the quantile. Two independent
# intervals of 97.5 % both contain their quantiles with a probability of 95 %.
_TAIL: Final = 0.0125
# The quantile of the normal distribution at 1 - _TAIL.
_Z: Final = 2.2414
MEDIAN_MIN_COUNT: Final = 7
"""With fewer values, the median has no interval."""
POINTS_MAX: Final = 101
"""The number of points of a distribution function. Larger distributions are drawn by their percentiles."""


class Direction(StrEnum):
    """How a quantity changed from the first window to the second."""

    HIGHER = "higher"
    LOWER = "lower"
    UNCLEAR = "unclear"
    """The interval of the difference contains zero."""
    TOO_FEW = "too-few"
    """A window has too few checkpoints to tell."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A quantile with its interval. An end is None if the values are too few for it, or if it is not known."""

    value: float
    low: float | None
    high: float | None
    is_at_least: bool = False
    """Whether the value is only a lower bound, because it includes checkpoints that expired."""
    is_open: bool = False
    """Whether the interval has no upper end, because it includes checkpoints that expired."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """The distribution of a measure in one window. ``shares`` has the share of values up to each of ``points``."""

    count: int
    minimum: float
    maximum: float
    median: Estimate
    p95: Estimate
    p99: Estimate
    points: tuple[float, ...]
    shares: tuple[float, ...]
    expired_from: float | None = None
    """The least duration of an expired checkpoint: from there on, values are lower bounds. None if none expired."""


class Bound(StrEnum):
    """What a difference is if one of the two quantiles is a lower bound."""

    AT_LEAST = "at-least"
    AT_MOST = "at-most"


@dataclass(frozen=True, slots=True)
class Change:
    """The difference of a quantile: that of the second window minus that of the first, with its interval of 95 %.

    The difference is None if both quantiles are lower bounds. ``bound`` is None if it is known exactly.
    """

    difference: float | None
    low: float | None
    high: float | None
    direction: Direction
    bound: Bound | None = None


@dataclass(frozen=True, slots=True)
class Tally:
    """The number of ended checkpoints in one window."""

    completed_count: int
    failed_count: int

    @property
    def ended_count(self) -> int:
        """All checkpoints that ended."""
        return self.completed_count + self.failed_count

    @property
    def failed_ratio(self) -> float | None:
        """The share of failed checkpoints; None if no checkpoint ended."""
        return self.failed_count / self.ended_count if self.ended_count else None


def distribution(values: Sequence[float], expired: Sequence[float] = ()) -> Distribution | None:
    """Return the distribution of a measure, or None without values. ``expired`` are values that are lower bounds."""
    return _distribution(np.sort(np.asarray([*values, *expired], dtype=np.float64)), min(expired, default=np.inf))


def distribution_of(buckets: Buckets, expired_min: int | None) -> Distribution | None:
    """Return the distribution of durations that are known by bucket, with an error of up to 1 %.

    ``expired_min`` is the least duration of an expired checkpoint, all of which the buckets include.
    """
    values = np.asarray([rounded(BOUNDS[b] if b >= 0 else 0) for b in buckets], dtype=np.float64)
    ordered = np.repeat(values, list(buckets.values())) if buckets else values
    return _distribution(ordered, np.inf if expired_min is None else rounded(expired_min))


def _distribution(ordered: NDArray[np.float64], least: float) -> Distribution | None:
    if not ordered.size:
        return None
    if ordered.size <= POINTS_MAX:
        points, shares = ordered, np.arange(1, ordered.size + 1) / ordered.size
    else:
        shares = np.linspace(0.0, 1.0, POINTS_MAX)
        points = ordered[np.maximum(np.ceil(shares * ordered.size).astype(int) - 1, 0)]
    return Distribution(
        count=int(ordered.size),
        minimum=float(ordered[0]),
        maximum=float(ordered[-1]),
        median=_estimate(ordered, 0.5, least),
        p95=_estimate(ordered, 0.95, least),
        p99=_estimate(ordered, 0.99, least),
        points=tuple(points.tolist()),
        shares=tuple(shares.tolist()),
        expired_from=None if np.isinf(least) else float(least),
    )


def change(before: Estimate | None, after: Estimate | None) -> Change:
    """Return the difference of a quantile between two windows, and whether it shows a change."""
    if before is None or after is None:
        return Change(None, None, None, Direction.TOO_FEW)
    low = None if after.low is None or before.high is None else after.low - before.high
    high = None if after.high is None or before.low is None else after.high - before.low
    direction = _direction(low, high)
    if direction is Direction.TOO_FEW and (before.is_open or after.is_open):
        direction = Direction.UNCLEAR
    if before.is_at_least and after.is_at_least:
        return Change(None, low, high, direction)
    bound = Bound.AT_LEAST if after.is_at_least else Bound.AT_MOST if before.is_at_least else None
    return Change(after.value - before.value, low, high, direction, bound)


def failure_change(before: Tally, after: Tally, *, count_min: int = MEDIAN_MIN_COUNT) -> Direction:
    """Return how the share of failed checkpoints changed, from the intervals of Wilson (1927) of both shares.

    With fewer than ``count_min`` checkpoints before or after, there are too few to tell.
    """
    if min(before.ended_count, after.ended_count) < count_min:
        return Direction.TOO_FEW
    (before_low, before_high), (after_low, after_high) = _wilson(before), _wilson(after)
    return _direction(after_low - before_high, after_high - before_low)


@dataclass(frozen=True, slots=True)
class Names:
    """How sentences call the two windows, and what lies between them: a change, or the difference of two jobs."""

    before: str = "before"
    after: str = "after"
    verb: str = "changed"
    noun: str = "change"


def headline(
    durations: tuple[Distribution | None, Distribution | None],
    phases: Sequence[tuple[Measure, Change]],
    failures: tuple[Tally, Tally],
    names: Names | None = None,
) -> str:
    """Return one sentence about the change of the durations, and one about failures if there were any."""
    before, after = durations
    own = names or Names()
    counts = [0 if d is None else d.count for d in durations]
    words = ""
    if before is None or after is None or min(counts) < MEDIAN_MIN_COUNT:
        words = (
            f"Too few checkpoints to tell: {counts[0]} {own.before} and {counts[1]} {own.after}; each side needs at "
            f"least {MEDIAN_MIN_COUNT}."
        )
    else:
        difference = change(before.median, after.median)
        medians = f"{_median(before)} {own.before}, {_median(after)} {own.after}"
        if difference.direction in (Direction.HIGHER, Direction.LOWER):
            of_phases = _phase_words(difference, phases)
            words = f"The median duration {own.verb}: {medians} ({_interval(difference)}){of_phases}."
        else:
            words = f"No clear {own.noun} of the median duration: {medians} ({_interval(difference)})."
    if any(tally.failed_count for tally in failures):
        said = [f"{tally.failed_count} of {tally.ended_count}" for tally in failures]
        words += f" Failed: {said[0]} {own.before}, {said[1]} {own.after}."
    return words


def signed(ms: float) -> str:
    """Return a difference in words, with its sign."""
    sign = "+" if ms > 0 else "-" if ms < 0 else ""
    return f"{sign}{say.duration(abs(ms))}"


def _median(one: Distribution) -> str:
    return f"{'at least ' if one.median.is_at_least else ''}{say.duration(one.median.value)}"


def _interval(found: Change) -> str:
    if found.difference is None:
        return "both are lower bounds, so the difference is not known"
    difference = f"{_BOUND_WORDS[found.bound]}{signed(found.difference)}"
    match found.low, found.high:
        case None, None:
            return difference
        case float() as low, None:
            return f"{difference}, 95 % interval from {signed(low)}"
        case None, float() as high:
            return f"{difference}, 95 % interval up to {signed(high)}"
    return f"{difference}, 95 % interval {signed(found.low or 0.0)} to {signed(found.high or 0.0)}"


def _phase_words(difference: Change, phases: Sequence[tuple[Measure, Change]]) -> str:
    """Name the phase that changed most in the direction of the duration, if one clearly did."""
    same = [(c.difference, m) for m, c in phases if c.direction is difference.direction and c.difference is not None]
    if not same or difference.difference is None:
        return ""
    most, measure = max(same, key=lambda one: abs(one[0]))
    # A phase that overlaps with others may change more than the duration. A phase that changes by a small part of the
    # duration's change explains nothing.
    if abs(most) < 0.3 * abs(difference.difference):
        return ""
    return f", mostly {_PHASES[measure]} ({signed(most)})"


_BOUND_WORDS: Final = {Bound.AT_LEAST: "at least ", Bound.AT_MOST: "at most ", None: ""}
_PHASES: Final = {
    Measure.START_DELAY: "start delay",
    Measure.ALIGNMENT: "alignment",
    Measure.SYNC: "the sync part",
    Measure.ASYNC: "the async part",
}


def _direction(low: float | None, high: float | None) -> Direction:
    if low is not None and low > 0:
        return Direction.HIGHER
    if high is not None and high < 0:
        return Direction.LOWER
    return Direction.TOO_FEW if low is None or high is None else Direction.UNCLEAR


def _estimate(ordered: NDArray[np.float64], q: float, least: float) -> Estimate:
    count = ordered.size
    below = _binomial_cdf(count, q)
    # ``low`` and ``high`` are the ranks of the two values at the ends of the interval. The value of rank ``low``
    # exceeds the quantile, and the value of rank ``high`` is below it, each with at most the probability ``_TAIL``.
    low = int(np.searchsorted(below, _TAIL, side="right"))
    high = int(np.searchsorted(below, 1 - _TAIL, side="left")) + 1
    value = quantile(ordered.tolist(), q)
    assert value is not None
    is_open = high <= count and bool(ordered[high - 1] >= least)
    return Estimate(
        value=value,
        low=float(ordered[low - 1]) if low >= 1 else None,
        high=float(ordered[high - 1]) if high <= count and not is_open else None,
        is_open=is_open,
        # A value between that of a completed and that of an expired checkpoint is a lower bound too.
        is_at_least=bool(ordered[ceil(round(q * (count - 1), 9))] >= least),
    )


def _binomial_cdf(count: int, q: float) -> NDArray[np.float64]:
    """Return the probabilities that at most 0, 1, ..., ``count`` of the values are below the quantile ``q``."""
    successes = np.arange(1, count + 1)
    steps = np.log((count - successes + 1) / successes) + np.log(q / (1 - q))
    logs = count * np.log(1 - q) + np.concatenate(([0.0], np.cumsum(steps)))
    cdf: NDArray[np.float64] = np.cumsum(np.exp(logs))
    return cdf


def _wilson(tally: Tally) -> tuple[float, float]:
    count, share = tally.ended_count, tally.failed_ratio or 0.0
    scale = 1 + _Z**2 / count
    middle = (share + _Z**2 / (2 * count)) / scale
    half = _Z / scale * np.sqrt(share * (1 - share) / count + _Z**2 / (4 * count**2))
    return float(middle - half), float(middle + half)
