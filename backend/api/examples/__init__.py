"""The examples in the OpenAPI document: one JSON file for each, all about the same small job with a problem.

A test validates every file against the contract's model.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

_READ_AT = "2026-11-21T12:00:00+00:00"


def read(name: str) -> Any:
    """Return the content of ``name.json`` in this folder."""
    return json.loads(resources.files(__name__).joinpath(f"{name}.json").read_text(encoding="utf-8"))


def of(name: str, *, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """Return the argument ``responses`` of a route that returns the example ``name``."""
    return {status: {"content": {"application/json": {"example": read(name)}}}}


def list_of(name: str) -> dict[int | str, dict[str, Any]]:
    """Return the argument ``responses`` of a route that returns a list with the example ``name``."""
    return {200: {"content": {"application/json": {"example": [read(name)]}}}}


def page_of(name: str, *, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """Return the argument ``responses`` of a route that returns a page with the example ``name``."""
    page = {"items": [read(name)], "next": None, "as_of": _READ_AT}
    return {status: {"content": {"application/json": {"example": page}}}}
