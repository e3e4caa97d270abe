"""What a tier predicts for a model, checkpoint by checkpoint and as intervals."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from backend.advisor.advice import Interval
from backend.advisor.twin.model.recovery import KindOfFailure
from backend.domain.replay_debt import ReplayBound


class Tier(StrEnum):
    """How a prediction was computed, from the fastest to the most detailed."""

    FORMULAS = "formulas"
    FAST = "fast"
    RUNTIME = "runtime"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedCheckpoint:
    """One checkpoint that a tier simulated. ``is_expired`` checkpoints ended at the checkpoint timeout."""

    checkpoint_id: int
    triggered_ms: float
    duration_ms: float
    is_expired: bool
    persisted_bytes: float
    checkpointed_bytes: float
    travel_ms: float
    """The time until the barrier reached the last subtask."""
    alignment_ms: float
    """The longest alignment of all subtasks."""
    sync_ms: float
    """The longest pause of a subtask for its sync part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """One run of a model in one tier. ``records_per_s`` is what all sources emitted together."""

    tier: Tier
    seed: int
    checkpoints: tuple[SimulatedCheckpoint, ...]
    records_per_s: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The predicted effect of one what-if. Each interval holds 90 % of what the next checkpoints may show.

    An interval includes the spread between checkpoints and the calibration error of the model. ``expired_ratio`` is the
    share of checkpoints that expire. Its interval is for the share among many checkpoints or, if writes to the store
    hang, among the next ``hangs.NEXT_COUNT``.

    Three values say what a failure would cost: a failure like those on record or, without any, that of a task.
    ``restore_ms`` is the time until records flow again. ``replay_ms`` is the time span of the input that is read again,
    from the newest completed checkpoint on. ``catch_up_ms`` is the time after the restore until the backlog is gone.
    None means that the tier does not predict the value or, if ``replay_bound`` is endless, that no checkpoint completes
    and nothing bounds it.
    """

    tier: Tier
    duration_ms: Interval | None
    expired_ratio: Interval | None
    persisted_bytes: Interval | None
    records_per_s: Interval | None
    sync_pause_ms: Interval | None
    restore_ms: Interval | None = None
    replay_ms: Interval | None = None
    replay_bound: ReplayBound = ReplayBound.BOUNDED
    catch_up_ms: Interval | None = None
    failures: tuple[KindOfFailure, ...] = ()
    """What each kind of failure would cost."""
    durations_ms: tuple[float, ...] = ()
    """The durations of the simulated checkpoints, for the distribution."""
    persisted_mean_bytes: float | None = None
    """The mean of the persisted bytes of the simulated checkpoints that completed; their median is in the interval."""
    notes: tuple[str, ...] = ()
