"""Reads the address of the page of what-ifs, which holds the changed settings and the shown confirmation.

Values are kept as they were written, so that the page can say what is wrong with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlencode

CONFIRMATION = "confirmation"
_OTHERS = ("tz",)
_SETTINGS_MAX = 24


@dataclass(frozen=True, slots=True)
class WhatIfView:
    """What the address of the page holds."""

    settings: Mapping[str, str] = field(default_factory=dict)
    confirmation: str | None = None


def parse(search: str | None) -> WhatIfView:
    """Return what the query string of an address holds."""
    query = parse_qs((search or "").lstrip("?"), keep_blank_values=True)
    given = {name: values[0] for name, values in query.items() if name not in _OTHERS}
    confirmation = given.pop(CONFIRMATION, None) or None
    return WhatIfView(dict(list(given.items())[:_SETTINGS_MAX]), confirmation)


def query_of(settings: Mapping[str, str]) -> str:
    """Return the query string of changed settings, or an empty string if there are none."""
    return "?" + urlencode(sorted(settings.items())) if settings else ""
