"""Runs the jobs of the live runtime in real time: maps wall time to virtual time, and never skips virtual time.

For each job, virtual time 0 is a fixed wall-clock instant. The driver runs each engine up to the present in slices,
which are short so that the REST can respond between two slices without delay. If an engine runs slower than real time,
its virtual time falls behind by ``lag_ms``. Every time that the REST shows is virtual time, converted with the instant
of time 0.

With a warm-up, time 0 lies in the past, and the engines run as fast as possible until they reach the present.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import structlog

from backend.domain.barriers import BarrierEvent
from backend.domain.errors import FieldProblem, InvalidInputError, UnknownEntityError
from backend.live.uploads import Uploads
from backend.live.view import JobView, RequestedCheckpointView, SavepointView
from backend.live.wire import Json, Object
from backend.runtime.engine.jobfile import JobSpec
from backend.runtime.snapshot.saved import RestoreOptions

_log = structlog.get_logger(__name__)

_SLICE_COST_S = 0.004
_SLICE_MIN_US = 200
_SLICE_MAX_US = 250_000
# How long the driver sleeps when every job is up to date. The REST may therefore show a state that is this old.
_REST_S = 0.025
# A view that is older than this is built again. The requests of one poll share a view.
_VIEW_AGE_MAX_S = 0.2
_REQUESTS_KEPT = 1000
# Each running job costs time in every round, and each ended one keeps its checkpoints in memory.
_JOBS_MAX = 50
_ENDED_KEPT = 20


class LiveEngine(Protocol):
    """The interface through which the driver uses the engine of one job."""

    @property
    def now_us(self) -> int:
        """The current virtual time."""
        ...

    def run_until(self, at_us: int) -> None:
        """Run the job up to and including virtual time ``at_us``."""
        ...

    def view(self, *, job_id: str, origin_epoch_ms: int, lag_ms: int) -> JobView:
        """Return the current values that the REST shows."""
        ...

    def barriers(self, checkpoint_id: int) -> Sequence[BarrierEvent] | None:
        """Return the barrier events of one checkpoint, or None if the checkpoint is not known."""
        ...

    def measurements(self, checkpoint_id: int) -> Object | None:
        """Return the values of one checkpoint that only this runtime measures; None if the checkpoint is not known."""
        ...

    def restarts(self) -> list[Json]:
        """Return the cost of each of the last restarts, newest first."""
        ...

    def settings(self) -> Mapping[str, str]:
        """Return the settings that can change while the job runs, with their current values."""
        ...

    def change_settings(self, changes: Mapping[str, str]) -> None:
        """Apply all of ``changes`` at the current virtual time, or none of them.

        Raises:
            InvalidInputError: a key cannot change while the job runs, or a value is out of bounds.
        """
        ...

    def check_settings(self, changes: Mapping[str, str]) -> None:
        """Raise what ``change_settings`` would raise. Nothing changes."""
        ...

    def trigger_savepoint(self, form: str) -> int:
        """Request a savepoint at the current virtual time. Return the number of the request."""
        ...

    def stop(self, form: str, *, drains: bool) -> int:
        """Request a stop of the job with a savepoint (SV-3). Return the number of the request."""
        ...

    def savepoint(self, number: int, job_id: str) -> SavepointView | None:
        """Return the state of a requested savepoint, or None if the request is not known."""
        ...

    def trigger_checkpoint(self, *, is_full: bool) -> int:
        """Request a checkpoint at the current virtual time. Return the number of the request."""
        ...

    def abort_checkpoint(self, checkpoint_id: int) -> bool:
        """Abort a checkpoint in progress. Return whether it was in progress."""
        ...

    def requested_checkpoint(self, number: int) -> RequestedCheckpointView | None:
        """Return the state of a requested checkpoint, or None if the request is not known."""
        ...

    @property
    def name(self) -> str:
        """The name of the job."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether the job has ended, for whatever reason."""
        ...

    def cancel(self) -> None:
        """End the job at once. Its completed checkpoints stay."""
        ...

    def break_off(self, error: Exception) -> None:
        """End the job as FAILED after ``run_until`` raised an error, which becomes an exception of the job."""
        ...

    def successor(
        self, checkpoint_id: int, spec: JobSpec | None, options: RestoreOptions, *, location: str
    ) -> LiveEngine:
        """Return the engine of a job that continues this one, which has ended. ``spec``: None for the same job.

        ``location`` is that of the checkpoint.

        Raises:
            UnknownEntityError: there is no such checkpoint.
            PlanError: the checkpoint cannot be restored into the job, or not now.
        """
        ...

    def rescale(self, parallelism: Mapping[str, int], *, from_savepoint: bool) -> None:
        """Restart the job with a new parallelism for each named vertex.

        The job is restored from its last checkpoint or, if ``from_savepoint``, from a new savepoint.

        Raises:
            PlanError: the job cannot run or be restored with the new parallelism. The job continues unchanged.
        """
        ...

    def rescales(self) -> list[Json]:
        """Return the last requested changes of parallelism, newest first."""
        ...


