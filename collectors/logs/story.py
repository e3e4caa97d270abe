"""What a log tells of each job: its checkpoints, its restarts, and the exceptions of its tasks.

The order of files does not matter: an event finds its checkpoint by the number. Invariant: the memory does not grow
with the log. Of each kind, a limited number is kept, and the number of all is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

from backend.domain.failure import FailureReason
from collectors.logs.lines import NO_DATE

CHECKPOINTS_KEPT: Final = 10_000
RESTARTS_KEPT: Final = 2_000
KINDS_KEPT: Final = 500
ATTEMPTS_KEPT: Final = 50_000
JOBS_KEPT: Final = 200
RECOVERY_S: Final = 10.0
"""A job begins to restart within so many seconds after the exception of its task."""
_TEXT_KEPT: Final = 16_000


@dataclass(slots=True)
class LoggedCheckpoint:
    """One checkpoint, as far as lines about it were read. Times are as written in the log."""

    number: int
    is_savepoint: bool = False
    triggered_at: datetime | None = None
    trigger_ms: int | None = None
    """The trigger's time in milliseconds since 1970, which the line names beside its own time."""
    ended_at: datetime | None = None
    duration_ms: int | None = None
    bytes: int | None = None
    outcome: str | None = None
    """``completed``, ``expired``, ``declined`` or ``failed``; None while no line about its end was read."""
    reason: FailureReason | None = None
    text: str = ""
    """The exception of a failure, or the reason in words."""
    declined_by: str | None = None
    """The execution attempt of the task that declined it."""
    late: list[str] = field(default_factory=list)
    """The execution attempts whose acknowledgements came after the checkpoint had expired."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception of a job or of one of its tasks. ``who`` is the task with its subtask; empty for the job."""

    at: datetime
    who: str
    text: str


@dataclass(slots=True)
class Told:
    """How often a text was read, and when first and last."""

    count: int
    first_at: datetime
    last_at: datetime
    sample: str


@dataclass(slots=True)
class LoggedJob:
    """What the log tells of one job."""

    job_id: str
    name: str | None = None
    checkpoints: dict[int, LoggedCheckpoint] = field(default_factory=dict)
    forgotten_count: int = 0
    """Checkpoints that are left out, those that were read first, because there are too many."""
    refused: dict[str, Told] = field(default_factory=dict)
    """Why checkpoints were not begun, by the reason without names and numbers."""
    restarts: list[Failure] = field(default_factory=list)
    restart_count: int = 0
    restored_from: list[tuple[datetime, int | None]] = field(default_factory=list)
    states: list[tuple[datetime, str]] = field(default_factory=list)

    def checkpoint(self, number: int) -> LoggedCheckpoint:
        """Return the checkpoint of this number, which is new if no line was about it."""
        logged_checkpoint = self.checkpoints.get(number)
        if logged_checkpoint is None:
            logged_checkpoint = self.checkpoints[number] = LoggedCheckpoint(number)
            if len(self.checkpoints) >= 2 * CHECKPOINTS_KEPT:
                for old in list(islice(self.checkpoints, CHECKPOINTS_KEPT)):
                    del self.checkpoints[old]
                self.forgotten_count += CHECKPOINTS_KEPT
        return logged_checkpoint


