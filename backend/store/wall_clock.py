"""The clock of this machine, for those who compose a process; everything below is given a ``Clock``."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class WallClock:
    """``backend.domain.clock.Clock`` over the machine's clocks."""

    def now(self) -> datetime:
        """The instant, aware, UTC."""
        return datetime.fromtimestamp(time.time(), UTC)

    def monotonic_s(self) -> float:
        """Seconds on a clock that never goes back."""
        return time.monotonic()
