"""Replays the early warning over checkpoints that have ended: what it would have said at each age, and how it fared.

As of each moment, only the checkpoints that had ended by then are known. A warning follows the rule of the alert
(``finish.is_warned``). Beside the prediction stands the plain rule: a
warning once ``FINISH_PLAIN_RATIO`` of the timeout has passed.

A *page* is the begin of an episode, as in the alert rule ``CheckpointWillTimeOut``: an episode ends when two
checkpoints in a row have completed without a warning. A page is *false* if no checkpoint of its episode expires.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from statistics import median
from typing import Final

from backend.analysis.health.finish import PastCheckpoint, is_warned, predict
from backend.analysis.health.progress import OpenCheckpoint
from backend.analysis.words.thresholds import FINISH_COUNT, FINISH_LATELY_COUNT, FINISH_PLAIN_RATIO
from backend.backtest.scores import Counts

LOOKS_COUNT: Final = 40
"""An open checkpoint is looked at this often until its timeout."""
AGE_EDGES: Final = (0.0, 0.02, 0.1, 0.25, 0.5, 0.75, 1.0)
"""The edges of the ages by which coverage is counted, as shares of the timeout."""
CALM_COUNT: Final = 2
"""An episode of statements is over after so many checkpoints in a row without one."""
_KEPT_COUNT = 200
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class EndedCheckpoint:
    """A checkpoint that has ended. ``triggered_ms`` counts from any fixed time.

    ``settings`` numbers the settings in force: only checkpoints with the same number are compared.
    """

    number: int
    triggered_ms: float
    timeout_ms: float | None
    past: PastCheckpoint
    is_expired: bool = False
    settings: int = 0
    run_id: str = ""

    @property
    def ended_ms(self) -> float:
        """When it ended."""
        return self.triggered_ms + self.past.end_ms


@dataclass(frozen=True, slots=True)
class Look:
    """What was predicted of a checkpoint at one age. All but ``age_ms`` is None if nothing could be predicted."""

    age_ms: float
    expiry_ratio: float | None = None
    low_ms: float | None = None
    likely_ms: float | None = None
    high_ms: float | None = None
    coverage_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Watched:
    """A checkpoint with the looks at it, and the ages of the first warning of the prediction and of the plain rule."""

    checkpoint: EndedCheckpoint
    looks: tuple[Look, ...]
    warned_ms: float | None
    plain_ms: float | None


@dataclass(slots=True)
class AgeBand(Counts):
    """The looks at checkpoints in one band of ages: how many had an interval, and how many intervals held.

    ``stated_count`` is how many of the intervals were expected to hold.
    """

    count: int = 0
    held_count: int = 0
    stated_count: float = 0.0


@dataclass(slots=True)
class Score(Counts):
    """How a way to warn fared. ``leads`` has the share of the timeout that was left at the first warning, or 0."""

    expired_count: int = 0
    caught_count: int = 0
    page_count: int = 0
    false_page_count: int = 0
    leads: list[float] = field(default_factory=list)

    @property
    def recall_ratio(self) -> float | None:
        """The share of the expired checkpoints that were warned of in time; None if none expired."""
        return self.caught_count / self.expired_count if self.expired_count else None

    @property
    def lead_ratio(self) -> float | None:
        """The median of the leads; None if no checkpoint expired."""
        return median(self.leads) if self.leads else None


@dataclass(slots=True)
class Tally:
    """The scores of the prediction and of the plain rule over some jobs, and the coverage by age."""

    predicted: Score = field(default_factory=Score)
    plain: Score = field(default_factory=Score)
    bands: list[AgeBand] = field(default_factory=lambda: [AgeBand() for _ in AGE_EDGES[1:]])
    checkpoint_count: int = 0
    watched_ms: float = 0.0

    @property
    def days(self) -> float:
        """The watched time in days."""
        return self.watched_ms / _DAY_MS

    def add(self, other: Tally) -> None:
        """Add the counts of another tally."""
        self.predicted.add(other.predicted)
        self.plain.add(other.plain)
        for band, more in zip(self.bands, other.bands, strict=True):
            band.add(more)
        self.checkpoint_count += other.checkpoint_count
        self.watched_ms += other.watched_ms


def watched(checkpoints: Iterable[EndedCheckpoint]) -> Iterator[Watched]:
    """Yield each checkpoint of a job that has a timeout, in the order of the triggers, as it would have been watched.

    ``checkpoints`` are those of one job, in the order of the triggers; only the newest are kept in memory. Aborted ones
    are only compared with.
    """
    before: deque[EndedCheckpoint] = deque(maxlen=_KEPT_COUNT)
    for checkpoint in checkpoints:
        if checkpoint.timeout_ms and (checkpoint.is_expired or checkpoint.past.has_completed):
            yield _watched(checkpoint, _known_before(before, checkpoint), _has_expired_lately(before, checkpoint))
        before.append(checkpoint)


def _known_before(before: Sequence[EndedCheckpoint], own: EndedCheckpoint) -> list[PastCheckpoint]:
    """Return the newest checkpoints that had ended, under the same settings, when this one was triggered."""
    past: list[PastCheckpoint] = []
    for other in reversed(before):
        if other.settings != own.settings or len(past) == FINISH_COUNT:
            break
        if other.ended_ms <= own.triggered_ms:
            past.append(other.past)
    return past[::-1]


def _has_expired_lately(before: Sequence[EndedCheckpoint], own: EndedCheckpoint) -> bool:
    """Return whether one of the newest checkpoints of the run that had ended at the trigger of this one expired."""
    ended = (other for other in reversed(before) if other.run_id == own.run_id and other.ended_ms <= own.triggered_ms)
    return any(other.is_expired for other in islice(ended, FINISH_LATELY_COUNT))


def _watched(checkpoint: EndedCheckpoint, past: Sequence[PastCheckpoint], has_expired_lately: bool) -> Watched:
    own, timeout_ms = checkpoint.past, float(checkpoint.timeout_ms or 0)
    looks: list[Look] = []
    warned_ms = plain_ms = None
    for step in range(LOOKS_COUNT):
        age_ms = max(1.0, timeout_ms * step / LOOKS_COUNT)
        if age_ms >= own.end_ms:
            break
        count = bisect_right(own.acks_ms, age_ms)
        if count >= own.subtask_count:
            break
        last_ms = own.acks_ms[count - 1] if count else None
        open_ = OpenCheckpoint(round(age_ms), count, own.subtask_count, last_ms, round(timeout_ms))
        finish = predict(open_, past)
        if age_ms > FINISH_PLAIN_RATIO * timeout_ms and plain_ms is None:
            plain_ms = age_ms
        if finish is None:
            looks.append(Look(age_ms))
            continue
        looks.append(
            Look(age_ms, finish.expiry_ratio, finish.low_ms, finish.likely_ms, finish.high_ms, finish.coverage_ratio)
        )
        if warned_ms is None and is_warned(
            finish.expiry_ratio, age_ms=age_ms, timeout_ms=timeout_ms, has_expired_lately=has_expired_lately
        ):
            warned_ms = age_ms
    return Watched(checkpoint, tuple(looks), warned_ms, plain_ms)


def tally_of(rows: Iterable[Watched]) -> Tally:
    """Return how the warnings of one job fared. ``rows`` are in the order of the triggers."""
    tally = Tally()
    episodes = (_Episodes(tally.predicted), _Episodes(tally.plain))
    begin_ms: float | None = None
    for row in rows:
        tally.checkpoint_count += 1
        begin_ms = row.checkpoint.triggered_ms if begin_ms is None else begin_ms
        tally.watched_ms = row.checkpoint.ended_ms - begin_ms
        for one, at_ms in zip(episodes, (row.warned_ms, row.plain_ms), strict=True):
            one.add(row.checkpoint, at_ms)
        for look in row.looks:
            _count_coverage(tally, row.checkpoint, look)
    for one in episodes:
        one.end()
    return tally


class _Episodes:
    """Counts expired checkpoints and pages of one way to warn."""

    def __init__(self, score: Score) -> None:
        self._score = score
        self._is_open = self._has_expired = False
        self._calm_count = 0

    def add(self, checkpoint: EndedCheckpoint, warned_ms: float | None) -> None:
        score = self._score
        if checkpoint.is_expired:
            score.expired_count += 1
            score.caught_count += warned_ms is not None
            score.leads.append(0.0 if warned_ms is None else 1 - warned_ms / float(checkpoint.timeout_ms or 1))
        if warned_ms is not None and not self._is_open:
            self._is_open, self._has_expired, self._calm_count = True, False, 0
            score.page_count += 1
        if not self._is_open:
            return
        self._has_expired |= checkpoint.is_expired
        self._calm_count = 0 if checkpoint.is_expired or warned_ms is not None else self._calm_count + 1
        if self._calm_count >= CALM_COUNT:
            self.end()

    def end(self) -> None:
        self._score.false_page_count += self._is_open and not self._has_expired
        self._is_open = False


def _count_coverage(tally: Tally, checkpoint: EndedCheckpoint, look: Look) -> None:
    if look.coverage_ratio is None:
        return
    timeout_ms = float(checkpoint.timeout_ms or 0)
    ages = [a * timeout_ms for a in AGE_EDGES]
    band = next(b for b, (_, high) in zip(tally.bands, pairwise(ages), strict=True) if look.age_ms < high)
    band.count += 1
    band.stated_count += look.coverage_ratio
    end_ms = float("inf") if checkpoint.is_expired else checkpoint.past.end_ms
    if look.low_ms is None:
        # The whole interval is past the timeout.
        band.held_count += checkpoint.is_expired
    else:
        is_open_ended = look.high_ms is None
        band.held_count += look.low_ms <= end_ms and (is_open_ended or end_ms <= (look.high_ms or 0.0))
