"""Limits how fast requests are sent to one target, because a JobManager serves its REST API with few threads.

Only ``diagnose`` needs these limits, because it reads a cluster that other people use, and reads all of it at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from collectors.base import FlinkTransport

IN_FLIGHT_MAX: Final = 4
PER_SECOND_MAX: Final = 40


class PacedTransport:
    """Wraps a ``FlinkTransport``: at most 4 requests in flight, and at most 40 begun within any second."""

    def __init__(
        self,
        transport: FlinkTransport,
        *,
        monotonic_s: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._transport = transport
        self._monotonic_s = monotonic_s
        self._sleep = sleep
        self._slots = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._turn = asyncio.Lock()
        self._began_s: deque[float] = deque(maxlen=PER_SECOND_MAX)

    @property
    def url(self) -> str:
        """The target's root URL without credentials."""
        return self._transport.url

    async def get(self, path: str) -> bytes:
        """Return the body that the wrapped transport returns, once the limits allow the request."""
        async with self._slots:
            await self._wait()
            return await self._transport.get(path)

    async def _wait(self) -> None:
        async with self._turn:
            while len(self._began_s) == PER_SECOND_MAX:
                left_s = self._began_s[0] + 1.0 - self._monotonic_s()
                if left_s <= 0:
                    break
                await self._sleep(left_s)
            self._began_s.append(self._monotonic_s())
