"""Passes ``aria-`` and ``data-`` attributes to components, although their names are not Python identifiers."""

from __future__ import annotations

from typing import Any


def attrs(values: dict[str, str]) -> dict[str, Any]:
    """Return ``values`` as keyword arguments for a component, typed so that any component accepts them."""
    return dict(values)
