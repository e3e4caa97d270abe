"""Log buckets: counts from which quantiles over any set of hours are computed, with a bounded relative error.

Bucket ``i`` counts the whole numbers in ``(GAMMA**(i-1), GAMMA**i]``; one more bucket counts zero and negative values.
Two sets of buckets are merged by adding their counts. The rule and the error are those of DDSketch (Masson, Rim & Lee
2019, PVLDB 12(12)). The bounds are exact whole numbers, so that Python, SQL and Spark put each value into the same
bucket. A logarithm in floating point does not guarantee that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from math import ceil, floor

GAMMA = 1.02
"""The ratio of a bucket's upper bound to its lower bound.

The relative error of a quantile is at most (GAMMA - 1) / (GAMMA + 1), which is 1 %.
"""
ZERO = -1
"""The number of the bucket for zero and negative values."""
_LARGEST = 2**63 - 1


def _bounds() -> tuple[int, ...]:
    # 1.02 is 51/50, so its powers are exact as fractions of whole numbers.
    bounds, above, below = [1], 1, 1
    while bounds[-1] < _LARGEST:
        above, below = above * 51, below * 50
        bounds.append(min(_LARGEST, above // below))
    return tuple(bounds)


BOUNDS = _bounds()
"""The largest whole number of bucket 0, 1, 2, ... A value lies in the first bucket whose bound it does not exceed."""

Buckets = Mapping[int, int]
"""The count of values in each bucket, by bucket number; every count is positive."""


def bucket_of(value: int) -> int:
    """Return the number of the bucket for a value, which must be within the range of PostgreSQL's int8."""
    return bisect_left(BOUNDS, value) if value > 0 else ZERO


def count(values: Iterable[int]) -> Buckets:
    """Return how many of the values are in each bucket."""
    return merge((bucket_of(value), 1) for value in values)


def merge(parts: Iterable[tuple[int, int]]) -> Buckets:
    """Add up pairs of bucket and count, and return the sums with the lowest bucket first."""
    merged: dict[int, int] = {}
    for bucket, number in parts:
        merged[bucket] = merged.get(bucket, 0) + number
    return dict(sorted(merged.items()))


def quantile(buckets: Buckets, q: float) -> float | None:
    """Return the ``q`` quantile (0..1), interpolated like ``percentile_cont``, or None if there are no values.

    The result has a relative error of at most 1 %, because both values between which it is interpolated have at most
    this error.

    Raises:
        ValueError: ``q`` is not within 0 and 1.
    """
    if not 0 <= q <= 1:
        raise ValueError(f"a quantile is within 0 and 1, got {q}")
    ordered = sorted(buckets.items())
    total = sum(number for _, number in ordered)
    if total == 0:
        return None
    position = q * (total - 1)
    below = floor(position)
    low = _value_at(ordered, below)
    high = _value_at(ordered, min(below + 1, total - 1))
    return low + (position - below) * (high - low)


def reached(buckets: Buckets, q: float) -> float | None:
    """Return the larger of the two values between which ``quantile`` interpolates, or None if there are none."""
    ordered = sorted(buckets.items())
    total = sum(number for _, number in ordered)
    return _value_at(ordered, ceil(round(q * (total - 1), 9))) if total else None


def rounded(value: int) -> float:
    """Return the value that ``quantile`` gives for it, so that it can be compared with quantiles."""
    return _value_at([(bucket_of(value), 1)], 0)


def _value_at(ordered: list[tuple[int, int]], rank: int) -> float:
    seen = 0
    for bucket, number in ordered:
        seen += number
        if rank < seen:
            # Return the point with the same relative distance to both bounds of the bucket.
            return 0.0 if bucket == ZERO else 2 * GAMMA**bucket / (GAMMA + 1)
    raise AssertionError("the rank is not below the number of values")