@dataclass(slots=True)
class LiveJob:
    """One job of the runtime, with the instant of its virtual time 0."""

    id: str
    engine: LiveEngine
    origin_epoch_ms: int
    origin_s: float
    """The instant of virtual time 0 on the monotonic clock."""
    first_id: str = ""
    """The first of the jobs that continue each other; they have one external system. By default the job itself."""
    ended_s: float | None = None
    """When the driver saw that the job had ended, on the monotonic clock."""
    is_broken: bool = False
    """Whether its engine raised an error. It is not run again."""
    slice_us: int = 20_000
    view: JobView | None = None
    viewed_s: float = 0.0
    savepoints: dict[str, int] = field(default_factory=dict)
    """The engine's number of each requested savepoint, by the request id that the REST returned."""
    checkpoints: dict[str, int] = field(default_factory=dict)
    """The engine's number of each requested checkpoint, by the request id that the REST returned."""
    claimed: dict[int, str] = field(default_factory=dict)
    """The job that owns each checkpoint of this job that another one claimed (IN-16)."""

    def __post_init__(self) -> None:
        self.first_id = self.first_id or self.id


class RuntimeDriver:
    """Runs the jobs in real time, on the same event loop that serves their REST."""

    def __init__(self, jobs: Sequence[LiveJob], monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._jobs = {job.id: job for job in jobs}
        self.uploads = Uploads()
        self._monotonic_s = monotonic_s

    async def run(self) -> None:
        """Run every job up to the present, again and again, until cancelled."""
        while True:
            behind = False
            # A request can start a job between two slices.
            for job in list(self._jobs.values()):
                behind |= self.advance(job)
                # Between two slices the event loop can respond to requests.
                await asyncio.sleep(0)
            if not behind:
                await asyncio.sleep(_REST_S)

    def advance(self, job: LiveJob) -> bool:
        """Run one slice of a job. Return whether the job is still behind the wall clock."""
        if job.ended_s is None and job.engine.is_over:
            job.ended_s = self._monotonic_s()
        if job.is_broken:
            return False
        due_us = self._due_us(job)
        now_us = job.engine.now_us
        if now_us >= due_us:
            return False
        began_s = self._monotonic_s()
        try:
            job.engine.run_until(min(due_us, now_us + job.slice_us))
        except Exception as error:  # noqa: BLE001  a fault of one engine must not end the other jobs
            self._break_off(job, error)
            return False
        cost_s = max(self._monotonic_s() - began_s, 1e-6)
        # Scale the next slice so that it takes about the allowed real time. The length of a slice at most doubles,
        # because a job that costs little now may be idle only for a moment.
        job.slice_us = int(min(max(job.slice_us * min(2.0, _SLICE_COST_S / cost_s), _SLICE_MIN_US), _SLICE_MAX_US))
        return job.engine.now_us < due_us

    def _break_off(self, job: LiveJob, error: Exception) -> None:
        _log.error("the engine of a job failed; the other jobs run", job=job.engine.name, id=job.id, exc_info=error)
        job.engine.break_off(error)
        job.is_broken, job.view = True, None
        job.ended_s = self._monotonic_s()

    def lag_ms(self, job: LiveJob) -> int:
        """Return how far a job is behind the wall clock, in milliseconds. One whose engine failed is not behind."""
        if job.is_broken:
            return 0
        behind_us = self._due_us(job) - job.engine.now_us
        # The driver sleeps between slices, so a small lag is normal and counts as zero.
        return 0 if behind_us <= _REST_S * 2e6 else behind_us // 1000

    def lag_max_ms(self) -> int:
        """Return the lag of the job that is furthest behind, in milliseconds."""
        return max(map(self.lag_ms, self._jobs.values()), default=0)

    def views(self) -> list[JobView]:
        """Return the view of every job, in the order in which the jobs were passed to the driver."""
        return [self._view(job) for job in self._jobs.values()]

    def view(self, job_id: str) -> JobView:
        """Return the view of one job.

        Raises:
            UnknownEntityError: there is no such job.
        """
        return self._view(self.job(job_id))

    def job(self, job_id: str) -> LiveJob:
        """Return the job with this id.

        Raises:
            UnknownEntityError: there is no such job.
        """
        job = self._jobs.get(job_id)
        if job is None:
            raise UnknownEntityError(kind="job", id=job_id)
        return job

    def now(self) -> tuple[float, int]:
        """Return the present on the monotonic clock in seconds, and in ms since the epoch as the jobs count it."""
        now_s = self._monotonic_s()
        job = next(iter(self._jobs.values()), None)
        if job is None:
            return now_s, time.time_ns() // 1_000_000
        return now_s, job.origin_epoch_ms + int((now_s - job.origin_s) * 1000)

    def check_room(self, name: str) -> None:
        """Check that a job of this name can be added.

        Raises:
            InvalidInputError: a job of this name runs, or too many jobs run.
        """
        running = [job.engine.name for job in self._jobs.values() if not job.engine.is_over]
        if name in running:
            problem = FieldProblem("name", f"a job with the name {name!r} runs", "another name, or stop that job first")
        elif len(running) >= _JOBS_MAX:
            problem = FieldProblem("job", f"{len(running)} jobs run", f"at most {_JOBS_MAX}")
        else:
            return
        raise InvalidInputError([problem], what="request")

    def add(self, job: LiveJob) -> None:
        """Run another job from now on. If too many have ended, those that ended first are forgotten."""
        self._jobs[job.id] = job
        now_s = self._monotonic_s()
        over = [each for each in self._jobs.values() if each.engine.is_over]
        over.sort(key=lambda each: now_s if each.ended_s is None else each.ended_s)
        for oldest in over[: max(0, len(over) - _ENDED_KEPT)]:
            del self._jobs[oldest.id]

    def running_of(self, first_id: str) -> LiveJob | None:
        """Return the running job among those that continue each other from the job ``first_id`` on, if there is one."""
        own = (each for each in self._jobs.values() if each.first_id == first_id)
        return next((each for each in own if not each.engine.is_over), None)

    def cancel(self, job_id: str) -> None:
        """End a job at once. Its completed checkpoints stay. Has no effect on a job that has ended.

        Raises:
            UnknownEntityError: there is no such job.
        """
        job = self.job(job_id)
        job.engine.cancel()
        job.view = None
        if job.ended_s is None:
            job.ended_s = self._monotonic_s()

    def change_settings(self, job_id: str, changes: Mapping[str, str]) -> Mapping[str, str]:
        """Change settings of a running job. Return all settings that can change, with their new values."""
        job = self.job(job_id)
        job.engine.change_settings(changes)
        job.view = None
        return job.engine.settings()

    def trigger_savepoint(self, job_id: str, form: str, trigger_id: str | None) -> str:
        """Request a savepoint and return the id of the request. A repeated ``trigger_id`` does not trigger again."""
        job = self.job(job_id)
        return _asked(job, "savepoint", job.savepoints, trigger_id, lambda: job.engine.trigger_savepoint(form))

    def stop(self, job_id: str, form: str, trigger_id: str | None, *, drains: bool) -> str:
        """Request a stop of a job with a savepoint. Return the id of the request."""
        job = self.job(job_id)
        return _asked(job, "savepoint", job.savepoints, trigger_id, lambda: job.engine.stop(form, drains=drains))

    def trigger_checkpoint(self, job_id: str, trigger_id: str | None, *, is_full: bool) -> str:
        """Request a checkpoint and return the id of the request. A repeated ``trigger_id`` does not trigger again."""
        job = self.job(job_id)
        trigger = partial(job.engine.trigger_checkpoint, is_full=is_full)
        return _asked(job, "checkpoint", job.checkpoints, trigger_id, trigger)

    def abort_checkpoint(self, job_id: str, checkpoint_id: int) -> None:
        """Abort a checkpoint in progress.

        Raises:
            UnknownEntityError: there is no such job.
            InvalidInputError: the checkpoint is not in progress, or it stops the job.
        """
        job = self.job(job_id)
        if not job.engine.abort_checkpoint(checkpoint_id):
            problem = FieldProblem("checkpoint", f"{checkpoint_id} cannot be aborted", "a checkpoint in progress")
            raise InvalidInputError([problem], what="request")
        job.view = None

    def requested_checkpoint(self, job_id: str, trigger_id: str) -> RequestedCheckpointView:
        """Return the state of a requested checkpoint.

        Raises:
            UnknownEntityError: there is no such job or request.
        """
        job = self.job(job_id)
        number = job.checkpoints.get(trigger_id)
        requested_checkpoint_view = None if number is None else job.engine.requested_checkpoint(number)
        if requested_checkpoint_view is None:
            raise UnknownEntityError(kind="checkpoint request", id=trigger_id)
        return requested_checkpoint_view

    def rescale(self, job_id: str, parallelism: Mapping[str, int], *, from_savepoint: bool) -> None:
        """Restart a job with a new parallelism for each named vertex. Do nothing if ``parallelism`` is empty.

        Raises:
            PlanError: the job cannot run or be restored with the new parallelism. The job continues unchanged.
        """
        job = self.job(job_id)
        if parallelism:
            job.engine.rescale(parallelism, from_savepoint=from_savepoint)
            job.view = None

    def savepoint(self, job_id: str, trigger_id: str) -> SavepointView:
        """Return the state of a requested savepoint.

        Raises:
            UnknownEntityError: there is no such job or request.
        """
        job = self.job(job_id)
        number = job.savepoints.get(trigger_id)
        savepoint_view = None if number is None else job.engine.savepoint(number, job_id)
        if savepoint_view is None:
            raise UnknownEntityError(kind="savepoint", id=trigger_id)
        return savepoint_view

    def _view(self, job: LiveJob) -> JobView:
        now_s = self._monotonic_s()
        if job.view is None or now_s - job.viewed_s > _VIEW_AGE_MAX_S:
            job.view = job.engine.view(job_id=job.id, origin_epoch_ms=job.origin_epoch_ms, lag_ms=self.lag_ms(job))
            job.viewed_s = now_s
        return job.view

    def _due_us(self, job: LiveJob) -> int:
        return int((self._monotonic_s() - job.origin_s) * 1e6)


def _asked(job: LiveJob, kind: str, given: dict[str, int], trigger_id: str | None, ask: Callable[[], int]) -> str:
    """Return the id of a request. Call ``ask`` to make the request, unless ``given`` already contains ``trigger_id``.

    If the caller gave no id, an id is created. ``given`` keeps only the newest requests.
    """
    if trigger_id is not None and trigger_id in given:
        return trigger_id
    number = ask()
    job.view = None
    answer = trigger_id or hashlib.blake2b(f"{job.id}/{kind}/{number}".encode(), digest_size=16).hexdigest()
    given[answer] = number
    while len(given) > _REQUESTS_KEPT:
        del given[next(iter(given))]
    return answer
