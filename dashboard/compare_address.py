"""Reads and writes the addresses of the pages that compare two checkpoints or two windows of time.

The path has the job of side A. ``with`` is the job of side B; it is absent if both sides are of one job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import parse_qs, urlencode

from backend.domain.rollup import Measure
from dashboard.span import epoch_ms

YESTERDAY = "yesterday"
"""The value of ``against`` for the newest hour and the same time one day earlier."""
_ID_MAX = 100


@dataclass(frozen=True, slots=True)
class Compared:
    """What the viewer chose on the page that compares two checkpoints. A checkpoint is ``run:checkpoint``."""

    a: str | None = None
    """None means the job's newest checkpoint that has ended."""
    b: str | None = None
    """None means the last healthy checkpoint before ``a``."""
    other: str | None = None
    """Id of the job of ``b``; None means the job of ``a``."""
    vertex: str | None = None
    """Id of the vertex whose subtasks are compared."""
    is_by_difference: bool = False
    """Whether the vertex that differs most comes first."""


@dataclass(frozen=True, slots=True)
class Windows:
    """The two windows that are compared, in epoch milliseconds, and the measure whose distributions are shown."""

    before_ms: tuple[int, int] | None = None
    """Begin and end of the first window. None means the hour before the job's newest change, or the newest hour."""
    after_ms: tuple[int, int] | None = None
    other: str | None = None
    """Id of the job of the first window; None means the job of the second one."""
    against: str | None = None
    """``yesterday`` if the windows are not chosen yet, but shall be the newest hour and that of yesterday."""
    measure: Measure = Measure.DURATION


def compared(search: str | None) -> Compared:
    """Return the choices in the query string of a comparison of checkpoints. Invalid values are ignored."""
    query = _query(search)
    return Compared(
        a=_pair(query.get("a")),
        b=_pair(query.get("b")),
        other=_job(query.get("with")),
        vertex=query.get("vertex"),
        is_by_difference=query.get("order") == "difference",
    )


def windows(search: str | None) -> Windows:
    """Return the choices in the query string of a comparison of windows. Invalid values are ignored."""
    query = _query(search)
    before, after = _ends(query, "before"), _ends(query, "after")
    measure = query.get("measure", "")
    is_chosen = before is not None and after is not None
    return Windows(
        before_ms=before if is_chosen else None,
        after_ms=after if is_chosen else None,
        other=_job(query.get("with")),
        against=YESTERDAY if query.get("against") == YESTERDAY and not is_chosen else None,
        measure=Measure(measure) if measure in set(Measure) else Measure.DURATION,
    )


def compared_query(a: tuple[str, int] | None, b: tuple[str, int] | None, other: str | None) -> str:
    """Return the query string of the comparison of two checkpoints, each given by its run and its number."""
    pairs = [(name, f"{one[0]}:{one[1]}") for name, one in (("a", a), ("b", b)) if one is not None]
    return _text([*pairs, *_with(other)])


def windows_query(before: tuple[datetime, datetime], after: tuple[datetime, datetime], other: str | None) -> str:
    """Return the query string of the comparison of two windows of time."""
    pairs = [
        (f"{name}-{end}", str(epoch_ms(at)))
        for name, window in (("before", before), ("after", after))
        for end, at in zip(("from", "to"), window, strict=True)
    ]
    return _text([*pairs, *_with(other)])


def against_query(other: str | None) -> str:
    """Return the query string of the newest hour: against the other job, or against the same time of yesterday."""
    return _text([*_with(other)] or [("against", YESTERDAY)])


def _with(other: str | None) -> list[tuple[str, str]]:
    return [] if other is None else [("with", other)]


def _text(pairs: list[tuple[str, str]]) -> str:
    return "?" + urlencode(pairs) if pairs else ""


def _query(search: str | None) -> Mapping[str, str]:
    return {name: values[0] for name, values in parse_qs((search or "").lstrip("?")).items()}


def _pair(value: str | None) -> str | None:
    run, _, number = (value or "").rpartition(":")
    return value if run and number.isdecimal() and number.isascii() and len(number) <= 18 else None


def _job(value: str | None) -> str | None:
    return value if value and len(value) <= _ID_MAX and "\0" not in value else None


def _ends(query: Mapping[str, str], name: str) -> tuple[int, int] | None:
    values = [query.get(f"{name}-{end}", "") for end in ("from", "to")]
    if not all(v.isdecimal() and v.isascii() and len(v) <= 13 for v in values):
        return None
    return int(values[0]), int(values[1])
