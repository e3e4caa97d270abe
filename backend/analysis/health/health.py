"""Judges the health of a job's checkpoints: healthy, slow, failing, or too few to judge.

It uses the newest terminal checkpoints without savepoints. Failing has precedence over slow, because a checkpoint
that does not complete protects nothing. Whether a checkpoint is slow depends on the job's interval and timeout; below
one second it never is. The median over all judged checkpoints hides a problem that has just begun. So a job is slow
also if several of its newest checkpoints in a row are slow. A checkpoint in progress makes a healthy job slow as soon
as it has been open too long, because waiting for its timeout would be too late.

If most checkpoints are quick, but again and again one takes many times as long, the job is intermittent: the median
hides this too. If the checkpoints are well, but the job restarts again and again, it is restarting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from backend.analysis.health.failures import is_real_failure
from backend.analysis.health.refusals import Refusal
from backend.analysis.numbers.arrays import array_of, highest_of
from backend.analysis.numbers.statistics import highest, median, quantile, ratio
from backend.analysis.words.thresholds import (
    CHECKPOINTS_MAX,
    CONDITION_TIMES,
    EXPIRY_SLACK_MS,
    FAILED_IN_A_ROW_COUNT,
    FAILED_MIN_RATIO,
    HEALTH_MIN_COUNT,
    PROGRESS_SLOW_RATIO,
    QUICK_QUANTILE,
    RESTARTS_MIN_COUNT,
    RESTARTS_OF_TRANSACTIONS_MIN_COUNT,
    RESTARTS_OF_TRANSACTIONS_WINDOW_S,
    RESTARTS_OVER_TIMES,
    RESTARTS_WINDOW_S,
    SLOW_IN_A_ROW_COUNT,
    SLOW_INTERVAL_RATIO,
    SLOW_MIN_MS,
    SLOW_TIMEOUT_RATIO,
    SLOW_TRAVEL_MS,
    STRUCK_MIN_COUNT,
    STRUCK_MIN_RATIO,
    STRUCK_SLOW_TIMES,
    STRUCK_TIMES,
    STRUCK_WINDOW_COUNT,
    STRUCK_WINDOW_MIN_COUNT,
)
from backend.domain.checkpoint import Checkpoint, CheckpointConfig, CheckpointKind, CheckpointStatus
from backend.domain.failure import FailureReason
from backend.domain.verdict import Health

# Why a checkpoint fails if the job restarts while it is in progress.
_BY_RESTART = frozenset({FailureReason.COORDINATOR_SUSPENDED, FailureReason.TASK_FAILURE})


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
    struck: tuple[Checkpoint, ...] = ()
    """The checkpoints that failed or took many times as long as the quick ones, if most of the others were quick.

    They are among the newest ``window_count`` terminal checkpoints. It is empty if the checkpoints do not differ so
    much.
    """
    quick: tuple[Checkpoint, ...] = ()
    """The other checkpoints of the same window, if there are struck ones."""
    restarts: tuple[datetime, ...] = ()
    """When the job restarted, oldest first, if it restarts again and again."""
    refusal: Refusal | None = None
    """How long no checkpoint has begun, if the coordinator or the tasks refuse all of them."""
    is_recent: bool = False
    """Whether only the newest checkpoints make the job slow. The earlier checkpoints then do not show the cause."""

    @property
    def is_mixed(self) -> bool:
        """Whether a cause strikes some checkpoints and leaves others quick."""
        return bool(self.struck) and bool(self.quick)

    @property
    def window_count(self) -> int:
        """The number of checkpoints that were searched for an intermittent cause."""
        return len(self.struck) + len(self.quick)

    @property
    def quick_median_ms(self) -> float | None:
        """The median duration of the quick checkpoints, if there are struck ones."""
        return median(c.header.end_to_end_duration_ms for c in self.quick)

    @property
    def judged_count(self) -> int:
        """The number of judged checkpoints."""
        return len(self.completed) + len(self.failed)

    @property
    def counted(self) -> tuple[Checkpoint, ...]:
        """The checkpoints that evidence counts: those that are judged, or all that an intermittent cause could strike.

        They are in no particular order.
        """
        is_intermittent = self.health is Health.INTERMITTENT
        return (*self.struck, *self.quick) if is_intermittent else (*self.completed, *self.failed)


def report(
    checkpoints: Sequence[Checkpoint],
    config: CheckpointConfig | None,
    *,
    has_restarts: bool = False,
    now: datetime | None = None,
    restarted_at: Sequence[datetime] = (),
    of_transactions_at: Sequence[datetime] = (),
) -> HealthReport:
    """Judge the newest of ``checkpoints``, which are oldest first.

    Without ``now``, checkpoints in progress do not count. ``restarted_at`` are the known times of restarts, and
    ``of_transactions_at`` those of restarts because a transaction had ended. These need not follow each other closely,
    because a transaction lives for minutes before it can be too old.
    """
    judged = judged_checkpoints(checkpoints, has_restarts=has_restarts)
    completed = tuple(c for c in judged if c.header.status is CheckpointStatus.COMPLETED)
    failed = tuple(c for c in judged if c.header.status is CheckpointStatus.FAILED)
    middle = median(c.header.end_to_end_duration_ms for c in completed)
    late = None if now is None else _overdue(checkpoints, completed, config, now)
    health = _health(judged, failed, completed, middle, config)
    window = judged_checkpoints(checkpoints, has_restarts=has_restarts, count_max=STRUCK_WINDOW_COUNT)
    struck, quick = _split(window, config)
    loop = restart_loop(restarted_at, now) or restart_loop(
        of_transactions_at,
        now,
        count_min=RESTARTS_OF_TRANSACTIONS_MIN_COUNT,
        window_s=RESTARTS_OF_TRANSACTIONS_WINDOW_S,
    )
    if health is Health.FAILING and loop and all(c.header.failure_reason in _BY_RESTART for c in failed):
        # The restarts ended these checkpoints, so the checkpoints are not what fails.
        health = Health.HEALTHY if completed else Health.FAILING
        struck = ()
    if health is not Health.HEALTHY:
        return HealthReport(
            health, completed, failed, middle, late, struck=struck, quick=quick if struck else (), restarts=loop
        )
    if _is_regular(struck, quick, config):
        struck = ()
    newest = _newest_slow(judged, config)
    is_recent = len(newest) >= SLOW_IN_A_ROW_COUNT or late is not None
    if is_recent:
        health = Health.SLOW
    elif loop:
        health = Health.RESTARTING
    elif struck:
        health = Health.INTERMITTENT
    return HealthReport(
        health,
        completed,
        failed,
        middle,
        late,
        newest,
        struck=struck,
        quick=quick if struck else (),
        restarts=loop,
        is_recent=is_recent,
    )


def _split(
    window: Sequence[Checkpoint], config: CheckpointConfig | None
) -> tuple[tuple[Checkpoint, ...], tuple[Checkpoint, ...]]:
    """Divide the checkpoints into those that a cause struck, and the quick ones.

    The first is empty if no cause strikes again and again, or if it strikes nearly always.
    """
    completed = [c.header.end_to_end_duration_ms for c in window if c.header.status is CheckpointStatus.COMPLETED]
    usual = quantile(completed, QUICK_QUANTILE)
    if usual is None or len(window) < STRUCK_WINDOW_MIN_COUNT:
        return (), tuple(window)
    at_least = struck_limit_ms(usual, config)

    def is_struck(checkpoint: Checkpoint) -> bool:
        took = checkpoint.header.end_to_end_duration_ms
        return checkpoint.header.status is CheckpointStatus.FAILED or (took is not None and took >= at_least)

    struck = tuple(c for c in window if is_struck(c))
    quick = tuple(c for c in window if not is_struck(c))
    # A cause that struck only once, in one checkpoint or in several in a row, has just begun or is over.
    episodes = sum(is_struck(b) and not is_struck(a) for a, b in pairwise(window)) + is_struck(window[0])
    is_now = any(is_struck(c) for c in window[-CHECKPOINTS_MAX:])
    is_enough = len(struck) >= STRUCK_MIN_RATIO * len(window) and episodes >= STRUCK_MIN_COUNT and is_now
    return (struck if is_enough else ()), quick


def _is_regular(struck: Sequence[Checkpoint], quick: Sequence[Checkpoint], config: CheckpointConfig | None) -> bool:
    """Return whether every n-th checkpoint just writes more, takes longer in proportion, and is not slow.

    Compaction does so. It is no cause that strikes, and nothing is to be changed.
    """
    limit = slow_limit_ms(config)
    ids = sorted(c.header.checkpoint_id for c in struck)
    apart = {b - a for a, b in pairwise(ids)}
    took = [c.header.end_to_end_duration_ms for c in struck if c.header.status is CheckpointStatus.COMPLETED]
    if limit is None or len(apart) != 1 or apart == {1} or len(took) < len(struck):
        return False
    if any(ms is None or ms >= limit for ms in took):
        return False
    longer = ratio(median(took), median(c.header.end_to_end_duration_ms for c in quick))
    more = ratio(*(median(c.header.checkpointed_size_bytes for c in group) for group in (struck, quick)))
    return longer is not None and more is not None and more >= CONDITION_TIMES and longer <= CONDITION_TIMES * more


def struck_limit_ms(usual_ms: float, config: CheckpointConfig | None) -> float:
    """Return the duration in milliseconds from which on a checkpoint differs from quick ones that took ``usual_ms``."""
    limit = slow_limit_ms(config)
    at_least = max(SLOW_MIN_MS, STRUCK_TIMES * usual_ms)
    return at_least if limit is None else min(at_least, max(limit, STRUCK_SLOW_TIMES * usual_ms))


def restart_loop(
    restarted_at: Sequence[datetime],
    now: datetime | None,
    *,
    count_min: int = RESTARTS_MIN_COUNT,
    window_s: int = RESTARTS_WINDOW_S,
) -> tuple[datetime, ...]:
    """Return the newest restarts, if the job still restarts again and again."""
    if now is None or len(restarted_at) < count_min:
        return ()
    times = sorted(set(restarted_at))
    times = [t for t in times if (times[-1] - t).total_seconds() <= window_s]
    if len(times) < count_min:
        return ()
    usual_s = median((b - a).total_seconds() for a, b in pairwise(times)) or 0.0
    is_over = (now - times[-1]).total_seconds() > RESTARTS_OVER_TIMES * usual_s
    return () if is_over else tuple(times)


def judged_checkpoints(
    checkpoints: Sequence[Checkpoint], *, has_restarts: bool, count_max: int = CHECKPOINTS_MAX
) -> tuple[Checkpoint, ...]:
    """Return the newest terminal checkpoints, oldest first, without savepoints and checkpoints aborted from outside."""
    terminal = [
        c
        for c in checkpoints
        if c.header.kind is CheckpointKind.CHECKPOINT
        and (c.header.status is CheckpointStatus.COMPLETED or is_real_failure(c, has_restarts=has_restarts))
    ]
    return tuple(terminal[-count_max:])


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
    checkpoints: list[Checkpoint] = []
    for checkpoint in reversed(judged):
        duration = checkpoint.header.end_to_end_duration_ms
        if limit is None or duration is None or duration < limit:
            break
        checkpoints.append(checkpoint)
    return tuple(reversed(checkpoints))


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
