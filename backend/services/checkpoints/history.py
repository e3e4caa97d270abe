"""Answers requests about the history of one job in a range of any length.

A range with few checkpoints is returned checkpoint by checkpoint. A range with more is returned in steps of at least an
hour, which stored rollups serve. The number of values, and of rows that are read for them, is bounded in both cases.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.analysis.numbers.log_buckets import quantile, reached, rounded
from backend.contracts.history import HistoryOut, HistoryPointOut, UsualOut, UsualRangeOut
from backend.domain.clock import Clock
from backend.domain.errors import FieldProblem, InvalidInputError
from backend.domain.rollup import HOUR, is_lower_bound
from backend.services.checkpoints.reader import shown
from backend.services.jobs.reader import TimeRange
from backend.store.checkpoints.reader import CheckpointFilter, list_checkpoints
from backend.store.jobs.reader import get_job
from backend.store.postgres.connections import reading
from backend.store.rollups.history import StepRecord, count_up_to, first_instants, rolled_up_buckets, steps_of

ROWS_MAX: Final = 50_000
"""The largest number of checkpoints without a rollup that are read for one response."""
STEPS_MAX: Final = 2_000
_LONGEST = timedelta(days=400)
_STEPS = tuple(n * HOUR for n in (1, 2, 3, 6, 12, 24))
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
# A range without an end also contains the checkpoints that are triggered while the request is answered.
_AHEAD = timedelta(minutes=5)
# The store accepts trigger times up to a day in the future, because clocks differ.
_STORED_AHEAD = timedelta(days=1)
_USUAL_BEFORE = timedelta(days=7)
_USUAL_HOURS_MIN = 24
_USUAL_CHECKPOINTS_MIN = 100


class HistoryService:
    """Returns the checkpoints of a job in a range, and the usual range of their durations."""

    def __init__(self, engine: AsyncEngine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    async def of_job(self, job_id: str, wanted: TimeRange, *, most: int) -> HistoryOut:
        """Return the checkpoints that were triggered in a range, or steps if there are more than ``most``.

        Raises:
            UnknownEntityError: there is no such job.
            InvalidInputError: the range ends before it begins.
        """
        now = self._clock.now()
        async with reading(self._engine) as connection:
            record = await get_job(connection, job_id)
            end = wanted.until or record.engine_now(now)
            until = wanted.until or end + _AHEAD
            # An end that is far in the future neither cuts off the past nor makes the steps longer.
            last = min(until, record.engine_now(now) + _STORED_AHEAD)
            since = max(wanted.since or _EARLIEST, last - _LONGEST)
            if since >= until:
                problem = FieldProblem("from", f"{since.isoformat()} is not before the end", "an instant before `to`")
                raise InvalidInputError([problem], what="query")
            first, first_hour = await first_instants(connection, job_id, since, until)
            begin = min((at for at in (first, first_hour) if at is not None), default=None)
            is_older_rolled_up = first_hour is not None and (first is None or first_hour + HOUR <= first)
            count = await count_up_to(connection, job_id, since, until, most=most + 1)
            if count > most or is_older_rolled_up:
                assert begin is not None
                return await self._steps(connection, job_id, max(since, begin), min(end, last), now)
            checkpoint_filter = CheckpointFilter(since=since, until=until)
            records = await list_checkpoints(connection, job_id, checkpoint_filter, before=None, limit=most)
            return HistoryOut(
                resolution="checkpoints",
                since=None if begin is None else max(since, begin),
                until=end,
                checkpoints=await shown(connection, records),
                points=[],
                step_s=None,
                rolled_up_until=None,
                left_out_before=None,
                as_of=now,
            )

    async def _steps(
        self, connection: AsyncConnection, job_id: str, since: datetime, until: datetime, now: datetime
    ) -> HistoryOut:
        step = next((s for s in _STEPS if (until - since) / s <= STEPS_MAX - 2), _STEPS[-1])
        steps = await steps_of(connection, job_id, since, until, step=step, rows_max=ROWS_MAX)
        return HistoryOut(
            resolution="steps",
            since=since,
            until=until,
            checkpoints=[],
            points=[_point(record) for record in steps.records],
            step_s=int(step.total_seconds()),
            rolled_up_until=steps.rolled_up_until,
            left_out_before=steps.left_out_before,
            as_of=now,
        )

    async def usual(self, job_id: str, until: datetime | None) -> UsualOut:
        """Return the usual range of durations in the 7 days before ``until``, which is now if it is None.

        Raises:
            UnknownEntityError: there is no such job.
        """
        now = self._clock.now()
        async with reading(self._engine) as connection:
            record = await get_job(connection, job_id)
            end = until or record.engine_now(now)
            since = end - _USUAL_BEFORE
            hour_count, buckets, expired_min_ms = await rolled_up_buckets(connection, job_id, since, end)
        count = sum(buckets.values())
        quantiles = [quantile(buckets, q) for q in (0.1, 0.5, 0.9)]
        known = [value for value in quantiles if value is not None]
        if hour_count < _USUAL_HOURS_MIN or count < _USUAL_CHECKPOINTS_MIN or len(known) < len(quantiles):
            return UsualOut(usual=None, as_of=now)
        p10_ms, p50_ms, p90_ms = known
        limit_ms = None if expired_min_ms is None else rounded(expired_min_ms)
        usual = UsualRangeOut(
            p10_ms=p10_ms,
            p50_ms=p50_ms,
            p90_ms=p90_ms,
            is_p90_lower_bound=is_lower_bound(reached(buckets, 0.9), limit_ms),
            checkpoint_count=count,
            since=since,
            until=end,
        )
        return UsualOut(usual=usual, as_of=now)


def _point(record: StepRecord) -> HistoryPointOut:
    source: Literal["rollup", "checkpoints", "both"] = "both"
    if record.rolled_up_hours in (0, record.hours):
        source = "rollup" if record.rolled_up_hours else "checkpoints"
    return HistoryPointOut(
        at=record.at,
        source=source,
        completed_count=record.completed_count,
        failed_count=record.failed_count,
        duration_p50_ms=record.p50_ms,
        duration_p95_ms=record.p95_ms,
        duration_max_ms=record.max_ms,
        is_p50_lower_bound=record.is_p50_lower_bound,
        is_p95_lower_bound=record.is_p95_lower_bound,
        is_max_lower_bound=record.is_max_lower_bound,
    )
