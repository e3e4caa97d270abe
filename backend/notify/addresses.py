"""Decides which parts of a receiver's address are shown. Many webhooks have a secret in the path or the query.

A secret address is not stored. Instead a reference to it is stored (``env:NAME``, ``file:NAME``), as for a
credential. Whether a path is secret can only be guessed from its form. Therefore the path of a stored address is
never shown, only its scheme, host and port. A reference is shown completely.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final
from urllib.parse import unquote, urlsplit

_REFERENCE = re.compile(r"(env|file):", re.IGNORECASE)
_WORDS = re.compile(r"[^A-Za-z0-9]+")
_UUID = re.compile(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}", re.IGNORECASE)
_LONG: Final = 12
_VERY_LONG: Final = 24
_HIDDEN_MIN: Final = 6


def is_reference(text: str) -> bool:
    """Return whether ``text`` is a reference to an address, and not an address."""
    return _REFERENCE.match(text) is not None


def shown_url(url: str) -> str:
    """Return an address without its secrets: the path and query become ``/…``. A reference is returned unchanged."""
    if is_reference(url):
        return url
    parts = urlsplit(url)
    rest = "/…" if parts.path.strip("/") or parts.query else ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{rest}"


def holds_secret(url: str) -> bool:
    """Return whether a part of the path looks generated, such as a token, a key or a UUID."""
    path = unquote(urlsplit(url).path)
    return _UUID.search(path) is not None or any(_is_drawn(word) for word in _WORDS.split(path))


def host_of_secret(url: str | None) -> str | None:
    """Return the host of an address whose path and query may be secret. Return None for an invalid http(s) address."""
    try:
        parts = urlsplit(url or "")
        has_user = parts.username is not None or parts.password is not None
        host, _ = parts.hostname, parts.port
    except ValueError:
        return None
    return host if parts.scheme in ("http", "https") and not has_user and host else None


def secrets_of(url: str) -> tuple[str, ...]:
    """Return the parts of an address that must be removed from any text that could repeat it, longest first."""
    parts = urlsplit(url)
    path = parts.path.lstrip("/")
    secrets = {path, parts.query, f"{path}?{parts.query}", *path.split("/"), *re.split("[&=]", parts.query)}
    secrets |= {unquote(text) for text in secrets}
    return tuple(sorted((t for t in secrets if len(t) >= _HIDDEN_MIN), key=len, reverse=True))


def _is_drawn(word: str) -> bool:
    if len(word) >= _VERY_LONG:
        return True
    has_digit, has_letter = any(c.isdigit() for c in word), any(c.isalpha() for c in word)
    changes = sum(a.isupper() != b.isupper() for a, b in pairwise(word))
    return len(word) >= _LONG and ((has_digit and has_letter) or word.isdigit() or changes > len(word) // 3)
