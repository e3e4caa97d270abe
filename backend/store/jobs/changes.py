"""Finds when a run's settings or parallelism changed, on the engine's clock and on the clock that stamps readings.

The two clocks drift apart, so today's offset between them does not place a change of yesterday. The event of a change
has both times: its own, on the engine's clock, and in its key the time of the reading that showed the change.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.domain.observation import JobEventKind
from backend.store.schema import tables

_EVENT = tables.job_events.c
_OF_RUN = select(_EVENT.key).where(
    _EVENT.run_id == bindparam("run"),
    _EVENT.kind.in_([JobEventKind.CONFIGURATION_CHANGED.value, JobEventKind.RESCALED.value]),
)
_LAST_BEFORE = _OF_RUN.where(_EVENT.at < bindparam("at")).order_by(_EVENT.at.desc()).limit(1)
_FIRST_AFTER = _OF_RUN.where(_EVENT.at >= bindparam("at")).order_by(_EVENT.at).limit(1)
_INSTANT = timedelta(microseconds=1)


async def reading_time(connection: AsyncConnection, run_id: str, at: datetime, offset: timedelta) -> datetime:
    """Return the time of readings at which a run had the settings that it had at ``at`` on the engine's clock.

    ``offset`` is the engine's clock minus that of the readings, as far as it is known. A change before ``at`` stays
    before the result, and a later one after it.
    """
    values = {"run": run_id, "at": at}
    before = (await connection.execute(_LAST_BEFORE, values)).scalar_one_or_none()
    after = (await connection.execute(_FIRST_AFTER, values)).scalar_one_or_none()
    at_engine = at - offset
    if before is not None:
        at_engine = max(at_engine, _time_of(before))
    return at_engine if after is None else min(at_engine, _time_of(after) - _INSTANT)


def _time_of(key: str) -> datetime:
    # A change of the cluster's settings has a word after the time.
    return datetime.fromisoformat(key.partition(" ")[0])
