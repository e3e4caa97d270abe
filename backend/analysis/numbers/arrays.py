"""Statistics over arrays with one value for each subtask. NaN marks a missing value, as None does in domain values.

The results equal those of ``statistics`` to the last bit. NumPy computes them for all subtasks at once, without a
Python loop over the subtasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from backend.analysis.numbers.statistics import quantile

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


_KEPT_LENGTH_MAX: Final = 64
"""The arrays of larger vertices are not kept, because they would need much memory."""
_KEPT_COUNT: Final = 8192


@dataclass(slots=True)
class _Kept:
    """The array of a tuple, or of another owner. The owner is kept too, so that its id stays its own."""

    owner: object
    array: Floats
    peak: float | None
    has_peak: bool = False


_Key = int | tuple[int, str]
"""The id of a tuple, or the id of another owner and the name of its rows."""

_kept: ContextVar[dict[_Key, _Kept] | None] = ContextVar("_kept", default=None)


@contextmanager
def kept_arrays() -> Iterator[None]:
    """Keep the arrays of small tuples while the block runs, for code that reads the same values again and again.

    These arrays cannot be written to.
    """
    token = _kept.set({})
    try:
        yield
    finally:
        _kept.reset(token)


def array_of(values: Iterable[float | None]) -> Floats:
    """Return the values as an array, with NaN for None."""
    found = _kept_of(values)
    return _converted(values) if found is None else found.array


def peak_of(values: Iterable[float | None]) -> float | None:
    """Return the largest reported value, or None if there are none."""
    found = _kept_of(values)
    if found is None:
        return highest_of(_converted(values))
    if not found.has_peak:
        found.peak, found.has_peak = highest_of(found.array), True
    return found.peak


def _converted(values: Iterable[float | None] | Sequence[tuple[float | None, ...]]) -> Floats:
    return np.array(values if isinstance(values, tuple | list) else list(values), dtype=np.float64)


def _kept_of(values: Iterable[float | None]) -> _Kept | None:
    there = _kept.get()
    if there is None or not isinstance(values, tuple) or len(values) > _KEPT_LENGTH_MAX:
        return None
    found = there.get(id(values))
    return _noted(there, id(values), values, _converted(values)) if found is None else found


def _noted(there: dict[_Key, _Kept], key: _Key, owner: object, array: Floats) -> _Kept:
    if len(there) >= _KEPT_COUNT:
        there.clear()
    array.setflags(write=False)
    found = there[key] = _Kept(owner, array, None)
    return found


def array_for(owner: object, name: str, rows: Sequence[tuple[float | None, ...]]) -> Floats:
    """Return tuples of the same length, which belong to ``owner``, as the rows of one array. It is kept like theirs.

    ``name`` says what these rows are. Other rows of the same owner need another name.
    """
    there = _kept.get()
    if there is None or len(rows[0]) > _KEPT_LENGTH_MAX:
        return _converted(rows)
    key = id(owner), name
    noted = there.get(key)
    if noted is None:
        noted = _noted(there, key, owner, _converted(rows))
    return noted.array


def missing(count: int) -> Floats:
    """Return an array of ``count`` missing values."""
    return np.full(count, np.nan)


def known_of(values: Floats) -> Floats:
    """Return the values that are not missing, in their order."""
    return values[~np.isnan(values)]


def highest_of(values: Floats) -> float | None:
    """Return the largest reported value, or None if there are none."""
    largest = float(np.fmax.reduce(values)) if values.size else np.nan
    return None if np.isnan(largest) else largest


def mean_of(values: Floats) -> float | None:
    """Return the mean of the reported values, or None if there are none."""
    there = known_of(values)
    return float(there.mean()) if there.size else None


def median_of(values: Floats) -> float | None:
    """Return the median of the reported values, or None if there are none."""
    return quantile(known_of(values).tolist(), 0.5)


def indices_of(flags: Flags) -> tuple[int, ...]:
    """Return the indices at which ``flags`` is true."""
    return tuple(np.flatnonzero(flags).tolist())


def stacked(rows: Sequence[Floats]) -> Floats:
    """Return the rows as one matrix. A row that is shorter than the longest one ends in missing values."""
    width = max((row.size for row in rows), default=0)
    if rows and all(row.size == width for row in rows):
        return np.concatenate(rows).reshape(len(rows), width)
    found = np.full((len(rows), width), np.nan)
    for whole, row in zip(found, rows, strict=True):
        whole[: row.size] = row
    return found


def column_means(rows: Floats) -> Floats:
    """Return the mean of each column over the rows that report it."""
    return by_column(rows, lambda known: known.mean(axis=1))


def column_medians(rows: Floats) -> Floats:
    """Return the median of each column over the rows that report it."""
    return by_column(rows, _medians)


def column_peaks(rows: Floats) -> Floats:
    """Return the largest value of each column over the rows that report it."""
    return by_column(rows, lambda known: known.max(axis=1))


def by_column(rows: Floats, statistic: Callable[[Floats], Floats]) -> Floats:
    """Return a statistic of the reported values of each column; NaN for a column without any.

    ``statistic`` receives a matrix without missing values, and returns one value for each row. Each row of this
    matrix contains the reported values of one column of ``rows``.
    """
    columns = np.ascontiguousarray(rows.T)
    is_missing = np.isnan(columns)
    if not is_missing.any():
        return statistic(columns) if columns.shape[1] else missing(len(columns))
    # The sort is stable, so the reported values of a column keep their order and come first.
    columns = np.take_along_axis(columns, np.argsort(is_missing, axis=1, kind="stable"), axis=1)
    counts = columns.shape[1] - is_missing.sum(axis=1)
    found = missing(len(columns))
    for count in np.unique(counts[counts > 0]):
        chosen = counts == count
        found[chosen] = statistic(columns[chosen, :count])
    return found


def _medians(rows: Floats) -> Floats:
    # The sort takes a tenth of the time of np.median for many short rows, and other threads go on while it runs.
    ordered = np.sort(rows, axis=1)
    last = ordered.shape[1] - 1
    low, high = ordered[:, last // 2], ordered[:, -(-last // 2)]
    return high - (high - low) * 0.5
