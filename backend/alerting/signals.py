"""The input of the rules: the current values of a job or a target. Values that were not reported are None.

``now_engine`` is the instant of the last reading on the clock of the run; the times of its checkpoints use this clock.
This module computes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from backend.alerting.prediction import Past, Running
from backend.analysis.progress import Judgement
from backend.domain.checkpoint import CheckpointConfig, CheckpointStatus
from backend.domain.failure import FailureReason
from backend.domain.ids import JobId, RunId, TargetId
from backend.domain.observation import JobState
from backend.domain.target import TargetState
from backend.domain.verdict import Phase


@dataclass(frozen=True, slots=True)
class Place:
    """The place in the job that the verdict names. Every field may be missing."""

    vertex: str | None = None
    subtasks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    phase: Phase | None = None
    sentence: str | None = None


@dataclass(frozen=True, slots=True)
class EndedCheckpoint:
    """A checkpoint that ended. ``is_failure``: it failed, for whatever reason."""

    run_id: RunId
    checkpoint_id: int
    triggered_at: datetime
    status: CheckpointStatus
    reason: FailureReason | None = None
    is_failure: bool = False
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True)
class OpenSignal:
    """The running checkpoint: its progress, past checkpoints to compare with, and the subtasks it waits for."""

    run_id: RunId
    checkpoint_id: int
    triggered_at: datetime
    running: Running
    past: tuple[Past, ...]
    judgement: Judgement
    silent_ms: int
    waiting: Place = Place()


@dataclass(frozen=True, slots=True)
class RunSpan:
    """Begin and end of a run that is over, on the engine's clock."""

    started_at: datetime
    ended_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSignal:
    """One job now. ``stale_reason``: why its data is not current; None if it is."""

    job_id: JobId
    name: str
    target_id: TargetId
    target_name: str
    run_id: RunId
    run_started_at: datetime
    state: JobState
    now_engine: datetime
    is_watched: bool = True
    stale_reason: str | None = None
    config: CheckpointConfig | None = None
    ended: tuple[EndedCheckpoint, ...] = ()
    """Ended checkpoints of the current run without savepoints, oldest first."""
    triggers: tuple[datetime, ...] = ()
    """Trigger times of the newest checkpoints in the run, oldest first."""
    last_completed_at: datetime | None = None
    last_completed: tuple[RunId, int] | None = None
    runs_before: tuple[RunSpan, ...] = ()
    """Earlier runs of the job that ended after its last completed checkpoint, newest first."""
    ended_ago_s: float | None = None
    """Time since the end of the current run; None if it has not ended or the time is not known."""
    opened: OpenSignal | None = None
    place: Place = Place()


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSignal:
    """One target now, on the clock of this service."""

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
    """Its jobs push their data, and no collector reads it. Its state is ``silent`` if a job has stopped pushing."""


@dataclass(frozen=True, slots=True)
class ServiceSignal:
    """The service itself."""

    now: datetime


Signal = JobSignal | TargetSignal | ServiceSignal
