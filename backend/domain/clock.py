"""The interface of a clock. Only the outermost parts of the program read the system clock."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """A wall clock and a monotonic clock. Tests pass a clock whose time they set."""

    def now(self) -> datetime:
        """Return the current instant, timezone-aware in UTC."""
        ...

    def monotonic_s(self) -> float:
        """Return the seconds on a monotonic clock."""
        ...


def from_epoch_ms(epoch_ms: int) -> datetime:
    """Return the instant ``epoch_ms`` milliseconds after the epoch, timezone-aware in UTC."""
    seconds, ms = divmod(epoch_ms, 1000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=ms * 1000)


def to_epoch_ms(instant: datetime) -> int:
    """Return the whole milliseconds from the epoch to the timezone-aware ``instant``, rounded down."""
    return int(instant.timestamp()) * 1000 + instant.microsecond // 1000
