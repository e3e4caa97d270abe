"""Compares the newest micro-batches of a query with each other: which are slow, what grows, and in which part.

Durations are compared with those of the neighbours, so that slow batches are found among batches that grow as well. The
batches are those of the evidence, up to ``WINDOW_COUNT``. A pattern that is longer is not found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final

from backend.analysis.numbers.statistics import median, quantile
from backend.analysis.queries.micro_batches import WARM_UP_COUNT, BatchPart, parts_of
from backend.analysis.words.thresholds import SLOW_MIN_MS
from backend.domain.checkpoint import Checkpoint, CheckpointStatus
from backend.domain.micro_batch import MicroBatch

WINDOW_COUNT: Final = 26
"""So many of the newest batches are compared: all that are evidence (``assembling.EVIDENCE_COUNT``)."""
SLOW_BATCH_TIMES: Final = 1.5
"""A batch is slow if it takes this many times as long as its neighbours, and half a second longer."""
SLOW_BATCH_MIN_MS: Final = 500.0

USUAL_PERIOD: Final = 10
"""Spark compacts the logs of files every tenth batch, and Delta writes a checkpoint every tenth commit, by default."""
PERIOD_MIN: Final = 3
PERIODS_MIN_COUNT: Final = 3
"""Slow batches are periodic if this many of them are a whole number of periods apart; two, if the period is usual."""
OTHERS_MAX_RATIO: Final = 0.1
"""If more than this share of the other batches is slow as well, the slow ones are not periodic.

Nor are they if the others are more than a third as many.
"""
ALIKE_MIN_RATIO: Final = 0.5
"""Periodic batches lose alike: the one that loses least loses this share of what the one that loses most does."""
APART_TIMES: Final = 1.5
"""Periodic batches stand apart: each loses this many times the spread of the batches that are quick."""

GROWTH_MIN_COUNT: Final = 8
"""Growth is judged with at least this many batches."""
GROWTH_TIMES: Final = 1.5
"""Batches grow if the last third takes this many times as long as the first third, and a second longer."""
GROWTH_TAU: Final = 0.7
"""Batches grow if this many more pairs of them, as a share, are in rising than in falling order.

Durations that jump once to a higher level have a share of half.
"""
STEADY_TAU: Final = 0.9
"""Growth with fewer rising pairs of batches than this has a low confidence."""
SAME_ROWS_TIMES: Final = 1.3
"""Rows that change by less than this factor are called the same."""
MAIN_PART_MIN_RATIO: Final = 0.6
"""A part of the batch is what grows if it has at least this share of the growth."""
NEAR: Final = 4
"""A batch is compared with this many batches before and after it."""


class Rest(StrEnum):
    """The time of a batch that no reported phase covers."""

    REST = "rest"


Part = BatchPart | Rest
PARTS: Final[tuple[Part, ...]] = (*BatchPart, Rest.REST)


@dataclass(frozen=True, slots=True)
class Row:
    """One completed batch of the window."""

    number: int
    took_ms: float
    batch: MicroBatch
    checkpoint: Checkpoint

    def part_ms(self, part: Part) -> float:
        """Return the time that a part took; zero if Spark did not report it."""
        known = parts_of(self.batch)
        if isinstance(part, BatchPart):
            return known.get(part, 0)
        return max(0.0, self.took_ms - sum(known.values())) if known else 0.0


@dataclass(frozen=True, slots=True)
class Rhythm:
    """Slow batches that come every ``period`` batches, with the same rows as the others.

    ``extra_ms`` is how much longer they take than the others, in the median. ``parts`` has the parts of the batch that
    take at least a tenth of that time each.
    """

    period: int
    remainder: int
    slow: tuple[Row, ...]
    usual_ms: float
    slow_ms: float
    parts: tuple[tuple[Part, float], ...]

    @property
    def extra_ms(self) -> float:
        """How much longer a slow batch takes."""
        return self.slow_ms - self.usual_ms

    @property
    def cost_ratio(self) -> float:
        """The share of all batches' time that the slow ones take in addition."""
        return self.extra_ms / (self.usual_ms * self.period + self.extra_ms)

    @property
    def is_of_file_log(self) -> bool:
        """Whether the slow batches are those in which Spark compacts the logs of files by default: 9, 19, 29."""
        return self.period == USUAL_PERIOD and self.remainder == USUAL_PERIOD - 1


