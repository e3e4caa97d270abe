"""Brings the addresses of targets and receivers into the one form in which they are stored and compared."""

from __future__ import annotations

from posixpath import normpath
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from backend.domain.address_rules import is_host
from backend.domain.errors import FieldProblem, InvalidInputError

_PORTS: Final = {"http": 80, "https": 443}


def normalised_url(text: str, *, what: str = "target", field: str = "url") -> tuple[str, str]:
    """Return an address in the form in which it is stored and compared, and its host. Errors name ``field``.

    Raises:
        InvalidInputError: ``text`` is not a valid address. The error does not repeat ``text``, which may contain
            credentials.
    """
    try:
        parts = urlsplit(text.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _refused("is not an address", what, field) from None
    scheme = parts.scheme.lower()
    if scheme not in _PORTS:
        raise _refused("has no scheme" if not scheme else f"has the scheme {scheme[:20]!r}", what, field)
    if not host:
        raise _refused("has no host", what, field)
    if port == 0:
        raise _refused("has the port 0, to which no connection is possible", what, field)
    if parts.username is not None or parts.password is not None:
        raise _refused("holds credentials, which would be stored in plain text", what, field)
    if parts.query or parts.fragment:
        raise _refused("has a query or fragment", what, field)
    if any(c.isspace() or not c.isprintable() for c in text.strip()):
        raise _refused("holds a space or a control character", what, field)
    if not is_host(host):
        raise _refused("has a host that is neither a name in ASCII nor an IP address in its usual form", what, field)
    shown = f"[{host}]" if ":" in host else host
    where = shown if port is None or port == _PORTS[scheme] else f"{shown}:{port}"
    return urlunsplit((scheme, where, parts.path.rstrip("/"), "", "")), host


def is_folder(url: str) -> bool:
    """Return whether an address is that of a folder of the machine that reads it."""
    return url.strip().lower().startswith("file:")


def normalised_folder(text: str) -> str:
    """Return the address of a folder in the form in which it is stored and compared: ``file:///srv/events``.

    Only the operator may declare a folder. ``normalised_url`` refuses it.

    Raises:
        InvalidInputError: ``text`` is not the address of an absolute path.
    """
    path = text.strip()[len("file:") :]
    path = path.removeprefix("//") if path.startswith("///") or not path.startswith("//") else path
    allowed = "file:///ABSOLUTE/PATH"
    if not path.startswith("/") or path.startswith("//"):
        raise InvalidInputError([FieldProblem("url", "is no absolute path of this machine", allowed)], what="target")
    if any(not c.isprintable() for c in path) or ".." in path.split("/"):
        problem = "has a part .. or a control character"
        raise InvalidInputError([FieldProblem("url", problem, allowed)], what="target")
    return "file://" + (normpath(path))


def _refused(problem: str, what: str, field: str) -> InvalidInputError:
    allowed = "http:// or https:// with a host, without credentials, query and fragment"
    return InvalidInputError([FieldProblem(field, problem, allowed)], what=what)
