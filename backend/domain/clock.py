"""The clock as a port. Only the outermost parts read the system clock."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Wall time and a monotonic clock. Tests pass a clock that they move."""

    def now(self) -> datetime:
        """The current instant: aware, UTC."""
        ...

    def monotonic_s(self) -> float:
        """Seconds on a monotonic clock."""
        ...


def from_epoch_ms(epoch_ms: int) -> datetime:
    """The aware UTC instant ``epoch_ms`` milliseconds after the epoch."""
    seconds, ms = divmod(epoch_ms, 1000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=ms * 1000)


def to_epoch_ms(instant: datetime) -> int:
    """Whole milliseconds from the epoch to ``instant`` (aware), truncated."""
    return int(instant.timestamp()) * 1000 + instant.microsecond // 1000
