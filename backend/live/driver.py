"""Maps wall time to virtual time for the jobs of the live runtime, slice by slice, and never skips.

Each job's virtual time 0 is mapped to one instant; from then on its engine is run up to the present in slices short
enough that the REST between them stays prompt. Where the engines need more time than passes, virtual time falls
behind and ``lag_ms`` says by how much; nothing is left out, and every time shown is the mapped virtual one.

With a warm-up the origin lies that long in the past: the first seconds are made up as fast as they go.
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
# How far the jobs may be behind while nothing is asked of the driver: the resolution of what the REST shows.
_REST_S = 0.025
# A view older than this is made anew; many requests of one poll share one.
_VIEW_AGE_MAX_S = 0.2
_REQUESTS_KEPT = 1000


class LiveEngine(Protocol):
    """One job's engine, as the driver needs it."""

    @property
    def now_us(self) -> int:
        """Virtual time."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether the job has ended for good."""
        ...

    def run_until(self, at_us: int) -> None:
        """Carry out everything up to and including virtual time ``at_us``."""
        ...

    def view(self, *, job_id: str, origin_epoch_ms: int, lag_ms: int) -> JobView:
        """What the REST shows now."""
        ...

    def barriers(self, checkpoint_id: int) -> Sequence[BarrierEvent] | None:
        """Barrier events of one checkpoint, or None where it is not (or no longer) known."""
        ...

    def measurements(self, checkpoint_id: int) -> Object | None:
        """What was measured of one checkpoint beyond Flink's answers, or None where it is not (or no longer) known."""
        ...

    def restarts(self) -> list[Json]:
        """What the last restarts cost, newest first."""
        ...

    def settings(self) -> Mapping[str, str]:
        """The settings in force that may change while the job runs."""
        ...

    def change_settings(self, changes: Mapping[str, str]) -> None:
        """Change all of ``changes`` at the present virtual time, or none.

        Raises:
            InvalidInputError: a key may not change while the job runs, or a value is out of bounds.

        """
        ...

    def trigger_savepoint(self, form: str) -> int:
        """Ask for a savepoint at the present virtual time; returns the number of the request."""
        ...

    def stop(self, form: str, *, drains: bool) -> int:
        """Stop the job with a savepoint (SV-3); returns the number of the request."""
        ...

    def savepoint(self, number: int, job_id: str) -> SavepointView | None:
        """How far a requested savepoint has come, or None where it is not (or no longer) known."""
        ...

    def trigger_checkpoint(self) -> int:
        """Ask for a checkpoint at the present virtual time; returns the number of the request."""
        ...

    def requested_checkpoint(self, number: int) -> RequestedCheckpointView | None:
        """How far a requested checkpoint has come, or None where it is not (or no longer) known."""
        ...

    def rescale(self, parallelism: Mapping[str, int], *, from_savepoint: bool) -> None:
        """Restart the job at another parallelism, by vertex, at the present virtual time or from a savepoint.

        Raises:
            PlanError: it cannot run like that, or cannot be restored so; the job goes on as it was.

        """
        ...

    def rescales(self) -> list[Json]:
        """The last changes of parallelism that were asked for, newest first."""
        ...


@dataclass(slots=True)
class LiveJob:
    """One job of the runtime and where its virtual time 0 lies."""

    id: str
    engine: LiveEngine
    origin_epoch_ms: int
    origin_s: float
    """The same instant on the monotonic clock."""
    slice_us: int = 20_000
    view: JobView | None = None
    viewed_s: float = 0.0
    savepoints: dict[str, int] = field(default_factory=dict)
    """Numbers of requested savepoints by the id that who asked was given."""
    checkpoints: dict[str, int] = field(default_factory=dict)
    """The same of requested checkpoints."""


