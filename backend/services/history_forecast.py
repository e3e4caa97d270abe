"""Reads how many days of history fit into the size limit, at most once a minute in each process."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncEngine

from backend.domain.clock import Clock
from backend.store.schema.partitions import Retention
from backend.store.stored_days import SizeForecast, read_forecast

_KEPT_S = 60.0


class HistoryForecast:
    """Reads the forecast, and returns it again for a minute."""

    def __init__(self, engine: AsyncEngine, clock: Clock, retention: Retention) -> None:
        self._engine = engine
        self._clock = clock
        self._retention = retention
        self._known: tuple[float, SizeForecast] | None = None

    async def read(self) -> SizeForecast:
        """Return the forecast as of at most a minute ago.

        Raises:
            StoreUnavailableError: PostgreSQL is unreachable.
        """
        now_s = self._clock.monotonic_s()
        if self._known is None or now_s - self._known[0] >= _KEPT_S:
            self._known = now_s, await read_forecast(self._engine, self._retention, self._clock.now())
        return self._known[1]
