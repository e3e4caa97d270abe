"""Links out of Barrierscope: URL templates with placeholders, and the addresses that are made from them.

A user writes the template, and an engine reports most of the values. So neither is trusted: ``problem_of`` refuses a
template that is not a plain web address, and ``fill`` encodes each value, so that a value cannot change the host, the
path or the query that the template has. Invariant: an address from ``fill`` begins with ``http://`` or ``https://``,
has a valid host and contains no credentials.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Final
from urllib.parse import quote, urlsplit

from backend.domain.address_rules import is_host

TEMPLATE_MAX: Final = 2000
"""The largest number of characters of a template."""
PLACEHOLDERS: Final[Mapping[str, str]] = {
    "target": "the target's name",
    "job": "the job's name",
    "run": "the engine's id for the run; Flink's job id",
    "vertex": "the vertex's name",
    "vertex_id": "the engine's id for the vertex",
    "subtask": "the subtask's index, from 0",
    "attempt": "the subtask's attempt, from 0",
    "host": "host on which the subtask runs",
    "taskmanager": "the TaskManager (its id) on which the subtask runs",
    "checkpoint": "the engine's id for the checkpoint",
    "from": "begin of the time range, in milliseconds since 1970",
    "to": "end of the time range, in milliseconds since 1970",
    "from_iso": "begin of the time range, as 2026-01-31T12:00:00Z",
    "to_iso": "end of the time range, as 2026-01-31T12:00:00Z",
}
"""The placeholders of a template, with their meanings. ``{label:KEY}`` is the label ``KEY`` of the target."""
LABEL: Final = "label:"
_WHY_MISSING: Final[Mapping[str, str]] = {
    "vertex": "no vertex is chosen",
    "vertex_id": "no vertex is chosen",
    "subtask": "no subtask is chosen",
    "attempt": "no subtask is chosen, or the engine does not report it",
    "host": "no subtask is chosen, or the engine does not report its host",
    "taskmanager": "no subtask is chosen, or the engine does not report its TaskManager",
    "checkpoint": "no checkpoint is chosen",
    "app": "the Spark jobs of no batch of this run are known",
    **dict.fromkeys(
        ("execution", "spark_job", "stage", "stage_attempt"), "no batch is chosen, or its Spark jobs are not known"
    ),
}
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_ROOT = re.compile(r"(https?)://([^/?#]*)", re.IGNORECASE)
_SAMPLE = "x"


@dataclass(frozen=True, slots=True)
class Filled:
    """An address made from a template, or the reason why there is none. Exactly one of the two is set."""

    url: str | None
    reason: str | None = None


def version_of(ui_url: str | None, templates: Sequence[Mapping[str, str]]) -> str:
    """Return the version of a target's links: another text if the address of the web UI or any template is another."""
    stated = json.dumps([ui_url, [[link["name"], link["url"]] for link in templates]])
    return hashlib.sha256(stated.encode()).hexdigest()[:16]


def problem_of(template: str) -> str | None:
    """Return what is wrong with a template, or None if a page may offer the addresses that it makes.

    The text does not repeat the template, which may contain credentials. It names unknown placeholders.
    """
    if len(template) > TEMPLATE_MAX:
        return f"has more than {TEMPLATE_MAX} characters"
    if "\\" in template or any(c.isspace() or not c.isprintable() for c in template):
        return "has a space, a backslash or a control character"
    return _wrong_placeholder(template) or _wrong_address(template)


def _wrong_placeholder(template: str) -> str | None:
    for name in _PLACEHOLDER.findall(template):
        is_label = name.startswith(LABEL) and len(name) > len(LABEL)
        if not is_label and name not in PLACEHOLDERS:
            known = ", ".join(f"{{{n}}}" for n in PLACEHOLDERS)
            return f"has the unknown placeholder {{{name[:40]}}}; known are {known} and {{label:KEY}}"
    if re.search(r"[{}]", _PLACEHOLDER.sub("", template)):
        return "has a brace that belongs to no placeholder; write it as %7B or %7D"
    return None


def _wrong_address(template: str) -> str | None:
    root = _ROOT.match(template)
    if root is None:
        return "does not begin with http:// or https://"
    authority = _PLACEHOLDER.sub(_SAMPLE, root[2])
    if "@" in authority:
        return "has credentials, which would be stored in plain text"
    return _wrong_host(authority)


def _wrong_host(authority: str) -> str | None:
    try:
        parts = urlsplit(f"http://{authority}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return "has an invalid host or port"
    if not host:
        return "has no host"
    if port == 0 or authority.endswith(":"):
        return "has an invalid port"
    return None if is_host(host) else "has a host that is neither a name in ASCII nor an IP address"


def fill(template: str, values: Mapping[str, str | None]) -> Filled:
    """Replace the placeholders of a valid template by their values. Values that are not known are None or absent."""
    root = _ROOT.match(template)
    if root is None:
        return Filled(None, "the template is not a web address")
    if (reason := _missing(template, values)) is not None:
        return Filled(None, reason)
    # A host cannot be percent-encoded. So the values are inserted unchanged, and the complete host is checked
    # afterwards.
    authority = _PLACEHOLDER.sub(lambda m: _as_host(values.get(m[1]) or ""), root[2])
    if "@" in authority or _wrong_host(authority) is not None:
        return Filled(None, "the values do not make a valid host")
    rest = fill_path(template[root.end() :], values)
    return rest if rest.url is None else Filled(f"{root[1].lower()}://{authority}{rest.url}")


def fill_path(template: str, values: Mapping[str, str | None]) -> Filled:
    """Replace the placeholders of the part of a template that follows the host. Each value is percent-encoded."""
    if (reason := _missing(template, values)) is not None:
        return Filled(None, reason)
    path = _PLACEHOLDER.sub(lambda m: quote(values.get(m[1]) or "", safe="", errors="replace"), template)
    # Dots cannot be encoded: a browser reads "%2e%2e" as "..", and would then open another path.
    if any(part in (".", "..") for part in re.split(r"[?#]", path)[0].split("/")):
        return Filled(None, "a value would change the path of the address")
    return Filled(path)


def _missing(template: str, values: Mapping[str, str | None]) -> str | None:
    for name in _PLACEHOLDER.findall(template):
        if not values.get(name):
            why = _WHY_MISSING.get(name)
            if name.startswith(LABEL):
                why = "the target does not have this label"
            return f"no value for {{{name}}}: {why or 'it is not known'}"
    return None


def _as_host(value: str) -> str:
    try:
        return f"[{IPv6Address(value)}]"
    except ValueError:
        # A value with any other character, such as `/` or `@`, could end the host early. It is replaced by `!`, which
        # no host may contain, so ``fill`` refuses the address.
        return value if re.fullmatch(r"[A-Za-z0-9._-]+", value) else "!"
