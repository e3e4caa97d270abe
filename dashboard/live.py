"""Shared by the callbacks of all pages: the viewer's theme and time zone, and digests of displayed data."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import tzinfo

from dash.exceptions import PreventUpdate
from pydantic import BaseModel

from dashboard import text
from dashboard.palette import Theme, theme


@dataclass(frozen=True, slots=True)
class Look:
    """The viewer's theme and time zone."""

    theme: Theme
    where: tzinfo


def look_of(data: object) -> Look:
    """The look that the browser sent. Raises ``PreventUpdate`` until it has sent one."""
    if not isinstance(data, dict):
        raise PreventUpdate
    zone = data.get("zone")
    name = data.get("theme")
    return Look(theme(name if isinstance(name, str) else None), text.zone(zone if isinstance(zone, str) else None))


# The time of the answer itself: it changes with each answer, and nothing that is drawn depends on it.
_VOLATILE = {"as_of"}


def digest(*values: object) -> str:
    """A digest of what a part of a page shows. If it has not changed, nothing needs to be drawn again."""
    seen = hashlib.blake2b(digest_size=12)
    for value in values:
        shown = value.model_dump_json(exclude=_VOLATILE) if isinstance(value, BaseModel) else repr(value)
        seen.update(f"{len(shown)}:{shown}".encode())
    return seen.hexdigest()
