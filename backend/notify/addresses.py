"""What of a receiver's address may be seen: its scheme, host and port; of a reference, all.

Many webhooks carry their secret in the path or the query. Such an address is not stored: it is referred to
(``env:NAME``, ``file:NAME``), like any credential. What looks secret is told by its form alone, so whatever path is
stored all the same is never shown.
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
    """Whether it says where an address is found, and is none itself."""
    return _REFERENCE.match(text) is not None


def shown_url(url: str) -> str:
    """The address as people may see it: a path is ``/…``; a reference is shown as it is."""
    if is_reference(url):
        return url
    parts = urlsplit(url)
    rest = "/…" if parts.path.strip("/") or parts.query else ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{rest}"


def holds_secret(url: str) -> bool:
    """Whether a part of the path looks drawn rather than written: a token, a key, a UUID."""
    path = unquote(urlsplit(url).path)
    return _UUID.search(path) is not None or any(_is_drawn(word) for word in _WORDS.split(path))


def host_of_secret(url: str | None) -> str | None:
    """The host of an address that may have a secret path and query; None where it is no http(s) address."""
    try:
        parts = urlsplit(url or "")
        has_user = parts.username is not None or parts.password is not None
        host, _ = parts.hostname, parts.port
    except ValueError:
        return None
    return host if parts.scheme in ("http", "https") and not has_user and host else None


def secrets_of(url: str) -> tuple[str, ...]:
    """What must be taken out of any text that could repeat the address, longest first."""
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
