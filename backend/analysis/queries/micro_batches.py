"""Analyses the micro-batches of a Spark query: the trigger's interval, the parts of a batch, signs of back-pressure.

Spark reports no back-pressure. Four signs replace it, the strongest first: batches longer than the trigger's interval,
a growing backlog, rows that grow from batch to batch, and no pause between batches. If a source limits the rows of a
batch, only the last sign shows. A query that starts its next batch at once has no pauses even if it keeps up. So the
last sign alone decides nothing unless the trigger's interval or the backlog is known, or the rows rise. Source:
measurements on Spark 4.3, in ``docs/spark.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import Final

from backend.analysis.numbers.statistics import median
from backend.analysis.words import sentences as say
from backend.analysis.words.thresholds import CHECKPOINTS_MAX, HEALTH_MIN_COUNT, SLOW_MIN_MS
from backend.domain.checkpoint import Checkpoint, CheckpointConfig, CheckpointStatus
from backend.domain.micro_batch import BatchPhase, MicroBatch, PressureSign
from backend.domain.verdict import Basis

OVERRUN_LIMIT: Final = 1.0
"""A batch that takes more than this many trigger intervals delays the next batch."""

ROWS_GROWTH_LIMIT: Final = 1.2
"""Rows grow if ``GROWING_STEPS`` batches in a row each read at least this many times the rows of the batch before."""

UTILISATION_LIMIT: Final = 0.95
"""If the query is busy for at least this share of the time, there is no pause between batches."""

GROWING_STEPS: Final = 3
"""Growth counts as a sign if it was seen this many times in a row."""

SHRINKS_TO_RATIO: Final = 0.9
"""A backlog shrinks if it is at most this share of what it was."""

WARM_UP_COUNT: Final = 2
"""The number of first batches that are left out, because they take seconds to load and compile classes."""

PAUSE_MIN_MS: Final = 20
"""If the gap before a batch is at least this long, the batch waited for its trigger.

Batches that do not wait for a trigger are a few milliseconds apart.
"""

GRID_SLACK_MS: Final = 25
"""Triggers fire at whole multiples of the interval, with a deviation of at most this time."""


class BatchPart(StrEnum):
    """The parts of a batch's duration. Each part points to a different culprit."""

    LOG = "log"
    SOURCE = "source"
    PLANNING = "planning"
    STATE_COMMIT = "state-commit"
    RUN = "run"


@dataclass(frozen=True, slots=True)
class Sign:
    """One sign of back-pressure. If its ``value`` is not known (None), the sign is not raised."""

    sign: PressureSign
    value: float | None
    limit: float
    is_raised: bool
    statement: str
    basis: Basis


@dataclass(frozen=True, slots=True)
class TriggerInterval:
    """The interval at which the query's trigger fires.

    Spark does not report it. The job passed it to the listener, or it is computed from the pauses between batches.
    """

    ms: float
    basis: Basis


