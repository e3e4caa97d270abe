"""Reads the address of the page of the space-time diagram, which holds the opened vertices, the range and the mark."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qs


@dataclass(frozen=True, slots=True)
class SpaceTime:
    """What the viewer chose on the page of the space-time diagram. Times are milliseconds since the trigger."""

    opened: tuple[str, ...] = ()
    """Ids of the vertices whose subtasks are shown even if the diagram is folded."""
    ends_ms: tuple[float, float] | None = None
    """The shown range. None means the whole checkpoint."""
    at_ms: float | None = None
    """The marked instant."""


def parse(search: str | None) -> SpaceTime:
    """Return the choices in the query string of an address. Invalid values are ignored."""
    query = parse_qs((search or "").lstrip("?"))

    def time_ms(key: str) -> float | None:
        # A time has at most 8 digits of milliseconds, which is about a day, and 3 digits of microseconds.
        match = re.fullmatch(r"[0-9]{1,8}(\.[0-9]{1,3})?", query.get(key, [""])[0])
        return None if match is None else float(match[0])

    begin, end = time_ms("from"), time_ms("to")
    return SpaceTime(
        opened=tuple(query.get("open", ())),
        ends_ms=(begin, end) if begin is not None and end is not None and begin < end else None,
        at_ms=time_ms("t"),
    )
