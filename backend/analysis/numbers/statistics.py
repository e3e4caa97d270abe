"""Statistics that leave out missing values (None). Without any value, the result is None.

Invariant: no function turns None into a number. Quantiles are interpolated linearly, and equal those of NumPy, whose
own function takes some 50 microseconds even for a handful of values.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, floor

import numpy as np


def known(values: Iterable[float | None]) -> list[float]:
    """Return the values that are not None, in their order."""
    return [float(v) for v in values if v is not None]


def reached(values: Iterable[float | None], q: float) -> float | None:
    """Return the larger of the two values between which ``quantile`` interpolates, or None if there are none.

    The quantile is a lower bound if this value is one.
    """
    there = sorted(known(values))
    # Without the rounding, a product such as 0.55 * 20 would be above the whole number.
    return there[ceil(round((len(there) - 1) * q, 9))] if there else None


def median(values: Iterable[float | None]) -> float | None:
    """Return the median of the reported values, or None if there are none."""
    return quantile(values, 0.5)


def quantile(values: Iterable[float | None], q: float) -> float | None:
    """Return the ``q`` quantile (0..1) of the reported values, or None if there are none."""
    there = sorted(known(values))
    if not there:
        return None
    place = (len(there) - 1) * q
    below = floor(place)
    low, high = there[below], there[min(below + 1, len(there) - 1)]
    if low == high:
        return low
    share, step = place - below, high - low
    # The interpolation starts from the nearer of the two values, as in NumPy, so that a rounded result never lies
    # outside the range between them.
    return high - step * (1 - share) if share >= 0.5 else low + step * share


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the reported values, or None if there are none."""
    there = known(values)
    return float(np.mean(there)) if there else None


def highest(values: Iterable[float | None]) -> float | None:
    """Return the largest reported value, or None if there are none."""
    return max(known(values), default=None)


def ratio(part: float | None, whole: float | None) -> float | None:
    """Return ``part / whole``, or None if either is missing or ``whole`` is not positive."""
    return part / whole if part is not None and whole is not None and whole > 0 else None
