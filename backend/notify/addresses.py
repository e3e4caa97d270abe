"""The addresses of receivers. Only scheme, host and port are shown; a reference is shown completely.

Many webhooks have a secret in the path or the query. Such an address is not stored: a reference (``env:NAME``,
``file:NAME``) names it, like a credential. Only the form of a path shows that it is secret, so a stored path is never
shown.
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
    """Whether ``text`` is a reference to an address, and not an address."""
    return _REFERENCE.match(text) is not None


def shown_url(url: str) -> str:
    """The address without its secrets: the path is ``/…``. A reference is returned unchanged."""
    if is_reference(url):
        return url
    parts = urlsplit(url)
    rest = "/…" if parts.path.strip("/") or parts.query else ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{rest}"


def holds_secret(url: str) -> bool:
    """Whether a part of the path looks generated: a token, a key, a UUID."""
    path = unquote(urlsplit(url).path)
    return _UUID.search(path) is not None or any(_is_drawn(word) for word in _WORDS.split(path))


def host_of_secret(url: str | None) -> str | None:
    """The host of an address, whose path and query may be secret; None if it is not an http(s) address."""
    try:
        parts = urlsplit(url or "")
        has_user = parts.username is not None or parts.password is not None
        host, _ = parts.hostname, parts.port
    except ValueError:
        return None
    return host if parts.scheme in ("http", "https") and not has_user and host else None


def secrets_of(url: str) -> tuple[str, ...]:
    """The parts of the address to remove from any text that could repeat it, longest first."""
    parts = urlsplit(url)
    path = parts.path.lstrip("/")
    found = {path, parts.query, f"{path}?{parts.query}", *path.split("/"), *re.split("[&=]", parts.query)}
    found |= {unquote(text) for text in found}
    return tuple(sorted((t for t in found if len(t) >= _HIDDEN_MIN), key=len, reverse=True))


def _is_drawn(word: str) -> bool:
    if len(word) >= _VERY_LONG:
        return True
    has_digit, has_letter = any(c.isdigit() for c in word), any(c.isalpha() for c in word)
    changes = sum(a.isupper() != b.isupper() for a, b in pairwise(word))
    return len(word) >= _LONG and ((has_digit and has_letter) or word.isdigit() or changes > len(word) // 3)
