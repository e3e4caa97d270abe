"""An event loop in virtual time: whenever every task waits, the time jumps to the next timer. Nothing really waits.

``asyncio.timeout``, ``asyncio.sleep`` and ``collectors.base.pause`` work as usual, and every run with one seed is the
same. Threads and sockets must not be used.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

T = TypeVar("T")
BEGINNING = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


class _Selector(selectors.DefaultSelector):
    """Advances the time instead of waiting for it."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("every task waits, and no timer is set")
        self.now_s += max(timeout, 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """The event loop. It is also a ``Clock``."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        """Return the virtual seconds since the beginning."""
        return self._virtual.now_s

    def monotonic_s(self) -> float:
        """Return the virtual seconds since the beginning."""
        return self._virtual.now_s

    def now(self) -> datetime:
        """Return the current virtual time."""
        return BEGINNING + timedelta(seconds=self._virtual.now_s)

    def work(self, seconds: float) -> None:
        """Advance the time, as if the process worked this long without an await."""
        self._virtual.now_s += seconds


def run_in_virtual_time(main: Coroutine[Any, Any, T], loop: VirtualLoop) -> T:
    """Run ``main`` on ``loop`` and close the loop."""
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main)
