"""Computes what a job loses to its checkpoints and to failures, now and under other settings (rules R-INT-1, R-INT-2).

The recorded checkpoints, or their replay under another mode, follow each other at an interval. Two things are lost:

* work: the longest sync part of each checkpoint, and ``STORE_PRICE`` of the time in which the store writes
* replay: what a failure processes again. This is the mean age of the newest completed checkpoint, and the time to read
  its in-flight data, over the mean time between failures

Means are used and not medians, because a few slow checkpoints can cost more than all others together. The age comes
from the sequence of the recorded durations: a checkpoint that takes longer than the interval delays the next one, and
one that expires leaves the one before as the newest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import pairwise
from math import sqrt
from statistics import fmean
from typing import Final

from backend.advisor.advice import EvidenceRow, Interval
from backend.advisor.replay import Recordings, Replay
from backend.advisor.situation import Recorded, Situation, widened
from backend.advisor.thresholds import (
    CAP_WRITE_RATIO,
    FAILURES_MIN_COUNT,
    INTERVAL_RATIO,
    LOSS_CHECKPOINTS_MAX,
    LOSS_GAIN_MIN_RATIO,
    LOST_MIN_RATIO,
    OPEN_MAX_RATIO,
    QUEUE_FACTOR,
    QUEUE_HIGH_FACTOR,
    QUEUE_LOW_FACTOR,
    REPLAY_BUDGET_MS,
    STORE_MIN_RATIO,
    STORE_PRICE,
    WILSON_Z,
    WRITE_BYTES_PER_MS,
    WRITE_FAST_BYTES_PER_MS,
    WRITE_SLOW_BYTES_PER_MS,
    WRITE_SPREAD,
)
from backend.analysis.numbers.statistics import median, quantile
from backend.analysis.words import sentences as say
from backend.domain.verdict import Basis

INTERVAL_MIN_MS: Final = 1_000
_ROUND: Final = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
"""The leading digits of the intervals that are tried. The loss between two of them is less than 1 % above the least."""
_LONGEST_MS: Final = 86_400_000
_ROUNDS: Final = 5
"""How often the recorded checkpoints are repeated, so that the first of them do not decide."""
BOUND_SLACK: Final = 0.05
"""Settings keep a bound on a share of the checkpoints if they pass it by at most this (twice this, for heavy ones)."""
_WRITE_MIN_BYTES: Final = 20_000
_WRITE_MIN_MS: Final = 10.0
_SMALL_BYTES: Final = 1_000
_QUICK: Final = 0.25


@dataclass(frozen=True, slots=True)
class Loss:
    """What is lost under one setting.

    ``ratio`` is the share of the time that is lost. ``open_ratio`` is the share of the time with a checkpoint.
    ``expired_ratio`` is the share of the checkpoints that expire. ``heavy_ratio`` is the share of them whose in-flight
    data the store cannot write in the time that R-CAP-1 allows.
    """

    interval_ms: int
    aligned_timeout_ms: int | None
    ratio: Interval
    open_ratio: float
    expired_ratio: float
    heavy_ratio: float

    def is_worth(self, now: Loss) -> bool:
        """Return whether the change from ``now`` saves enough to be advised."""
        return is_worth_saving(now.ratio.value, self.ratio.value)

    def keeps_bounds(self, now: Loss) -> bool:
        """Return whether no more checkpoints expire or are too heavy than ``now``."""
        return (
            self.expired_ratio <= now.expired_ratio + BOUND_SLACK
            and self.heavy_ratio <= now.heavy_ratio + 2 * BOUND_SLACK
        )


@dataclass(frozen=True, slots=True)
class _Run:
    """Checkpoints in their order: durations, costs in work, and times to read in-flight data, in milliseconds."""

    durations: Sequence[float]
    is_completed: Sequence[bool]
    costs: Sequence[float]
    reads: Sequence[float]


@dataclass(frozen=True, slots=True)
class _Corner:
    """One end of what the model allows: which end of each duration, and factors of sizes, speeds and failures."""

    of_duration: str
    queue_factor: float
    bytes_per_ms: float
    between_ms: float


def is_worth_saving(now_ratio: float, then_ratio: float) -> bool:
    """Return whether a smaller loss, as a share of the time, is worth a change of settings."""
    return now_ratio - then_ratio >= max(LOSS_GAIN_MIN_RATIO * now_ratio, LOST_MIN_RATIO)


def mean_time_between_failures_ms(situation: Situation) -> Interval | None:
    """Return the mean time between the job's restarts; None if fewer than three are known.

    The interval holds for failures that do not depend on each other.
    """
    times, gaps = _failures(situation)
    if len(times) < FAILURES_MIN_COUNT:
        return None
    mean = sum(gaps) / len(gaps)
    spread = WILSON_Z / sqrt(len(gaps))
    return Interval(mean, mean / (1 + spread), mean / max(0.2, 1 - spread))


def _failures(situation: Situation) -> tuple[Sequence[datetime], tuple[float, ...]]:
    """Return the times of the job's restarts, and the milliseconds from each one to the next."""
    times = sorted({at for at, _ in situation.evidence.exceptions})
    return times, tuple((b - a).total_seconds() * 1000 for a, b in pairwise(times))


