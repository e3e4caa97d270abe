"""Reads and writes the address of the list of incidents, which holds its filters."""

from __future__ import annotations

from dataclasses import dataclass, fields
from urllib.parse import parse_qs, urlencode

_CHOICES = {
    "state": ("open", "past", "never"),
    "severity": ("critical", "warning"),
    "group": ("cause", "job", "target"),
}


@dataclass(frozen=True, slots=True)
class IncidentList:
    """The filters of the list of incidents. An empty value does not restrict the list."""

    state: str = ""
    """``open``, ``past`` or ``never`` (for incidents of which no alert fired)."""
    severity: str = ""
    group: str = ""
    search: str = ""
    label: str = ""
    cursor: str = ""
    """The position at which the page of the list begins."""


def parse(search: str | None) -> IncidentList:
    """Return the filters in the query string of an address. Invalid values are ignored."""
    query = {name: values[0] for name, values in parse_qs((search or "").lstrip("?")).items()}
    known = {name: query[name] for name, values in _CHOICES.items() if query.get(name) in values}
    typed = {name: query[name] for name in ("search", "label", "cursor") if name in query}
    return IncidentList(**known, **typed)


def query_of(view: IncidentList) -> str:
    """Return the query string of the filters, or an empty string if there are none."""
    pairs = [(f.name, getattr(view, f.name)) for f in fields(view) if getattr(view, f.name)]
    return "?" + urlencode(pairs) if pairs else ""
