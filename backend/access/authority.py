"""Parses the headers ``Host`` and ``Origin``, shared by the API and the live runtime.

Both headers come from the network, so each is compared with a fixed grammar before any other code parses it. A request
whose header does not match is refused with status 400.
"""

from __future__ import annotations

import ipaddress
import re

from starlette.datastructures import Headers

_AUTHORITY = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(:(?P<port>[0-9]{0,5}))?", re.ASCII)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,40}", re.ASCII)
LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""The names by which a browser on this machine reaches a server on it."""
# The value of Origin that a browser sends for a page without an origin, such as a sandboxed frame.
NO_ORIGIN = "null"


def malformed_header(headers: Headers) -> str | None:
    """Return the name of a malformed header, ``Host`` or ``Origin``, or None if neither is malformed.

    ``Host`` is required, ``Origin`` is not.
    """
    hosts, origins = headers.getlist("host"), headers.getlist("origin")
    if len(hosts) != 1 or not _is_authority(hosts[0]):
        return "Host"
    if len(origins) > 1 or any(not _is_origin(origin) for origin in origins):
        return "Origin"
    return None


def without_port(authority: str) -> str:
    """Return the host name of an authority (``name:port``), in lower case."""
    name, sign, port = authority.rpartition(":")
    return (name if sign and (port.isdecimal() or not port) else authority).lower()


def _is_origin(text: str) -> bool:
    scheme, sign, authority = text.partition("://")
    return text == NO_ORIGIN or (bool(sign) and _SCHEME.fullmatch(scheme) is not None and _is_authority(authority))


def _is_authority(text: str) -> bool:
    match = _AUTHORITY.fullmatch(text)
    if match is None or int(match["port"] or 0) > 65535:
        return False
    if not match["host"].startswith("["):
        return True
    try:
        ipaddress.IPv6Address(match["host"][1:-1])
    except ValueError:
        return False
    return True
