"""Predicts when an open checkpoint finishes, and how probably it reaches its timeout, from earlier ones of the job.

Each earlier checkpoint with as many acknowledgements says how long it took from there to its end. So ``n`` of them
give ``n`` times at which the open checkpoint may end. Plain conformal prediction gives each of the ``n + 1`` gaps
between and around these times the same probability. It assumes that the checkpoints are exchangeable, which those of a
job whose load changes are not. Therefore this prediction differs from it in four points:

* An earlier checkpoint has less weight the longer ago it was (Barber et al. 2023), and the more its progress differed
  from that of the open one (Guan 2023). Progress is the time of the last acknowledgement, and the first barriers at
  the subtasks that have not acknowledged.
* Each time is spread by some percent (log-logistic), because the next checkpoint never takes exactly as long.
* The share of the open checkpoint itself, 1 of ``n + 1``, has a heavy tail (Lomax): it stands for the case that the
  checkpoint is unlike all earlier ones. The longer a checkpoint outlasts them, the more this case counts.
* An earlier checkpoint that expired or was aborted is censored: it only says that it needed more than its length. From
  there on, its share goes to the cases that take longer (as in the estimator of Kaplan and Meier).

The result is the distribution of the end given that the checkpoint is still open at its present age, as in the
History-Aware Prediction Sets of arXiv 2605.06581. So its coverage holds among the checkpoints that reach that age, and
is stated for the age. The tails of the interval are calibrated by bands of the age, on drawn jobs. Coverage is not
exact for every job: ``make early-warning`` measures it by age.

Invariant: a predicted finish is never before the present, and never after the timeout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import exp, log
from statistics import median

import numpy as np
from numpy.typing import NDArray

from backend.analysis.health.progress import OpenCheckpoint, SubtaskKey
from backend.analysis.numbers.cache import kept
from backend.analysis.words import sentences as say
from backend.analysis.words.thresholds import (
    FINISH_COUNT,
    FINISH_DAMPING_RATIO,
    FINISH_EARLY_TAIL_RATIO,
    FINISH_FADE_RATIO,
    FINISH_INTERVAL_RATIO,
    FINISH_LATE_AGE_RATIO,
    FINISH_LATELY_COUNT,
    FINISH_LIKENESS_LOG,
    FINISH_MIDDLE_TAIL_RATIO,
    FINISH_MIN_COUNT,
    FINISH_PLAIN_RATIO,
    FINISH_SPREAD_POWER,
    FINISH_TAIL_POWER,
    FINISH_UNKNOWN_RATIO,
    FINISH_UNLIKE_WEIGHT,
    FINISH_WARN_AGAIN_RATIO,
    FINISH_WARN_LATE_RATIO,
    FINISH_WARN_RATIO,
    FINISH_YOUNG_TAIL_RATIO,
)
from backend.domain.checkpoint import Checkpoint, CheckpointHeader, CheckpointKind, CheckpointStatus
from backend.domain.progress import Outlook

_GRID_COUNT = 96
_TAILS = ((0.02, FINISH_YOUNG_TAIL_RATIO), (0.25, FINISH_EARLY_TAIL_RATIO), (0.5, FINISH_MIDDLE_TAIL_RATIO))
"""Up to which share of the timeout each tail of the interval is used."""
_FAR = 50.0
"""Without a timeout, the end is looked for up to this many times the longest time that earlier checkpoints suggest."""


@dataclass(frozen=True, slots=True)
class Finish:
    """The prediction in words and numbers. Times are milliseconds since the trigger.

    ``expiry_ratio`` is the probability that the checkpoint reaches its timeout; None if it has none. ``high_ms`` is
    None if the interval reaches to the timeout or has no end, and ``low_ms`` if the whole interval is past the timeout.
    ``coverage_ratio`` is the probability that the finish is in the interval, among checkpoints that reach this age.
    ``compared_count`` earlier checkpoints had come as far, and ``longer_count`` of them took longer from there than
    this one has so far. ``plain_rule_ms`` is when a plain rule would warn, which knows no earlier checkpoints.
    """

    outlook: Outlook
    words: str
    likely_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    coverage_ratio: float | None = None
    expiry_ratio: float | None = None
    compared_count: int = 0
    longer_count: int = 0
    plain_rule_ms: float | None = None


@dataclass(frozen=True, slots=True)
class PastCheckpoint:
    """The acknowledgements of an earlier checkpoint, in milliseconds since its trigger, ascending.

    ``end_ms`` is when it ended. If it has not completed, it is censored: it would have taken longer.
    """

    acks_ms: tuple[int, ...]
    subtask_count: int
    end_ms: float
    has_completed: bool = True
    first_barriers_ms: Mapping[SubtaskKey, int] = field(default_factory=dict)


def past_checkpoint(checkpoint: Checkpoint) -> PastCheckpoint | None:
    """Return an ended checkpoint as one to compare with. Return None if it is a savepoint or its length is unknown."""
    acks = [v for d in checkpoint.details for v in d.ack_delay_ms]
    barriers = {
        (d.vertex_id, i): v for d in checkpoint.details for i, v in enumerate(d.start_delay_ms) if v is not None
    }
    return past_of(checkpoint.header, acks, barriers)


def past_of(
    header: CheckpointHeader, ack_delays_ms: Sequence[int | None], first_barriers_ms: Mapping[SubtaskKey, int]
) -> PastCheckpoint | None:
    """Return an ended checkpoint as one to compare with, from its header and what its subtasks reported, in any order.

    Return None if it is a savepoint, has not ended, or if its length or its acknowledgements are not known.
    """
    if header.kind is not CheckpointKind.CHECKPOINT or not header.status.is_terminal:
        return None
    acks = tuple(sorted(max(0, v) for v in ack_delays_ms if v is not None))
    if header.status is CheckpointStatus.COMPLETED:
        is_whole = bool(acks) and len(acks) == len(ack_delays_ms) and len(acks) >= header.subtask_count
        return PastCheckpoint(acks, len(acks), max(1, acks[-1]), True, first_barriers_ms) if is_whole else None
    length_ms = header.end_to_end_duration_ms
    if not length_ms or header.subtask_count == 0 or len(acks) < header.acknowledged_count:
        return None
    return PastCheckpoint(acks, header.subtask_count, length_ms, False, first_barriers_ms)


def predict(
    open_: OpenCheckpoint, past: Sequence[PastCheckpoint], *, past_min_count: int = FINISH_MIN_COUNT
) -> Finish | None:
    """Predict the end of an open checkpoint from earlier ones, oldest first. Return None if it is not open any more.

    Only the newest ``FINISH_COUNT`` earlier checkpoints are used, and only those with as many subtasks.
    """
    if open_.status is not CheckpointStatus.IN_PROGRESS or open_.acknowledged_count >= open_.subtask_count > 0:
        return None
    alike = [p for p in past if p.subtask_count == open_.subtask_count][-FINISH_COUNT:]
    if len(alike) < past_min_count:
        return Finish(Outlook.UNKNOWN, _too_few(open_, len(past), len(alike), past_min_count))
    if all(len(p.acks_ms) < open_.acknowledged_count for p in alike):
        far = f"{open_.acknowledged_count} of {open_.subtask_count} acknowledgements"
        words = f"not predictable: none of the last {say.checkpoints(len(alike))} had come as far, {far}"
        return Finish(Outlook.UNKNOWN, words)
    # The age of the open checkpoint does not change the mixture, so looks at several ages may share it.
    state = (open_.subtask_count, open_.acknowledged_count, open_.last_ack_ms, tuple(open_.first_barriers_ms.items()))
    finish = _finish(open_, kept((past,), ("mixture", *state), lambda: _Mixture(open_, alike)))
    return replace(finish, plain_rule_ms=None if open_.timeout_ms is None else FINISH_PLAIN_RATIO * open_.timeout_ms)


def is_warned(
    expiry_ratio: float | None,
    *,
    age_ms: float,
    timeout_ms: float,
    has_expired_lately: bool,
    warn_ratio: float = FINISH_WARN_RATIO,
) -> bool:
    """Return whether to warn that an open checkpoint will time out.

    ``expiry_ratio`` is that of its prediction; without one, the age decides. The other values are those of
    ``warned_from``.
    """
    if expiry_ratio is None:
        return age_ms > FINISH_UNKNOWN_RATIO * timeout_ms
    least, _ = warned_from(warn_ratio, age_ms=age_ms, timeout_ms=timeout_ms, has_expired_lately=has_expired_lately)
    return expiry_ratio >= least


def warned_from(
    warn_ratio: float, *, age_ms: float, timeout_ms: float, has_expired_lately: bool
) -> tuple[float, str | None]:
    """Return the probability of a timeout that is enough for a warning, and why if it is less than ``warn_ratio``.

    ``has_expired_lately`` is whether one of the newest ``FINISH_LATELY_COUNT`` ended checkpoints expired. If so, a
    lower probability is enough: the first warning of a trouble wakes somebody and needs to be sure, those that follow
    belong to the same trouble. Shortly before the timeout, a somewhat lower one is enough too: a false page is the
    smaller evil then.
    """
    enough: list[tuple[float, str | None]] = [(warn_ratio, None)]
    if has_expired_lately:
        why = f"one of the newest {FINISH_LATELY_COUNT} ended checkpoints expired"
        enough.append((FINISH_WARN_AGAIN_RATIO, why))
    if age_ms >= FINISH_LATE_AGE_RATIO * timeout_ms:
        why = f"at least {say.percent(FINISH_LATE_AGE_RATIO)} of the timeout has passed"
        enough.append((FINISH_WARN_LATE_RATIO, why))
    return min(enough, key=lambda one: one[0])


def _too_few(open_: OpenCheckpoint, past_count: int, count: int, needed: int) -> str:
    why = "no earlier checkpoint" if count == 0 else f"only {say.checkpoints(count)}"
    other = f" of {open_.subtask_count} subtasks" if past_count > count else ""
    return f"not predictable yet: {why}{other} under the present settings to compare with, {needed} are needed"


class _Mixture:
    """The distribution of the time at which the open checkpoint ends, mixed from earlier checkpoints.

    Each earlier checkpoint that reached as many acknowledgements gives one part of it. One more part stands for the
    case that the open checkpoint is unlike all earlier ones.
    """

    def __init__(self, open_: OpenCheckpoint, past: Sequence[PastCheckpoint]) -> None:
        count = open_.acknowledged_count
        self._since_ms = float(open_.last_ack_ms or 0)
        self._scale_ms = max(1.0, median(p.end_ms for p in past))
        ends, weights, cut = [], [], []
        for ago, p in enumerate(reversed(past)):
            if len(p.acks_ms) < count:
                # It ended before it came as far, so it does not say how long the rest takes.
                continue
            at_ms = float(p.acks_ms[count - 1]) if count else 0.0
            ends.append(max(1.0, self._since_ms + p.end_ms - at_ms))
            weights.append(FINISH_FADE_RATIO**ago * _likeness(open_, p, at_ms))
            cut.append(not p.has_completed)
        self.ends_ms = np.array(ends)
        self._weights = np.array(weights)
        self._is_cut = np.array(cut)

    def survival(self, at_ms: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the weight of the cases in which the end is after each of these times, not normalized."""
        cuts = np.flatnonzero(self._is_cut)
        # The times of the cuts are evaluated as well, the latest first.
        cuts = cuts[np.argsort(-self.ends_ms[cuts])]
        times = np.concatenate((np.maximum(at_ms, 1.0), self.ends_ms[cuts]))
        done = ~self._is_cut
        # The exponent is limited, because a time may be far beyond the end of an earlier checkpoint.
        ratio = np.minimum(FINISH_SPREAD_POWER * np.log(times[:, None] / self.ends_ms[done]), 500.0)
        left = (self._weights[done] / (1 + np.exp(ratio))).sum(axis=1)
        waited = np.maximum(times - self._since_ms, 0.0) / self._scale_ms
        left += FINISH_UNLIKE_WEIGHT * (1 + waited) ** -FINISH_TAIL_POWER
        for place, index in enumerate(cuts):
            after = left / left[len(at_ms) + place]
            left = left + self._weights[index] * np.where(times <= self.ends_ms[index], 1.0, after)
        found: NDArray[np.float64] = left[: len(at_ms)]
        return found