class Losses:
    """What a job loses under its present settings, and under other modes and intervals."""

    def __init__(self, situation: Situation, between: Interval) -> None:
        """``between`` is the mean time between failures in milliseconds. The job must have recorded checkpoints."""
        self._known = widened(situation, LOSS_CHECKPOINTS_MAX)
        self._between = between
        self._recordings = Recordings(self._known)
        self._replays: dict[int | None, Replay | None] = {}
        config = situation.evidence.config
        self._interval_ms = (config.interval_ms if config is not None else None) or 0
        self._pause_ms = float((config.min_pause_ms if config is not None else None) or 0)
        self._timeout_ms = config.timeout_ms if config is not None else None
        speed = _store_speed(self._known)
        likely = float(WRITE_BYTES_PER_MS) if speed is None else speed
        slow = float(WRITE_SLOW_BYTES_PER_MS) if speed is None else speed / WRITE_SPREAD
        fast = float(WRITE_FAST_BYTES_PER_MS) if speed is None else speed * WRITE_SPREAD
        self._bytes_per_ms = likely
        self._corners = (
            _Corner("value", QUEUE_FACTOR, likely, between.value),
            _Corner("low", QUEUE_LOW_FACTOR, fast, between.high),
            _Corner("high", QUEUE_HIGH_FACTOR, slow, between.low),
        )

    @classmethod
    def of_job(cls, situation: Situation) -> Losses | None:
        """Return the losses of a job; None if its failures, its interval or its sync parts are not known."""
        between = mean_time_between_failures_ms(situation)
        config = situation.evidence.config
        if between is None or config is None or not config.interval_ms or situation.mode is None:
            return None
        return cls(situation, between) if any(r.sync_ms is not None for r in situation.recorded) else None

    @property
    def between(self) -> Interval:
        """The mean time between failures in milliseconds."""
        return self._between

    @property
    def recorded(self) -> tuple[Recorded, ...]:
        """The checkpoints from which losses are computed."""
        return self._known.recorded

    @property
    def checkpoint_count(self) -> int:
        """The number of checkpoints from which losses are computed."""
        return len(self._known.recorded)

    @property
    def bytes_per_ms(self) -> float:
        """The speed of the store, measured or assumed."""
        return self._bytes_per_ms

    @property
    def is_store_late(self) -> bool:
        """Whether writes that hang now and then cost about as much as barriers that travel (R-UC-2)."""
        rows = self._known.recorded
        writing = fmean(r.own_async_ms or 0.0 for r in rows)
        return writing > STORE_MIN_RATIO * fmean(r.travel_ms or 0.0 for r in rows)

    @property
    def cost_ms(self) -> float:
        """The mean work that a checkpoint costs now."""
        run = self._run(self._known.aligned_timeout_ms, self._corners[0])
        assert run is not None
        return max(1.0, fmean(run.costs))

    @cached_property
    def now(self) -> Loss:
        """What is lost under the present settings."""
        loss = self.of(self._known.aligned_timeout_ms, self._interval_ms)
        assert loss is not None
        return loss

    def of(self, aligned_timeout_ms: int | None, interval_ms: int, *, pause_ms: float | None = None) -> Loss | None:
        """Return what is lost under a mode and an interval; None if the mode cannot be replayed.

        An aligned timeout of None means that barriers never overtake data, and 0 that they overtake it at once.
        """
        runs = [self._run(aligned_timeout_ms, corner) for corner in self._corners]
        if runs[0] is None:
            return None
        pause = self._pause_ms if pause_ms is None else pause_ms
        found = []
        for run, corner in zip(runs, self._corners, strict=True):
            assert run is not None
            age, period = _age_and_period(run, interval_ms, pause)
            replay = 1.0 if age is None else (age + fmean(run.reads)) / corner.between_ms
            found.append((min(1.0, fmean(run.costs) / period + replay), fmean(run.durations) / period))
        value, low, high = (ratio for ratio, _ in found)
        likely = runs[0]
        return Loss(
            interval_ms=interval_ms,
            aligned_timeout_ms=aligned_timeout_ms,
            ratio=Interval(value, min(low, value), max(high, value)),
            open_ratio=found[0][1],
            expired_ratio=1.0 - fmean(likely.is_completed),
            heavy_ratio=self._heavy_ratio(likely, interval_ms),
        )

    def best(self, aligned_timeout_ms: int | None) -> Loss | None:
        """Return the interval with the least loss under a mode, within the hard bounds; None if there is none.

        Intervals at which checkpoints run for more than half of the time count only if there are no others, and only if
        they are not shorter than now. An interval at which some checkpoints expire counts only if it is not longer than
        now, because a longer one adds to the time until a checkpoint completes.
        """
        tried = (self.of(aligned_timeout_ms, ms) for ms in self.intervals(aligned_timeout_ms or 0))
        losses = [x for x in tried if x and (not x.expired_ratio or x.interval_ms <= self._interval_ms)]
        calm = [x for x in losses if x.open_ratio <= OPEN_MAX_RATIO] or [
            x for x in losses if x.interval_ms >= self._interval_ms
        ]
        return min(calm, key=lambda x: (not x.keeps_bounds(self.now), x.ratio.value), default=None)

    def replay(self, aligned_timeout_ms: int | None) -> Replay | None:
        """Return the replay of the recorded checkpoints under a mode; None if it is not possible."""
        if aligned_timeout_ms not in self._replays:
            self._replays[aligned_timeout_ms] = self._recordings.replay(aligned_timeout_ms)
        return self._replays[aligned_timeout_ms]

    def intervals(self, aligned_timeout_ms: int) -> Iterator[int]:
        """Yield round intervals, the present one and the checkpoint timeout, within the hard bounds (R-AT-2, R-INT-3).

        A failure makes the job read again at most the input of one interval and one checkpoint. Intervals that are
        longer than the present one are left out if that is more than the budget of replayed input.
        """
        low = max(INTERVAL_MIN_MS, aligned_timeout_ms / INTERVAL_RATIO)
        high = self._timeout_ms or _LONGEST_MS
        tens = (10**n for n in range(3, 8))
        intervals_ms = {round(step * ten) for ten in tens for step in _ROUND} | {self._interval_ms, high}
        took = quantile([r.duration_ms for r in self._known.recorded if not r.is_failed], 0.95) or 0.0
        longest = max(self._interval_ms, REPLAY_BUDGET_MS - took)
        yield from (ms for ms in sorted(intervals_ms) if low <= ms <= min(high, longest))

    def _run(self, aligned_timeout_ms: int | None, corner: _Corner) -> _Run | None:
        if aligned_timeout_ms == self._known.aligned_timeout_ms:
            rows: Sequence[Recorded] = self._known.recorded
            durations = [r.duration_ms for r in rows]
            done = [not r.is_failed for r in rows]
            sizes = [r.persisted_bytes or 0.0 for r in rows]
        else:
            replay = self.replay(aligned_timeout_ms)
            if replay is None:
                return None
            rows = self._recordings.rows
            durations = [float(getattr(o.duration_ms, corner.of_duration)) for o in replay.outcomes]
            done = [self._timeout_ms is None or ms < self._timeout_ms for ms in durations]
            sizes = [o.persisted_bytes * corner.queue_factor for o in replay.outcomes]
        reads = [size / corner.bytes_per_ms for size in sizes]
        state = fmean(_state_bytes(rows) or [0.0]) / corner.bytes_per_ms
        if self._timeout_ms is not None:
            durations = [min(ms, float(self._timeout_ms)) for ms in durations]
        costs = [(r.sync_ms or 0.0) + STORE_PRICE * (state + read) for r, read in zip(rows, reads, strict=True)]
        return _Run(durations, done, costs, reads)

    def _heavy_ratio(self, run: _Run, interval_ms: int) -> float:
        # With a longer interval there is more time, but not before the interval has been changed.
        limits = [min(interval_ms, self._interval_ms) / 2]
        if self._timeout_ms is not None:
            limits.append(self._timeout_ms / 3)
        return fmean(ms > CAP_WRITE_RATIO * min(limits) for ms in run.reads)


