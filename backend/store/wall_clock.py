"""Provides the machine's clock to the code that assembles a process. All other code receives a ``Clock``."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class WallClock:
    """Implements ``backend.domain.clock.Clock`` with the machine's clocks."""

    def now(self) -> datetime:
        """Return the current time in UTC, timezone-aware."""
        return datetime.fromtimestamp(time.time(), UTC)

    def monotonic_s(self) -> float:
        """Return seconds on a clock that never goes back."""
        return time.monotonic()
