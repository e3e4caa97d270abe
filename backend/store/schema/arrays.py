"""Per-subtask arrays as they are stored: NULL is *all missing*, one element is *the same for all*, else one a subtask.

The number of subtasks is stored beside, so nothing is lost. Invariant: ``expand(compact(v), len(v)) == v`` for every
``v`` within the bounds of its column; a value outside them cannot have been measured and is stored as missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from sqlalchemy import ARRAY, BigInteger, Column, Integer, SmallInteger

T = TypeVar("T", int, float)

INT2_MAX = 2**15 - 1
INT4_MAX = 2**31 - 1
INT8_MAX = 2**63 - 1
_MAX_BY_TYPE: dict[type[Any], int] = {SmallInteger: INT2_MAX, Integer: INT4_MAX, BigInteger: INT8_MAX}
# The largest float32: a gauge beyond it cannot be packed, and is no ratio.
_FLOAT4_MAX = 3.4028234e38
# float32 holds 7 significant digits; ratios come with fewer.
_RATIO_DIGITS = 6


def limit_of(column: Column[Any]) -> int:
    """The largest magnitude that a column of whole numbers, or of arrays of them, holds."""
    kind = column.type.item_type if isinstance(column.type, ARRAY) else column.type
    return _MAX_BY_TYPE[type(kind)]


def compact(values: Sequence[int | None], limit: int = INT8_MAX) -> list[int | None] | None:
    """The stored form of ``values``; ``limit`` is the largest magnitude the column holds."""
    return _compact([v if v is not None and -limit <= v <= limit else None for v in values])


def compact_ratios(values: Sequence[float | None]) -> list[float | None] | None:
    """The stored form of ratios; not-a-number is missing."""
    # A comparison with not-a-number is false.
    return _compact([v if v is not None and -_FLOAT4_MAX <= v <= _FLOAT4_MAX else None for v in values])


def expand(stored: Sequence[int | None] | None, count: int) -> tuple[int | None, ...]:
    """The values of ``count`` subtasks."""
    if stored is None:
        return (None,) * count
    return tuple(stored) * count if len(stored) == 1 else tuple(stored)


def expand_ratios(stored: Sequence[float | None] | None, count: int) -> tuple[float | None, ...]:
    """The ratios of ``count`` subtasks, as they were before they became float32."""
    if stored is None:
        return (None,) * count
    rounded = tuple(None if v is None else round(v, _RATIO_DIGITS) for v in stored)
    return rounded * count if len(rounded) == 1 else rounded


def _compact(values: list[T | None]) -> list[T | None] | None:
    first = values[0] if values else None
    if any(v != first for v in values):
        return values
    return None if first is None else [first]