def _store_speed(situation: Situation) -> float | None:
    """Return the speed of the store in bytes per millisecond; None if no write took clearly longer than the smallest.

    If no checkpoint wrote enough to measure the speed, the time of the smallest writes counts as the latency of the
    store. The additional time of larger writes counts as the time for their bytes. Low quantiles leave out hanging
    writes.
    """
    if situation.store_bytes_per_ms is not None:
        return situation.store_bytes_per_ms
    rows = [(r.written_bytes, r.own_async_ms, r) for r in situation.recorded if r.written_bytes and r.own_async_ms]
    usual = median(size for size, _, _ in rows)
    if usual is None or usual < _WRITE_MIN_BYTES:
        return None
    took = quantile([ms for size, ms, _ in rows if size >= usual / 2], _QUICK)
    latency = quantile([ms for _, _, r in rows for ms in _small_writes_ms(r)], _QUICK) or 0.0
    if took is None or took - latency < _WRITE_MIN_MS:
        return None
    return usual / (took - latency)


def _small_writes_ms(r: Recorded) -> list[float]:
    """Return the async parts of the subtasks that wrote next to nothing."""
    small_writes_ms: list[float] = []
    for detail in r.checkpoint.details:
        pairs = zip(detail.checkpointed_size_bytes, detail.async_duration_ms, strict=True)
        small_writes_ms += [float(ms) for size, ms in pairs if size is not None and ms and size < _SMALL_BYTES]
    return small_writes_ms


