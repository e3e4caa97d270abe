"""How the checkpoints of a job fare: healthy, slow, failing, or too few to say.

Judged are the newest terminal checkpoints, savepoints aside. Failing comes first: one that does not complete protects
nothing. Slow is relative to what the job was told to do, its interval and its timeout, and never below a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backend.analysis.failures import is_real_failure
from backend.analysis.statistics import highest, median
from backend.analysis.thresholds import (
    CHECKPOINTS_MAX,
    FAILED_IN_A_ROW_COUNT,
    FAILED_MIN_RATIO,
    HEALTH_MIN_COUNT,
    SLOW_INTERVAL_RATIO,
    SLOW_MIN_MS,
    SLOW_TIMEOUT_RATIO,
    SLOW_TRAVEL_MS,
)
from backend.domain.checkpoint import Checkpoint, CheckpointConfig, CheckpointKind, CheckpointStatus
from backend.domain.verdict import Health


@dataclass(frozen=True, slots=True)
class HealthReport:
    """The health, and the checkpoints and numbers it rests on; ``rule`` is a clause in words."""

    health: Health
    rule: str
    completed: tuple[Checkpoint, ...]
    failed: tuple[Checkpoint, ...]
    duration_median_ms: float | None = None

    @property
    def judged_count(self) -> int:
        """Number of checkpoints that were judged."""
        return len(self.completed) + len(self.failed)


def report(
    checkpoints: Sequence[Checkpoint], config: CheckpointConfig | None, *, has_restarts: bool = False
) -> HealthReport:
    """The health of the newest of ``checkpoints`` (oldest first)."""
    judged = judged_checkpoints(checkpoints, has_restarts=has_restarts)
    completed = tuple(c for c in judged if c.header.status is CheckpointStatus.COMPLETED)
    failed = tuple(c for c in judged if c.header.status is CheckpointStatus.FAILED)
    middle = median(c.header.end_to_end_duration_ms for c in completed)
    health, rule = _health(judged, failed, completed, middle, config)
    return HealthReport(health, rule, completed, failed, middle)


def judged_checkpoints(checkpoints: Sequence[Checkpoint], *, has_restarts: bool) -> tuple[Checkpoint, ...]:
    """The newest terminal ones, savepoints and aborts from outside left out, oldest first."""
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
) -> tuple[Health, str]:
    newest = judged[-FAILED_IN_A_ROW_COUNT:]
    is_row = len(newest) == FAILED_IN_A_ROW_COUNT and all(c in failed for c in newest)
    if is_row or (len(judged) >= HEALTH_MIN_COUNT and len(failed) >= FAILED_MIN_RATIO * len(judged)):
        return Health.FAILING, f"{len(failed)} of the last {len(judged)} checkpoints failed"
    if len(judged) < HEALTH_MIN_COUNT:
        return Health.TOO_FEW, f"only {len(judged)} terminal checkpoint{'' if len(judged) == 1 else 's'} so far"
    limit = slow_limit_ms(config)
    if middle_ms is not None and limit is not None and middle_ms >= limit[0]:
        return Health.SLOW, limit[1]
    travel = median(travel_ms(c) for c in completed)
    if travel is not None and travel >= SLOW_TRAVEL_MS:
        return Health.SLOW, "the barrier alone travels longer than 10 s"
    return Health.HEALTHY, f"{len(completed)} of the last {len(judged)} checkpoints completed"


def slow_limit_ms(config: CheckpointConfig | None) -> tuple[float, str] | None:
    """From which median duration on this job's checkpoints are slow, and why; None where no setting is known."""
    if config is None:
        return None
    limits: list[tuple[float, str]] = []
    if config.interval_ms:
        limits.append((config.interval_ms * SLOW_INTERVAL_RATIO, "half of the interval or more"))
    if config.timeout_ms:
        limits.append((config.timeout_ms * SLOW_TIMEOUT_RATIO, "a third of the timeout or more"))
    if not limits:
        return None
    limit, why = min(limits)
    return max(limit, SLOW_MIN_MS), why


def travel_ms(checkpoint: Checkpoint) -> float | None:
    """Start delay plus alignment of the subtask for which they are largest; None where none is known."""
    return highest(
        s + a
        for d in checkpoint.details
        for s, a in zip(d.start_delay_ms, d.alignment_duration_ms, strict=True)
        if s is not None and a is not None
    )
