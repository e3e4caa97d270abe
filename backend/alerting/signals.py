"""The input of the alert rules: the current values of a job or a target. Values that were not reported are None.

``now_engine`` is the time of the last reading of a run. Like the times of checkpoints, it is by the engine's clock.
This module computes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from backend.analysis.health.finish import PastCheckpoint
from backend.analysis.health.progress import Judgement, OpenCheckpoint
from backend.analysis.health.refusals import Refusal
from backend.analysis.measures.growing import Growth
from backend.domain.checkpoint import CheckpointConfig, CheckpointStatus
from backend.domain.failure import FailureReason
from backend.domain.ids import JobId, RunId, TargetId
from backend.domain.losses import Loss
from backend.domain.observation import JobState
from backend.domain.replay_debt import ReplayDebt
from backend.domain.target import TargetState
from backend.domain.verdict import Intermittence, Phase, VerdictKind

FAILURES_COUNTED_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class Place:
    """The place in the job that the verdict names. Every field may be missing.

    ``cause`` is set only if the verdict names a cause. Without it, the place may contain subtasks that have
    not acknowledged.
    """

    vertex: str | None = None
    subtasks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    phase: Phase | None = None
    sentence: str | None = None
    cause: VerdictKind | None = None
    last_subtask: int | None = None
    """If ``subtasks`` are all of the vertex: the one that checkpoints wait for again and again."""


@dataclass(frozen=True, slots=True)
class EndedCheckpoint:
    """A checkpoint that has ended. ``is_failure`` means that it failed, for whatever reason."""

    run_id: RunId
    checkpoint_id: int
    triggered_at: datetime
    status: CheckpointStatus
    reason: FailureReason | None = None
    is_failure: bool = False
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True)
class OpenSignal:
    """The running checkpoint: its progress, past checkpoints to compare with, and the subtasks it waits for.

    ``silent_ms`` is the time since its last acknowledgement. ``is_past_read`` is False if ``past`` and ``judgement``
    lack past checkpoints that were not read yet.
    """

    run_id: RunId
    checkpoint_id: int
    triggered_at: datetime
    running: OpenCheckpoint
    past: tuple[PastCheckpoint, ...]
    judgement: Judgement
    silent_ms: int
    waiting: Place = Place()
    is_past_read: bool = True


@dataclass(frozen=True, slots=True)
class RunSpan:
    """The start and the end of a run that is over, by the engine's clock."""

    started_at: datetime
    ended_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSignal:
    """The current values of one job.

    ``stale_reason`` is the reason why the values are not current, or None if they are current.
    """

    job_id: JobId
    name: str
    target_id: TargetId
    target_name: str
    run_id: RunId
    run_started_at: datetime
    state: JobState
    now_engine: datetime
    flink_job_id: str | None = None
    """The id that Flink gave to the current run; None if another engine runs the job."""
    is_watched: bool = True
    stale_reason: str | None = None
    unread_reason: str | None = None
    """Why what the engine reports about the job cannot be read; None if it can."""
    config: CheckpointConfig | None = None
    ended: tuple[EndedCheckpoint, ...] = ()
    """The newest ended checkpoints of the current run, without savepoints, oldest first."""
    failures_in_row_count: int = 0
    """The number of checkpoints of the current run that failed since the last completed one.

    At most ``FAILURES_COUNTED_MAX`` are counted. The number is set only if all checkpoints in ``ended`` failed, because
    only then can there be earlier failures that ``ended`` does not contain. Otherwise the number is 0.
    """
    triggers: tuple[datetime, ...] = ()
    """The trigger times of the newest checkpoints in the run, oldest first."""
    last_completed_at: datetime | None = None
    last_completed: tuple[RunId, int] | None = None
    runs_before: tuple[RunSpan, ...] = ()
    """The earlier runs of the job that ended after its last completed checkpoint, newest first."""
    ended_ago_s: float | None = None
    """The seconds since the end of the current run; None if it has not ended or the time is not known."""
    opened: OpenSignal | None = None
    place: Place = Place()
    restarted_at: tuple[datetime, ...] = ()
    """The times of the newest failures after which the run restarted."""
    losses: tuple[Loss, ...] = ()
    """The newest losses of output in the run, newest first."""
    intermittence: Intermittence | None = None
    """How often the cause that the verdict names strikes; None if it always does, or if there is no verdict yet."""
    debt: ReplayDebt | None = None
    """What a failure of the current run would restore; None if this is not known."""
    refusal: Refusal | None = None
    """How long no checkpoint has begun, if the coordinator or the tasks refuse all of them."""
    growth: Growth | None = None
    """What has doubled within days although the input has not; None if nothing has."""
    is_growth_read: bool = True
    """False if the history has not been read yet, so that ``growth`` is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSignal:
    """The current values of one target, by the clock of this service."""

    target_id: TargetId
    name: str
    url: str
    state: TargetState
    now: datetime
    added_at: datetime
    reason: str | None = None
    since: datetime | None = None
    last_attempt_at: datetime | None = None
    last_success_at: datetime | None = None
    poll_interval_s: float | None = None
    job_names: tuple[str, ...] = ()
    is_pushed: bool = False
    """Whether the target's jobs push their data, so that no collector reads the target.

    The state of such a target is ``silent`` if a job has stopped pushing.
    """


@dataclass(frozen=True, slots=True)
class HistorySignal:
    """How many past days of history fit into the size limit, and the limit that all promised days need."""

    held_days: float
    promised_days: float
    size_limit_bytes: int
    needed_bytes: int


@dataclass(frozen=True, slots=True)
class SourceSignal:
    """A source of declared targets, and what is wrong with its newest content; None if nothing is."""

    source: str
    place: str
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class ServiceSignal:
    """The signal for rules about the service itself."""

    now: datetime
    history: HistorySignal | None = None
    """None until the size of a whole day is known."""
    sources: tuple[SourceSignal, ...] = ()
    """The files and discoveries that declare targets."""


Signal = JobSignal | TargetSignal | ServiceSignal
