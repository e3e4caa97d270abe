"""Wait for other processes and threads: poll a condition, and end as soon as it holds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

PATIENCE_S = 300.0
"""Limit of a wait for an event. It is only reached in a failure, so that the machine's load has no influence."""

_NEVER = threading.Event()


def until(condition: Callable[[], object], what: str, *, timeout_s: float = PATIENCE_S) -> None:
    """Return as soon as ``condition()`` is true; fail with ``what`` after ``timeout_s``."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"not within {timeout_s:g} s: {what}"
        _NEVER.wait(0.01)
