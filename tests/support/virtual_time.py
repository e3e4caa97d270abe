"""A clock and a pause in virtual time, which passes only while all tasks wait, so that tests of loops need no sleep."""

from __future__ import annotations

import asyncio
import heapq
from datetime import UTC, datetime, timedelta
from itertools import count

BEGINNING = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
# A poll without sockets reaches its next pause within this number of iterations of the event loop.
_TURNS = 30


class VirtualTime:
    """``Clock`` and ``Pause`` in virtual time. ``run_for`` lets the time pass."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._order = count()
        self._waiting: list[tuple[float, int, asyncio.Event, asyncio.Event]] = []

    def now(self) -> datetime:
        """Return the current virtual time."""
        return BEGINNING + timedelta(seconds=self._now_s)

    def monotonic_s(self) -> float:
        """Return the virtual seconds since the beginning."""
        return self._now_s

    def pass_s(self, seconds: float) -> None:
        """Advance the time, as if work took this long."""
        self._now_s += seconds

    async def pause(self, seconds: float, stop: asyncio.Event) -> None:
        """Wait for this time, or until ``stop`` is set."""
        woken = asyncio.Event()
        heapq.heappush(self._waiting, (self._now_s + max(0.0, seconds), next(self._order), woken, stop))
        await woken.wait()

    async def run_for(self, seconds: float) -> None:
        """Let ``seconds`` pass. Wake each waiter at its time, in order."""
        end_s = self._now_s + seconds
        while True:
            await self._settle()
            if not self._waiting or self._waiting[0][0] > end_s:
                break
            due_s, _, woken, _ = heapq.heappop(self._waiting)
            self._now_s = max(self._now_s, due_s)
            woken.set()
        self._now_s = max(self._now_s, end_s)

    async def _settle(self) -> None:
        for _ in range(_TURNS):
            await asyncio.sleep(0)
            for _, _, woken, stop in self._waiting:
                if stop.is_set():
                    woken.set()
            self._waiting = [w for w in self._waiting if not w[2].is_set()]
            heapq.heapify(self._waiting)