def _likeness(open_: OpenCheckpoint, past: PastCheckpoint, at_ms: float) -> float:
    """Return the weight of an earlier checkpoint by how alike the progress is: 1 if it is the same.

    ``at_ms`` is when the earlier checkpoint had as many acknowledgements as the open one has now.
    """
    # A few milliseconds at the start have little weight.
    damping_ms = FINISH_DAMPING_RATIO * past.end_ms
    logs = [log(((open_.last_ack_ms or 0) + damping_ms) / (at_ms + damping_ms))] if open_.acknowledged_count else []
    late = [
        log((max(0, seen_ms) + damping_ms) / (max(0, past.first_barriers_ms[key]) + damping_ms))
        for key, seen_ms in open_.first_barriers_ms.items()
        if key in past.first_barriers_ms
    ]
    if late:
        logs.append(median(late))
    return exp(-0.5 * sum((v / FINISH_LIKENESS_LOG) ** 2 for v in logs))


def _finish(open_: OpenCheckpoint, mixture: _Mixture) -> Finish:
    age_ms = max(1.0, float(open_.elapsed_ms))
    limit_ms = None if open_.timeout_ms is None else max(float(open_.timeout_ms), age_ms)
    until_ms = limit_ms or _FAR * max(age_ms, float(mixture.ends_ms.max()))
    times = _times(age_ms, until_ms)
    open_share = mixture.survival(times)
    open_share = open_share / open_share[0]
    past_limit = float(open_share[-1])
    tail = (1 - FINISH_INTERVAL_RATIO) / 2
    cut = tail if limit_ms is None else _tail_at(age_ms / limit_ms, tail)
    low, likely, high = (_reached(times, open_share, share) for share in (1 - cut, 0.5, cut))
    below = 1 - tail if low is not None else past_limit
    coverage = below - (tail if high is not None else 0.0)
    compared, longer = len(mixture.ends_ms), int((mixture.ends_ms > age_ms).sum())
    basis = f"estimated from {say.checkpoints(compared)} that had come as far; {longer} of them took longer from there"
    expiry = None if limit_ms is None else past_limit
    if likely is None:
        words = _late_words(limit_ms, past_limit, low, basis)
        return Finish(Outlook.TIMES_OUT, words, None, low, None, coverage, expiry, compared, longer)
    to = "the timeout" if limit_ms is not None else "no known end"
    words = (
        f"will probably finish {say.duration(likely)} after its trigger ({say.percent(coverage)} of checkpoints of this"
        f" age finish between {'now' if low is None else say.duration(low)} and"
        f" {to if high is None else say.duration(high)}; {basis})"
    )
    return Finish(Outlook.FINISHES, words, likely, low, high, coverage, expiry, compared, longer)


