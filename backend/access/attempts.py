"""Limits guesses of the token: an address that has sent many different wrong tokens is refused for a time.

Only *different* tokens count, so a script that keeps sending an old token does not lock out other users behind the
same proxy. The tokens are kept as keyed digests. Each process counts separately; the length of the token is the main
protection against guessing.
"""

from __future__ import annotations

import hashlib
import ipaddress
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

WRONG_MAX = 10
WINDOW_S = 60.0
_ADDRESSES_MAX = 4096


class Attempts:
    """The wrong tokens of the last minute, by address."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._salt = secrets.token_bytes(16)
        # Address -> digest of a token -> time, oldest first.
        self._wrong: OrderedDict[str, OrderedDict[bytes, float]] = OrderedDict()

    def wait_s(self, address: str) -> int:
        """Seconds for which the address is refused; 0 if it is not."""
        tried = self._recent(_network(address))
        if len(tried) < WRONG_MAX:
            return 0
        return max(1, math.ceil(next(iter(tried.values())) + WINDOW_S - self._monotonic()))

    def note_wrong(self, address: str, given: str) -> None:
        """Record a wrong token from the address."""
        network = _network(address)
        tried = self._recent(network)
        digest = hashlib.blake2b(given.encode(), digest_size=8, key=self._salt).digest()
        tried.setdefault(digest, self._monotonic())
        self._wrong[network] = tried
        self._wrong.move_to_end(network)
        if len(self._wrong) > _ADDRESSES_MAX:
            self._wrong.popitem(last=False)

    def _recent(self, network: str) -> OrderedDict[bytes, float]:
        tried = self._wrong.get(network, OrderedDict())
        since = self._monotonic() - WINDOW_S
        while tried and next(iter(tried.values())) <= since:
            tried.popitem(last=False)
        return tried


def _network(address: str) -> str:
    """The address itself, or the /64 network of an IPv6 address, which belongs to one subscriber."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(parsed) if parsed.version == 4 else str(ipaddress.ip_network(f"{parsed}/64", strict=False))
