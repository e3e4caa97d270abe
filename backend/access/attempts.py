"""Damps guessing: an address that has tried many different wrong tokens is not listened to for a while.

Only *different* tokens count, so a script that keeps sending yesterday's does not lock out its neighbours behind the
same proxy. What was tried is kept as a keyed digest. Each process counts for itself; what keeps guessing hopeless is
the length of the token.
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
    """Wrong tokens of the last minute by address."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._salt = secrets.token_bytes(16)
        # Address -> digest of what was tried -> when, oldest first.
        self._wrong: OrderedDict[str, OrderedDict[bytes, float]] = OrderedDict()

    def wait_s(self, address: str) -> int:
        """Seconds for which the address is not listened to; 0: it is."""
        tried = self._recent(_network(address))
        if len(tried) < WRONG_MAX:
            return 0
        return max(1, math.ceil(next(iter(tried.values())) + WINDOW_S - self._monotonic()))

    def note_wrong(self, address: str, given: str) -> None:
        """A wrong token was tried from the address."""
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
    """The address itself; of IPv6 the /64, which is one subscriber."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(parsed) if parsed.version == 4 else str(ipaddress.ip_network(f"{parsed}/64", strict=False))
