"""Judges the health of a job's checkpoints: healthy, slow, failing, or too few to judge.

It uses the newest terminal checkpoints without savepoints. Failing has precedence over slow, because a checkpoint
that does not complete protects nothing. Whether a checkpoint is slow depends on the job's interval and timeout; below
one second it never is. The median over all judged checkpoints hides a problem that has just begun. So a job is slow
also if several of its newest checkpoints in a row are slow. A checkpoint in progress makes a healthy job slow as soon
as it has been open too long, because waiting for its timeout would be too late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from backend.analysis.arrays import array_of, highest_of
from backend.analysis.failures import is_real_failure
from backend.analysis.statistics import highest, median
from backend.analysis.thresholds import (
    CHECKPOINTS_MAX,
    EXPIRY_SLACK_MS,
    FAILED_IN_A_ROW_COUNT,
    FAILED_MIN_RATIO,
    HEALTH_MIN_COUNT,
    PROGRESS_SLOW_RATIO,
    SLOW_IN_A_ROW_COUNT,
    SLOW_INTERVAL_RATIO,
    SLOW_MIN_MS,
    SLOW_TIMEOUT_RATIO,
    SLOW_TRAVEL_MS,
)
from backend.domain.checkpoint import Checkpoint, CheckpointConfig, CheckpointKind, CheckpointStatus
from backend.domain.verdict import Health


@dataclass(frozen=True, slots=True)
class Overdue:
    """A checkpoint in progress that has been open for longer than it should take."""

    checkpoint: Checkpoint
    open_ms: float


@dataclass(frozen=True, slots=True)
class HealthReport:
    """The health of a job's checkpoints, and the checkpoints from which it follows."""

    health: Health
    completed: tuple[Checkpoint, ...]
    failed: tuple[Checkpoint, ...]
    duration_median_ms: float | None = None
    overdue: Overdue | None = None
    newest_slow: tuple[Checkpoint, ...] = ()
    """The newest checkpoints that were slow in a row, if the job's health is otherwise good.

    It is empty if the judged checkpoints as a whole show that the job is failing or slow, or if they are too few.
    """
    is_recent: bool = False
    """Whether only the newest checkpoints make the job slow. The earlier checkpoints then do not show the cause."""

    @property
    def judged_count(self) -> int:
        """The number of judged checkpoints."""
        return len(self.completed) + len(self.failed)


def report(
    checkpoints: Sequence[Checkpoint],
    config: CheckpointConfig | None,
    *,
    has_restarts: bool = False,
    now: datetime | None = None,
) -> HealthReport:
    """Judge the newest of ``checkpoints``, which are oldest first.

    Without ``now``, checkpoints in progress do not count.
    """
    judged = judged_checkpoints(checkpoints, has_restarts=has_restarts)
    completed = tuple(c for c in judged if c.header.status is CheckpointStatus.COMPLETED)
    failed = tuple(c for c in judged if c.header.status is CheckpointStatus.FAILED)
    middle = median(c.header.end_to_end_duration_ms for c in completed)
    late = None if now is None else _overdue(checkpoints, completed, config, now)
    health = _health(judged, failed, completed, middle, config)
    if health is not Health.HEALTHY:
        return HealthReport(health, completed, failed, middle, late)
    newest = _newest_slow(judged, config)
    is_recent = len(newest) >= SLOW_IN_A_ROW_COUNT or late is not None
    return HealthReport(
        Health.SLOW if is_recent else Health.HEALTHY, completed, failed, middle, late, newest, is_recent=is_recent
    )


def judged_checkpoints(checkpoints: Sequence[Checkpoint], *, has_restarts: bool) -> tuple[Checkpoint, ...]:
    """Return the newest terminal checkpoints, oldest first, without savepoints and checkpoints aborted from outside."""
    terminal = [
        c
        for c in checkpoints
        if c.header.kind is CheckpointKind.CHECKPOINT
        and (c.header.status is CheckpointStatus.COMPLETED or is_real_failure(c, has_restarts=has_restarts))
    ]
    return tuple(terminal[-CHECKPOINTS_MAX:])


def _health(
    judged: Sequence[Checkpoint],
    failed: Sequence[Checkpoint],
    completed: Sequence[Checkpoint],
    middle_ms: float | None,
    config: CheckpointConfig | None,
) -> Health:
    newest = judged[-FAILED_IN_A_ROW_COUNT:]
    is_row = len(newest) == FAILED_IN_A_ROW_COUNT and all(c in failed for c in newest)
    if is_row or (len(judged) >= HEALTH_MIN_COUNT and len(failed) >= FAILED_MIN_RATIO * len(judged)):
        return Health.FAILING
    if len(judged) < HEALTH_MIN_COUNT:
        return Health.TOO_FEW
    limit = slow_limit_ms(config)
    if middle_ms is not None and limit is not None and middle_ms >= limit:
        return Health.SLOW
    travel = median(travel_ms(c) for c in completed)
    return Health.SLOW if travel is not None and travel >= SLOW_TRAVEL_MS else Health.HEALTHY


def _newest_slow(judged: Sequence[Checkpoint], config: CheckpointConfig | None) -> tuple[Checkpoint, ...]:
    limit = slow_limit_ms(config)
    found: list[Checkpoint] = []
    for checkpoint in reversed(judged):
        duration = checkpoint.header.end_to_end_duration_ms
        if limit is None or duration is None or duration < limit:
            break
        found.append(checkpoint)
    return tuple(reversed(found))


def _overdue(
    checkpoints: Sequence[Checkpoint], completed: Sequence[Checkpoint], config: CheckpointConfig | None, now: datetime
) -> Overdue | None:
    limit = slow_limit_ms(config)
    if limit is None:
        return None
    longest = highest(c.header.end_to_end_duration_ms for c in completed) or 0.0
    for checkpoint in checkpoints:
        header = checkpoint.header
        if header.status is not CheckpointStatus.IN_PROGRESS or header.kind is not CheckpointKind.CHECKPOINT:
            continue
        open_ms = (now - header.triggered_at).total_seconds() * 1000
        # A checkpoint past its timeout must have ended, so it is not overdue. Its end may not have been read yet, or
        # the clocks differ.
        is_believable = config is None or not config.timeout_ms or open_ms <= config.timeout_ms + EXPIRY_SLACK_MS
        if is_believable and open_ms >= max(limit, PROGRESS_SLOW_RATIO * longest):
            return Overdue(checkpoint, open_ms)
    return None


def slow_limit_ms(config: CheckpointConfig | None) -> float | None:
    """Return the duration in milliseconds at which a checkpoint of the job begins to count as slow.

    Return None if neither the interval nor the timeout is known.
    """
    if config is None:
        return None
    limits: list[float] = []
    if config.interval_ms:
        limits.append(config.interval_ms * SLOW_INTERVAL_RATIO)
    if config.timeout_ms:
        limits.append(config.timeout_ms * SLOW_TIMEOUT_RATIO)
    return max(min(limits), SLOW_MIN_MS) if limits else None


def travel_ms(checkpoint: Checkpoint) -> float | None:
    """Return the largest sum of start delay and alignment of one subtask, or None if no such sum is known."""
    first = array_of([v for d in checkpoint.details for v in d.start_delay_ms])
    return highest_of(first + array_of([v for d in checkpoint.details for v in d.alignment_duration_ms]))
