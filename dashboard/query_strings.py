"""Reads the query strings of addresses."""

from __future__ import annotations

from urllib.parse import parse_qs


def first_values(search: str | None, *, keeps_empty: bool = False) -> dict[str, str]:
    """Return the first value of each name in a query string. Empty values are left out unless ``keeps_empty``."""
    query = parse_qs((search or "").lstrip("?"), keep_blank_values=keeps_empty)
    return {name: values[0] for name, values in query.items()}


def number(text: str | None, digits_max: int) -> int | None:
    """Return the number that ``text`` holds, or None if it is no number or has more digits."""
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) <= digits_max else None
