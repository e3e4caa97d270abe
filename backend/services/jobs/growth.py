"""Tells whether the state of a job, or the duration of its checkpoints, grows over days. Answers are kept for a while.

``analysis.measures.growing`` decides. What it needs of a job are some hundred index look-ups, so the answers for all
watched jobs are read a few at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from backend.analysis.measures.growing import WINDOW, Growth, growth_of, sentence
from backend.contracts.growth import GrowthOut
from backend.domain.clock import Clock
from backend.domain.ids import JobId, RunId
from backend.domain.observation import JobState
from backend.services.jobs.evidence import JobHead
from backend.store.jobs.growth import begin_of, hours_of_growth
from backend.store.postgres.connections import limited

_KEPT_S: Final = 3600.0
_BUDGET_S: Final = 0.1
_STATEMENT_MAX_MS: Final = 1000
"""A history that takes longer to read must not hold up the alerts of other jobs."""
_RETRY_S: Final = 600.0
# Without a newer checkpoint, what has grown is of the past.
_NEWEST_AGE_MAX = timedelta(hours=3)


@dataclass(frozen=True, slots=True)
class _Kept:
    at_s: float
    run_id: RunId
    growth: Growth | None


class GrowthReader:
    """Reads the growth of jobs and keeps the answers. Each process has one instance for each purpose."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[JobId, _Kept] = {}
        self._timed_out_s: dict[JobId, float] = {}

    async def of_job(self, connection: AsyncConnection, head: JobHead) -> Growth | None:
        """Return what grows in this job; None if nothing does, or if its history is too short to tell."""
        kept = self._kept.get(head.record.id)
        if head.record.run.state is not JobState.RUNNING:
            # It may only restart, so this is no answer to keep.
            return None
        if kept is None or not self._is_valid(kept, head):
            growth = await _read(connection, head, self._clock.now())
            kept = _Kept(self._clock.monotonic_s(), head.record.run.id, growth)
            self._kept[head.record.id] = kept
        return kept.growth

    async def of_jobs(
        self, connection: AsyncConnection, heads: Mapping[JobId, JobHead]
    ) -> Mapping[JobId, Growth | None]:
        """Return the growth of those jobs of which it is known, and forget all other jobs.

        Answers that are missing or old are read until ``_BUDGET_S`` is over, the oldest first; at least one is read.
        A job whose history takes too long to read keeps its old answer, or none, and is tried again after ``_RETRY_S``.
        """
        self._kept = {job_id: kept for job_id, kept in self._kept.items() if job_id in heads}
        began_s = self._clock.monotonic_s()
        self._timed_out_s = {j: at for j, at in self._timed_out_s.items() if j in heads and began_s - at < _RETRY_S}
        due = [job_id for job_id, h in heads.items() if not self._is_valid(self._kept.get(job_id), h)]
        for job_id in sorted(set(due) - self._timed_out_s.keys(), key=lambda j: (self._read_at_s(j), j)):
            try:
                async with limited(connection, statement_timeout_ms=_STATEMENT_MAX_MS):
                    await self.of_job(connection, heads[job_id])
            except TimeoutError:
                self._timed_out_s[job_id] = self._clock.monotonic_s()
            if self._clock.monotonic_s() - began_s > _BUDGET_S:
                break
        return {job_id: kept.growth for job_id, kept in self._kept.items()}

    def _read_at_s(self, job_id: JobId) -> float:
        kept = self._kept.get(job_id)
        return float("-inf") if kept is None else kept.at_s

    def _is_valid(self, kept: _Kept | None, head: JobHead) -> bool:
        if kept is None or kept.run_id != head.record.run.id:
            return False
        return self._clock.monotonic_s() - kept.at_s < _KEPT_S


async def _read(connection: AsyncConnection, head: JobHead, now: datetime) -> Growth | None:
    topology, config = head.shape.topology, head.shape.config
    sources = [v.id for v in topology.vertices if not topology.upstream(v.id)]
    until = head.record.engine_now(now)
    is_batched = head.record.run.engine.is_micro_batched
    hours = await hours_of_growth(
        connection, head.record.id, sources, until - WINDOW, until, is_micro_batched=is_batched
    )
    if not hours or until - hours[-1].hour > _NEWEST_AGE_MAX:
        return None
    begun_at = await begin_of(connection, head.record.id)
    return growth_of(hours, None if config is None else config.timeout_ms, begun_at)


def growth_out(growth: Growth | None) -> GrowthOut | None:
    """Convert what was found to the API's shape."""
    if growth is None:
        return None
    days = None if growth.timeout_in is None else round(growth.timeout_in / timedelta(days=1), 1)
    return GrowthOut(
        sentence=sentence(growth),
        what=growth.what,
        before=growth.before,
        before_at=growth.before_at,
        after=growth.after,
        span_s=growth.span.total_seconds(),
        input_ratio=growth.input_ratio,
        is_filling=growth.is_filling,
        timeout_in_days=days,
    )
