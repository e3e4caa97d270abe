"""Admits a bounded number of polls at a time, the most urgent first.

Thousands of targets share one process. If all of them were polled at once, every poll would be slow, and most would
time out after much work. A poll that waits here costs nothing. Under overload every target is polled less often, and
no target starves, because every waiting poll becomes the most urgent one at some time.

A target whose last poll failed is doubtful: its next poll is likely to last until its timeout. The polls of doubtful
targets use separate places, of which there are few. So doubtful targets cannot delay the others, however many of them
there are.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count


class PollGate:
    """The places for the polls of one process: each poll that runs needs a place.

    A place belongs to one poll until the ``async with`` block ends.
    """

    def __init__(self, *, polls_max: int = 32, doubtful_max: int = 8) -> None:
        self._lanes = {True: _Lane(doubtful_max), False: _Lane(polls_max - doubtful_max)}

    @asynccontextmanager
    async def admitted(self, *, until_s: float, is_doubtful: bool) -> AsyncIterator[None]:
        """Wait for a place. Among waiting polls the one with the smallest ``until_s`` (monotonic time) is next."""
        lane = self._lanes[is_doubtful]
        await lane.enter(until_s)
        try:
            yield
        finally:
            lane.leave()


class _Lane:
    """A number of places, and the polls that wait for one of them."""

    def __init__(self, place_count: int) -> None:
        self._free_count = place_count
        self._order = count()
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []

    async def enter(self, until_s: float) -> None:
        if self._free_count:
            self._free_count -= 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (until_s, next(self._order), place))
        try:
            await place
        except asyncio.CancelledError:
            # If the poll was cancelled just after it got its place, the place must be freed.
            if place.done() and not place.cancelled():
                self.leave()
            raise

    def leave(self) -> None:
        while self._waiting:
            place = heapq.heappop(self._waiting)[2]
            if not place.done():
                # The place passes to the next poll, so that a poll that arrives later cannot take it first.
                place.set_result(None)
                return
        self._free_count += 1