def _state_bytes(rows: Sequence[Recorded]) -> list[float]:
    """Return what completed checkpoints wrote beside in-flight data."""
    return [r.written_bytes - (r.persisted_bytes or 0.0) for r in rows if not r.is_failed and r.written_bytes]


def _age_and_period(run: _Run, interval_ms: float, pause_ms: float) -> tuple[float | None, float]:
    """Return the mean age of the newest completed checkpoint, and the mean time from one trigger to the next.

    The age is None if no checkpoint completes.
    """
    count = len(run.durations)
    at = area = 0.0
    newest = since = began = None
    for n in range(_ROUNDS * count):
        end = at + run.durations[n % count]
        if run.is_completed[n % count]:
            if newest is None or since is None:
                began = end
            else:
                area += (end - since) * ((end + since) / 2 - newest)
            newest, since = at, end
        at = max(at + interval_ms, end + pause_ms)
    period = at / (_ROUNDS * count)
    if since is None or began is None or since <= began:
        return None, period
    return area / (since - began), period


# --- words and rows -----------------------------------------------------------------------------------------------


def lost_words(loss: Loss | float) -> str:
    """Return what is lost, such as ``1.83 %``."""
    return say.percent(loss if isinstance(loss, float) else loss.ratio.value)


def loss_method(losses: Losses) -> str:
    """Return the text that explains how losses were computed."""
    price = say.percent(STORE_PRICE)
    return (
        f"replay of the last {losses.checkpoint_count} checkpoints at the interval. Work: their sync parts, and {price}"
        " of the time to write them. Replay: the mean age of the newest completed one, and the time to read its"
        " in-flight data, divided by the time between failures. The interval covers the errors of both"
    )


def loss_rows(situation: Situation, losses: Losses) -> tuple[EvidenceRow, ...]:
    """Return rows for the time between failures and for the sync parts."""
    times, gaps = _failures(situation)
    sync = tuple(r.sync_ms for r in situation.recorded)
    return (
        EvidenceRow(
            "mean time between failures",
            "exceptions",
            Basis.RECONSTRUCTED,
            losses.between.value,
            "ms",
            since=times[0],
            until=times[-1],
            values=gaps,
        ),
        EvidenceRow(
            "longest sync part of a checkpoint, mean",
            "syncDuration",
            Basis.MEASURED,
            fmean(v for v in sync if v is not None),
            "ms",
            checkpoint_ids=situation.ids,
            values=sync,
        ),
    )
