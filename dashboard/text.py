"""Formats values for people: a missing value is ``MISSING``, never zero, and every number has its unit.

Plotly renders a subset of HTML, so names in a figure must be escaped with ``plain``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

MISSING = "–"
_SECOND_MS = 1_000
_MINUTE_MS = 60 * _SECOND_MS
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS
_SIZES = ((10**15, "PB"), (10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def duration(value_ms: float | None) -> str:
    """Format milliseconds as ``840 ms``, ``7.9 s``, ``2 min 05 s``, ``3 h 20 min`` or ``2 d 4 h``."""
    if value_ms is None:
        return MISSING
    sign, value = ("-", -value_ms) if value_ms < 0 else ("", value_ms)
    if value < _SECOND_MS:
        return f"{sign}{value:.3g} ms" if value != int(value) else f"{sign}{int(value)} ms"
    if value < 10 * _SECOND_MS:
        return f"{sign}{value / _SECOND_MS:.2f}".rstrip("0").rstrip(".") + " s"
    if value < _MINUTE_MS:
        return f"{sign}{value / _SECOND_MS:.1f} s"
    if value < _HOUR_MS:
        minutes, rest = divmod(int(value), _MINUTE_MS)
        return f"{sign}{minutes} min {rest // _SECOND_MS:02d} s"
    if value < _DAY_MS:
        hours, rest = divmod(int(value), _HOUR_MS)
        return f"{sign}{hours} h {rest // _MINUTE_MS:02d} min"
    days, rest = divmod(int(value), _DAY_MS)
    return f"{sign}{days} d {rest // _HOUR_MS} h"


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
    if value_bytes is None:
        return MISSING
    for unit_bytes, unit in _SIZES:
        # A value that would be rounded to 1000 of the next smaller unit is written as 1 of this unit.
        if abs(value_bytes) >= 0.9995 * unit_bytes:
            return f"{value_bytes / unit_bytes:.3g} {unit}"
    return f"{value_bytes:.0f} B"


def signed(value: float | None, words: Callable[[float], str]) -> str:
    """Format a difference with its sign. ``words`` formats the amount."""
    if value is None:
        return MISSING
    sign = "+" if value > 0 else "-" if value < 0 else ""
    return f"{sign}{words(abs(value))}"


def percent(ratio: float | None) -> str:
    """Format a ratio from 0 to 1 as a percentage. A ratio below 1 is never written as 100 %."""
    if ratio is None:
        return MISSING
    rounded = round(ratio * 100, 1 if ratio > 0.99 else 0)
    if ratio < 1 and rounded >= 100:
        rounded = 99.9
    return f"{rounded:g} %"


def count(value: float | None) -> str:
    """Format a count with thin spaces between thousands."""
    return MISSING if value is None else f"{value:,.0f}".replace(",", "\u202f")


def counted(number: int, word: str) -> str:
    """Return a number with its noun, in the plural unless the number is 1."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def evidence_value(value: float | None, unit: str | None) -> str:
    """Format the number in a row of evidence with its unit."""
    if value is None:
        return MISSING
    match unit:
        case "ms":
            return duration(value)
        case "bytes":
            return size(value)
        case "ratio":
            # A ratio above 1 is a factor ("1.9 times its siblings"), not a share.
            return percent(value) if 0 <= value <= 1 else f"{value:.3g} ×"
        case "count":
            return count(value)
        case _:
            return f"{value:.4g} {unit or ''}".strip()


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
    """Shorten a name in its middle, because the names of a job's vertices often differ at both ends."""
    if len(name) <= most:
        return name
    head = (most - 1) * 2 // 3
    return f"{name[:head]}…{name[len(name) - (most - 1 - head) :]}"


def plain(name: str) -> str:
    """Escape markup in a text for a figure, and put it on one line."""
    return name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\n", " ")
