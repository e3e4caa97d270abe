"""What is known of a job or a target when the rules look at it: values only, complete or not.

``now_engine`` is the instant of the last reading on the run's own clock, which its checkpoints' times are on. What was
not reported is None. Nothing is computed here.
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
from backend.domain.verdict import Phase


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the job the verdict points: all of it may be missing."""

    vertex: str | None = None
    subtasks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    phase: Phase | None = None
    sentence: str | None = None


@dataclass(frozen=True, slots=True)
class EndedCheckpoint:
    """A checkpoint that ended; ``is_failure`` leaves out aborts from outside. ``place``: who had not acknowledged."""

    run_id: RunId
    checkpoint_id: int
    triggered_at: datetime
    status: CheckpointStatus
    reason: FailureReason | None = None
    is_failure: bool = False
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True)
class OpenSignal:
    """The running checkpoint: how far it is, the past to compare it with, and whom it waits for."""

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
    """From when to when a run that is over ran, by the engine's clock."""

    started_at: datetime
    ended_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSignal:
    """One job now. ``stale_reason`` is why its data is not current, None where it is."""

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
    """Checkpoints of the current run that ended, savepoints aside, oldest first."""
    triggers: tuple[datetime, ...] = ()
    """When the newest checkpoints of the run were triggered, oldest first."""
    last_completed_at: datetime | None = None
    last_completed: tuple[RunId, int] | None = None
    runs_before: tuple[RunSpan, ...] = ()
    """Runs of the job before the current one that ended after a checkpoint last completed, newest first."""
    ended_ago_s: float | None = None
    """How long ago the current run ended; None where it has not, or that is not known."""
    opened: OpenSignal | None = None
    place: Place = Place()


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSignal:
    """One target now, by our clock."""

    target_id: TargetId
    name: str
    url: str
    state: str
    now: datetime
    added_at: datetime
    reason: str | None = None
    since: datetime | None = None
    last_attempt_at: datetime | None = None
    last_success_at: datetime | None = None
    poll_interval_s: float | None = None
    job_names: tuple[str, ...] = ()
    is_pushed: bool = False
    """Nobody reads it: its jobs tell of themselves, and ``silent`` is its state where one no longer does."""


@dataclass(frozen=True, slots=True)
class ServiceSignal:
    """The service itself."""

    now: datetime


Signal = JobSignal | TargetSignal | ServiceSignal
