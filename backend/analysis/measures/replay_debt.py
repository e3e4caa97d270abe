"""Decides what a failure would cost in input that is read again: a failure now, and one at a random later moment. Pure.

A failure now restores the newest checkpoint that completed in the run, so the input since its trigger is read again.
Its age is known. Flink keeps no savepoint for a failure: a savepoint belongs to the user, and a restart restores the
newest completed checkpoint even if a savepoint is younger (runtime.md CO-8). A savepoint counts only if the run was
started from it, until the run has completed a checkpoint. Before 1.15, Flink restored a younger savepoint too. A run
that was restored from nothing begins again.

At a random later moment, the newest completed checkpoint is the older, the fewer checkpoints complete. Say that each
completes with the probability p, independently of the others. Then the number N of failed ones before the next
completed one is geometric. Let s be the time from the trigger of a completed checkpoint to the next trigger, and f the
time from the trigger of a failed one. Then the time between two completions is G = s + N f. The mean age of the newest
completed checkpoint is

    duration + E[G^2] / (2 E[G])

(the inspection paradox of renewal processes). With s = f = interval, this is duration + (1/p - 1/2) intervals. If none
completes, the age grows without end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from math import floor, log, log1p

from backend.domain.checkpoint import CheckpointConfig, CheckpointCounts, CheckpointHeader, CheckpointKind
from backend.domain.checkpoint import CheckpointStatus as Status
from backend.domain.replay_debt import DebtOrigin, ReplayDebt


@dataclass(frozen=True, slots=True, order=True)
class Restorable:
    """A completed checkpoint that a failure may restore. The newest one compares as the largest."""

    triggered_at: datetime
    checkpoint_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What is known of a run, from the oldest of its checkpoints that are known to the newest.

    ``headers`` may have savepoints. The engine may report its newest completed checkpoint in ``counts`` as well, even
    if it is not in ``headers``.
    """

    started_at: datetime | None
    counts: CheckpointCounts | None
    headers: Sequence[CheckpointHeader] = ()
    config: CheckpointConfig | None = None
    restores_savepoints: bool = False
    """Whether the engine restores a savepoint after a failure if it is younger than the newest checkpoint."""

    @property
    def newest(self) -> Restorable | None:
        """The newest checkpoint of the run that a failure may restore; None if none is known."""
        headers = (h for h in self.headers if is_restorable(h, restores_savepoints=self.restores_savepoints))
        restorable = [Restorable(h.triggered_at, h.checkpoint_id) for h in headers]
        counts = self.counts
        if counts is not None and counts.newest_triggered_at is not None and counts.newest_completed_id is not None:
            restorable.append(Restorable(counts.newest_triggered_at, counts.newest_completed_id))
        return max(restorable, default=None)


def is_restorable(header: CheckpointHeader, *, restores_savepoints: bool = False) -> bool:
    """Return whether a failure of the run may restore this checkpoint: it completed, and is no savepoint that is apart.

    ``restores_savepoints`` is as in ``RunFacts``.
    """
    is_kept = restores_savepoints or header.kind is CheckpointKind.CHECKPOINT
    return is_kept and header.status is Status.COMPLETED


def debt_of(run: RunFacts) -> ReplayDebt | None:
    """Return what a failure of the run would restore now; None if this is not known.

    A job that takes no checkpoints has no debt: what its restart reads again is not the engine's decision.
    """
    newest, counts = run.newest, run.counts
    if newest is not None:
        return ReplayDebt(newest.triggered_at, DebtOrigin.CHECKPOINT, newest.checkpoint_id)
    if counts is None or (run.config is not None and run.config.is_off):
        return None
    if counts.completed:
        # The counter includes savepoints, so it does not show that a checkpoint completed. What completed is unknown.
        oldest = min((h.triggered_at for h in run.headers), default=None)
        return None if oldest is None else ReplayDebt(oldest, DebtOrigin.UNSEEN, is_at_least=True)
    if counts.restored:
        at = counts.restored_at
        return None if at is None else ReplayDebt(at, DebtOrigin.RESTORED, is_at_least=True)
    return None if run.started_at is None else ReplayDebt(run.started_at, DebtOrigin.START)


# --- at a random later moment -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Cadence:
    """How checkpoints follow each other: the share that completes, and the times between triggers.

    ``period_ms`` is the time from the trigger of a completed checkpoint to the next trigger, and ``failed_period_ms``
    that from the trigger of a failed one, which may be longer: it may hold the next one back until its timeout.
    """

    completed_ratio: float
    period_ms: float
    failed_period_ms: float

    @property
    def is_endless(self) -> bool:
        """Whether no checkpoint completes."""
        return self.completed_ratio <= 0

    @property
    def _mean_gap_ms(self) -> float:
        """The mean time between two completions."""
        p = self.completed_ratio
        return self.period_ms + self.failed_period_ms * (1 - p) / p

    def mean_wait_ms(self) -> float | None:
        """Return the mean time since the newest checkpoint completed, at a random moment; None if it grows forever."""
        if self.is_endless:
            return None
        p, gap = self.completed_ratio, self._mean_gap_ms
        return (gap + self.failed_period_ms**2 * (1 - p) / p**2 / gap) / 2

    def wait_quantile_ms(self, share: float) -> float | None:
        """Return the time since the newest completion that is exceeded at ``1 - share`` of the moments.

        Return None if it grows forever.
        """
        if self.is_endless:
            return None
        p, gap = self.completed_ratio, self._mean_gap_ms
        usual = self.period_ms / gap
        if share <= usual or p >= 1:
            return share * gap
        # The rest is in slots of failed checkpoints. The n-th one (from 0) is reached with probability (1 - p)^(n + 1).
        rest = (share - usual) / (1 - usual)
        number = floor(log1p(-rest) / log(1 - p)) if rest < 1 else None
        if number is None:
            return None
        reached = (1 - p) ** number
        part = (rest - (1 - reached)) / (p * reached)
        return self.period_ms + (number + min(1.0, max(0.0, part))) * self.failed_period_ms
