"""Reads and writes the address of the Lab page. The address holds the whole request for a simulation.

Values are kept as they were written, so that the page can say what is wrong with them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs, urlencode

from pydantic import ValidationError

from backend.contracts.simulations import EXAMPLE, SimulationIn

Wanted = dict[str, Any]
"""A request as JSON, whose values may still be invalid."""

_NAMES: Final = {
    "shape": "shape",
    "protocol": "protocol",
    "with": "second_protocol",
    "parallelism": "parallelism",
    "duration": "duration_s",
    "seed": "seed",
}
"""The names in the address, and the fields of the request."""
_CAPS_LENGTH_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Lab:
    """What the address of the Lab page holds."""

    wanted: Mapping[str, Any] = field(default_factory=lambda: dict(EXAMPLE))
    checkpoint: int | None = None
    """The checkpoint of which the page shows the details. None means the newest one that completed in all runs."""
    at_ms: int | None = None
    """The instant of the barrier front, in milliseconds since the trigger."""
    caps: str = ""
    """The caps of the curve, as the viewer wrote them. Empty means that the server chooses them."""


def parse(search: str | None) -> Lab:
    """Return what the query string of an address holds."""
    query = parse_qs((search or "").lstrip("?"), keep_blank_values=True)
    given = {name: values[0] for name, values in query.items()}
    wanted: Wanted = dict(EXAMPLE)
    if "shape" in given or "protocol" in given:
        # An address without a second protocol means a simulation of one protocol.
        wanted["second_protocol"] = None
    wanted |= {to: given[name] or None for name, to in _NAMES.items() if name in given}
    for name in ("parallelism", "duration_s", "seed"):
        wanted[name] = _number(wanted[name])
    # Keys of settings have dots; the other names do not.
    wanted["settings"] = {name: value for name, value in given.items() if "." in name}
    return Lab(
        wanted, _whole(given.get("checkpoint")), _whole(given.get("t")), given.get("caps", "")[:_CAPS_LENGTH_MAX]
    )


def query_of(wanted: Mapping[str, Any]) -> str:
    """Return the query string of a request."""
    pairs = [(name, wanted[to]) for name, to in _NAMES.items() if wanted[to] is not None]
    return "?" + urlencode([*pairs, *sorted(wanted["settings"].items())])


def request_of(wanted: Mapping[str, Any]) -> SimulationIn | str:
    """Return the request, or a sentence that says what is wrong with it."""
    try:
        return SimulationIn.model_validate(wanted)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(p) for p in first["loc"] if p != "[key]")
        value = "" if first["input"] is None else f" {str(first['input'])[:40]!r}"
        return f"The value{value} of {where} cannot be used: {first['msg'][:1].lower()}{first['msg'][1:]}."


def _number(value: object) -> object:
    """Return the number that a text contains, or the text itself if it contains no number."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,17}(\.[0-9]{1,6})?", value):
        return float(value) if "." in value else int(value)
    return value


def _whole(value: str | None) -> int | None:
    return int(value) if value and value.isascii() and value.isdecimal() and len(value) <= 9 else None
