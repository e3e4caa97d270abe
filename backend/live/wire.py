"""What the JSON of the live runtime's REST is made of: its type, and quantiles as Flink computes them. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

Json: TypeAlias = "str | int | float | bool | Mapping[str, Json] | Sequence[Json] | None"
Object: TypeAlias = dict[str, Json]


def quantile(row: Sequence[int], q: float) -> float:
    """The q-quantile of a sorted row, between the two order statistics at (n + 1) q, as Flink's histogram has it."""
    position = q * (len(row) + 1)
    if position < 1:
        return float(row[0])
    if position >= len(row):
        return float(row[-1])
    lower = math.floor(position)
    return row[lower - 1] + (position - lower) * (row[lower] - row[lower - 1])
