"""Hides the credentials of a request in an answer that repeats them, as debug pages of proxies do.

A message on an answer is logged, stored and shown, and quotes what the server says.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import quote, quote_plus

from yarl import URL

HIDDEN: Final = "***"
_OPEN: Final = frozenset(
    {"accept", "accept-encoding", "connection", "content-length", "content-type", "host", "user-agent"}
)
"""The headers that the client writes itself. The value of every other one is a credential, from a reference."""
_LONG_MIN: Final = 4
"""A shorter credential may be a part of a word, so it is replaced only where it stands alone."""
_QUERY_MIN: Final = 8
"""Shorter parts of a query are words such as ``true``."""


def without_echoes(text: str, headers: Mapping[str, str], url: URL) -> str:
    """Return a text of the answer without the credentials of its request: of its headers and of its query."""
    # A credential that contains another one is replaced first.
    for secret in sorted(set(_secrets(headers, url)), key=len, reverse=True):
        found = re.escape(secret)
        if len(secret) < _LONG_MIN:
            found = f"(?<![A-Za-z0-9]){found}(?![A-Za-z0-9])"
        text = re.sub(found, HIDDEN, text, flags=re.IGNORECASE)
    return text


def _secrets(headers: Mapping[str, str], url: URL) -> Iterator[str]:
    values = [part for name, value in headers.items() if name.lower() not in _OPEN for part in _parts(value)]
    queries = [url.raw_query_string, url.query_string, *url.query.values()]
    plain = [v for v in values if v] + [q for q in queries if len(q) >= _QUERY_MIN]
    for secret in plain:
        yield from (secret, quote(secret, safe=""), quote(secret), quote_plus(secret))


def _parts(value: str) -> Iterator[str]:
    """Return a header's value, its credential without the scheme and, for ``Basic``, the password."""
    yield value
    scheme, space, credential = value.partition(" ")
    if not space:
        return
    yield credential
    if scheme.lower() == "basic":
        try:
            yield base64.b64decode(credential, validate=True).decode("utf-8", "replace").partition(":")[2]
        except (binascii.Error, ValueError):
            return
