"""The machine's clock, for the code that assembles a process; all other code receives a ``Clock``."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class WallClock:
    """``backend.domain.clock.Clock`` over the machine's clocks."""

    def now(self) -> datetime:
        """Return the current instant, aware, in UTC."""
        return datetime.fromtimestamp(time.time(), UTC)

    def monotonic_s(self) -> float:
        """Return seconds on a clock that never goes back."""
        return time.monotonic()