class RuntimeDriver:
    """Runs the jobs in step with the wall clock, on the event loop that also serves their REST."""

    def __init__(self, jobs: Sequence[LiveJob], monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._jobs = {job.id: job for job in jobs}
        self._monotonic_s = monotonic_s

    async def run(self) -> None:
        """Keep every job at the present until cancelled."""
        while True:
            behind = False
            for job in self._jobs.values():
                behind |= self.advance(job)
                # Requests are answered between two slices.
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
        # Towards the slice that costs what one may; at most doubled, since an idle moment foretells nothing.
        job.slice_us = int(min(max(job.slice_us * min(2.0, _SLICE_COST_S / cost_s), _SLICE_MIN_US), _SLICE_MAX_US))
        return job.engine.now_us < due_us

    def lag_ms(self, job: LiveJob) -> int:
        """How far a job is behind the wall clock."""
        if job.engine.is_over:
            return 0
        behind_us = self._due_us(job) - job.engine.now_us
        # Up to one rest of the driver nobody is late: that is its resolution.
        return 0 if behind_us <= _REST_S * 2e6 else behind_us // 1000

    def lag_max_ms(self) -> int:
        """The lag of the job that is furthest behind."""
        return max(map(self.lag_ms, self._jobs.values()), default=0)

    def views(self) -> list[JobView]:
        """Every job, in the order in which they were given."""
        return [self._view(job) for job in self._jobs.values()]

    def view(self, job_id: str) -> JobView:
        """One job.

        Raises:
            UnknownEntityError: there is no such job.

        """
        return self._view(self.job(job_id))

    def job(self, job_id: str) -> LiveJob:
        """The job itself, to change it.

        Raises:
            UnknownEntityError: there is no such job.

        """
        job = self._jobs.get(job_id)
        if job is None:
            raise UnknownEntityError(kind="job", id=job_id)
        return job

    def change_settings(self, job_id: str, changes: Mapping[str, str]) -> Mapping[str, str]:
        """Change settings of a running job; returns those in force afterwards."""
        job = self.job(job_id)
        job.engine.change_settings(changes)
        job.view = None
        return job.engine.settings()

    def trigger_savepoint(self, job_id: str, form: str, trigger_id: str | None) -> str:
        """Ask for a savepoint; returns the id to ask after it with. One id triggers once."""
        job = self.job(job_id)
        return _asked(job, "savepoint", job.savepoints, trigger_id, lambda: job.engine.trigger_savepoint(form))

    def stop(self, job_id: str, form: str, trigger_id: str | None, *, drains: bool) -> str:
        """Stop a job with a savepoint; returns the id to ask after it with."""
        job = self.job(job_id)
        return _asked(job, "savepoint", job.savepoints, trigger_id, lambda: job.engine.stop(form, drains=drains))

    def trigger_checkpoint(self, job_id: str, trigger_id: str | None) -> str:
        """Ask for a checkpoint; returns the id to ask after it with. One id triggers once."""
        job = self.job(job_id)
        return _asked(job, "checkpoint", job.checkpoints, trigger_id, job.engine.trigger_checkpoint)

    def requested_checkpoint(self, job_id: str, trigger_id: str) -> RequestedCheckpointView:
        """How far a requested checkpoint has come.

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
        """Restart a job at another parallelism, by vertex; nothing happens where none changes.

        Raises:
            PlanError: it cannot run like that, or cannot be restored so; the job goes on as it was.

        """
        job = self.job(job_id)
        if parallelism:
            job.engine.rescale(parallelism, from_savepoint=from_savepoint)
            job.view = None

    def savepoint(self, job_id: str, trigger_id: str) -> SavepointView:
        """How far a requested savepoint has come.

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
    """Ask once for each id; without one it is given one. ``given`` remembers the newest."""
    if trigger_id is not None and trigger_id in given:
        return trigger_id
    number = ask()
    job.view = None
    answer = trigger_id or hashlib.blake2b(f"{job.id}/{kind}/{number}".encode(), digest_size=16).hexdigest()
    given[answer] = number
    while len(given) > _REQUESTS_KEPT:
        del given[next(iter(given))]
    return answer
