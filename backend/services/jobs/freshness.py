"""Tells for each job whether what is known of it is current. ``backend.domain.freshness`` decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncConnection

from backend.contracts.api import JobOut
from backend.contracts.freshness import FreshnessOut, StaleOut
from backend.domain.freshness import FRESHNESS_REASONS, Freshness, NewestReading, freshness, stale_after
from backend.domain.observation import NOT_LISTED
from backend.store.jobs.reader import JobRecord, list_these
from backend.store.targets.leases import has_collector

FINAL = FreshnessOut(state=Freshness.FINAL, is_stale=False, reason=None, read_at=None, stale_after_s=None)
"""Of a document that does not change any more, such as an alert that has ended."""
_TARGETS_NAMED = 3
_POLL_FAILED = (Freshness.TARGET_UNREACHABLE, Freshness.TARGET_MALFORMED)


def freshness_of(record: JobRecord, now: datetime, *, is_collecting: bool) -> FreshnessOut:
    """Return whether the newest reading of a job is current at ``now``."""
    run = record.run
    newest = NewestReading(
        at=read_at(record),
        is_pushed=run.engine.is_pushed,
        state=run.state,
        is_listed=run.engine_state != NOT_LISTED,
        target=record.target_state,
        polls=record.polls,
        has_collector=is_collecting,
    )
    state = freshness(newest, now)
    is_undated = state is Freshness.JOB_UNREADABLE
    is_ageless = is_undated or state in (Freshness.FINAL, Freshness.JOB_GONE)
    limit = stale_after(record.polls, is_pushed=newest.is_pushed)
    return FreshnessOut.model_construct(
        state=state,
        is_stale=state.is_stale,
        reason=_reason(state, record.polls.reason),
        read_at=None if is_undated else newest.at,
        stale_after_s=None if is_ageless else round(limit / timedelta(seconds=1), 1),
    )


def read_at(record: JobRecord) -> datetime:
    """Return when the job was last read, on our clock. The readings of a job that pushes are on its own clock."""
    offset = timedelta(milliseconds=record.clock_offset_ms or 0)
    return record.run.observed_at - offset if record.run.engine.is_pushed else record.run.observed_at


async def freshness_now(connection: AsyncConnection, record: JobRecord, now: datetime) -> FreshnessOut:
    """Return whether the newest reading of a job is current at ``now``."""
    return freshness_of(record, now, is_collecting=await has_collector(connection))


async def freshness_of_jobs(
    connection: AsyncConnection, job_ids: Iterable[str | None], now: datetime
) -> Mapping[str, FreshnessOut]:
    """Return the freshness of each of these jobs that is known."""
    records = await list_these(connection, {job_id for job_id in job_ids if job_id is not None})
    is_collecting = await has_collector(connection) if records else False
    return {r.id: freshness_of(r, now, is_collecting=is_collecting) for r in records}


def is_as_stale(before: FreshnessOut | None, now: FreshnessOut | None) -> bool:
    """Return whether two documents are stale for the same reason, or both current."""
    return (before and (before.state, before.reason)) == (now and (now.state, now.reason))


def stale_by_reason(rows: Iterable[JobOut]) -> list[StaleOut]:
    """Return how many rows are stale for each reason, the reason with the most rows first."""
    jobs: dict[Freshness, list[tuple[str, datetime | None]]] = {}
    for row in rows:
        if row.freshness is not None and row.freshness.is_stale:
            jobs.setdefault(row.freshness.state, []).append((row.target_name, row.freshness.read_at))
    grouped = [_stale(state, group) for state, group in jobs.items()]
    return sorted(grouped, key=lambda s: (-s.job_count, s.state))


def _stale(state: Freshness, group: Sequence[tuple[str, datetime | None]]) -> StaleOut:
    names = sorted({name for name, _ in group})
    return StaleOut(
        state=state,
        reason=FRESHNESS_REASONS[state],
        job_count=len(group),
        target_names=names[:_TARGETS_NAMED],
        target_count=len(names),
        read_at=max((at for _, at in group if at is not None), default=None),
    )


def _reason(state: Freshness, poll_reason: str | None) -> str | None:
    reason = FRESHNESS_REASONS.get(state)
    return f"{reason} ({poll_reason})" if state in _POLL_FAILED and poll_reason else reason
