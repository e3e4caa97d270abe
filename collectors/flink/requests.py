"""Makes the requests of one poll: counts them, limits their number, and parses the responses as JSON.

A JobManager serves its REST API with few threads, so a poll has a budget of requests and time. Required data is read
even beyond the budget. Data that can wait (details of old checkpoints, backpressure) is read only if ``has_budget``,
otherwise at the next poll.

A response of a proxy instead of Flink (502, a login page, a body that is cut) is often gone a moment later. So such a
request is sent again, at most twice, and at most ``_REPEATS_MAX`` times in a poll. Each attempt counts.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from backend.domain.errors import TargetProtocolError
from backend.domain.observation import PollCost
from collectors.base import Effort, FlinkTransport
from collectors.flink.document import Document, read

_NOT_FOUND = 404
_PAUSES_S = (0.2, 0.6)
"""The pauses before the second and the third attempt."""
_REPEATS_MAX = 12

Sleep = Callable[[float], Awaitable[None]]


class Requests:
    """The requests that one poll sends to the target."""

    def __init__(
        self,
        transport: FlinkTransport,
        *,
        now: datetime,
        monotonic_s: Callable[[], float],
        budget_count: int,
        budget_s: float = math.inf,
        effort: Effort = Effort.FULL,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._transport = transport
        self._now = now
        self._monotonic_s = monotonic_s
        self._began_s = monotonic_s()
        self._budget_count = budget_count
        self._budget_s = budget_s
        self._sleep = sleep
        self._repeat_count = 0
        self.effort = effort
        self.is_over = False
        """Whether jobs were left out, because the poll had reached its limits."""
        self.count = 0
        self.received_bytes = 0

    @property
    def began_at(self) -> datetime:
        """The time at which the poll started."""
        return self._now

    @property
    def url(self) -> str:
        """The target's address, without the path of a request."""
        return self._transport.url

    def at(self) -> datetime:
        """Return the current time: the time at which the poll started, plus the time since then."""
        return self._now + timedelta(seconds=self.elapsed_s)

    @property
    def has_budget(self) -> bool:
        """Whether effort and budget still allow requests that can wait."""
        return self.effort > Effort.HEADERS and self.count < self._budget_count and self.elapsed_s < self._budget_s

    @property
    def elapsed_s(self) -> float:
        """The seconds since the poll started."""
        return self._monotonic_s() - self._began_s

    async def get(self, path: str) -> Document:
        """Return the JSON response for ``path``. If a proxy answers for Flink, try again.

        This raises the errors of ``FlinkTransport.get`` and ``document.read``. If all attempts failed, the error of the
        last one says so.
        """
        for n, pause_s in enumerate((*_PAUSES_S, None), start=1):
            try:
                return await self._get(path)
            except TargetProtocolError as error:
                if not error.is_passing:
                    raise
                if pause_s is None or not self._may_repeat(pause_s):
                    raise error if n == 1 else _repeated(error, n) from None
            self._repeat_count += 1
            await self._sleep(pause_s)
        raise AssertionError("the last attempt returns or raises")

    def _may_repeat(self, pause_s: float) -> bool:
        is_in_time = self.elapsed_s + pause_s < self._budget_s
        return is_in_time and self.count < self._budget_count and self._repeat_count < _REPEATS_MAX

    async def _get(self, path: str) -> Document:
        self.count += 1
        body = await self._transport.get(path)
        self.received_bytes += len(body)
        return read(body, url=self.url + path.partition("?")[0])

    async def find(self, path: str) -> Document | None:
        """Return the JSON response for ``path``, or None if the target responds with 404.

        Other errors are those of ``get``.
        """
        try:
            return await self.get(path)
        except TargetProtocolError as error:
            if error.status == _NOT_FOUND:
                return None
            raise

    def cost(self) -> PollCost:
        """Return the cost of the poll so far: its requests, its duration, and the bytes of the decompressed bodies."""
        duration_ms = round(self.elapsed_s * 1000)
        return PollCost(self.count, self.received_bytes, duration_ms)


def _repeated(error: TargetProtocolError, attempts: int) -> TargetProtocolError:
    reason = f"{error.reason} ({attempts} attempts)"
    return TargetProtocolError(url=error.url, reason=reason, status=error.status, is_passing=True)
