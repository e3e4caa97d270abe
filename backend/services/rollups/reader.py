"""Reads a job's history, one row an hour. Hours that are not rolled up yet are computed from checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import cast

from sqlalchemy.ext.asyncio import AsyncEngine

from backend.contracts.api import Page
from backend.contracts.rollups import MeasureRollupOut, RollupHourOut
from backend.domain.clock import Clock
from backend.domain.errors import FieldProblem, InvalidInputError
from backend.domain.failure import FailureReason
from backend.domain.rollup import HOUR, HourRollup
from backend.services.jobs.reader import TimeRange
from backend.services.paging import decode_cursor, page_of
from backend.store.jobs.reader import get_job
from backend.store.postgres.connections import reading
from backend.store.rollups.reader import hours_of

_DEFAULT = timedelta(days=7)
_LONGEST = timedelta(days=400)


class RollupService:
    """Answers API requests about the hourly history of one job."""

    def __init__(self, engine: AsyncEngine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    async def page(self, job_id: str, wanted: TimeRange, *, cursor: str | None, limit: int) -> Page[RollupHourOut]:
        """Return one page of the hours that begin in the range ``wanted`` and have checkpoints, newest first.

        The default range is the last 7 days.

        Raises:
            UnknownEntityError: there is no such job.
            InvalidInputError: the range ends before it begins or is longer than 400 days, or the cursor does not belong
                to this list.
        """
        before = cast("tuple[datetime] | None", decode_cursor(cursor, (datetime,)))
        now = self._clock.now()
        async with reading(self._engine) as connection:
            record = await get_job(connection, job_id)
            # The hours are those of the triggers, which are on the engine's clock, so the range is on this clock too.
            since, until = _bounded(wanted, record.engine_now(now))
            if before is not None:
                until = min(until, before[0])
            rows = await hours_of(connection, job_id, since, until, limit=limit + 1) if since < until else []
        items, following = page_of(rows, limit, lambda r: (r.hour,))
        debts = replay_debts(rows, record.engine_now(now))
        return Page[RollupHourOut](items=[_out(r, debts.get(r.hour)) for r in items], next=following, as_of=now)


def _bounded(wanted: TimeRange, now: datetime) -> tuple[datetime, datetime]:
    until = wanted.until or now
    since = wanted.since or until - _DEFAULT
    if since >= until:
        what, allowed = f"{since.isoformat()} is not before {until.isoformat()}", "an instant before `to`"
        raise InvalidInputError([FieldProblem("from", what, allowed)], what="query")
    if until - since > _LONGEST:
        what, allowed = f"{since.isoformat()} is too far before {until.isoformat()}", f"{_LONGEST.days} days at most"
        raise InvalidInputError([FieldProblem("from", what, allowed)], what="query")
    return since, until


def replay_debts(newest_first: Sequence[HourRollup], now: datetime) -> dict[datetime, tuple[int, bool]]:
    """Return what a failure at the end of each hour would have replayed, in ms, and whether that is a lower bound.

    An hour is absent if it is not over, or if no listed hour had a completed checkpoint by then.
    """
    debts: dict[datetime, tuple[int, bool]] = {}
    newest: HourRollup | None = None
    for row in reversed(newest_first):
        end = row.hour + HOUR
        newest = row if row.restorable_at is not None else newest
        # In an hour that was rolled up by an older version, the newest completed checkpoint is not known.
        if row.completed_count and row.restorable_at is None:
            newest = None
        if newest is None or newest.restorable_at is None or end > now:
            continue
        is_at_least = newest.last_completed_at is not None and newest.last_completed_at > end
        debts[row.hour] = (round((end - newest.restorable_at) / timedelta(milliseconds=1)), is_at_least)
    return debts


def _out(row: HourRollup, debt: tuple[int, bool] | None) -> RollupHourOut:
    return RollupHourOut.of(
        row,
        source="rollup" if row.is_rolled_up else "checkpoints",
        replay_debt_ms=None if debt is None else debt[0],
        is_replay_debt_at_least=debt is not None and debt[1],
        failed_by_reason={FailureReason(name): number for name, number in sorted(row.failed_by_reason.items())},
        measures={
            name.value: MeasureRollupOut.of(m, min=m.minimum, max=m.maximum, sum=str(m.total))
            for name, m in row.measures.items()
        },
    )