@dataclass(slots=True)
class Story:
    """What a set of log files tells."""

    jobs: dict[str, LoggedJob] = field(default_factory=dict)
    attempts: dict[str, str] = field(default_factory=dict)
    """The task and subtask of each execution attempt: ``map subtask 2 of 4``."""
    task_failures: list[Failure] = field(default_factory=list)
    """The exceptions of tasks. Their lines do not name the job."""
    newest_failures: dict[str, Failure] = field(default_factory=dict)
    """The newest of them, by the execution attempt."""
    recovering: Failure | None = None
    """What the scheduler said last that it recovers from. Its next line is about the job that restarts for this."""
    known: dict[str, Told] = field(default_factory=dict)
    """Known messages in warnings, errors and stack traces, by their id."""
    settings: dict[str, str] = field(default_factory=dict)
    versions: list[str] = field(default_factory=list)
    first_at: datetime | None = None
    last_at: datetime | None = None
    unreadable_count: int = 0
    """Lines that have the text of an event but could not be read."""
    event_count: int = 0
    task_manager_count: int = 0
    """Lines that only a TaskManager writes."""
    coordinator_count: int = 0
    """Lines that only the checkpoint coordinator writes."""
    _seen: set[Hashable] = field(default_factory=set)
    _first_key: datetime | None = None
    _last_key: datetime | None = None

    def job(self, job_id: str) -> LoggedJob:
        """Return the job of this id, which is new if no line was about it."""
        logged_job = self.jobs.get(job_id)
        if logged_job is None:
            if len(self.jobs) >= JOBS_KEPT:
                del self.jobs[next(iter(self.jobs))]
            logged_job = self.jobs[job_id] = LoggedJob(job_id)
        return logged_job

    def saw(self, at: datetime) -> None:
        """Note that an event was read, at this time of the log."""
        self.event_count += 1
        key = at if at.tzinfo is None else _key(at)
        if self._first_key is None or key < self._first_key:
            self._first_key, self.first_at = key, at
        if self._last_key is None or key > self._last_key:
            self._last_key, self.last_at = key, at

    def is_new(self, key: Hashable) -> bool:
        """Return whether this event was not read before, as from a second copy of the file."""
        if key in self._seen:
            return False
        if len(self._seen) < ATTEMPTS_KEPT:
            self._seen.add(key)
        return True

    def remember(self, attempt: str, task: str) -> None:
        """Remember the task of an execution attempt."""
        if len(self.attempts) >= 2 * ATTEMPTS_KEPT:
            for old in list(islice(self.attempts, ATTEMPTS_KEPT)):
                del self.attempts[old]
        self.attempts[attempt] = task

    def fail(self, attempt: str, failure: Failure) -> None:
        """Note the exception of a task."""
        if len(self.task_failures) < RESTARTS_KEPT:
            self.task_failures.append(failure)
        if len(self.newest_failures) >= RESTARTS_KEPT:
            del self.newest_failures[next(iter(self.newest_failures))]
        self.newest_failures[attempt] = failure

    def take_recovering(self, at: datetime) -> Failure | None:
        """Return what a job that restarts at this time recovers from; None if no line just before says it."""
        found, self.recovering = self.recovering, None
        is_near = found is not None and 0 <= (_key(at) - _key(found.at)).total_seconds() <= RECOVERY_S
        return found if is_near else None

    def tell(self, counts: dict[str, Told], key: str, at: datetime, sample: str) -> None:
        """Count a text."""
        found = counts.get(key)
        if found is None:
            if len(counts) < KINDS_KEPT:
                counts[key] = Told(1, at, at, sample[:_TEXT_KEPT])
            return
        found.count += 1
        found.first_at = min(found.first_at, at, key=_key)
        found.last_at = max(found.last_at, at, key=_key)

    @property
    def offset(self) -> timedelta | None:
        """What the log's clock shows minus UTC, from the triggers, which name both; None if there is no trigger."""
        seen: Counter[int] = Counter()
        for job in self.jobs.values():
            for checkpoint in job.checkpoints.values():
                at = checkpoint.triggered_at
                if at is not None and at.year != NO_DATE.year and checkpoint.trigger_ms is not None:
                    written = (_key(at) - _EPOCH).total_seconds()
                    # Zones differ by quarters of an hour. The line is written some milliseconds after the trigger.
                    seen[round((written - checkpoint.trigger_ms / 1000) / 900)] += 1
        return timedelta(seconds=900 * seen.most_common(1)[0][0]) if seen else None


_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - the log's times have no zone


def _key(at: datetime) -> datetime:
    """Return the time without its zone, so that times of files with and without zones can be compared."""
    return at.replace(tzinfo=None)


def keep_text(text: str) -> str:
    """Return the text, cut to the length that is kept."""
    return text[:_TEXT_KEPT]
