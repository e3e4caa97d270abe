"""How the checkpoints of a job fare: healthy, slow, failing, or too few to say.

Judged are the newest terminal checkpoints, savepoints aside. Failing comes first: one that does not complete protects
nothing. Slow is relative to what the job was told to do, its interval and its timeout, and never below a second. The
median must not hide what has just begun: the newest ones slow in a row are enough, and one in progress counts once it
is overdue, for waiting until its timeout tells would be too late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

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

_OVERDUE = "the checkpoint in progress is open for longer than it should take"
_IN_A_ROW = f"the newest {SLOW_IN_A_ROW_COUNT} or more were slow, one after the other"


@dataclass(frozen=True, slots=True)
class Overdue:
    """A checkpoint in progress that is open for longer than it should take."""

    checkpoint: Checkpoint
    open_ms: float


@dataclass(frozen=True, slots=True)
class HealthReport:
    """The health, and the checkpoints and numbers it rests on; ``rule`` is a clause in words."""

    health: Health
    rule: str
    completed: tuple[Checkpoint, ...]
    failed: tuple[Checkpoint, ...]
    duration_median_ms: float | None = None
    overdue: Overdue | None = None
    newest_slow: tuple[Checkpoint, ...] = ()
    """Completed ones slow in a row up to now, where only they or the overdue one make the job slow."""

    @property
    def is_recent(self) -> bool:
        """Whether the job is slow only of late: then those before tell nothing of why."""
        return self.health is Health.SLOW and self.rule in (_OVERDUE, _IN_A_ROW)

    @property
    def judged_count(self) -> int:
        """Number of checkpoints that were judged."""
        return len(self.completed) + len(self.failed)


def report(
    checkpoints: Sequence[Checkpoint],
    config: CheckpointConfig | None,
    *,
    has_restarts: bool = False,
    now: datetime | None = None,
) -> HealthReport:
    """The health of the newest of ``checkpoints`` (oldest first); without ``now`` none in progress counts."""
    judged = judged_checkpoints(checkpoints, has_restarts=has_restarts)
    completed = tuple(c for c in judged if c.header.status is CheckpointStatus.COMPLETED)
    failed = tuple(c for c in judged if c.header.status is CheckpointStatus.FAILED)
    middle = median(c.header.end_to_end_duration_ms for c in completed)
    late = None if now is None else _overdue(checkpoints, completed, config, now)
    health, rule = _health(judged, failed, completed, middle, config)
    if health is not Health.HEALTHY:
        return HealthReport(health, rule, completed, failed, middle, late)
    newest = _newest_slow(judged, config)
    if len(newest) >= SLOW_IN_A_ROW_COUNT:
        health, rule = Health.SLOW, _IN_A_ROW
    elif late is not None:
        health, rule = Health.SLOW, _OVERDUE
    return HealthReport(health, rule, completed, failed, middle, late, newest)


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


def _newest_slow(judged: Sequence[Checkpoint], config: CheckpointConfig | None) -> tuple[Checkpoint, ...]:
    limit = slow_limit_ms(config)
    found: list[Checkpoint] = []
    for checkpoint in reversed(judged):
        duration = checkpoint.header.end_to_end_duration_ms
        if limit is None or duration is None or duration < limit[0]:
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
        # Beyond its timeout it would have expired: then the two clocks differ, or nobody told of its end.
        is_believable = config is None or not config.timeout_ms or open_ms <= config.timeout_ms + EXPIRY_SLACK_MS
        if is_believable and open_ms >= max(limit[0], PROGRESS_SLOW_RATIO * longest):
            return Overdue(checkpoint, open_ms)
    return None


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
