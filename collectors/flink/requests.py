"""The requests of one poll: counted, limited, and their answers read as JSON.

A JobManager serves its REST with few threads, so a poll has a budget. What must be read is read whatever it costs;
what can wait (details of old checkpoints, pressure) asks ``has_budget`` first and waits for the next poll.
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
        """The instant, from the poll's own and what has passed since."""
        return self._now + timedelta(seconds=self._monotonic_s() - self._began_s)

    @property
    def has_budget(self) -> bool:
        """Whether what can wait may be asked now."""
        return self.count < self._budget_count

    async def get(self, path: str) -> Document:
        """The JSON answer to ``path``; errors as ``FlinkTransport`` and ``document.read`` have them."""
        self.count += 1
        body = await self._transport.get(path)
        self.received_bytes += len(body)
        return read(body, url=self.url + path.partition("?")[0])

    async def find(self, path: str) -> Document | None:
        """As ``get``; None where the target answers that there is no such thing (any more)."""
        try:
            return await self.get(path)
        except TargetProtocolError as error:
            if error.status == _NOT_FOUND:
                return None
            raise

    def cost(self) -> PollCost:
        """What the poll has cost so far; bytes are of the decompressed bodies."""
        duration_ms = round((self._monotonic_s() - self._began_s) * 1000)
        return PollCost(self.count, self.received_bytes, duration_ms)
