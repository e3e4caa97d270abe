"""``aria-`` and ``data-`` attributes, whose names are no Python words."""

from __future__ import annotations

from typing import Any


def attrs(values: dict[str, str]) -> dict[str, Any]:
    """The attributes as keyword arguments of any component; their type is what Dash's constructors accept."""
    return dict(values)
