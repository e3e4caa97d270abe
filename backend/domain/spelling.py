"""Spells numbers with their units. A number has one spelling on pages, in sentences, on the command line and in alerts.

Every formatter of durations, sizes, shares, factors, counts and rates is here, so that two texts about one value agree.
Rounded values are rounded to the nearest, never cut off: 79,954 ms is ``1 min 20 s`` everywhere.
"""

from __future__ import annotations

from typing import Final

from backend.domain.advice import Metric

_SIZES: Final = ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
# A ratio of these metrics compares two values, and one of the others is a share. Any other ratio is a share up to 1.
_FACTOR_METRICS: Final = frozenset({"busyRatio / numRecordsIn", "start_delay"})
_SHARE_METRICS: Final = frozenset({"busyRatio", "backpressureRatio", Metric.EXPIRED, Metric.OPEN_RATIO, Metric.LOST})


def duration(ms: float) -> str:
    """Return milliseconds in words: ``52 ms``, ``4.9 s``, ``2 min 5 s``, ``3 h 20 min``, ``2 d 4 h``."""
    if ms < 0:
        return f"-{duration(-ms)}"
    if ms < 9.95 and ms != int(ms):
        return f"{ms:.2g} ms"
    if ms < 995:
        return f"{ms:.0f} ms"
    if ms < 59_950:
        return f"{ms / 1000:.1f} s"
    minutes, seconds = divmod(round(ms / 1000), 60)
    if minutes < 60:
        return _two(minutes, "min", seconds, "s")
    hours, minutes = divmod(round(ms / 60_000), 60)
    if hours < 48:
        return _two(hours, "h", minutes, "min")
    days, hours = divmod(round(ms / 3_600_000), 24)
    return _two(days, "d", hours, "h")


def _two(many: int, unit: str, rest: int, small: str) -> str:
    return f"{many} {unit} {rest} {small}" if rest else f"{many} {unit}"


def size(size_bytes: float) -> str:
    """Return bytes in words, in decimal units: ``840 B``, ``3.3 MB``, ``512 MB``."""
    for factor, unit in _SIZES:
        # A value that would be rounded to 1000 of the next smaller unit is written as 1 of this unit.
        if abs(size_bytes) >= 0.9995 * factor:
            value = size_bytes / factor
            return f"{value:.1f} {unit}" if abs(value) < 99.95 else f"{value:.0f} {unit}"
    return f"{size_bytes:.0f} B"


def percent(ratio: float) -> str:
    """Return a share of 0..1 in words: ``98 %``, ``1.83 %``.

    A share below 10 % has up to two decimals. A share below 1 is never written as 100 %, and none above 0 as 0 %.
    """
    if 0 < abs(ratio) < 0.00005:
        return f"{100 * ratio:.1g} %"
    # Evidence has four decimals. Other texts round to them first too, so that both agree.
    points = round(100 * round(float(ratio), 4), 2)
    if abs(points) >= 9.995:
        points = round(points, 1 if points > 99 else 0)
    return f"{99.9 if ratio < 1 and points >= 100 else points:g} %"


def factor(ratio: float) -> str:
    """Return how many times one value is another, without a word or sign: ``2.4``, ``12``, ``0.04``."""
    if 0 < abs(ratio) < 0.095:
        return f"{ratio:.1g}"
    return f"{ratio:.1f}" if abs(ratio) < 9.95 else f"{ratio:.0f}"


def count(number: float) -> str:
    """Return a count with narrow no-break spaces between thousands."""
    return f"{number:,.0f}".replace(",", "\u202f")


def rate(per_s: float, what: str = "") -> str:
    """Return a rate of things in a second: ``1 250 records/s``, ``0.4/s``."""
    number = f"{per_s:.2g}" if 0 < abs(per_s) < 9.95 and per_s != int(per_s) else count(per_s)
    return f"{number} {what}/s" if what else f"{number}/s"


def is_factor(ratio: float, metric: str | None) -> bool:
    """Return whether a ratio compares two values ("1.9 times its siblings") and is not a share."""
    return metric in _FACTOR_METRICS or (ratio > 1 and metric not in _SHARE_METRICS)


def quantity(value: float, unit: str | None, metric: str | None = None) -> str:
    """Return a number with its unit, such as ``4.8 s`` for 4800 ms. ``metric`` tells a factor from a share."""
    match unit:
        case "ms":
            return duration(value)
        case "bytes":
            return size(value)
        case "bytes/s":
            return f"{size(value)}/s"
        case "ratio":
            return f"{factor(value)} ×" if is_factor(value, metric) else percent(value)
        case "count":
            return count(value)
        case "1/day":
            return f"{value:.2g} a day"
        case "records/s" | "rows/s":
            return rate(value, unit.removesuffix("/s"))
    return f"{value:.4g} {unit or ''}".strip()
