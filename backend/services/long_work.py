"""Runs long computations of requests outside the event loop, only a few at a time.

While a thread computes, the event loop continues, but Python runs one thread at a time. So many threads would delay
every request, and each holds the data of its request in memory. Requests beyond the limit wait. If the client of a
waiting request leaves, the request is cancelled, and its computation never begins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import anyio
import anyio.to_thread

R = TypeVar("R")

AT_ONCE: Final = 2


class LongWork:
    """A place for computations that take long. A process has one."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._limiter: anyio.CapacityLimiter | None = None

    async def run(self, work: Callable[..., R], *arguments: object) -> R:
        """Call ``work`` in a thread, once there is room for it, and return its result."""
        if self._limiter is None:
            # A limiter belongs to the event loop in which it is made.
            self._limiter = anyio.CapacityLimiter(self._at_once)
        return await anyio.to_thread.run_sync(work, *arguments, limiter=self._limiter)
