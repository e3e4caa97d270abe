"""Sessions after login: a session is a signed end time in a cookie, without the token.

The signing key is derived from the token, so every replica with the token accepts every session, and a new token ends
all sessions. The server stores no sessions: only a new token ends a session before its time. Logging out removes the
cookie from the browser.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable

MAX_AGE_S = 12 * 3600
# The clock of another replica may be ahead.
_SKEW_S = 60
_VERSION = "1"
_VALUE_MAX_CHARACTERS = 200


class Sessions:
    """Opens sessions and checks them."""

    def __init__(self, token: str, now_s: Callable[[], float] = time.time) -> None:
        self._key = hmac.digest(token.encode(), b"barrierscope session key 1", "sha256")
        self._now_s = now_s

    def open(self) -> str:
        """The value of a cookie that is valid for ``MAX_AGE_S``."""
        body = f"{_VERSION}.{int(self._now_s()) + MAX_AGE_S}.{secrets.token_hex(16)}"
        return f"{body}.{self._signature(body)}"

    def is_open(self, value: str) -> bool:
        """Whether ``value`` is a session of this service that has not ended."""
        body, _, signature = value.rpartition(".")
        if len(value) > _VALUE_MAX_CHARACTERS or not is_same(signature, self._signature(body)):
            return False
        version, _, rest = body.partition(".")
        ends_at = rest.partition(".")[0]
        if version != _VERSION or not ends_at.isdecimal():
            return False
        return 0 < int(ends_at) - self._now_s() <= MAX_AGE_S + _SKEW_S

    def _signature(self, body: str) -> str:
        return hmac.digest(self._key, body.encode(), "sha256").hex()


def is_same(given: str, wanted: str) -> bool:
    """Compare in a time that does not depend on how many characters match."""
    return hmac.compare_digest(given.encode(), wanted.encode())
