"""Runs the jobs of the live runtime in real time: maps wall time to virtual time, and never skips virtual time.

Each job has its own fixed wall-clock instant for virtual time 0. The driver runs each engine up to the present in
slices, which are short so that the REST answers between them without delay. If the engines need more time than passes,
virtual time falls behind by ``lag_ms``. Every time that is shown is virtual time, converted with this instant.

With a warm-up, time 0 lies in the past, and the engines run as fast as possible until they reach the present.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from backend.domain.barriers import BarrierEvent
from backend.domain.errors import UnknownEntityError
from backend.live.view import JobView, RequestedCheckpointView, SavepointView
from backend.live.wire import Json, Object

_SLICE_COST_S = 0.004
_SLICE_MIN_US = 200
_SLICE_MAX_US = 250_000
# How far the jobs may be behind while the driver rests: the resolution of the REST.
_REST_S = 0.025
# A view older than this is built again. The requests of one poll share a view.
_VIEW_AGE_MAX_S = 0.2
_REQUESTS_KEPT = 1000


class LiveEngine(Protocol):
    """The engine of one job, as the driver uses it."""

    @property
    def now_us(self) -> int:
        """Virtual time."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether the job has ended."""
        ...

    def run_until(self, at_us: int) -> None:
        """Run up to and including virtual time ``at_us``."""
        ...

    def view(self, *, job_id: str, origin_epoch_ms: int, lag_ms: int) -> JobView:
        """The current values for the REST."""
        ...

    def barriers(self, checkpoint_id: int) -> Sequence[BarrierEvent] | None:
        """Barrier events of one checkpoint, or None if it is not known."""
        ...

    def measurements(self, checkpoint_id: int) -> Object | None:
        """Measurements of one checkpoint in addition to Flink's; None if it is not known."""
        ...

    def restarts(self) -> list[Json]:
        """The cost of the last restarts, newest first."""
        ...

    def settings(self) -> Mapping[str, str]:
        """The current settings that can change while the job runs."""
        ...

    def change_settings(self, changes: Mapping[str, str]) -> None:
        """Apply all of ``changes`` at the current virtual time, or none.

        Raises:
            InvalidInputError: a key cannot change while the job runs, or a value is out of bounds.

        """
        ...

    def trigger_savepoint(self, form: str) -> int:
        """Request a savepoint at the current virtual time; returns the number of the request."""
        ...

    def stop(self, form: str, *, drains: bool) -> int:
        """Stop the job with a savepoint (SV-3); returns the number of the request."""
        ...

    def savepoint(self, number: int, job_id: str) -> SavepointView | None:
        """The state of a requested savepoint, or None if it is not known."""
        ...

    def trigger_checkpoint(self) -> int:
        """Request a checkpoint at the current virtual time; returns the number of the request."""
        ...

    def requested_checkpoint(self, number: int) -> RequestedCheckpointView | None:
        """The state of a requested checkpoint, or None if it is not known."""
        ...

    def rescale(self, parallelism: Mapping[str, int], *, from_savepoint: bool) -> None:
        """Restart the job with another parallelism, by vertex, from its last checkpoint or from a new savepoint.

        Raises:
            PlanError: the job cannot run or restore with it; the job continues unchanged.

        """
        ...

    def rescales(self) -> list[Json]:
        """The last requested changes of parallelism, newest first."""
        ...


@dataclass(slots=True)
class LiveJob:
    """One job of the runtime, and the instant of its virtual time 0."""

    id: str
    engine: LiveEngine
    origin_epoch_ms: int
    origin_s: float
    """The same instant on the monotonic clock."""
    slice_us: int = 20_000
    view: JobView | None = None
    viewed_s: float = 0.0
    savepoints: dict[str, int] = field(default_factory=dict)
    """Numbers of requested savepoints, by the id that the REST returned."""
    checkpoints: dict[str, int] = field(default_factory=dict)
    """The same for requested checkpoints."""


