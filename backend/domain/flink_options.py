"""The configuration options of Flink's releases: the keys that a release reads, under all their names, with defaults.

The table is the file ``flink_options.json``. ``make flink-options`` makes it from the options that the classes in the
jars of each release declare. It has the options about checkpoints, state, buffers, restarts, parallelism and metrics.
A key that a release does not have is accepted by that release without a message, and has no effect.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).with_name("flink_options.json")

INLINE_THRESHOLD_KEY: Final = "execution.checkpointing.data-inline-threshold"
"""Among a cluster's settings: a smaller piece of state goes into the acknowledgement of its subtask."""

MESSAGE_SIZE_KEYS: Final = ("pekko.framesize", "akka.framesize")
"""Among a cluster's settings: the largest message between its processes. Before Flink 1.18 it has the second name."""

_DURATION: Final = re.compile(r"(\d{1,12})\s*([a-z]*)")
_SIZE: Final = _DURATION
_UNITS_BYTES: Final = {
    unit: 1 << 10 * power
    for power, units in enumerate(
        (
            ("", "b", "bytes"),
            ("k", "kb", "kibibytes"),
            ("m", "mb", "mebibytes"),
            ("g", "gb", "gibibytes"),
            ("t", "tb", "tebibytes"),
        )
    )
    for unit in units
}
_UNITS_MS: Final = {"": 1, "ms": 1, "s": 1_000, "min": 60_000, "m": 60_000, "h": 3_600_000}

Release = tuple[int, int]
"""The first two numbers of a version, such as (1, 20)."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option of one release.

    ``others`` are keys that the release reads as this one if ``key`` is not set, the first of them first. ``default``
    is None if there is none. A duration is written like ``200 ms``.
    """

    key: str
    type: str
    default: str | None
    others: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All keys that the release reads as this option; the first one that is set counts."""
        return (self.key, *self.others)


@cache
def releases() -> tuple[Release, ...]:
    """Return the releases of the table, the oldest first."""
    return tuple(_table())


def nearest(version: Release) -> Release:
    """Return the release of the table that has the options of ``version``, or those that are likely the same."""
    return max((r for r in releases() if r <= version), default=releases()[0])


def option(name: str, release: Release) -> Option | None:
    """Return the option that a release of the table knows by ``name``, whatever its name is there now.

    ``name`` may be the name of another release: a new name finds the option in a release before it was renamed, and an
    old name after. None if the release has no such option.
    """
    known = _table()[release]
    return next((known[n] for n in sorted(names_of(name)) if n in known), None)


@cache
def names_of(name: str) -> frozenset[str]:
    """Return every key under which any release reads the option that one of them reads as ``name``."""
    rows = [set(o.names) for options in _table().values() for o in options.values()]
    return frozenset({name}.union(*(names for names in rows if name in names)))


def set_as(name: str, settings: Mapping[str, str], version: Release | None) -> tuple[str, str] | None:
    """Return the key under which an option is set, of those that the version reads, and its value.

    None if it is not set. If the version is not known, the newest name counts first.
    """
    found = option(name, nearest(version) if version is not None else releases()[-1])
    names = () if found is None else found.names
    if version is None:
        names = (*names, *sorted(names_of(name).difference(names)))
    return next(((n, settings[n]) for n in names if n in settings), None)


def unread(settings: Mapping[str, str], version: Release) -> tuple[str, ...]:
    """Return the keys of ``settings`` that are options of some release, but that this version does not read."""
    there = {n for o in _table()[nearest(version)].values() for n in o.names}
    some = {n for options in _table().values() for o in options.values() for n in o.names}
    return tuple(sorted(key for key in settings if key in some and key not in there))


def duration_ms(text: str) -> int | None:
    """Return a duration as Flink writes it, such as ``200 ms`` or ``1s``, in milliseconds; None if it is none.

    A bare number is milliseconds.
    """
    match = _DURATION.fullmatch(text.strip().lower())
    return int(match[1]) * _UNITS_MS[match[2]] if match is not None and match[2] in _UNITS_MS else None


def size_bytes(text: str) -> int | None:
    """Return a size of memory as Flink writes it, such as ``32kb`` or ``10485760b``, in bytes; None if it is none."""
    found = _SIZE.fullmatch(text.strip().lower())
    return int(found[1]) * _UNITS_BYTES[found[2]] if found is not None and found[2] in _UNITS_BYTES else None


@cache
def _table() -> Mapping[Release, Mapping[str, Option]]:
    """Return the options of each release by their keys, the oldest release first."""
    document = json.loads(FILE.read_text(encoding="utf-8"))
    found: dict[Release, dict[str, Option]] = {_release(text): {} for text in document["releases"]}
    for key, kind, default, others, texts in document["options"]:
        for text in texts.split():
            found[_release(text)].setdefault(key, Option(key, kind, default, tuple(others)))
    for options in found.values():
        # A release that declares the old key of an option as well reads both, and the new key counts.
        renamed = {n for o in options.values() for n in o.others}
        for key in renamed.intersection(options):
            del options[key]
    return dict(sorted(found.items()))


def _release(text: str) -> Release:
    major, minor = text.split(".")[:2]
    return int(major), int(minor)
