"""Replays the early warning over checkpoints that have ended: what it would have said at each age, and how it fared.

As of each moment, only the checkpoints that had ended by then are known. Beside the prediction stands the plain rule: a
warning once ``FINISH_PLAIN_RATIO`` of the timeout has passed.

A *page* is the begin of an episode, as in the alert rule ``CheckpointWillTimeOut``: an episode ends when two
checkpoints in a row have completed without a warning. A page is *false* if no checkpoint of its episode expires.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Final

from backend.analysis.finish import PastCheckpoint, predict
from backend.analysis.progress import OpenCheckpoint
from backend.analysis.thresholds import FINISH_COUNT, FINISH_PLAIN_RATIO

WARNS_RATIO: Final = 0.85
"""A warning is given at this probability of a timeout, the default of the alert rule."""
LOOKS_COUNT: Final = 40
"""An open checkpoint is looked at this often until its timeout."""
AGE_EDGES: Final = (0.0, 0.02, 0.1, 0.25, 0.5, 0.75, 1.0)
"""The edges of the ages by which coverage is counted, as shares of the timeout."""
_CALM_COUNT = 2
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
class AgeBand:
    """How many looks at one band of ages had an interval, how many held, and how many were to hold."""

    count: int = 0
    held_count: int = 0
    stated_count: float = 0.0


@dataclass(slots=True)
class Score:
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

    def add(self, other: Score) -> None:
        """Add the counts of another score."""
        self.expired_count += other.expired_count
        self.caught_count += other.caught_count
        self.page_count += other.page_count
        self.false_page_count += other.false_page_count
        self.leads += other.leads


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
            band.count += more.count
            band.held_count += more.held_count
            band.stated_count += more.stated_count
        self.checkpoint_count += other.checkpoint_count
        self.watched_ms += other.watched_ms


def watched(checkpoints: Sequence[EndedCheckpoint]) -> Iterator[Watched]:
    """Yield each checkpoint of a job that has a timeout, in the order of the triggers, as it would have been watched.

    ``checkpoints`` are those of one job, in the order of the triggers. Aborted ones are only compared with.
    """
    for index, checkpoint in enumerate(checkpoints):
        if checkpoint.timeout_ms and (checkpoint.is_expired or checkpoint.past.has_completed):
            yield _watched(checkpoint, _known_before(checkpoints, index))


def _known_before(checkpoints: Sequence[EndedCheckpoint], index: int) -> list[PastCheckpoint]:
    """Return the newest checkpoints that had ended, under the same settings, when this one was triggered."""
    own = checkpoints[index]
    found: list[PastCheckpoint] = []
    for other in reversed(checkpoints[:index]):
        if other.settings != own.settings or len(found) == FINISH_COUNT:
            break
        if other.ended_ms <= own.triggered_ms:
            found.append(other.past)
    return found[::-1]


def _watched(checkpoint: EndedCheckpoint, past: Sequence[PastCheckpoint]) -> Watched:
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
        found = predict(open_, past)
        is_late = age_ms > FINISH_PLAIN_RATIO * timeout_ms
        if is_late and plain_ms is None:
            plain_ms = age_ms
        if found is None or found.expiry_ratio is None:
            looks.append(Look(age_ms))
            # The alert rule then falls back to the plain rule.
            is_warned = is_late
        else:
            looks.append(
                Look(
                    age_ms, found.expiry_ratio, found.low_ms, found.likely_ms, found.high_ms, found.coverage_ratio
                )
            )  # fmt: skip
            is_warned = found.expiry_ratio >= WARNS_RATIO
        if is_warned and warned_ms is None:
            warned_ms = age_ms
    return Watched(checkpoint, tuple(looks), warned_ms, plain_ms)


def tally_of(rows: Sequence[Watched]) -> Tally:
    """Return how the warnings of one job fared. ``rows`` are in the order of the triggers."""
    tally = Tally(checkpoint_count=len(rows))
    tally.predicted = _score(rows, [w.warned_ms for w in rows])
    tally.plain = _score(rows, [w.plain_ms for w in rows])
    for row in rows:
        for look in row.looks:
            _count_coverage(tally, row.checkpoint, look)
    if rows:
        tally.watched_ms = rows[-1].checkpoint.ended_ms - rows[0].checkpoint.triggered_ms
    return tally


def _score(rows: Sequence[Watched], warned_ms: Sequence[float | None]) -> Score:
    score = Score()
    is_open = has_expired = False
    calm_count = 0
    for row, at_ms in zip(rows, warned_ms, strict=True):
        is_expired = row.checkpoint.is_expired
        if is_expired:
            score.expired_count += 1
            score.caught_count += at_ms is not None
            timeout_ms = float(row.checkpoint.timeout_ms or 1)
            score.leads.append(0.0 if at_ms is None else 1 - at_ms / timeout_ms)
        if at_ms is not None and not is_open:
            is_open, has_expired, calm_count = True, False, 0
            score.page_count += 1
        if not is_open:
            continue
        has_expired |= is_expired
        calm_count = 0 if is_expired or at_ms is not None else calm_count + 1
        if calm_count >= _CALM_COUNT:
            is_open = False
            score.false_page_count += not has_expired
    score.false_page_count += is_open and not has_expired
    return score


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
