"""A range of time that the viewer chose. The browser stores it as epoch milliseconds, both ends included."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Span:
    """From ``since`` to ``until``, both included. None means no limit."""

    since: datetime | None = None
    until: datetime | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the range has no limits."""
        return self.since is None and self.until is None

    def holds(self, at: datetime) -> bool:
        """Whether the range contains an instant."""
        return (self.since is None or at >= self.since) and (self.until is None or at <= self.until)


def span_of(data: object) -> Span:
    """The range in the browser's store. Anything that is not a range counts as one without limits."""
    if not isinstance(data, dict):
        return Span()
    since, until = _instant(data.get("since")), _instant(data.get("until"))
    return Span() if since is not None and until is not None and since > until else Span(since, until)


def _instant(value: object) -> datetime | None:
    # The years 1970 to 2100. An address can hold any number.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 4.2e12:
        return None
    return _EPOCH + timedelta(milliseconds=round(value))


def epoch_ms(at: datetime) -> int:
    """An instant in epoch milliseconds, rounded down."""
    return (at - _EPOCH) // timedelta(milliseconds=1)
