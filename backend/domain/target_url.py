"""Brings the addresses of targets and receivers into the one form in which they are stored and compared."""

from __future__ import annotations

import re
from posixpath import normpath
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from backend.domain.address_rules import is_host
from backend.domain.errors import FieldProblem, InvalidInputError

_PORTS: Final = {"http": 80, "https": 443}
_S3: Final = ("s3", "s3a", "s3n")
"""The second and third are names that Hadoop has for the first."""
_WEBHDFS_PORTS: Final = {"webhdfs": 9870, "swebhdfs": 9871}
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://", re.ASCII)
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", re.ASCII)
_HDFS_USER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", re.ASCII)
_PATH_MAX: Final = 1000
STORES: Final = "s3://BUCKET/PREFIX, webhdfs://[USER@]HOST:PORT/PATH or swebhdfs://[USER@]HOST:PORT/PATH"
"""The addresses of folders in stores."""


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
        raise _refused(scheme_problem(text), what, field)
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


def scheme_problem(text: str) -> str:
    """Say what is wrong with the scheme of an address that has neither ``http`` nor ``https``.

    The part before the colon of ``my-flink:8081`` is a host, not a scheme. Only a scheme is repeated, because the text
    may contain credentials.
    """
    found = _SCHEME.match(text.strip())
    return f"has the scheme {found[1].lower()[:20]!r}" if found else "does not begin with http:// or https://"


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


def is_store(url: str) -> bool:
    """Return whether an address is that of a folder in a store that many machines read: S3 or HDFS."""
    return _scheme(url) in (*_S3, *_WEBHDFS_PORTS, "hdfs")


def _scheme(url: str) -> str:
    return url.strip().partition("://")[0].lower()


def normalised_store(text: str, *, what: str = "target", field: str = "url") -> str:
    """Return the address of a folder in a store in the form in which it is stored and compared.

    S3 has ``s3://BUCKET/PREFIX``, and HDFS ``webhdfs://USER@HOST:PORT/PATH``, with ``swebhdfs`` for TLS. Only the
    operator may declare one. ``normalised_url`` refuses it.

    Raises:
        InvalidInputError: ``text`` is no such address. The error does not repeat ``text``.
    """
    scheme = _scheme(text)

    def refused(problem: str) -> InvalidInputError:
        return InvalidInputError([FieldProblem(field, problem, STORES)], what=what)

    if scheme == "hdfs":
        raise refused("is an address of HDFS' own protocol, and HDFS is read through its REST (dfs.webhdfs.enabled)")
    try:
        parts = urlsplit(text.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        raise refused("is not an address") from None
    if parts.query or parts.fragment or "?" in text or "#" in text:
        raise refused("has a query or fragment")
    path = parts.path.rstrip("/")
    if len(path) > _PATH_MAX or any(not c.isprintable() for c in text.strip()):
        raise refused("is too long or holds a control character")
    if any(part in ("", ".", "..") for part in path.split("/")[1:]):
        raise refused("has an empty part, or a part . or ..")
    if parts.password is not None:
        raise refused("holds a password, which would be stored in plain text")
    if scheme in _S3:
        if (
            parts.username is not None
            or port is not None
            or not _BUCKET.fullmatch(parts.netloc)
            or ".." in parts.netloc
        ):
            raise refused("has no bucket")
        return f"s3://{parts.netloc}{path}"
    if not host or not is_host(host) or port == 0:
        raise refused("has no host")
    if parts.username is not None and not _HDFS_USER.fullmatch(parts.username):
        raise refused("has a user whose name is none of HDFS")
    user = "" if parts.username is None else f"{parts.username}@"
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{user}{shown}:{port or _WEBHDFS_PORTS[scheme]}{path}"


def _refused(problem: str, what: str, field: str) -> InvalidInputError:
    allowed = "http:// or https:// with a host, without credentials, query and fragment"
    return InvalidInputError([FieldProblem(field, problem, allowed)], what=what)
