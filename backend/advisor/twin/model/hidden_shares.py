"""Guesses of the shares of subtasks whose queues no reading shows: what they may be, and how likely it is.

Subtasks that were busy all the time read what they can, whatever is sent to them. Only the sum of what is queued for
them is known.

If many subtasks are full, hashing gives them shares that scatter around an equal share. How much they scatter is not
known, but two things limit it. The subtasks that were not always busy show a part of the scatter. And if all subtasks
of a wide job have a queue, no share can be much larger than the others.

So the guesses are drawn from a distribution of queues: none is negative, their sum is the known one, and the shares are
normal around an equal share with an unknown standard deviation. They are drawn by Gibbs sampling: in turn the queues of
random pairs of subtasks given their sum, and the standard deviation given all shares.

If only a few are full, one hot key or one slow subtask is as likely as chance, and the distribution above misses it.
The guesses are then divisions by rank: most of the queue belongs to the subtask that read most.
"""

from __future__ import annotations

from math import ceil
from typing import Final

import numpy as np
import numpy.typing as npt

from backend.analysis.numbers.arrays import Floats

GUESS_COUNT: Final = 7
"""The number of guesses by chance, from even ones to uneven ones."""
_ROUNDS, _SETTLING = 300, 100
MANY_FULL: Final = 5
"""From so many full subtasks on, chance divides the queues. Recorded jobs had up to 4 or 16 of them."""
_POWERS: Final = (1.0, 3.0)
_SPREAD_MIN, _SPREAD_MAX = 0.003, 1.0
_GRID: Final = 33


def guesses(
    read: Floats, is_full: npt.NDArray[np.bool_], queued: float, *, room: float, service: Floats
) -> list[Floats]:
    """Return ``GUESS_COUNT`` guesses of the shares of all subtasks, by the load of their fullest subtask.

    ``read`` are the records that each subtask has read since the job began, and ``queued`` the records that are queued
    for all full subtasks together, of which each has place for ``room``. ``service`` is the time for a record. The
    guesses are equally likely. The same arguments give the same guesses.
    """
    rng = np.random.default_rng(7)
    full = np.flatnonzero(is_full)
    sent = float(read.sum() + queued)
    room = max(room, 1.01 * queued / full.size)
    queues = np.full(full.size, queued / full.size)
    found = []
    for number in range(_SETTLING + _ROUNDS if full.size > 1 else 1):
        shares = read.copy()
        shares[full] += queues
        shares /= sent
        if number >= _SETTLING or full.size == 1:
            found.append(shares)
        off = shares * read.size - 1
        spread = np.sqrt(np.sum(off * off) / rng.chisquare(read.size))
        spread = float(np.clip(spread, _SPREAD_MIN, _SPREAD_MAX)) * sent / read.size
        pairs = rng.permutation(full.size)
        one, other = pairs[: full.size // 2], pairs[full.size // 2 : full.size // 2 * 2]
        both = queues[one] + queues[other]
        middle = (both + read[full[other]] - read[full[one]]) / 2
        low, high = np.maximum(0.0, both - room), np.minimum(room, both)
        queues[one] = _between(low, high, middle, spread / 2**0.5, rng)
        queues[other] = both - queues[one]
    found.sort(key=lambda shares: float((shares * service).max()))
    return [found[int((n + 0.5) / GUESS_COUNT * len(found))] for n in range(GUESS_COUNT)]


def by_rank(read: Floats, is_full: npt.NDArray[np.bool_], queued: float) -> list[Floats]:
    """Return two guesses of the shares: the queue of a full subtask is inverse to its rank by what it has read."""
    order = [i for i in np.argsort(-read, kind="stable") if is_full[i]]
    weights = np.zeros(read.size)
    weights[order] = 1.0 / np.arange(1, len(order) + 1)
    return by_weight(read, weights, queued)


def by_weight(read: Floats, weights: Floats, queued: float) -> list[Floats]:
    """Return two guesses of the shares: the queues are as the ``weights``, or less even than these."""
    queues = [queued * weights**power / (weights**power).sum() for power in _POWERS]
    return [(read + of) / (read.sum() + queued) for of in queues]


def chosen(options: int, number: int, count: int) -> int:
    """Return which of so many guesses, sorted, the simulation ``number`` of ``count`` takes: they are spread evenly.

    Of two in the middle it is the first.
    """
    return min(options - 1, ceil((number + 0.5) / count * options) - 1)


def _between(low: Floats, high: Floats, middle: Floats, spread: float, rng: np.random.Generator) -> Floats:
    """Draw from normal distributions that are cut off at ``low`` and ``high``, on a grid of their range."""
    at = low + (high - low) * (np.arange(_GRID)[:, None] + rng.uniform(0, 1, low.size)) / _GRID
    logs = -0.5 * ((at - middle) / spread) ** 2
    weights = np.exp(logs - logs.max(axis=0)).cumsum(axis=0)
    row = (weights < weights[-1] * rng.uniform(0, 1, low.size)).sum(axis=0)
    return np.asarray(at[row, np.arange(low.size)])
