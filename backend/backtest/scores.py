"""Counts that add up over jobs. Every score of a backtest is one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any, Self


@dataclass(slots=True)
class Counts:
    """Adds its fields by their type: numbers are summed, counts by key are summed by key, and lists are joined.

    Every field of a subclass has a default: that of no jobs.
    """

    def add(self, other: Self) -> None:
        """Add the counts of another one."""
        for own in fields(self):
            setattr(self, own.name, _sum(getattr(self, own.name), getattr(other, own.name)))

    def document(self) -> dict[str, Any]:
        """Return the fields and the ratios, which are the properties with this unit, as a document of JSON.

        A ratio is null if nothing was counted of which it is a share.
        """
        ratios = [name for name in dir(type(self)) if name.endswith("_ratio")]
        return asdict(self) | {name: getattr(self, name) for name in ratios}

    @classmethod
    def sum_of(cls, parts: Iterable[Self]) -> Self:
        """Return the counts of all the parts together."""
        total = cls()
        for part in parts:
            total.add(part)
        return total


def _sum(one: Any, other: Any) -> Any:
    if isinstance(one, dict):
        return {key: one.get(key, 0) + other.get(key, 0) for key in sorted({*one, *other})}
    return one + other
