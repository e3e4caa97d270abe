"""Wait for other processes and threads: check a condition repeatedly, and return as soon as it holds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

PATIENCE_S = 300.0
"""Limit of a wait in seconds. A wait takes that long only in a failure, so a loaded machine does not fail tests."""

_NEVER = threading.Event()
_PAUSE_MIN_S = 0.01
_PAUSE_MAX_S = 0.5
_PAUSE_PER_CHECK = 4


def until(condition: Callable[[], object], what: str, *, timeout_s: float = PATIENCE_S) -> None:
    """Return as soon as ``condition()`` is true.

    After ``timeout_s``, fail the test with a message that contains ``what``.

    A pause between two checks is four times as long as a check, so that checks which ask a service do not take the
    processor from the service for which they wait.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        began_s = time.monotonic()
        if condition():
            return
        now_s = time.monotonic()
        assert now_s < deadline_s, f"not within {timeout_s:g} s: {what}"
        _NEVER.wait(min(max(_PAUSE_MIN_S, _PAUSE_PER_CHECK * (now_s - began_s)), _PAUSE_MAX_S))
