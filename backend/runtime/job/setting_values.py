"""How the values of settings are parsed and shown: durations, sizes, numbers and words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from backend.runtime.core.units import DURATION_WORDS, duration_us, size_bytes

UNLIMITED = -1
"""Means no in-flight cap, or no limit on tolerable failures."""


@dataclass(frozen=True, slots=True)
class Key:
    """How one setting is parsed and shown.

    ``is_live``: whether it may change while a job runs. ``words``: its values, if they are few.
    """

    field: str
    parse: Callable[[str], Any]
    show: Callable[[Any], str]
    allowed: str
    is_live: bool = False
    words: tuple[str, ...] = ()


def whole(low: int, high: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from ``low`` to ``high``. All parsers raise ValueError for other text."""

    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError(text)
        return value

    return parse


def flag(text: str) -> bool:
    """Parse true or false. Raise KeyError for other text."""
    return {"true": True, "false": False}[text.strip().lower()]


def failures(text: str) -> int:
    """Parse a number of tolerable failures."""
    return UNLIMITED if text.strip().lower() in ("unlimited", "inf", "infinite") else whole(0, 2**31 - 1)(text)


def cap(text: str) -> int:
    """Parse a size in bytes that may be unlimited."""
    return UNLIMITED if text.strip().lower() in ("unlimited", "inf", "infinite") else size_bytes(text)


def percent(text: str) -> int:
    """Parse a ratio from 1 to 1000. Return it in percent."""
    value = round(float(text) * 100)
    if not 100 <= value <= 100_000:
        raise ValueError(text)
    return value


def one_of(*words: str) -> Callable[[str], str]:
    """Return a parser that accepts only these words."""

    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(text)
        return text

    return parse


def duration(low_us: int, high_us: int) -> Callable[[str], int]:
    """Return a parser of durations in microseconds, from ``low_us`` to ``high_us``."""

    def parse(text: str) -> int:
        value = duration_us(text)
        if not low_us <= value <= high_us:
            raise ValueError(text)
        return value

    return parse


def show_us(value: int) -> str:
    """Return a duration as text."""
    return f"{value // 1000} ms" if value % 1000 == 0 else f"{value} us"


def show_limit(value: int) -> str:
    """Return a limit as text."""
    return "unlimited" if value == UNLIMITED else str(value)


def show_flag(value: bool) -> str:
    """Return true or false as text."""
    return str(value).lower()


DAY_US = 86_400_000_000


def time_key(field: str, low_us: int, *, is_live: bool = False, high_us: int = 7 * DAY_US) -> Key:
    """Describe a setting that is a duration."""
    bounds = f"{DURATION_WORDS}, {show_us(low_us)} to {show_us(high_us)}"
    return Key(field, duration(low_us, high_us), show_us, bounds, is_live)


def count_key(field: str, low: int, high: int, *, is_live: bool = False) -> Key:
    """Describe a setting that is a whole number."""
    return Key(field, whole(low, high), str, f"a whole number from {low} to {high}", is_live)


def flag_key(field: str, *, is_live: bool = False) -> Key:
    """Describe a setting that is true or false."""
    return Key(field, flag, show_flag, "true or false", is_live, ("true", "false"))


def word_key(field: str, words: type[StrEnum], *, is_live: bool = False) -> Key:
    """Describe a setting that is one of the words of an enum."""
    *first, last = tuple(words)
    return Key(field, words, str, f"{', '.join(first)} or {last}", is_live, tuple(str(word) for word in words))


def limit_key(field: str, parse: Callable[[str], int], words: str, *, is_live: bool = False) -> Key:
    """Describe a setting that may be unlimited."""
    return Key(field, parse, show_limit, f'{words}, or "unlimited"', is_live)
