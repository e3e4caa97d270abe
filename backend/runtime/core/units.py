"""Parses durations such as "5 s" and sizes such as "32 kb", as people and Flink's configuration write them."""

from __future__ import annotations

import re

_DURATION = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zµ]*)\s*", re.IGNORECASE)
_DURATIONS_US = {
    "": 1000,
    "us": 1,
    "µs": 1,
    "ms": 1000,
    "s": 1_000_000,
    "sec": 1_000_000,
    "min": 60_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_SIZES = {"": 1, "b": 1, "kb": 1 << 10, "kib": 1 << 10, "k": 1 << 10, "mb": 1 << 20, "mib": 1 << 20, "m": 1 << 20}
_SIZES |= {"gb": 1 << 30, "gib": 1 << 30, "g": 1 << 30}
DURATION_WORDS = 'a duration such as "500 ms", "5 s" or "10 min" (a bare number is milliseconds)'
SIZE_WORDS = 'a size such as "32 kb" or "1 mb" (a bare number is bytes)'


def duration_us(text: str) -> int:
    """Return a duration in microseconds. A bare number is milliseconds, as in Flink.

    Raises:
        ValueError: ``text`` is not a duration.
    """
    return _scaled(text, _DURATIONS_US, DURATION_WORDS)


def size_bytes(text: str) -> int:
    """Return a size in bytes. A bare number is bytes.

    Raises:
        ValueError: ``text`` is not a size.
    """
    return _scaled(text, _SIZES, SIZE_WORDS)


def _scaled(text: str, units: dict[str, int], words: str) -> int:
    match = _DURATION.fullmatch(text) if len(text) <= 40 else None
    if match is None or match[2].lower() not in units:
        raise ValueError(f"not {words}")
    return round(float(match[1]) * units[match[2].lower()])
