"""A range of time that a viewer chose. The browser knows it as milliseconds of the epoch, both ends included."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Span:
    """From ``since`` to ``until``, both included; None is an open end."""

    since: datetime | None = None
    until: datetime | None = None

    @property
    def is_whole(self) -> bool:
        """Whether nothing was chosen."""
        return self.since is None and self.until is None

    def holds(self, at: datetime) -> bool:
        """Whether an instant lies in it."""
        return (self.since is None or at >= self.since) and (self.until is None or at <= self.until)


def span_of(data: object) -> Span:
    """The chosen range as the browser's store has it; what is no range chooses nothing."""
    if not isinstance(data, dict):
        return Span()
    since, until = _instant(data.get("since")), _instant(data.get("until"))
    return Span() if since is not None and until is not None and since > until else Span(since, until)


def _instant(value: object) -> datetime | None:
    # Years 1970 to 2100: what else comes from an address is no instant of a checkpoint.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 4.2e12:
        return None
    return _EPOCH + timedelta(milliseconds=round(value))


def epoch_ms(at: datetime) -> int:
    """An instant as the browser counts; cut, not rounded, so that it is never after the instant."""
    return (at - _EPOCH) // timedelta(milliseconds=1)
