"""Computes findings and verdicts in the process that stores their data, so that readers find them stored.

After each commit, the writer notes here what it stored. A task of its own then computes the findings on the jobs that
changed, the newest first. It also computes the verdict on each ended checkpoint as soon as everything that the verdict
depends on has been read, before retention thins the readings out.

Storing has precedence over computing. ``note`` only adds to bounded queues. What does not fit is left to the readers,
which compute what is not stored. After each piece of work the task rests for a multiple of the time that the work took,
and longer if the process gets too little CPU time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import TypeVar

import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.domain.checkpoint import CheckpointStatus
from backend.domain.clock import Clock
from backend.domain.errors import StoreUnavailableError, UnknownEntityError
from backend.services.checkpoints.reader import SETTLED_AFTER, CheckpointKey, CheckpointService
from backend.services.jobs.evidence import EvidenceReader, step_of
from backend.store.ingest import RunChange
from backend.store.jobs.reader import list_current_of
from backend.store.postgres.connections import create_store_engine, reading
from backend.store.wall_clock import WallClock

_log = structlog.get_logger(__name__)

# A verdict is computed this long after ``SETTLED_AFTER``, because it is final only after the run was read again.
_MARGIN = timedelta(seconds=30)
# A rest after work is longer by the lateness of the event loop times this factor.
_LATE_FACTOR = 10.0
_REST_MAX_S = 30.0
_IDLE_S = 5.0
# A piece of work is cancelled after this time. Meanwhile the runs of the jobs are locked, and a reader that needs one
# of their findings waits.
_WITHIN_S = 5.0
_LOG_EVERY_S = 60.0
# A verdict on a checkpoint that could not be computed is tried again until this time after it was due.
_TRIED_FOR = timedelta(minutes=30)

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    """Limits of a judge.

    At most ``jobs_max`` jobs wait for their finding, and at most ``checkpoints_max`` checkpoints for their verdict. One
    piece of work is ``jobs_at_once`` findings and ``checkpoints_at_once`` verdicts. The rest after it is
    ``rest_ratio`` times as long as the work.
    """

    jobs_max: int = 1_000
    checkpoints_max: int = 5_000
    jobs_at_once: int = 4
    checkpoints_at_once: int = 4
    rest_ratio: float = 3.0


class Judge:
    """Computes findings and verdicts for a writer. ``run`` must run concurrently with the writer."""

    def __init__(self, engine: AsyncEngine, clock: Clock, options: JudgeOptions | None = None) -> None:
        self._engine = engine
        self._clock = clock
        self._evidence = EvidenceReader(clock)
        self._checkpoints = CheckpointService(engine, clock, self._evidence)
        self._options = options or JudgeOptions()
        self._jobs: dict[str, None] = {}
        """The jobs that wait for their finding; the one that changed last is at the end."""
        self._steps: dict[str, tuple[int | None, int | None]] = {}
        """For each run, the interval of its newest reading, and the one in which it last had an open checkpoint."""
        self._ended: dict[CheckpointKey, datetime] = {}
        """The checkpoints that wait for their verdict, and when it is due; the next one comes first."""
        self._failed: dict[CheckpointKey, datetime] = {}
        """The same for failed checkpoints, which have precedence."""
        self._wake = asyncio.Event()
        self._late_s = 0.0
        self._logged: tuple[float, int] = (0.0, 0)
        self._reason = ""
        self._is_refused = False
        self.shed_count = 0
        """Number of findings and verdicts that were left to the readers."""

    def note(self, changes: Sequence[RunChange]) -> None:
        """Note what a write has stored and committed."""
        due = self._clock.now() + SETTLED_AFTER + _MARGIN
        for change in changes:
            if self._is_event(change):
                self._jobs.pop(change.job_id, None)
                self._jobs[change.job_id] = None
            for header in change.ended:
                queue = self._failed if header.status is CheckpointStatus.FAILED else self._ended
                queue.setdefault(CheckpointKey(change.job_id, change.run_id, header.checkpoint_id), due)
        self._shed(self._jobs, self._options.jobs_max)
        for queue in self._queues:
            self._shed(queue, self._options.checkpoints_max)
        if self._jobs:
            self._wake.set()

    def _shed(self, waiting: dict[K, V], count_max: int) -> None:
        while len(waiting) > count_max:
            del waiting[next(iter(waiting))]
            self.shed_count += 1
            self._reason = "too many changes"

    def _is_event(self, change: RunChange) -> bool:
        """Return whether a write changes the finding: a checkpoint ended, or a new interval began.

        Readings and the age of an open checkpoint change all the time, so they count only once in each interval.
        """
        run_id = change.run_id
        before = read, age = self._steps.pop(run_id, (None, None))
        if change.read_at is not None:
            read = step_of(run_id, change.read_at)
        if change.is_open:
            age = step_of(run_id, self._clock.now())
        self._steps[run_id] = read, age
        if len(self._steps) > self._options.checkpoints_max:
            del self._steps[next(iter(self._steps))]
        return bool(change.ended) or (read, age) != before

    @property
    def _queues(self) -> tuple[dict[CheckpointKey, datetime], ...]:
        return self._failed, self._ended

    async def run(self) -> None:
        """Compute findings and verdicts of what was passed to ``note``, until the task is cancelled."""
        while True:
            began_s = self._clock.monotonic_s()
            if await self.work():
                took_s = self._clock.monotonic_s() - began_s
                rest_s = took_s * self._options.rest_ratio + self._late_s * _LATE_FACTOR
                # If the store cannot be reached, the work ends at once and ``rest_s`` is short. So the rest has a lower
                # limit then.
                await self._rest(min(max(rest_s, _IDLE_S if self._is_refused else 0.0), _REST_MAX_S))
                continue
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), _IDLE_S)

    async def work(self) -> bool:
        """Compute the findings on the jobs that changed last, and verdicts that are due. Return False if none are."""
        self._wake.clear()
        self._is_refused = False
        now = self._clock.now()
        jobs = list(islice(reversed(self._jobs), self._options.jobs_at_once))
        for job_id in jobs:
            del self._jobs[job_id]
        if jobs and not await self._tried(self._find(jobs)):
            self.shed_count += len(jobs)
        keys = list(islice(self._due(now), self._options.checkpoints_at_once))
        for key, queue in keys:
            due_at = queue.pop(key, None)
            # ``note`` may have removed the checkpoint from the queue meanwhile, so there may be nothing to compute.
            if due_at is None or await self._tried(self._freeze(key)):
                continue
            if now - due_at < _TRIED_FOR:
                # The checkpoint is tried again after all others. There is time, because its readings are thinned out
                # only after an hour.
                queue[key] = due_at
            else:
                self.shed_count += 1
        self._log_shed()
        return bool(jobs or keys)

    async def _tried(self, work: Awaitable[None]) -> bool:
        """Return whether the work succeeded."""
        try:
            async with asyncio.timeout(_WITHIN_S):
                await work
        except (StoreUnavailableError, TimeoutError) as error:
            self._is_refused = True
            self._reason = str(error) or f"they took longer than {_WITHIN_S:g} s"
            return False
        except Exception:  # noqa: BLE001  the top of a task: an unexpected error must not end it
            self._reason = "an unexpected error"
            _log.exception("findings failed")
            return False
        return True

    def _due(self, now: datetime) -> Iterator[tuple[CheckpointKey, dict[CheckpointKey, datetime]]]:
        for queue in self._queues:
            for key, due_at in queue.items():
                if due_at > now:
                    break
                yield key, queue

    async def _find(self, job_ids: Sequence[str]) -> None:
        if not job_ids:
            return
        async with reading(self._engine) as connection:
            await self._evidence.cases(connection, await list_current_of(connection, job_ids))
        # The finding on a job is needed only once after each change, so a cache would only take memory.
        self._evidence.forget_others(())

    async def _freeze(self, key: CheckpointKey) -> None:
        # Retention, or the removal of the target, may have deleted the checkpoint.
        with suppress(UnknownEntityError):
            await self._checkpoints.verdict(key)

    async def _rest(self, seconds: float) -> None:
        began_s = self._clock.monotonic_s()
        await asyncio.sleep(seconds)
        # If the loop wakes late, other work of this process waits for the CPU.
        self._late_s = max(0.0, self._clock.monotonic_s() - began_s - seconds)

    def _log_shed(self) -> None:
        now_s, (logged_s, count) = self._clock.monotonic_s(), self._logged
        if self.shed_count > count and now_s - logged_s >= _LOG_EVERY_S:
            self._logged = now_s, self.shed_count
            _log.info("findings are left to the readers", count=self.shed_count - count, reason=self._reason)


@asynccontextmanager
async def judging(database_url: str) -> AsyncIterator[Judge]:
    """Yield a judge with its own connection, so that the judge and the writer never wait for each other's connections.

    Raises:
        InvalidInputError: ``database_url`` is not a PostgreSQL URL.
    """
    engine = create_store_engine(database_url, pool_size=1, pool_overflow=0)
    try:
        yield Judge(engine, WallClock())
    finally:
        await engine.dispose()
