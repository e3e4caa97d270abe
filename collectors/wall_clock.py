"""The machine's clocks, for commands without a store."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime


class WallClock:
    """The machine's clocks. The store has the same class, but importing that class would import a database driver."""

    def now(self) -> datetime:
        return datetime.fromtimestamp(time.time(), UTC)

    def monotonic_s(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
