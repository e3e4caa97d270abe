"""Reads and writes the address of the list of targets, which holds what is searched for and where its page begins."""

from __future__ import annotations

from dataclasses import dataclass, fields
from urllib.parse import urlencode

from dashboard.query_strings import first_values


@dataclass(frozen=True, slots=True)
class TargetList:
    """What the viewer chose on the list of targets. An empty value does not restrict the list."""

    search: str = ""
    """A part of the name or of the address."""
    cursor: str = ""
    """The position at which the page of the list begins."""


def parse(search: str | None) -> TargetList:
    """Return what the query string of an address holds."""
    query = first_values(search)
    return TargetList(**{f.name: query[f.name] for f in fields(TargetList) if f.name in query})


def query_of(view: TargetList) -> str:
    """Return the query string of what the viewer chose, or an empty string if that is nothing."""
    pairs = [(f.name, getattr(view, f.name)) for f in fields(view) if getattr(view, f.name)]
    return "?" + urlencode(pairs) if pairs else ""
