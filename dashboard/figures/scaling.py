"""Chooses where values are drawn, so that outliers do not flatten the others and equal ones stay visible."""

from __future__ import annotations

from collections.abc import Sequence

ABOVE_RATIO = 1.15
"""The axis ends at this multiple of the largest value that is not an outlier."""
# A value is an outlier if it is larger than the quantile ``_QUANTILE`` multiplied by this number.
_OUTLIER_RATIO = 4.0
_QUANTILE = 0.95
_COUNT_MIN = 8
# The points of a row are spread over this part of it. Multiples of the golden ratio never lie close together.
_SPREAD = 0.5
_GOLDEN = 0.618034


def clipped_top(values: Sequence[float]) -> float:
    """Return the top of an axis for ``values``. Outliers are above it."""
    return max(1.0, usual_largest(values) * ABOVE_RATIO)


def spread(row: int, count: int) -> list[float]:
    """Return the places of the points of one row across it."""
    return [row + _SPREAD * ((i * _GOLDEN) % 1 - 0.5) for i in range(count)]


def usual_largest(values: Sequence[float]) -> float:
    """Return the largest value that is not an outlier, or 0 without values.

    A value is an outlier if it is several times as large as the 95th percentile. A few values have no outliers.
    """
    ordered = sorted(values)
    if not ordered:
        return 0.0
    largest = ordered[-1]
    if len(ordered) < _COUNT_MIN:
        return largest
    # With fewer than 20 values, the 95th percentile would be the largest one.
    usual = ordered[min(round(_QUANTILE * len(ordered)), len(ordered) - 2)]
    return usual if 0 < usual * _OUTLIER_RATIO < largest else largest
