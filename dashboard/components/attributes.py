"""``aria-`` and ``data-`` attributes, whose names are not Python identifiers."""

from __future__ import annotations

from typing import Any


def attrs(values: dict[str, str]) -> dict[str, Any]:
    """The attributes as keyword arguments for a component."""
    return dict(values)
