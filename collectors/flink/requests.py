"""The requests of one poll: counted, limited, and their answers read as JSON.

A JobManager serves its REST with few threads, so a poll has a budget. Required data is read at any cost. Data that can
wait (details of old checkpoints, backpressure) is read only if ``has_budget``, else at the next poll.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from backend.domain.errors import TargetProtocolError
from backend.domain.observation import PollCost
from collectors.base import FlinkTransport
from collectors.flink.document import Document, read

_NOT_FOUND = 404


class Requests:
    """One poll's access to the target."""

    def __init__(
        self, transport: FlinkTransport, *, now: datetime, monotonic_s: Callable[[], float], budget_count: int
    ) -> None:
        self._transport = transport
        self._now = now
        self._monotonic_s = monotonic_s
        self._began_s = monotonic_s()
        self._budget_count = budget_count
        self.count = 0
        self.received_bytes = 0

    @property
    def url(self) -> str:
        """The target's root."""
        return self._transport.url

    def at(self) -> datetime:
        """Return the present: the poll's instant plus the time since its start."""
        return self._now + timedelta(seconds=self._monotonic_s() - self._began_s)

    @property
    def has_budget(self) -> bool:
        """Whether the budget allows requests that can wait."""
        return self.count < self._budget_count

    async def get(self, path: str) -> Document:
        """Return the JSON answer to ``path``; raises as ``FlinkTransport.get`` and ``document.read``."""
        self.count += 1
        body = await self._transport.get(path)
        self.received_bytes += len(body)
        return read(body, url=self.url + path.partition("?")[0])

    async def find(self, path: str) -> Document | None:
        """As ``get``, but return None if the target answers 404."""
        try:
            return await self.get(path)
        except TargetProtocolError as error:
            if error.status == _NOT_FOUND:
                return None
            raise

    def cost(self) -> PollCost:
        """Return the cost of the poll so far; bytes are of the decompressed bodies."""
        duration_ms = round((self._monotonic_s() - self._began_s) * 1000)
        return PollCost(self.count, self.received_bytes, duration_ms)