class RuntimeDriver:
    """Runs the jobs in real time, on the event loop that also serves their REST."""

    def __init__(self, jobs: Sequence[LiveJob], monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._jobs = {job.id: job for job in jobs}
        self._monotonic_s = monotonic_s

    async def run(self) -> None:
        """Run every job up to the present, until cancelled."""
        while True:
            behind = False
            for job in self._jobs.values():
                behind |= self.advance(job)
                # The event loop answers requests between two slices.
                await asyncio.sleep(0)
            if not behind:
                await asyncio.sleep(_REST_S)

    def advance(self, job: LiveJob) -> bool:
        """Run one slice of a job; returns whether it is still behind."""
        due_us = self._due_us(job)
        now_us = job.engine.now_us
        if now_us >= due_us or job.engine.is_over:
            return False
        began_s = self._monotonic_s()
        job.engine.run_until(min(due_us, now_us + job.slice_us))
        cost_s = max(self._monotonic_s() - began_s, 1e-6)
        # Adapt the slice to the allowed cost. It at most doubles, because the job may be idle only for a moment.
        job.slice_us = int(min(max(job.slice_us * min(2.0, _SLICE_COST_S / cost_s), _SLICE_MIN_US), _SLICE_MAX_US))
        return job.engine.now_us < due_us

    def lag_ms(self, job: LiveJob) -> int:
        """How far a job is behind the wall clock, in ms."""
        if job.engine.is_over:
            return 0
        behind_us = self._due_us(job) - job.engine.now_us
        # A lag within the driver's resolution counts as zero.
        return 0 if behind_us <= _REST_S * 2e6 else behind_us // 1000

    def lag_max_ms(self) -> int:
        """The lag of the job that is furthest behind."""
        return max(map(self.lag_ms, self._jobs.values()), default=0)

    def views(self) -> list[JobView]:
        """Every job, in the given order."""
        return [self._view(job) for job in self._jobs.values()]

    def view(self, job_id: str) -> JobView:
        """One job.

        Raises:
            UnknownEntityError: there is no such job.

        """
        return self._view(self.job(job_id))

    def job(self, job_id: str) -> LiveJob:
        """The job with this id.

        Raises:
            UnknownEntityError: there is no such job.

        """
        job = self._jobs.get(job_id)
        if job is None:
            raise UnknownEntityError(kind="job", id=job_id)
        return job

    def change_settings(self, job_id: str, changes: Mapping[str, str]) -> Mapping[str, str]:
        """Change settings of a running job; returns the new settings."""
        job = self.job(job_id)
        job.engine.change_settings(changes)
        job.view = None
        return job.engine.settings()

    def trigger_savepoint(self, job_id: str, form: str, trigger_id: str | None) -> str:
        """Request a savepoint; returns the id of the request. A repeated id does not trigger again."""
        job = self.job(job_id)
        return _asked(job, "savepoint", job.savepoints, trigger_id, lambda: job.engine.trigger_savepoint(form))

    def stop(self, job_id: str, form: str, trigger_id: str | None, *, drains: bool) -> str:
        """Stop a job with a savepoint; returns the id of the request."""
        job = self.job(job_id)
        return _asked(job, "savepoint", job.savepoints, trigger_id, lambda: job.engine.stop(form, drains=drains))

    def trigger_checkpoint(self, job_id: str, trigger_id: str | None) -> str:
        """Request a checkpoint; returns the id of the request. A repeated id does not trigger again."""
        job = self.job(job_id)
        return _asked(job, "checkpoint", job.checkpoints, trigger_id, job.engine.trigger_checkpoint)

    def requested_checkpoint(self, job_id: str, trigger_id: str) -> RequestedCheckpointView:
        """The state of a requested checkpoint.

        Raises:
            UnknownEntityError: there is no such job or request.

        """
        job = self.job(job_id)
        number = job.checkpoints.get(trigger_id)
        found = None if number is None else job.engine.requested_checkpoint(number)
        if found is None:
            raise UnknownEntityError(kind="checkpoint request", id=trigger_id)
        return found

    def rescale(self, job_id: str, parallelism: Mapping[str, int], *, from_savepoint: bool) -> None:
        """Restart a job with another parallelism, by vertex. Do nothing if no parallelism changes.

        Raises:
            PlanError: the job cannot run or restore with it; the job continues unchanged.

        """
        job = self.job(job_id)
        if parallelism:
            job.engine.rescale(parallelism, from_savepoint=from_savepoint)
            job.view = None

    def savepoint(self, job_id: str, trigger_id: str) -> SavepointView:
        """The state of a requested savepoint.

        Raises:
            UnknownEntityError: there is no such job or request.

        """
        job = self.job(job_id)
        number = job.savepoints.get(trigger_id)
        found = None if number is None else job.engine.savepoint(number, job_id)
        if found is None:
            raise UnknownEntityError(kind="savepoint", id=trigger_id)
        return found

    def _view(self, job: LiveJob) -> JobView:
        now_s = self._monotonic_s()
        if job.view is None or now_s - job.viewed_s > _VIEW_AGE_MAX_S:
            job.view = job.engine.view(job_id=job.id, origin_epoch_ms=job.origin_epoch_ms, lag_ms=self.lag_ms(job))
            job.viewed_s = now_s
        return job.view

    def _due_us(self, job: LiveJob) -> int:
        return int((self._monotonic_s() - job.origin_s) * 1e6)


def _asked(job: LiveJob, kind: str, given: dict[str, int], trigger_id: str | None, ask: Callable[[], int]) -> str:
    """Call ``ask`` once for each id; without an id, create one. ``given`` keeps the newest requests."""
    if trigger_id is not None and trigger_id in given:
        return trigger_id
    number = ask()
    job.view = None
    answer = trigger_id or hashlib.blake2b(f"{job.id}/{kind}/{number}".encode(), digest_size=16).hexdigest()
    given[answer] = number
    while len(given) > _REQUESTS_KEPT:
        del given[next(iter(given))]
    return answer
