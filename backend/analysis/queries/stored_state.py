"""Judges the state that a query keeps: whether it grows and is cleaned, and how old its snapshots are.

Spark removes rows of state when the watermark has passed them. It never does without a watermark, or if the operator
does not use the watermark's column. Until the first window has passed, no row is removed either. How long a window is,
Spark does not report. So under a watermark that moves it is never certain that state is uncleaned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import Final

from backend.analysis.numbers.statistics import median
from backend.analysis.queries.series import GROWTH_MIN_COUNT, Row, rising_share, thirds
from backend.domain.micro_batch import BatchState

STATE_GROWTH_TIMES: Final = 1.2
"""State grows if its rows become this many times as many over the batches, or would double within a week."""
DOUBLING_MAX: Final = timedelta(days=7)
STILL_MIN_RATIO: Final = 0.25
"""State still grows if the last third of the batches adds this share of all new rows."""
STATE_MIN_ROWS: Final = 1_000
"""Growth by fewer rows than this is not judged."""
RISING_MIN_RATIO: Final = 0.8
"""State grows if at least this share of the batches add to it."""
WINDOW_MAX: Final = timedelta(hours=26)
"""If the watermark moved this far and no row was removed, few windows are not over: a day and its delay.

How long the rows would take to become this many says nothing: by night fewer come than by day.
"""
HELD_MIN: Final = timedelta(minutes=30)
"""The watermark is taken to stand still if it did for this long; event times are often cut to the minute."""
HELD_SURE_MIN: Final = timedelta(hours=2)
"""Event times that are cut to the hour hold it for up to an hour, so that it is not sure before."""
NEW_MIN_RATIO: Final = 0.5
"""The state is taken to have grown all along as now if this share of the rows that a batch writes is new.