@dataclass(frozen=True, slots=True)
class Growth:
    """Batches that take longer and longer. ``part`` is the part that grows, or None if no part has most of it.

    ``rows_ratio`` is how many times as many rows the newest batches read as the first ones; None if it is not known.
    """

    first_ms: float
    last_ms: float
    count: int
    part: Part | None
    part_ratio: float
    rows: float | None
    rows_ratio: float | None
    is_steady: bool
    """Whether nearly every batch takes longer than those before. Durations that wander may seem to grow for a while."""

    @property
    def ratio(self) -> float:
        """How many times as long the newest batches take."""
        return self.last_ms / self.first_ms if self.first_ms else float("inf")


def window_of(checkpoints: Sequence[Checkpoint]) -> tuple[Row, ...]:
    """Return the completed batches, oldest first, without the first ones of the run if there are enough others."""
    rows = [
        Row(c.header.checkpoint_id, float(c.header.end_to_end_duration_ms), c.batch, c)
        for c in checkpoints
        if c.header.status is CheckpointStatus.COMPLETED
        and c.header.end_to_end_duration_ms is not None
        and c.batch is not None
    ][-WINDOW_COUNT:]
    is_begin = len(checkpoints) < WINDOW_COUNT
    warm = rows[WARM_UP_COUNT:] if is_begin else [r for r in rows if r.number >= WARM_UP_COUNT]
    return tuple(warm if len(warm) >= GROWTH_MIN_COUNT else rows)


def usual_near(rows: Sequence[Row], place: int) -> float:
    """Return the median duration of the batches around one batch."""
    near = [*rows[max(0, place - NEAR) : place], *rows[place + 1 : place + 1 + NEAR]]
    return median(r.took_ms for r in near) or 0.0


