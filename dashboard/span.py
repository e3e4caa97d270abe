"""Defines a range of time that the viewer chose. The browser stores it as epoch milliseconds, both ends included."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

ALL = "all"
"""The name of the range that has no limits."""
WINDOWS = {
    "15m": "15 min",
    "1h": "1 h",
    "6h": "6 h",
    "24h": "24 h",
    "7d": "7 days",
    "30d": "30 days",
    ALL: "all",
}
"""The ranges of a fixed length up to now, by the name in an address, with their words. The script knows the lengths."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Span:
    """The range from ``since`` to ``until``, both included. None means that the range has no limit there."""

    since: datetime | None = None
    until: datetime | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the range has no limits, so that it contains every instant."""
        return self.since is None and self.until is None

    def holds(self, at: datetime) -> bool:
        """Return whether the range contains an instant."""
        return (self.since is None or at >= self.since) and (self.until is None or at <= self.until)


def span_of(data: object) -> Span:
    """Return the range in the browser's store. Data that is not a valid range yields the range without limits."""
    if not isinstance(data, dict):
        return Span()
    since, until = instant_of(data.get("since")), instant_of(data.get("until"))
    return Span() if since is not None and until is not None and since > until else Span(since, until)


def instant_of(value: object) -> datetime | None:
    """Return the instant of a number of epoch milliseconds, or None if it is not such a number or out of bounds."""
    # The limit is in the year 2103. Other values are ignored, because an address typed by a person can contain any
    # number.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 4.2e12:
        return None
    return EPOCH + timedelta(milliseconds=round(value))


def epoch_ms(at: datetime) -> int:
    """Convert an instant to epoch milliseconds, rounded down."""
    return (at - EPOCH) // timedelta(milliseconds=1)
