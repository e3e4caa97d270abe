"""Wait for other processes and threads: check a condition repeatedly, and return as soon as it holds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

PATIENCE_S = 300.0
"""Limit of a wait in seconds. A wait takes that long only in a failure, so a loaded machine does not fail tests."""

_NEVER = threading.Event()


def until(condition: Callable[[], object], what: str, *, timeout_s: float = PATIENCE_S) -> None:
    """Return as soon as ``condition()`` is true.

    After ``timeout_s``, fail the test with a message that contains ``what``.
    """
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"not within {timeout_s:g} s: {what}"
        _NEVER.wait(0.01)
