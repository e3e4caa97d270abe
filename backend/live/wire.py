"""The JSON types of the live runtime's REST, and quantiles as Flink computes them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

Json: TypeAlias = "str | int | float | bool | Mapping[str, Json] | Sequence[Json] | None"
Object: TypeAlias = dict[str, Json]


def quantile(row: Sequence[int], q: float) -> float:
    """Return the q-quantile of a sorted row. As in Flink's histogram, it is interpolated at position (n + 1) q."""
    position = q * (len(row) + 1)
    if position < 1:
        return float(row[0])
    if position >= len(row):
        return float(row[-1])
    lower = math.floor(position)
    return row[lower - 1] + (position - lower) * (row[lower] - row[lower - 1])
