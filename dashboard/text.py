"""Formats values for people: a missing value is ``MISSING``, never zero, and every number has its unit.

Plotly renders a subset of HTML, so names in a figure must be escaped with ``plain``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from backend.domain import spelling
from backend.domain.text import shortened

MISSING = "–"
_SECOND_MS = 1_000
_MINUTE_MS = 60 * _SECOND_MS
_HOUR_MS = 60 * _MINUTE_MS


def duration(value_ms: float | None) -> str:
    """Format milliseconds, as ``spelling.duration`` does."""
    return MISSING if value_ms is None else spelling.duration(value_ms)


def bounded(words: str, *, is_lower_bound: bool) -> str:
    """Write a number that is only a lower bound as one: ``> 4.0 s``."""
    return f"> {words}" if is_lower_bound and words != MISSING else words


# Smaller differences come from the time that a request takes and from responses that the engine caches.
_CLOCK_DIFFERENCE_MIN_MS = 5_000


def clock_difference(offset_ms: int | None) -> str | None:
    """Return by how much the engine's clock differs from ours, or None if that is little or unknown."""
    if offset_ms is None or abs(offset_ms) < _CLOCK_DIFFERENCE_MIN_MS:
        return None
    # A difference of minutes is shown without seconds. If a clock falls behind all the time, they would change with
    # every reading.
    step_ms = _MINUTE_MS if abs(offset_ms) >= 2 * _MINUTE_MS else _SECOND_MS
    amount_ms = round(abs(offset_ms) / step_ms) * step_ms
    is_of_minutes = step_ms == _MINUTE_MS and amount_ms < _HOUR_MS
    amount = f"{amount_ms // _MINUTE_MS} min" if is_of_minutes else duration(amount_ms).replace(".0 s", " s")
    return f"engine clock {amount} {'behind' if offset_ms < 0 else 'ahead'}"


def size(value_bytes: float | None) -> str:
    """Format bytes with a decimal unit, as verdicts, advice and alerts do."""
    return MISSING if value_bytes is None else spelling.size(value_bytes)


def signed(value: float | None, words: Callable[[float], str]) -> str:
    """Format a difference with its sign. ``words`` formats the amount."""
    if value is None:
        return MISSING
    sign = "+" if value > 0 else "-" if value < 0 else ""
    return f"{sign}{words(abs(value))}"


def percent(ratio: float | None) -> str:
    """Format a ratio from 0 to 1 as a percentage. A ratio below 1 is never written as 100 %."""
    return MISSING if ratio is None else spelling.percent(ratio)


def busy(ratio: float | None, *others: float | None, is_source: bool) -> str:
    """Format the busy time of a vertex. ``others`` are its back-pressured and idle time.

    If only the busy time is missing, the engine does not report it for this vertex, and the text says so.
    """
    if ratio is None and any(other is not None for other in others):
        return f"busy time: not reported{' by this kind of source' if is_source else ''}"
    return f"busy {percent(ratio)}"


def count(value: float | None) -> str:
    """Format a count with thin spaces between thousands."""
    return MISSING if value is None else spelling.count(value)


def rate(per_s: float | None, what: str = "") -> str:
    """Format a rate of things in a second."""
    return MISSING if per_s is None else spelling.rate(per_s, what)


def factor(ratio: float) -> str:
    """Format how many times one value is another, without a word or sign."""
    return spelling.factor(ratio)


def counted(number: int, word: str, plural: str | None = None) -> str:
    """Return a number with its noun, in the plural unless the number is 1."""
    return f"{number} {word}" if number == 1 else f"{number} {plural or word + 's'}"


def evidence_value(value: float | None, unit: str | None, metric: str | None = None) -> str:
    """Format the number in a row of evidence with its unit."""
    return MISSING if value is None else spelling.quantity(value, unit, metric)


def subtasks(indices: Sequence[int], *, most: int = 8) -> str:
    """Return the first ``most`` subtask indices as text, with the number of those left out."""
    if not indices:
        return MISSING
    shown = ", ".join(str(i) for i in indices[:most])
    return shown if len(indices) <= most else f"{shown} and {len(indices) - most} more"


def zone(name: str | None) -> tzinfo:
    """Return the time zone called ``name``, or UTC if this machine does not know it."""
    try:
        return ZoneInfo(name) if name else UTC
    except (ValueError, OSError, KeyError):
        return UTC


def instant(at: datetime | None, where: tzinfo, *, with_date: bool = True) -> str:
    """Format an instant in the viewer's time zone, to the second."""
    if at is None:
        return MISSING
    return at.astimezone(where).strftime("%Y-%m-%d %H:%M:%S" if with_date else "%H:%M:%S")


def instant_utc(at: datetime | None) -> str:
    """Format an instant in UTC, to the millisecond."""
    return MISSING if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"


def axis_instant(at: datetime, where: tzinfo) -> str:
    """Format an instant for a Plotly date axis in the viewer's local time. Plotly does not know time zones."""
    return at.astimezone(where).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def short(name: str, most: int = 30) -> str:
    """Shorten a name in its middle. The page shows the whole name on demand, in a title or a hover text."""
    return shortened(name, most)


def plain(name: str) -> str:
    """Escape markup in a text for a figure, and put it on one line."""
    return name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\n", " ")
