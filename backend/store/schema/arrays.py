"""Converts per-subtask arrays to their stored form. ``domain.stored_form`` reads it.

The stored form is NULL if all values are missing, one element if all are equal, and otherwise one element per subtask.
The number of subtasks is stored separately, so nothing is lost. Invariant: ``expand(compact(v), len(v)) == v`` for
every ``v`` within the bounds of its column. A value outside the bounds cannot be a measurement and is stored as
missing.
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
# The largest float32. A larger value cannot be packed, and cannot be a ratio or a rate.
_FLOAT4_MAX = 3.4028234e38


def limit_of(column: Column[Any]) -> int:
    """Return the largest magnitude that a column of integers or of integer arrays can hold."""
    kind = column.type.item_type if isinstance(column.type, ARRAY) else column.type
    return _MAX_BY_TYPE[type(kind)]


def int8(value: int | None) -> int | None:
    """Return the value, or None if PostgreSQL's bigint cannot hold it."""
    return value if value is not None and abs(value) <= INT8_MAX else None


def compact(values: Sequence[int | None], limit: int = INT8_MAX) -> list[int | None] | None:
    """Return the stored form of ``values``. ``limit`` is the largest magnitude that the column can hold."""
    return _compact([v if v is not None and -limit <= v <= limit else None for v in values])


def compact_ratios(values: Sequence[float | None]) -> list[float | None] | None:
    """Return the stored form of ratios or rates. NaN counts as missing."""
    # A comparison with NaN is false, so NaN becomes None.
    return _compact([v if v is not None and -_FLOAT4_MAX <= v <= _FLOAT4_MAX else None for v in values])


def _compact(values: list[T | None]) -> list[T | None] | None:
    first = values[0] if values else None
    if any(v != first for v in values):
        return values
    return None if first is None else [first]
