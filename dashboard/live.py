"""Defines what the callbacks of all pages share: the viewer's theme and time zone, and digests of displayed data."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from dash.exceptions import PreventUpdate
from pydantic import BaseModel

from dashboard import text
from dashboard.palette import Theme, theme


@dataclass(frozen=True, slots=True)
class Look:
    """The viewer's theme and time zone, and whether the window is as narrow as that of a phone."""

    theme: Theme
    where: tzinfo
    is_narrow: bool = False
    is_still: bool = False
    """Whether the viewer prefers reduced motion."""


def look_of(data: object) -> Look:
    """Return the look that the browser sent. Raise ``PreventUpdate`` until the browser has sent one."""
    if not isinstance(data, dict):
        raise PreventUpdate
    zone = data.get("zone")
    name = data.get("theme")
    return Look(
        theme(name if isinstance(name, str) else None),
        text.zone(zone if isinstance(zone, str) else None),
        is_narrow=data.get("is_narrow") is True,
        is_still=data.get("is_still") is True,
    )


# What is stale has no newer reading, and of what is current the age is not shown.
_DATED = {"read_at", "stale_after_s"}
# Values that change with each response, even if no new data was read from the target. A page that shows one of them
# passes the displayed text to ``digest`` as well.
_VOLATILE: dict[str, Any] = {
    "as_of": True,
    "last_completed_age_intervals": True,
    "replay_debt_ms": True,
    "replay_debt_records": True,
    "replay_debt_catch_up_ms": True,
    "computed_at": True,
    "clock_offset_ms": True,
    "freshness": _DATED,
    # The sides of a comparison have one each.
    **{side: {"freshness": _DATED} for side in ("a", "b", "before", "after")},
}


def digest(*values: object) -> str:
    """Return a digest of the data that a part of a page shows.

    As long as the digest stays the same, the part need not be built again.
    """
    seen = hashlib.blake2b(digest_size=12)
    for value in values:
        shown = value.model_dump_json(exclude=_VOLATILE) if isinstance(value, BaseModel) else repr(value)
        seen.update(f"{len(shown)}:{shown}".encode())
    return seen.hexdigest()
