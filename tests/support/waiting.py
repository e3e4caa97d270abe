"""Waiting for another process or thread without sleeping for a guessed time: look again until it is so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_NEVER = threading.Event()


def until(condition: Callable[[], object], what: str, *, timeout_s: float = 30.0) -> None:
    """Return as soon as ``condition()`` is true; fail naming ``what`` where it is not within ``timeout_s``."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"not within {timeout_s:g} s: {what}"
        _NEVER.wait(0.01)
