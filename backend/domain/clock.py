"""Where time comes from: a port. Nothing below the edges reads the wall clock itself."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Wall time and a monotonic clock; tests pass one that they move."""

    def now(self) -> datetime:
        """The instant, aware, UTC."""
        ...

    def monotonic_s(self) -> float:
        """Seconds on a clock that never goes back."""
        ...


def from_epoch_ms(epoch_ms: int) -> datetime:
    """The aware UTC instant ``epoch_ms`` milliseconds after the epoch."""
    seconds, ms = divmod(epoch_ms, 1000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=ms * 1000)


def to_epoch_ms(instant: datetime) -> int:
    """Whole milliseconds from the epoch to ``instant`` (aware), truncated."""
    return int(instant.timestamp()) * 1000 + instant.microsecond // 1000
