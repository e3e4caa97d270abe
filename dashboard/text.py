"""Formats values for people. A missing value is ``MISSING``, never zero. Every number has its unit.

Plotly renders a subset of HTML, so names in a figure must go through ``plain``.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

MISSING = "–"
_SECOND_MS = 1_000
_MINUTE_MS = 60 * _SECOND_MS
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS
_SIZES = ((10**15, "PB"), (10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def duration(value_ms: float | None) -> str:
    """Milliseconds as ``840 ms``, ``7.9 s``, ``2 min 05 s``, ``3 h 20 min`` or ``2 d 4 h``."""
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


def size(value_bytes: float | None) -> str:
    """Bytes with a decimal unit, in the format that verdicts, advice and alerts use."""
    if value_bytes is None:
        return MISSING
    for unit_bytes, unit in _SIZES:
        # A value that would round to 1000 of the smaller unit is written as 1 of this unit.
        if abs(value_bytes) >= 0.9995 * unit_bytes:
            return f"{value_bytes / unit_bytes:.3g} {unit}"
    return f"{value_bytes:.0f} B"


def percent(ratio: float | None) -> str:
    """A ratio 0..1 as a percentage. A ratio below 1 is never written as 100 %."""
    if ratio is None:
        return MISSING
    rounded = round(ratio * 100, 1 if ratio > 0.99 else 0)
    if ratio < 1 and rounded >= 100:
        rounded = 99.9
    return f"{rounded:g} %"


def count(value: float | None) -> str:
    """A count with thin spaces between thousands."""
    return MISSING if value is None else f"{value:,.0f}".replace(",", "\u202f")


def evidence_value(value: float | None, unit: str | None) -> str:
    """The number in a row of evidence, with its unit."""
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
    """The first ``most`` subtask indices, and the number of the others."""
    if not indices:
        return MISSING
    shown = ", ".join(str(i) for i in indices[:most])
    return shown if len(indices) <= most else f"{shown} and {len(indices) - most} more"


def zone(name: str | None) -> tzinfo:
    """The time zone called ``name``; UTC if this machine does not know it."""
    try:
        return ZoneInfo(name) if name else UTC
    except (ValueError, OSError, KeyError):
        return UTC


def instant(at: datetime | None, where: tzinfo, *, with_date: bool = True) -> str:
    """An instant in the viewer's zone, to the second."""
    if at is None:
        return MISSING
    return at.astimezone(where).strftime("%Y-%m-%d %H:%M:%S" if with_date else "%H:%M:%S")


def instant_utc(at: datetime | None) -> str:
    """An instant in UTC, to the millisecond."""
    return MISSING if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"


def axis_instant(at: datetime, where: tzinfo) -> str:
    """An instant for a Plotly date axis, in the viewer's local time. Plotly has no time zones."""
    return at.astimezone(where).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def short(name: str, most: int = 30) -> str:
    """A name shortened in its middle, because the vertex names of a job often differ at both ends."""
    if len(name) <= most:
        return name
    head = (most - 1) * 2 // 3
    return f"{name[:head]}…{name[len(name) - (most - 1 - head) :]}"


def plain(name: str) -> str:
    """Text for a figure, with markup escaped."""
    return name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\n", " ")
