"""Limits guesses of the access token: an address that sent too many different wrong tokens is refused for a time.

The callers compare a token first and ask this module only about wrong ones, so the right token is never refused.
Only *different* tokens count. So a script that keeps sending one outdated token does not lock out other users behind
the same proxy. The wrong tokens are stored as keyed digests. Each process counts separately. The main protection
against guessing is the length of the token.
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
    """Keeps the wrong tokens of the last minute for each address, and refuses an address that sent too many."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._salt = secrets.token_bytes(16)
        # For each address: the digests of its wrong tokens with the time of each, oldest first.
        self._wrong: OrderedDict[str, OrderedDict[bytes, float]] = OrderedDict()

    def wait_s(self, address: str) -> int:
        """Return how many seconds the address is still refused, or 0 if the address may try."""
        tried = self._recent(_network(address))
        if len(tried) < WRONG_MAX:
            return 0
        return max(1, math.ceil(next(iter(tried.values())) + WINDOW_S - self._monotonic()))

    def note_wrong(self, address: str, given: str) -> None:
        """Record that the address sent the wrong token ``given``."""
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
    """Return the key under which the guesses of an address are counted.

    It is the address itself or, for IPv6, the /64 network, which belongs to one subscriber.
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(parsed) if parsed.version == 4 else str(ipaddress.ip_network(f"{parsed}/64", strict=False))
