"""Places the buckets of a pressure history on the time axis, and finds the gaps between them.

A bucket without readings is absent from the history. If readings are taken less
often than once per bucket, buckets are absent between all readings. So only a distance that is longer than usual is a
gap. Positions are milliseconds since the epoch of the viewer's
clock, because Plotly's date axes know no time zones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from itertools import pairwise
from statistics import median

from backend.contracts.pressure_history import PressureHistoryOut
from dashboard.span import epoch_ms

# Two buckets further apart than this multiple of the usual distance have a gap between them.
_GAP_RATIO = 2.5


def axis_ms(at: datetime, where: tzinfo) -> int:
    """Return the position of an instant on a date axis in the viewer's time zone."""
    return epoch_ms(at.astimezone(where).replace(tzinfo=UTC))


@dataclass(frozen=True, slots=True)
class Cells:
    """The area of each bucket on the time axis, from ``begins`` to ``ends``.

    ``is_after_gap`` is true for the first bucket after a gap, and for the very first one.
    """

    begins: tuple[int, ...]
    ends: tuple[int, ...]
    is_after_gap: tuple[bool, ...]

    @property
    def middles(self) -> list[int]:
        """The middle of each bucket."""
        return [(begin + end) // 2 for begin, end in zip(self.begins, self.ends, strict=True)]

    def runs(self, known: Sequence[bool]) -> Iterator[range]:
        """Yield the ranges of successive buckets whose value is known, without gaps in them."""
        start: int | None = None
        for i, is_known in enumerate(known):
            if start is not None and (not is_known or self.is_after_gap[i]):
                yield range(start, i)
                start = None
            if is_known and start is None:
                start = i
        if start is not None:
            yield range(start, len(known))


def cells_of(history: PressureHistoryOut, where: tzinfo) -> Cells:
    """Return the areas of the buckets of ``history``."""
    begins = [axis_ms(b, where) for b in history.buckets]
    distances = [b - a for a, b in pairwise(begins)]
    usual = max(history.bucket_s * 1000, round(median(distances)) if distances else 0)
    gaps = [True, *(d > _GAP_RATIO * usual for d in distances)]
    followers = [*begins[1:], None]
    ends = [
        begin + usual if after is None or is_gap else after
        for begin, after, is_gap in zip(begins, followers, [*gaps[1:], True], strict=True)
    ]
    return Cells(tuple(begins), tuple(ends), tuple(gaps[: len(begins)]))
