"""Virtual time, which passes only while all tasks wait: a clock and a pause for seeded runs of loops."""

from __future__ import annotations

import asyncio
import heapq
from datetime import UTC, datetime, timedelta
from itertools import count

BEGINNING = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
# A poll without sockets reaches its next pause within this number of turns of the event loop.
_TURNS = 30


class VirtualTime:
    """``Clock`` and ``Pause`` in one; ``run_for`` advances it."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._order = count()
        self._waiting: list[tuple[float, int, asyncio.Event, asyncio.Event]] = []

    def now(self) -> datetime:
        """The current virtual instant."""
        return BEGINNING + timedelta(seconds=self._now_s)

    def monotonic_s(self) -> float:
        """Seconds since the beginning."""
        return self._now_s

    def pass_s(self, seconds: float) -> None:
        """Let work take this time."""
        self._now_s += seconds

    async def pause(self, seconds: float, stop: asyncio.Event) -> None:
        """Wait for this time, or until ``stop`` is set."""
        woken = asyncio.Event()
        heapq.heappush(self._waiting, (self._now_s + max(0.0, seconds), next(self._order), woken, stop))
        await woken.wait()

    async def run_for(self, seconds: float) -> None:
        """Wake all waiters that are due within the next ``seconds``, in order."""
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
