"""What micro-batches of a Spark query tell: the trigger's interval, what a batch consists of, signs of backpressure.

Spark reports no backpressure. Four signs are worked out, the strongest first: batches that take longer than the
trigger's interval, a backlog that grows, rows that grow from batch to batch, and no pause between batches. A source
with a limit shows none but the last; a query told to take its next batch at once shows the last while it is well, so
that one proves nothing by itself below a second. Source: measurements on Spark 4.3, listed in ``docs/spark.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import Final

from backend.analysis import sentences as say
from backend.analysis.statistics import median
from backend.analysis.thresholds import CHECKPOINTS_MAX, HEALTH_MIN_COUNT, SLOW_MIN_MS
from backend.domain.checkpoint import Checkpoint, CheckpointConfig, CheckpointStatus
from backend.domain.micro_batch import BatchPhase, MicroBatch, PressureSign
from backend.domain.verdict import Basis

OVERRUN_LIMIT: Final = 1.0
"""A batch longer than the trigger's interval keeps the next one waiting."""

ROWS_GROWTH_LIMIT: Final = 1.2
"""Each batch reads this many times the rows of the one before, three times running."""

UTILISATION_LIMIT: Final = 0.95
"""From this share of the time on, there is no pause between batches."""

GROWING_STEPS: Final = 3
"""Growth counts once it was seen from batch to batch so many times running."""

WARM_UP_COUNT: Final = 2
"""The first batches of a query take seconds (classes are loaded and compiled): they are no measure of the others."""

PAUSE_MIN_MS: Final = 20
"""A gap as long as this before a batch was a wait for its trigger; between batches in a row a few ms pass."""

GRID_SLACK_MS: Final = 25
"""Triggers fire this close to a whole number of intervals."""


class BatchPart(StrEnum):
    """What a batch's duration consists of, as far as it points at someone."""

    LOG = "log"
    SOURCE = "source"
    PLANNING = "planning"
    STATE_COMMIT = "state-commit"
    RUN = "run"


@dataclass(frozen=True, slots=True)
class Sign:
    """One sign of back-pressure; ``value`` None where it cannot be told, and then it is not raised."""

    sign: PressureSign
    value: float | None
    limit: float
    is_raised: bool
    statement: str
    basis: Basis


@dataclass(frozen=True, slots=True)
class TriggerInterval:
    """The trigger's interval. Spark does not report it: the job told the listener, or it was learned from pauses."""

    ms: float
    basis: Basis


@dataclass(frozen=True, slots=True)
class BatchReport:
    """The newest batches of one run. ``judged`` are completed ones, oldest first, without the slow first ones."""

    judged: tuple[Checkpoint, ...]
    interval: TriggerInterval | None
    signs: tuple[Sign, ...]
    shares: tuple[tuple[BatchPart, float], ...]
    """Of the whole duration of the judged batches, largest first; empty where no phase was reported."""

    @property
    def duration_median_ms(self) -> float | None:
        """Of the judged batches."""
        return median(c.header.end_to_end_duration_ms for c in self.judged)

    @property
    def raised(self) -> tuple[Sign, ...]:
        """The signs that are raised, the strongest first."""
        return tuple(s for s in self.signs if s.is_raised)

    @property
    def is_behind(self) -> bool:
        """Whether the query cannot keep up; batches below a second are within the noise, whatever their signs."""
        middle = self.duration_median_ms
        return bool(self.raised) and middle is not None and middle >= SLOW_MIN_MS

    def share(self, part: BatchPart) -> float | None:
        """The share of one part; None where it was not reported."""
        return next((share for p, share in self.shares if p is part), None)


def report(checkpoints: Sequence[Checkpoint], config: CheckpointConfig | None) -> BatchReport:
    """What the newest batches (oldest first, of one run) tell."""
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
    """What one batch consists of, as far as it was reported. The state stores commit inside the run of the query."""
    found: dict[BatchPart, int] = {}
    for part, phases in _PHASES.items():
        known = [ms for ms in (batch.phase_ms(p) for p in phases) if ms is not None]
        if known:
            found[part] = sum(known)
    commit = batch.state.commit_ms if batch.state is not None else None
    if commit is not None and BatchPart.RUN in found:
        found[BatchPart.STATE_COMMIT] = min(commit, found[BatchPart.RUN])
        found[BatchPart.RUN] -= found[BatchPart.STATE_COMMIT]
    return found


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
    # A trigger of a fixed interval fires on a grid; a batch that came after a pause began on it.
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
            PressureSign.OVERRUN, None, OVERRUN_LIMIT, False, f"overrun cannot be told: {why}", Basis.RECONSTRUCTED
        )
    value = middle / interval.ms
    known = "" if interval.basis is Basis.MEASURED else ", learned from the pauses between batches"
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
        return Sign(
            PressureSign.BACKLOG_GROWTH, None, 0.0, False, "no source reports how far behind it is", Basis.MEASURED
        )
    step = (newest[-1] - newest[0]) / GROWING_STEPS
    is_raised = all(b > a for a, b in pairwise(newest))
    text = f"the backlog at the sources is {newest[-1]}, {step:+.0f} a batch over the newest {GROWING_STEPS}"
    return Sign(PressureSign.BACKLOG_GROWTH, step, 0.0, is_raised, text, Basis.MEASURED)


def _rows_growth(completed: Sequence[Checkpoint]) -> Sign:
    rows = [c.batch.input_row_count if c.batch is not None else None for c in completed][-(GROWING_STEPS + 1) :]
    known = [r for r in rows if r]
    if len(known) <= GROWING_STEPS or len(known) < len(rows):
        text = "growth of the rows cannot be told: too few batches had any"
        return Sign(PressureSign.ROWS_GROWTH, None, ROWS_GROWTH_LIMIT, False, text, Basis.MEASURED)
    least = min(b / a for a, b in pairwise(known))
    text = f"each of the newest {GROWING_STEPS} batches read at least {least:.2f} times the rows of the one before"
    return Sign(PressureSign.ROWS_GROWTH, least, ROWS_GROWTH_LIMIT, least > ROWS_GROWTH_LIMIT, text, Basis.MEASURED)


def _utilisation(judged: Sequence[Checkpoint]) -> Sign:
    if len(judged) < HEALTH_MIN_COUNT:
        text = "how busy the query is cannot be told: there are too few batches"
        return Sign(PressureSign.UTILISATION, None, UTILISATION_LIMIT, False, text, Basis.RECONSTRUCTED)
    wall_ms = (_end(judged[-1]) - judged[0].header.triggered_at) / timedelta(milliseconds=1)
    busy_ms = sum(c.header.end_to_end_duration_ms or 0 for c in judged)
    # Where batches were lost on the way, the time they took cannot be counted.
    ids = [c.header.checkpoint_id for c in judged]
    if wall_ms <= 0 or ids[-1] - ids[0] != len(ids) - 1:
        text = "how busy the query is cannot be told: batches are missing"
        return Sign(PressureSign.UTILISATION, None, UTILISATION_LIMIT, False, text, Basis.RECONSTRUCTED)
    value = min(1.0, busy_ms / wall_ms)
    pause = "without a pause between batches" if value >= UTILISATION_LIMIT else "with pauses between batches"
    text = f"the query is busy {say.percent(value)} of the time, {pause}"
    is_raised = value >= UTILISATION_LIMIT
    return Sign(PressureSign.UTILISATION, value, UTILISATION_LIMIT, is_raised, text, Basis.RECONSTRUCTED)
