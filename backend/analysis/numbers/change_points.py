"""Finds when a job's checkpoints began to take longer or shorter: change-points of their durations (view V2).

There are three steps. First, the series is cut into the segments that explain the ranks of the durations best; each cut
costs a penalty, so that random variation causes no cuts. Then cuts between segments with nearly the same median are
dropped. Finally, each remaining cut moves to the place at which the logarithms of the durations are closest to the
medians of the two segments. Ranks do not depend on the distribution of the durations or on single outliers. An expired
checkpoint counts as one of the longest.

Source: optimal partitioning, Jackson et al. (2005), on ranks as in Lung-Yut-Fong, Levy-Leduc and Cappe (2015).
Invariant: the result depends only on the durations and their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

SEGMENT_MIN_COUNT: Final = 6
"""The smallest number of checkpoints in a segment. Fewer checkpoints are an incident, not a change."""
PENALTY: Final = 13.0
"""The cost of a cut, in units of the variance of the ranks.

It corresponds to 3.6 standard deviations of random noise.
"""
MEDIAN_RATIO_MIN: Final = 1.5
MEDIAN_DIFFERENCE_MIN_MS: Final = 100
"""The median must change by at least the ratio ``MEDIAN_RATIO_MIN`` and at least this difference.

Smaller changes are machine noise.
"""


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """A change of the durations at ``index``, with the medians in milliseconds before and after it.

    The segment before the change is ``[begin, index)``, and the segment after it is ``[index, end)``.
    """

    index: int
    begin: int
    end: int
    before_median_ms: float
    after_median_ms: float


def change_points(durations_ms: Sequence[float]) -> tuple[ChangePoint, ...]:
    """Return the changes in a series of durations, oldest first; none if the series is too short."""
    values = np.asarray(durations_ms, dtype=np.float64)
    cuts = _notable(values, _cuts(values))
    bounds = [0, *_notable(values, _placed(values, cuts)), len(values)]
    medians = [float(np.median(values[begin:end])) for begin, end in pairwise(bounds)] if len(bounds) > 2 else []
    return tuple(
        ChangePoint(bounds[n], bounds[n - 1], bounds[n + 1], medians[n - 1], medians[n])
        for n in range(1, len(bounds) - 1)
    )


def _cuts(values: NDArray[np.float64]) -> list[int]:
    """Cut the series into the segments that explain the ranks best.

    Return the first index of each segment but the first.
    """
    count = len(values)
    if count < 2 * SEGMENT_MIN_COUNT:
        return []
    ranks = _ranks(values)
    spread = float(np.std(ranks))
    if spread == 0:
        return []
    standard = (ranks - np.mean(ranks)) / spread
    sums, squares = (np.concatenate(([0.0], np.cumsum(x))) for x in (standard, standard**2))
    cost = np.full(count + 1, np.inf)
    cost[0] = -PENALTY
    last = np.zeros(count + 1, dtype=np.int64)
    for end in range(SEGMENT_MIN_COUNT, count + 1):
        begins = np.arange(end - SEGMENT_MIN_COUNT + 1)
        within = squares[end] - squares[begins] - (sums[end] - sums[begins]) ** 2 / (end - begins)
        totals = cost[begins] + within + PENALTY
        last[end] = best = int(np.argmin(totals))
        cost[end] = totals[best]
    cuts: list[int] = []
    at = int(last[count])
    while at > 0:
        cuts.append(at)
        at = int(last[at])
    return cuts[::-1]


def _notable(values: NDArray[np.float64], cuts: Sequence[int]) -> list[int]:
    """Return the cuts at which the median really changes.

    The other cuts are dropped one by one, the cut with the smallest difference of medians first.
    """
    left = list(cuts)
    while left:
        bounds = [0, *left, len(values)]
        medians = [float(np.median(values[begin:end])) for begin, end in pairwise(bounds)]
        small = [n for n, (before, after) in enumerate(pairwise(medians)) if not _is_change(before, after)]
        if not small:
            break
        del left[min(small, key=lambda n: abs(np.log1p(medians[n + 1]) - np.log1p(medians[n])))]
    return left


def _placed(values: NDArray[np.float64], cuts: Sequence[int]) -> list[int]:
    logs = np.log1p(values)
    bounds = [0, *cuts, len(values)]
    placed: list[int] = []
    for n in range(1, len(bounds) - 1):
        begin, end = bounds[n - 1], bounds[n + 1]
        before, after = (float(np.median(logs[a:b])) for a, b in ((begin, bounds[n]), (bounds[n], end)))
        here = logs[begin:end]
        # Element ``k`` is for a cut before the duration ``here[k]``. It is the sum of the distances of all durations
        # to the median of their segment, minus a constant.
        gains = np.concatenate(([0.0], np.cumsum(np.abs(here - before) - np.abs(here - after))))
        low = (placed[-1] if placed else 0) + SEGMENT_MIN_COUNT - begin
        high = len(here) - SEGMENT_MIN_COUNT
        placed.append(begin + low + int(np.argmin(gains[low : high + 1])) if low <= high else bounds[n])
    return placed


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rank of each value, from 1; equal values share the mean of their ranks."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    means: NDArray[np.float64] = np.cumsum(counts) - (counts - 1) / 2
    return means[places]


def _is_change(before_ms: float, after_ms: float) -> bool:
    low, high = sorted((before_ms, after_ms))
    return high - low >= MEDIAN_DIFFERENCE_MIN_MS and high >= MEDIAN_RATIO_MIN * low
