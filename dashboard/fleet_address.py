"""Reads the address of the fleet page, which holds its order and whether it shows ended jobs."""

from __future__ import annotations

from dataclasses import dataclass

from dashboard.query_strings import first_values


@dataclass(frozen=True, slots=True)
class FleetView:
    """What the viewer chose on the fleet page."""

    column: str | None = None
    """The column by which the fleet is sorted. None means the most urgent job first."""
    is_descending: bool = False
    """Whether the fleet is sorted by ``column`` in descending order."""
    has_ended: bool = False
    """Whether the fleet shows ended jobs."""


def parse(search: str | None) -> FleetView:
    """Return what the query string of an address holds."""
    query = first_values(search)
    return FleetView(query.get("sort"), query.get("desc") == "1", query.get("ended") == "1")
