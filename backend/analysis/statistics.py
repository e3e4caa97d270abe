"""Statistics that leave out missing values (None); without any value the result is None.

Invariant: no function turns None into a number. Quantiles are linear between neighbours (NumPy's default).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np


def known(values: Iterable[float | None]) -> list[float]:
    """The reported values, in their order."""
    return [float(v) for v in values if v is not None]


def median(values: Iterable[float | None]) -> float | None:
    """The median of the reported values; None without any."""
    return quantile(values, 0.5)


def quantile(values: Iterable[float | None], q: float) -> float | None:
    """The ``q`` quantile (0..1) of the reported values; None without any."""
    there = known(values)
    return float(np.quantile(there, q)) if there else None


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of the reported values; None without any."""
    there = known(values)
    return float(np.mean(there)) if there else None


def highest(values: Iterable[float | None]) -> float | None:
    """The largest reported value; None without any."""
    return max(known(values), default=None)


def column_means(rows: Sequence[Sequence[float | None]]) -> tuple[float | None, ...]:
    """The mean of each column over the rows that report it; rows may have different lengths."""
    width = max((len(r) for r in rows), default=0)
    return tuple(mean(r[i] for r in rows if i < len(r)) for i in range(width))


def ratio(part: float | None, whole: float | None) -> float | None:
    """``part / whole``; None if either is missing or the whole is not positive."""
    return part / whole if part is not None and whole is not None and whole > 0 else None
