"""Chooses the micro-batches of which Spark jobs and stages are kept. Does no I/O.

The rule keeps what is stored small, and needs no setting of the query. The first batch of a run that is read is
chosen. A later one is chosen if it takes ``LONG_MS`` or longer, and ``TIMES`` the median of up to ``BEFORE`` batches
before it, or if it takes ``LONG_MS`` or longer, and none of its run was chosen within ``EVERY_MS``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from statistics import median_low
from typing import Final

LONG_MS: Final = 1_000
TIMES: Final = 1.5
BEFORE: Final = 20
BEFORE_MIN: Final = 5
"""With fewer batches before it than this, a batch is not compared with them."""
EVERY_MS: Final = 15_000
"""Short enough that a few of the batches that the verdict compares are chosen, if they take seconds."""
_RUNS_MAX: Final = 2_000


@dataclass(slots=True)
class _Run:
    took_ms: deque[int] = field(default_factory=lambda: deque(maxlen=BEFORE))
    chosen_at_ms: int | None = None


@dataclass(slots=True)
class SlowBatches:
    """Chooses batches of several runs. The batches of a run are given in their order."""

    _runs: dict[Hashable, _Run] = field(default_factory=dict)

    def choose(self, run: Hashable, began_ms: int, took_ms: int) -> bool:
        """Return whether a batch is chosen. It began at ``began_ms``, in ms since the epoch, and took ``took_ms``."""
        known = self._runs.get(run)
        if known is None:
            while len(self._runs) >= _RUNS_MAX:
                del self._runs[next(iter(self._runs))]
            known = self._runs[run] = _Run()
        before = known.took_ms
        is_slow = len(before) >= BEFORE_MIN and took_ms >= TIMES * median_low(before)
        last_ms = known.chosen_at_ms
        is_chosen = last_ms is None or (took_ms >= LONG_MS and (is_slow or began_ms - last_ms >= EVERY_MS))
        before.append(took_ms)
        if is_chosen:
            known.chosen_at_ms = began_ms
        return is_chosen

    def copy(self) -> SlowBatches:
        """Return a copy that changes by itself."""
        return SlowBatches({run: _Run(r.took_ms.copy(), r.chosen_at_ms) for run, r in self._runs.items()})
