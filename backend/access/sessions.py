"""Login sessions without server state: a cookie holds the signed end time of the session, and never the token.

The signing key is derived from the token. So every replica with the same token accepts every session, and a new token
ends all sessions. The server stores no sessions, so only a new token ends a session early. Logging out removes the
cookie from the browser.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable

MAX_AGE_S = 12 * 3600
# Tolerance for the clock of another replica, which may be ahead of this one.
_SKEW_S = 60
_VERSION = "1"
_VALUE_MAX_CHARACTERS = 200


class Sessions:
    """Creates the values of session cookies, and checks the values that browsers send."""

    def __init__(self, token: str, now_s: Callable[[], float] = time.time) -> None:
        self._key = hmac.digest(token.encode(), b"barrierscope session key 1", "sha256")
        self._now_s = now_s

    def open(self) -> str:
        """Return the value of a new session cookie, which is valid for ``MAX_AGE_S`` seconds."""
        body = f"{_VERSION}.{int(self._now_s()) + MAX_AGE_S}.{secrets.token_hex(16)}"
        return f"{body}.{self._signature(body)}"

    def is_open(self, value: str) -> bool:
        """Return whether ``value`` is a session that this service signed and that has not ended."""
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
    """Return whether two secrets are equal, in a time that does not depend on how many characters match."""
    return hmac.compare_digest(given.encode(), wanted.encode())