def slow_rows(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return the batches that take much longer than their neighbours."""
    slow = []
    for place, row in enumerate(rows):
        usual = usual_near(rows, place)
        if usual and row.took_ms >= max(SLOW_BATCH_TIMES * usual, usual + SLOW_BATCH_MIN_MS):
            slow.append(row)
    return tuple(slow)


def rhythm_of(rows: Sequence[Row], *, is_usual: Callable[[int, int], bool]) -> Rhythm | None:
    """Return the rhythm of the slow batches, or None if they are not periodic or read more rows than the others.

    ``is_usual`` says whether a period and its remainder are those of a known log, so that two slow batches suffice.
    """
    slow = slow_rows(rows)
    rhythm = next(_periodic(rows, slow, is_usual), None)
    if rhythm is None:
        return None
    period, remainder, periodic = rhythm
    others = [r for r in rows if r not in slow]
    more_rows = _times(_rows(periodic), _rows(others))
    if not others or (more_rows is not None and more_rows >= SAME_ROWS_TIMES):
        return None
    usual_ms, slow_ms = median(r.took_ms for r in others) or 0.0, median(r.took_ms for r in periodic) or 0.0
    extra = {
        p: (median(r.part_ms(p) for r in periodic) or 0) - (median(r.part_ms(p) for r in others) or 0) for p in PARTS
    }
    parts = sorted(
        ((p, ms) for p, ms in extra.items() if ms >= 0.1 * sum(map(abs, extra.values()))), key=lambda x: -x[1]
    )
    return Rhythm(period, remainder, periodic, usual_ms, slow_ms, tuple((p, ms) for p, ms in parts if ms > 0))


def _periodic(
    rows: Sequence[Row], slow: Sequence[Row], is_usual: Callable[[int, int], bool]
) -> Iterator[tuple[int, int, tuple[Row, ...]]]:
    longest = len(rows) // (PERIODS_MIN_COUNT - 1)
    periods = [USUAL_PERIOD, *(p for p in range(PERIOD_MIN, longest + 1) if p != USUAL_PERIOD)]
    for period in periods:
        for remainder in sorted({r.number % period for r in slow}):
            due = tuple(r for r in rows if r.number % period == remainder)
            needed = PERIODS_MIN_COUNT - 1 if is_usual(period, remainder) else PERIODS_MIN_COUNT
            other_count = len(slow) - len(due)
            is_alone = other_count <= min(len(due) // 3, OTHERS_MAX_RATIO * (len(rows) - len(due)))
            if len(due) >= needed and is_alone and all(r in slow for r in due) and _stand_out(rows, slow, due):
                yield period, remainder, due


def _stand_out(rows: Sequence[Row], slow: Sequence[Row], due: Sequence[Row]) -> bool:
    """Return whether these slow batches lose alike, and more than the quick ones differ from each other."""
    usual = {r.number: usual_near(rows, place) for place, r in enumerate(rows)}
    lost = [r.took_ms - usual[r.number] for r in due]
    times = [r.took_ms / usual[r.number] - 1 for r in due]
    is_alike = any(min(values) >= ALIKE_MIN_RATIO * max(values) for values in (lost, times))
    quick = [r.took_ms - usual[r.number] for r in rows if r not in slow]
    low, high = quantile(quick, 0.1), quantile(quick, 0.9)
    return is_alike and low is not None and high is not None and min(lost) >= APART_TIMES * (high - low)


def growth_of(rows: Sequence[Row]) -> Growth | None:
    """Return how the durations grow, or None if they do not, or no more than the rows that the batches read."""
    if len(rows) < GROWTH_MIN_COUNT:
        return None
    took = [r.took_ms for r in rows]
    first, last = thirds(rows)
    first_ms, last_ms = median(r.took_ms for r in first) or 0.0, median(r.took_ms for r in last) or 0.0
    if last_ms < GROWTH_TIMES * first_ms or last_ms - first_ms < SLOW_MIN_MS or tau(took) < GROWTH_TAU:
        return None
    rows_ratio = _times(_rows(last), _rows(first))
    if rows_ratio is not None and last_ms < GROWTH_TIMES * first_ms * max(1.0, rows_ratio):
        return None
    gained = {p: (median(r.part_ms(p) for r in last) or 0) - (median(r.part_ms(p) for r in first) or 0) for p in PARTS}
    part, most = max(gained.items(), key=lambda x: x[1])
    share = most / (last_ms - first_ms)
    named = part if share >= MAIN_PART_MIN_RATIO else None
    return Growth(first_ms, last_ms, len(rows), named, share, median(_rows(last)), rows_ratio, tau(took) >= STEADY_TAU)


def thirds(rows: Sequence[Row]) -> tuple[Sequence[Row], Sequence[Row]]:
    """Return the first and the last third of the batches."""
    third = max(1, len(rows) // 3)
    return rows[:third], rows[-third:]


def tau(values: Sequence[float]) -> float:
    """Return by how much rising pairs of values outnumber falling ones, as a share of all pairs (Kendall's tau-a)."""
    pairs = [(a, b) for i, a in enumerate(values) for b in values[i + 1 :]]
    return sum((b > a) - (b < a) for a, b in pairs) / len(pairs) if pairs else 0.0


def rising_share(values: Sequence[float]) -> float:
    """Return the share of the steps from one value to the next that rise."""
    steps = [b > a for a, b in pairwise(values)]
    return sum(steps) / len(steps) if steps else 0.0


def _rows(rows: Sequence[Row]) -> list[int | None]:
    return [r.batch.input_row_count for r in rows]


def _times(after: Sequence[int | None], before: Sequence[int | None]) -> float | None:
    new, old = median(after), median(before)
    if new is None or old is None:
        return None
    return new / old if old else (1.0 if not new else float("inf"))