@lru_cache(maxsize=256)
def _times(from_ms: float, until_ms: float) -> NDArray[np.float64]:
    """Return the times at which a distribution is computed. Checkpoints of the same age and timeout have the same."""
    found = np.geomspace(from_ms, until_ms, _GRID_COUNT)
    found.setflags(write=False)
    return found


def _tail_at(age_ratio: float, tail: float) -> float:
    """Return which share of the predicted cases each side of the interval leaves out, so that ``tail`` fall outside.

    ``age_ratio`` is the age as a share of the timeout. The bands were calibrated on drawn jobs, each for itself
    (Mondrian conformal prediction by age).
    """
    for edge, cut in _TAILS:
        if age_ratio <= edge:
            return cut
    return tail


def _late_words(limit_ms: float | None, ratio: float, low_ms: float | None, basis: str) -> str:
    if limit_ms is None:
        return f"will take far longer than the earlier ones: {basis}"
    words = (
        f"will probably reach its timeout of {say.duration(limit_ms)}: {say.percent(ratio)} of checkpoints of this age"
        " do"
    )
    if low_ms is not None:
        words += f", and the others finish after {say.duration(low_ms)} at the earliest"
    return f"{words} ({basis})"


def _reached(times_ms: NDArray[np.float64], open_share: NDArray[np.float64], share: float) -> float | None:
    """Return when the share of cases that are still open falls to ``share``, or None if that is after the last time."""
    if open_share[-1] > share:
        return None
    after = int(np.argmax(open_share <= share))
    if after == 0:
        return float(times_ms[0])
    above, below = open_share[after - 1], open_share[after]
    part = 0.0 if above == below else float((above - share) / (above - below))
    return float(times_ms[after - 1] + part * (times_ms[after] - times_ms[after - 1]))
