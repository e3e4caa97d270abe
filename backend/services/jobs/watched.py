"""Keeps every watched job in memory, and reads again only the jobs that changed.

The writer raises the revision of a run in the transaction that changes it. A refresh reads one short row for each job
and compares the revisions, so an unchanged fleet costs one query. The jobs are kept here and not in a table, because a
finding depends on the version of the analysis, and the store must not know the analysis.

Readings of backpressure do not raise the revision. So a job that was observed again is also read again after a while.
This time grows with the number of jobs (``_KEPT_PER_JOB_S``), which bounds the number of such reads in a second. If
many jobs changed at once, a refresh stops after ``_BUDGET_S`` seconds and leaves the rest to the next one. Whether this
also holds for jobs that were never read is up to the caller.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection

from backend.domain.clock import Clock
from backend.domain.ids import JobId
from backend.services.jobs.evidence import JobHead
from backend.store.jobs.reader import JobMark, JobRecord, list_current_of, list_marks

_KEPT_MIN_S = 2.0
_KEPT_PER_JOB_S = 0.06
_BUDGET_S = 1.0
_BATCH = 100

H = TypeVar("H", bound=JobHead)


@dataclass(frozen=True, slots=True)
class WatchedJob(Generic[H]):
    """A job as it is stored. ``version`` changes each time the job is read again or replaced."""

    job: H
    version: int


@dataclass(frozen=True, slots=True)
class _Kept(Generic[H]):
    mark: JobMark
    job: H
    version: int
    read_at_s: float


class WatchedJobs(Generic[H]):
    """Reads the watched jobs. Each process has one instance for each of its parts that need all jobs.

    The caller passes the function ``read``, which reads given jobs, with or without their findings. Unless
    ``is_complete``, a refresh may leave out jobs that were never read. ``unread`` then contains them.
    """

    def __init__(
        self,
        clock: Clock,
        read: Callable[[AsyncConnection, Sequence[JobRecord]], Awaitable[Sequence[H]]],
        *,
        is_complete: bool = True,
    ) -> None:
        self._clock = clock
        self._read_jobs = read
        self._is_complete = is_complete
        self.unread: Sequence[JobId] = ()
        self._marks: Sequence[JobMark] = ()
        self._kept: dict[JobId, _Kept[H]] = {}
        self._version = 0

    async def read(self, connection: AsyncConnection) -> list[WatchedJob[H]]:
        """Return every job of every watched target, except those in ``unread``.

        Raises:
            StoreUnavailableError: PostgreSQL is unreachable.
        """
        marks = self._marks = await list_marks(connection)
        began_s = self._clock.monotonic_s()
        for number, batch in enumerate(_batches(self._outdated(marks, began_s))):
            is_late = number > 0 and self._clock.monotonic_s() - began_s > _BUDGET_S
            if is_late and not self._is_complete:
                break
            wanted = [m for m in batch if m.job_id not in self._kept] if is_late else batch
            await self._read(connection, wanted)
        known = {m.job_id for m in marks}
        self._kept = {job_id: kept for job_id, kept in self._kept.items() if job_id in known}
        self.unread = [m.job_id for m in marks if m.job_id not in self._kept]
        return self.current()

    def current(self) -> list[WatchedJob[H]]:
        """Return what the last ``read`` returned, with the jobs that were replaced since."""
        found = ((m, self._kept[m.job_id]) for m in self._marks if m.job_id in self._kept)
        return [
            WatchedJob(replace(kept.job, record=mark.applied_to(kept.job.record)), kept.version) for mark, kept in found
        ]

    def replace(self, jobs: Sequence[H]) -> None:
        """Store jobs that the caller has completed. They replace the versions that ``read`` returned."""
        self._version += 1
        for job in jobs:
            kept = self._kept.get(job.record.id)
            if kept is not None:
                self._kept[job.record.id] = replace(kept, job=job, version=self._version)

    def _outdated(self, marks: Sequence[JobMark], now_s: float) -> list[JobMark]:
        """Return the marks of the jobs that must be read: first new ones, then those that were read longest ago."""
        kept_s = max(_KEPT_MIN_S, _KEPT_PER_JOB_S * len(marks))

        def read_at_s(mark: JobMark) -> float:
            kept = self._kept.get(mark.job_id)
            return kept.read_at_s if kept is not None else float("-inf")

        def is_outdated(mark: JobMark) -> bool:
            kept = self._kept.get(mark.job_id)
            if kept is None or (kept.mark.run_id, kept.mark.revision) != (mark.run_id, mark.revision):
                return True
            return now_s - kept.read_at_s > kept_s and kept.mark.observed_at != mark.observed_at

        return sorted(filter(is_outdated, marks), key=read_at_s)

    async def _read(self, connection: AsyncConnection, marks: Sequence[JobMark]) -> None:
        if not marks:
            return
        # The marks were read before the jobs. If a job changed between the two reads, its next mark differs, and the
        # job is read again.
        by_job = {m.job_id: m for m in marks}
        records = await list_current_of(connection, list(by_job))
        at_s = self._clock.monotonic_s()
        self._version += 1
        for job in await self._read_jobs(connection, records):
            self._kept[job.record.id] = _Kept(by_job[job.record.id], job, self._version, at_s)


def _batches(marks: Sequence[JobMark]) -> Iterator[Sequence[JobMark]]:
    for i in range(0, len(marks), _BATCH):
        yield marks[i : i + _BATCH]
