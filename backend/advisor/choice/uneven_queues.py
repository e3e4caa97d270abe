"""Measures how uneven the queues of a job are from checkpoint to checkpoint, and what that means for in-flight data.

A model with steady rates has nearly the same queues in each checkpoint. A job may not: its recorded aligned barriers
then travel for a second in one checkpoint and for six in another. An aligned barrier travels until the queues in front
of it are read, and an unaligned one persists these queues. So the recorded times say how much more than the mean the
largest checkpoints would persist. The simulation says only what the mean is.

A queue that fills is not uneven. Its first checkpoints, which have less than most of the later ones, do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from backend.advisor.situation import Recorded
from backend.analysis.numbers.arrays import Floats, array_of
from backend.domain.advice import Mode

_CHECKPOINTS_MIN: Final = 10
_SETTLED_MIN: Final = 5
_LOW: Final = 0.25


@dataclass(frozen=True, slots=True, eq=False)
class Uneven:
    """How many times the mean the queues of each recorded checkpoint were. It is empty if that is not known."""

    factors: Floats

    @classmethod
    def of(cls, recorded: Sequence[Recorded], mode: Mode | None) -> Self:
        """Return how uneven the queues of the recorded checkpoints were, whose mode is ``mode``.

        Aligned checkpoints that expired count with the time until then, which is the least that their barriers would
        have travelled: they are those with the largest queues. Unaligned ones do not count, and neither do those that
        failed for another reason. Checkpoints with an aligned timeout wait for a part of their queues and persist
        another part, so neither says how large the queues were.
        """
        done = [r for r in recorded if not r.is_failed]
        of_mode = {
            Mode.ALIGNED: [r.travel_ms for r in recorded if r.is_expired or not r.is_failed],
            Mode.UNALIGNED: [r.persisted_bytes for r in done],
        }
        found = array_of(of_mode.get(mode, []) if mode is not None else [])
        found = found[~np.isnan(found)]
        settled = _settled(found) if found.size >= _CHECKPOINTS_MIN else found
        if settled.size < _SETTLED_MIN or found.size < _CHECKPOINTS_MIN or settled.mean() <= 0:
            return cls(np.zeros(0))
        return cls(settled / settled.mean())

    def share_above(self, limit_bytes: float, mean_bytes: float, most_bytes: float) -> float:
        """Return the share of checkpoints that persist more than a limit, if they persist ``mean_bytes`` on average.

        None persists more than ``most_bytes``. The share is 0 if it is not known how uneven checkpoints are.
        """
        if not self.factors.size:
            return 0.0
        return float((np.minimum(self.factors * mean_bytes, most_bytes) > limit_bytes).mean())


def _settled(found: Floats) -> Floats:
    """Return the checkpoints without the first ones, each of which had less than most of the later ones."""
    first = 0
    while first < found.size - 1 and found[first] < np.quantile(found[first + 1 :], _LOW):
        first += 1
    return found[first:]