@dataclass(frozen=True, slots=True)
class BatchReport:
    """The analysis of the newest batches of one run.

    ``judged`` are the completed batches, oldest first, without the first ones of the run, which are slow.
    """

    judged: tuple[Checkpoint, ...]
    interval: TriggerInterval | None
    signs: tuple[Sign, ...]
    shares: tuple[tuple[BatchPart, float], ...]
    """The share of each part in the duration of the judged batches, largest first; empty if no phase was reported."""

    @property
    def duration_median_ms(self) -> float | None:
        """The median duration of the judged batches."""
        return median(c.header.end_to_end_duration_ms for c in self.judged)

    @property
    def raised(self) -> tuple[Sign, ...]:
        """The raised signs, strongest first."""
        return tuple(s for s in self.signs if s.is_raised)

    @property
    def is_behind(self) -> bool:
        """Whether the query cannot keep up: a sign is raised, and the median batch takes at least a second.

        If the median is shorter, signs are within the noise. A query that never pauses keeps up all the same if no more
        waits at its sources than before, and it is not known if nothing else shows that it does not.
        """
        if self._is_busy_alone and (self.is_drained or not self._has_more_to_do):
            return False
        return bool(self.raised) and self._is_long

    @property
    def is_open(self) -> bool:
        """Whether it is not known whether the query keeps up.

        It never pauses, as any query without a trigger's interval that always has input. It has no other sign, and no
        interval, backlog or growth of the rows is known that would decide.
        """
        return self._is_busy_alone and self._is_long and not self.is_drained and not self._has_more_to_do

    @property
    def _is_long(self) -> bool:
        middle = self.duration_median_ms
        return middle is not None and middle >= SLOW_MIN_MS

    @property
    def _is_busy_alone(self) -> bool:
        return [s.sign for s in self.raised] == [PressureSign.UTILISATION]

    @property
    def has_backlog(self) -> bool:
        """Whether a source reports how much waits, in any of the judged batches."""
        return any(c.batch is not None and c.batch.backlog is not None for c in self.judged)

    @property
    def _has_more_to_do(self) -> bool:
        """Whether batches that never pause have a reason to: an interval they fill, a backlog, or ever more rows."""
        waiting = next((c.batch.backlog for c in reversed(self.judged) if c.batch and c.batch.backlog is not None), 0)
        rows = median(c.batch.input_row_count for c in self.judged if c.batch is not None)
        return self.interval is not None or waiting > (rows or 0) or self._has_ever_more_rows

    @property
    def is_drained(self) -> bool:
        """Whether all judged batches report the backlog of their sources, and it shrinks or is less than a batch."""
        known = [c.batch.backlog if c.batch is not None else None for c in self.judged]
        backlog = [b for b in known if b is not None]
        if not len(backlog) == len(known) >= HEALTH_MIN_COUNT:
            return False
        rows = median(c.batch.input_row_count for c in self.judged if c.batch is not None)
        is_small = rows is not None and max(backlog) <= rows and not self._has_more_rows
        # A backlog of 0 throughout does not shrink: its source gives all it has.
        return is_small or (any(backlog) and backlog[-1] <= SHRINKS_TO_RATIO * backlog[0])

    @property
    def _has_more_rows(self) -> bool:
        # A source that gives all it has reports no backlog: what came during a batch shows as rows of the next one.
        rows = [c.batch.input_row_count or 0 for c in self.judged if c.batch is not None]
        third = max(1, len(rows) // 3)
        first, last = median(rows[:third]), median(rows[-third:])
        return first is not None and last is not None and last > ROWS_GROWTH_LIMIT * first

    @property
    def _has_ever_more_rows(self) -> bool:
        # Rows that vary have by chance more in the last third. That each third is above the one before is no chance.
        rows = [c.batch.input_row_count or 0 for c in self.judged if c.batch is not None]
        third = len(rows) // 3
        if not third or not self._has_more_rows:
            return False
        first, middle, last = rows[:third], rows[third:-third], rows[-third:]
        return max(first) < min(middle) and max(middle) < min(last)

    def share(self, part: BatchPart) -> float | None:
        """Return the share of one part, or None if it was not reported."""
        return next((share for p, share in self.shares if p is part), None)


def report(checkpoints: Sequence[Checkpoint], config: CheckpointConfig | None) -> BatchReport:
    """Analyse the newest of ``checkpoints``, which are the batches of one run, oldest first."""
    completed = [
        c
        for c in checkpoints
        if c.header.status is CheckpointStatus.COMPLETED and c.header.end_to_end_duration_ms is not None
    ]
    warm = [c for c in completed if c.header.checkpoint_id >= WARM_UP_COUNT]
    judged = (warm if len(warm) >= HEALTH_MIN_COUNT else completed)[-CHECKPOINTS_MAX:]
    interval = _interval(completed, config)
    signs = (_overrun(judged, interval), _backlog_growth(judged), _rows_growth(completed), _utilisation(judged))
    return BatchReport(tuple(judged), interval, signs, _shares(judged))


def parts_of(batch: MicroBatch) -> dict[BatchPart, int]:
    """Return the reported parts of one batch, in milliseconds.

    Spark's time for running the query includes the commit of the state stores. That time is subtracted from ``RUN``.
    """
    parts: dict[BatchPart, int] = {}
    for part, phases in _PHASES.items():
        known = [ms for ms in (batch.phase_ms(p) for p in phases) if ms is not None]
        if known:
            parts[part] = sum(known)
    commit = batch.state.commit_ms if batch.state is not None else None
    if commit is not None and BatchPart.RUN in parts:
        parts[BatchPart.STATE_COMMIT] = min(commit, parts[BatchPart.RUN])
        parts[BatchPart.RUN] -= parts[BatchPart.STATE_COMMIT]
    return parts


_PHASES = {
    BatchPart.LOG: (BatchPhase.WAL_COMMIT, BatchPhase.COMMIT_OFFSETS),
    BatchPart.SOURCE: (BatchPhase.LATEST_OFFSET, BatchPhase.GET_BATCH),
    BatchPart.PLANNING: (BatchPhase.QUERY_PLANNING,),
    BatchPart.RUN: (BatchPhase.ADD_BATCH,),
}


def _shares(judged: Sequence[Checkpoint]) -> tuple[tuple[BatchPart, float], ...]:
    total = sum(c.header.end_to_end_duration_ms or 0 for c in judged)
    sums: dict[BatchPart, int] = {}
    for checkpoint in judged:
        for part, ms in parts_of(checkpoint.batch or MicroBatch()).items():
            sums[part] = sums.get(part, 0) + ms
    if total <= 0:
        return ()
    return tuple(sorted(((p, min(1.0, ms / total)) for p, ms in sums.items()), key=lambda s: -s[1]))


def _interval(completed: Sequence[Checkpoint], config: CheckpointConfig | None) -> TriggerInterval | None:
    if config is not None and config.interval_ms:
        return TriggerInterval(config.interval_ms, Basis.MEASURED)
    # A trigger with a fixed interval fires on a regular grid. A batch after a pause begins on this grid.
    on_grid = [
        after.header.triggered_at
        for before, after in pairwise(completed)
        if after.header.triggered_at - _end(before) >= timedelta(milliseconds=PAUSE_MIN_MS)
    ]
    steps = [(b - a) / timedelta(milliseconds=1) for a, b in pairwise(on_grid)]
    if len(steps) < GROWING_STEPS or min(steps) <= GRID_SLACK_MS:
        return None
    shortest = min(steps)
    many = [round(s / shortest) for s in steps]
    if any(abs(s - n * shortest) > GRID_SLACK_MS * n for s, n in zip(steps, many, strict=True)):
        return None
    return TriggerInterval(round(sum(steps) / sum(many), -1), Basis.RECONSTRUCTED)


def _end(checkpoint: Checkpoint) -> datetime:
    header = checkpoint.header
    return header.triggered_at + timedelta(milliseconds=header.end_to_end_duration_ms or 0)


def _overrun(judged: Sequence[Checkpoint], interval: TriggerInterval | None) -> Sign:
    middle = median(c.header.end_to_end_duration_ms for c in judged)
    if interval is None or middle is None or len(judged) < HEALTH_MIN_COUNT:
        why = "the trigger's interval is not known" if interval is None else "there are too few batches"
        return Sign(
            PressureSign.OVERRUN, None, OVERRUN_LIMIT, False, f"overrun is not known: {why}", Basis.RECONSTRUCTED
        )
    value = middle / interval.ms
    known = "" if interval.basis is Basis.MEASURED else ", computed from the pauses between batches"
    return Sign(
        PressureSign.OVERRUN,
        value,
        OVERRUN_LIMIT,
        value > OVERRUN_LIMIT,
        f"a batch takes {say.times(value)} the trigger's interval of {say.duration(interval.ms)}{known}",
        interval.basis,
    )


def _backlog_growth(judged: Sequence[Checkpoint]) -> Sign:
    known = [b for b in (c.batch.backlog if c.batch is not None else None for c in judged) if b is not None]
    newest = known[-(GROWING_STEPS + 1) :]
    if len(newest) <= GROWING_STEPS:
        return Sign(PressureSign.BACKLOG_GROWTH, None, 0.0, False, "no source reports its backlog", Basis.MEASURED)
    step = (newest[-1] - newest[0]) / GROWING_STEPS
    is_raised = all(b > a for a, b in pairwise(newest))
    text = f"the backlog at the sources is {newest[-1]}, {step:+.0f} a batch over the newest {GROWING_STEPS}"
    return Sign(PressureSign.BACKLOG_GROWTH, step, 0.0, is_raised, text, Basis.MEASURED)


def _rows_growth(completed: Sequence[Checkpoint]) -> Sign:
    rows = [c.batch.input_row_count if c.batch is not None else None for c in completed][-(GROWING_STEPS + 1) :]
    known = [r for r in rows if r]
    if len(known) <= GROWING_STEPS or len(known) < len(rows):
        text = "growth of the rows is not known: too few batches had rows"
        return Sign(PressureSign.ROWS_GROWTH, None, ROWS_GROWTH_LIMIT, False, text, Basis.MEASURED)
    least = min(b / a for a, b in pairwise(known))
    text = f"each of the newest {GROWING_STEPS} batches read at least {least:.2f} times the rows of the one before"
    return Sign(PressureSign.ROWS_GROWTH, least, ROWS_GROWTH_LIMIT, least > ROWS_GROWTH_LIMIT, text, Basis.MEASURED)


def _utilisation(judged: Sequence[Checkpoint]) -> Sign:
    if len(judged) < HEALTH_MIN_COUNT:
        text = "the query's busy time is not known: there are too few batches"
        return Sign(PressureSign.UTILISATION, None, UTILISATION_LIMIT, False, text, Basis.RECONSTRUCTED)
    wall_ms = (_end(judged[-1]) - judged[0].header.triggered_at) / timedelta(milliseconds=1)
    busy_ms = sum(c.header.end_to_end_duration_ms or 0 for c in judged)
    # If batches are missing, the time that they took is not known, so there is no share of busy time.
    ids = [c.header.checkpoint_id for c in judged]
    if wall_ms <= 0 or ids[-1] - ids[0] != len(ids) - 1:
        text = "the query's busy time is not known: batches are missing"
        return Sign(PressureSign.UTILISATION, None, UTILISATION_LIMIT, False, text, Basis.RECONSTRUCTED)
    value = min(1.0, busy_ms / wall_ms)
    pause = "without a pause between batches" if value >= UTILISATION_LIMIT else "with pauses between batches"
    text = f"the query is busy {say.percent(value)} of the time, {pause}"
    is_raised = value >= UTILISATION_LIMIT
    return Sign(PressureSign.UTILISATION, value, UTILISATION_LIMIT, is_raised, text, Basis.RECONSTRUCTED)