Otherwise most keys are known already, and the state grew faster before.
"""

SNAPSHOT_LAG_MIN_COUNT: Final = 30
"""Snapshots lag if a recovery would replay this many batches, of at least five minutes, and none was taken since."""
SNAPSHOT_LAG_MIN: Final = timedelta(minutes=5)
SNAPSHOT_ROWS_MIN_COUNT: Final = 12
"""With fewer batches than this, the lag is not judged: Spark takes a snapshot after ten batches, by default."""

_OWN_STATE: Final = ("WithState", "withState")


class Cleaning(StrEnum):
    """Why no row of a state that grows is removed, as far as the watermark shows it."""

    NO_WATERMARK = "no-watermark"
    OWN = "own"
    """The query has no watermark, and a function of its own that may remove keys by timeouts."""
    HELD = "held"
    """The watermark stands still, though the batches have rows."""
    NOT_USED = "not-used"
    """The watermark has moved by more than a usual window, and no row was removed. A window may be longer."""
    NOT_DUE = "not-due"
    """The watermark moves, or did not stand still for long. The windows may not be over."""
    NOT_REPORTED = "not-reported"
    """The number of rows that were removed is not reported, and the watermark does not show it either."""


# These follow from the number of removed rows. Without a watermark that moves, Spark removes none.
_BY_REMOVED: Final = (Cleaning.OWN, Cleaning.NOT_USED, Cleaning.NOT_DUE)
# Spark reports this watermark until it has read an event time.
_NO_WATERMARK_YET = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class StateGrowth:
    """State that grows from batch to batch while no row is removed.

    ``is_reported`` is whether Spark reports the number of removed rows. ``age`` is how long the state has grown, if it
    always grew as it does now; reconstructed. None if it grew faster. ``span`` is the time from the first to the last
    batch.
    """

    cleaning: Cleaning
    is_reported: bool
    first_count: int
    last_count: int
    batch_count: int
    last_bytes: int | None
    age: timedelta | None
    watermark_at: datetime | None
    moved: timedelta | None
    span: timedelta
    operators: tuple[str, ...]
    source_count: int

    @property
    def is_certain(self) -> bool:
        """Whether it is known that rows should have been removed, or never will be."""
        return self.cleaning in (Cleaning.NO_WATERMARK, Cleaning.HELD)


def state_growth(rows: Sequence[Row]) -> StateGrowth | None:
    """Return how the state grows without being cleaned, or None if it does not grow or rows are removed."""
    held = [(r, s, s.row_count) for r in rows if (s := r.batch.state) is not None and s.row_count is not None]
    if len(held) < GROWTH_MIN_COUNT:
        return None
    counts = [count for _, _, count in held]
    grown = counts[-1] - counts[0]
    third = len(counts) // 3
    recent = counts[-1] - counts[-1 - third]
    if grown < STATE_MIN_ROWS or recent < STILL_MIN_RATIO * grown:
        return None
    removed = [s.removed_row_count for _, s, _ in held[1:]]
    known = [r for r in removed if r is not None]
    if rising_share(counts) < RISING_MIN_RATIO or any(known):
        return None
    newest, per_batch = held[-1][0], grown / (len(counts) - 1)
    step = _step([r for r, _, _ in held])
    age = None if step is None else step * (counts[-1] / per_batch)
    doubles = age is not None and age <= DOUBLING_MAX
    if counts[-1] < STATE_GROWTH_TIMES * counts[0] and not doubles:
        return None
    updated = median(s.updated_row_count for _, s, _ in held)
    is_steady = updated is not None and per_batch >= NEW_MIN_RATIO * updated
    first_at, last_at = held[0][0].batch.watermark_at, newest.batch.watermark_at
    moved = None if first_at is None or last_at is None else last_at - first_at
    if first_at is not None and last_at is not None and first_at <= _NO_WATERMARK_YET < last_at:
        moved = None
    is_reported = len(known) == len(removed)
    span = newest.checkpoint.header.triggered_at - held[0][0].checkpoint.header.triggered_at
    cleaning = _cleaning([r for r, _, _ in held], moved, span)
    return StateGrowth(
        cleaning=cleaning if is_reported or cleaning not in _BY_REMOVED else Cleaning.NOT_REPORTED,
        is_reported=is_reported,
        first_count=counts[0],
        last_count=counts[-1],
        batch_count=len(counts),
        last_bytes=_bytes(newest),
        age=age if is_steady else None,
        watermark_at=last_at,
        moved=moved,
        span=span,
        operators=held[-1][1].operators,
        source_count=len(newest.batch.sources),
    )


def _cleaning(rows: Sequence[Row], moved: timedelta | None, span: timedelta) -> Cleaning:
    watermarks = [r.batch.watermark_at for r in rows]
    if not any(watermarks):
        state = rows[-1].batch.state
        is_own = state is not None and any(word in name for name in state.operators for word in _OWN_STATE)
        return Cleaning.OWN if is_own else Cleaning.NO_WATERMARK
    if moved is None:
        return Cleaning.NOT_DUE
    if moved <= timedelta(0) and span >= HELD_MIN and all(r.batch.input_row_count for r in rows):
        return Cleaning.HELD
    return Cleaning.NOT_USED if moved >= WINDOW_MAX else Cleaning.NOT_DUE


def _step(rows: Sequence[Row]) -> timedelta | None:
    """Return the time from one batch to the next in the median."""
    steps = [
        (b.checkpoint.header.triggered_at - a.checkpoint.header.triggered_at).total_seconds() / (b.number - a.number)
        for a, b in pairwise(rows)
        if b.number > a.number
    ]
    middle = median(steps)
    return None if middle is None else timedelta(seconds=middle)


def _bytes(row: Row) -> int | None:
    state = row.batch.state
    known = row.checkpoint.header.full_state_size_bytes
    return known if known is not None or state is None else state.memory_bytes


@dataclass(frozen=True, slots=True)
class SnapshotLag:
    """A state whose newest snapshot gets older with each batch: by now ``batch_count`` batches, or about ``span``.

    ``is_known`` is whether a snapshot was ever reported. If none was, the stores have uploaded none since they were
    loaded, and the age of the newest snapshot is not known. ``batch_count`` and ``span`` then cover only the known
    batches, so the age is at least as large.
    """

    batch_count: int
    span: timedelta
    is_known: bool


def snapshot_lag(rows: Sequence[Row]) -> SnapshotLag | None:
    """Return the lag of the snapshots if no snapshot was taken in all batches that are known; otherwise None."""
    held = [(r, s.snapshot_lag) for r in rows if (s := r.batch.state) is not None and s.snapshot_lag is not None]
    step = _step(rows)
    lags = [lag for _, lag in held]
    if len(held) < SNAPSHOT_ROWS_MIN_COUNT or step is None or rising_share(lags) < 1.0:
        return None
    row, newest = held[-1]
    # The lag of a store without any snapshot is counted from batch 0.
    is_known = newest <= row.number
    count = newest if is_known else len(held)
    least = SNAPSHOT_LAG_MIN_COUNT if is_known else SNAPSHOT_ROWS_MIN_COUNT
    return SnapshotLag(count, count * step, is_known) if count >= least and count * step >= SNAPSHOT_LAG_MIN else None


def state_rows_ratio(rows: Sequence[Row]) -> float | None:
    """Return how many times as many rows the state has in the newest batches as in the first; None if not known."""
    first, last = (median(r.batch.state.row_count for r in part if r.batch.state is not None) for part in thirds(rows))
    return last / first if first and last is not None else None


def dropped_ratio(rows: Sequence[Row]) -> float | None:
    """Return the share of the input rows that came after the watermark, or None if it is not reported."""
    states: list[tuple[BatchState, int]] = [
        (s, r.batch.input_row_count)
        for r in rows
        if (s := r.batch.state) is not None and r.batch.input_row_count and s.dropped_row_count is not None
    ]
    read = sum(count for _, count in states)
    return sum(s.dropped_row_count or 0 for s, _ in states) / read if read else None
