"""Keeps every watched job with its newest finding in memory, for the fleet board and the advice of one process.

A refresh is bounded in time. It reads jobs that changed, then computes findings that are missing or no longer hold,
each until its time is over, and leaves the rest to the next refresh. So a refresh of many jobs that are all new returns
soon. Until a job is read, only its record is known. Until a new finding is computed, a job has its old one or none.
"""

from __future__ import annotations

from collections.abc import Sequence

import anyio
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.domain.clock import Clock
from backend.services.jobs.evidence import EvidenceReader, RecalledJob
from backend.services.jobs.watched import WatchedJob, WatchedJobs
from backend.store.jobs.reader import JobRecord, list_current_of

_KEPT_S = 1.0
_BATCH = 20
_BUDGET_S = 0.3


class AnalysedJobs:
    """Reads the watched jobs and their findings. Each process has one instance."""

    def __init__(self, clock: Clock, evidence: EvidenceReader) -> None:
        self._clock = clock
        self._evidence = evidence
        self._watched: WatchedJobs[RecalledJob] = WatchedJobs(clock, evidence.recalled, is_complete=False)
        self._unread: dict[str, JobRecord] = {}
        self._turn = anyio.Lock()
        self._refreshed_at_s = float("-inf")
        self.is_behind = False
        """Whether the last refresh left jobs unread or findings uncomputed."""

    async def refresh(self, connection: AsyncConnection) -> tuple[list[WatchedJob[RecalledJob]], Sequence[JobRecord]]:
        """Return the watched jobs that have been read, and the records of those that have not.

        They are those of the last refresh if it ended less than a second ago.

        The connection must come from ``reading``: findings are stored and committed on it.

        Raises:
            StoreUnavailableError: PostgreSQL is unreachable.
        """
        async with self._turn:
            if self._clock.monotonic_s() - self._refreshed_at_s < _KEPT_S:
                return self._watched.current(), list(self._unread.values())
            jobs = await self._watched.read(connection)
            due = [w.job for w in jobs if not w.job.is_current]
            # Jobs without any finding come first.
            due.sort(key=lambda job: job.finding is not None)
            began_s = self._clock.monotonic_s()
            done = 0
            while done < len(due) and (not done or self._clock.monotonic_s() - began_s <= _BUDGET_S):
                await self._find(connection, due[done : done + _BATCH])
                done += _BATCH
            jobs = self._watched.current()
            unread = await self._records(connection, self._watched.unread)
            self._evidence.forget_others(w.job.record.id for w in jobs)
            self.is_behind = bool(unread) or done < len(due)
            self._refreshed_at_s = self._clock.monotonic_s()
        return jobs, unread

    async def _find(self, connection: AsyncConnection, jobs: Sequence[RecalledJob]) -> None:
        self._watched.replace(
            [
                RecalledJob(c.record, c.shape, c.headers, c.open_checkpoint, c.finding, is_current=True)
                for c in await self._evidence.cases_of(connection, jobs)
            ]
        )

    async def _records(self, connection: AsyncConnection, job_ids: Sequence[str]) -> list[JobRecord]:
        unread = set(job_ids)
        if missing := unread - self._unread.keys():
            self._unread |= {r.id: r for r in await list_current_of(connection, sorted(missing))}
        self._unread = {job_id: r for job_id, r in self._unread.items() if job_id in unread}
        return list(self._unread.values())
