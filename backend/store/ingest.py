"""The one write path of observations. Collectors call it; it owns the transaction.

*Acknowledged* means that ``write`` returned: its transaction is committed then, all of one observation or none of it.
Writing an observation again, or observations in another order, ends in the same checkpoints, arrays and readings, so
whoever does not know whether a write took place writes again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime

import psycopg
import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.domain.checkpoint import Checkpoint
from backend.domain.clock import Clock
from backend.domain.errors import UnknownEntityError
from backend.domain.ids import TargetId
from backend.domain.observation import JobObservation, Observation
from backend.store.checkpoints.micro_batches import write_batches
from backend.store.checkpoints.progress_writer import write_late_barriers, write_pressure, write_progress
from backend.store.checkpoints.writer import CheckpointTally, days_of_checkpoints, write_barriers, write_checkpoints
from backend.store.jobs.writer import TargetKey, lock_run, write_state
from backend.store.postgres.connections import writing
from backend.store.postgres.copying import Cursor
from backend.store.schema.arrays import INT8_MAX
from backend.store.schema.documents import clean
from backend.store.schema.partitions import Partitions, Retention, day_of
from backend.store.wall_clock import WallClock

_log = structlog.get_logger(__name__)

_REASON_MAX = 500
# Means over about this many polls: the weight of the newest one is its inverse.
_COST_POLLS = 20
_FAILURE_KINDS = ("unreachable", "malformed")


@dataclass(frozen=True, slots=True)
class IngestResult:
    """What one write did. ``rejected`` says of each checkpoint that was refused why."""

    new_count: int
    updated_count: int
    detail_count: int
    pressure_count: int
    rejected: tuple[str, ...] = ()


class IngestWriter:
    """Writes observations of any target. Safe to use from several tasks and processes at once."""

    def __init__(self, engine: AsyncEngine, *, retention: Retention | None = None, clock: Clock | None = None) -> None:
        self._engine = engine
        self._retention = retention or Retention()
        self._clock = clock or WallClock()
        self._partitions = Partitions(engine)

    async def write(self, observation: Observation) -> IngestResult:
        """Store one observation; when this returns, it is committed.

        Raises:
            UnknownEntityError: the target is not stored, or was removed.
            StoreUnavailableError: PostgreSQL is away; write it again later.

        """
        accepted, rejected = self._sift(observation)
        days = set(_days(accepted))
        await self._partitions.ensure(days)
        try:
            result = await self._write(accepted, len(rejected))
        except (psycopg.errors.CheckViolation, psycopg.errors.ForeignKeyViolation):
            # Retention dropped a partition that this process had seen, or a job between two statements.
            self._partitions.forget()
            await self._partitions.ensure(days)
            result = await self._write(accepted, len(rejected))
        if rejected:
            _log.warning("checkpoints refused", target=observation.target_id, count=len(rejected), first=rejected[0])
        return replace(result, rejected=tuple(rejected))

    async def report_failure(self, target_id: TargetId, *, kind: str, reason: str, at: datetime) -> None:
        """Keep that a poll failed: ``kind`` is ``unreachable`` or ``malformed``; ``reason`` is one line for people."""
        if kind not in _FAILURE_KINDS:
            raise ValueError(f"kind must be one of {', '.join(_FAILURE_KINDS)}, got {kind!r}")
        async with writing(self._engine) as connection:
            cursor = await _cursor(connection)
            await cursor.execute(
                "INSERT INTO target_health AS h (target_id, state, reason, since, last_attempt_at)"
                " SELECT id, %(kind)s, %(reason)s, %(at)s, %(at)s FROM targets WHERE id = %(id)s"
                " ON CONFLICT (target_id) DO UPDATE SET state = excluded.state, reason = excluded.reason,"
                " since = CASE WHEN h.state = excluded.state THEN h.since ELSE excluded.since END,"
                " last_attempt_at = excluded.last_attempt_at WHERE excluded.last_attempt_at >= h.last_attempt_at",
                {"kind": kind, "reason": clean(reason)[:_REASON_MAX], "at": at, "id": target_id},
            )

    def _sift(self, observation: Observation) -> tuple[Observation, list[str]]:
        """The observation without what may not be stored, and a line on each checkpoint that may not."""
        now = self._clock.now()
        rejected: list[str] = []
        jobs = [self._sift_job(job, now, rejected) for job in observation.jobs]
        return replace(observation, jobs=tuple(jobs)), rejected

    def _sift_job(self, job: JobObservation, now: datetime, rejected: list[str]) -> JobObservation:
        kept: list[Checkpoint] = []
        for checkpoint in job.checkpoints:
            header = checkpoint.header
            if not 0 <= header.checkpoint_id <= INT8_MAX:
                rejected.append(f"{job.name}: {header.checkpoint_id} is no checkpoint id (allowed: 0 to 2^63 - 1)")
            elif not self._retention.accepts(header.triggered_at, now):
                allowed = f"{now - self._retention.max_age:%Y-%m-%d} to tomorrow"
                at = header.triggered_at.isoformat()
                rejected.append(f"{job.name}: checkpoint {header.checkpoint_id} triggered at {at} (allowed: {allowed})")
            else:
                kept.append(checkpoint)
        pressure = tuple(p for p in job.pressure if self._retention.accepts(p.observed_at, now))
        return replace(job, checkpoints=tuple(kept), pressure=pressure)

    async def _write(self, observation: Observation, rejected_count: int) -> IngestResult:
        async with writing(self._engine) as connection:
            cursor = await _cursor(connection)
            target = await _target(cursor, observation)
            total = CheckpointTally()
            pressure_count = 0
            # In one order over all writers, so that none waits for another who waits for it. Names come first: two
            # targets of one deployment make the same jobs.
            for job in sorted(observation.jobs, key=lambda j: (j.name, j.engine_run_id, j.started_at)):
                tally, readings = await _write_job(cursor, target, job, observation.observed_at)
                pressure_count += readings
                total.new += tally.new
                total.updated += tally.updated
                total.details += tally.details
            await _write_health(cursor, observation, rejected_count)
        return IngestResult(total.new, total.updated, total.details, pressure_count)


async def _write_job(
    cursor: Cursor, target: TargetKey, job: JobObservation, observed_at: datetime
) -> tuple[CheckpointTally, int]:
    run = await lock_run(cursor, target, job, observed_at)
    tally = await write_checkpoints(cursor, run.key, job.checkpoints, observed_at)
    await write_batches(cursor, run.key.run_id, job.checkpoints)
    await write_state(cursor, run, job, observed_at, tally)
    await write_progress(cursor, run.key.run_id, job.progress, job.checkpoints, observed_at)
    await write_late_barriers(cursor, run.key.run_id, job.progress)
    if job.barriers:
        days = await days_of_checkpoints(cursor, run.key.run_id, [c for c, _ in job.barriers])
        await write_barriers(cursor, run.key, job.barriers, days)
    return tally, await write_pressure(cursor, run.key.run_id, job.pressure)


async def _target(cursor: Cursor, observation: Observation) -> TargetKey:
    await cursor.execute(
        "SELECT url, labels FROM targets WHERE id = %s AND removed_at IS NULL FOR SHARE", (observation.target_id,)
    )
    row = await cursor.fetchone()
    if row is None:
        raise UnknownEntityError(kind="target", id=observation.target_id)
    url, labels = row
    return TargetKey(observation.target_id, labels.get("deployment") or url, observation.engine)


async def _write_health(cursor: Cursor, observation: Observation, rejected_count: int) -> None:
    cost = observation.cost
    at = observation.received_at or observation.observed_at
    await cursor.execute(
        # What is put in is this module's own text.
        "INSERT INTO target_health AS h (target_id, state, since, last_success_at, last_attempt_at, engine,"  # noqa: S608
        " engine_version, poll_count, requests_per_poll, bytes_per_poll, poll_duration_ms, rejected_count,"
        " clock_offset_ms)"
        " VALUES (%(id)s, 'ok', %(at)s, %(at)s, %(at)s, %(engine)s, %(version)s, 1, %(requests)s, %(bytes)s, %(ms)s,"
        " %(rejected)s, %(offset)s) ON CONFLICT (target_id) DO UPDATE SET state = 'ok', reason = NULL,"
        " since = CASE WHEN h.state = 'ok' THEN h.since ELSE excluded.since END,"
        " last_success_at = excluded.last_success_at, last_attempt_at = excluded.last_attempt_at,"
        " engine = excluded.engine, engine_version = COALESCE(excluded.engine_version, h.engine_version),"
        " poll_count = h.poll_count + 1,"
        f" requests_per_poll = {_mean('requests_per_poll')}, bytes_per_poll = {_mean('bytes_per_poll')},"
        f" poll_duration_ms = {_mean('poll_duration_ms')}, poll_interval_s = COALESCE(h.poll_interval_s + ("
        # While no collector ran there was no interval; a setting that grew is followed all the same.
        f"LEAST({_INTERVAL_S}, GREATEST(60, 5 * h.poll_interval_s)) - h.poll_interval_s) / {_COST_POLLS},"
        f" {_INTERVAL_S}),"
        " rejected_count = h.rejected_count + excluded.rejected_count,"
        " clock_offset_ms = COALESCE(excluded.clock_offset_ms, h.clock_offset_ms)"
        " WHERE excluded.last_attempt_at > h.last_attempt_at",
        {
            "id": observation.target_id,
            "at": at,
            "engine": observation.engine.value,
            "version": clean(observation.engine_version) if observation.engine_version else None,
            "requests": float(cost.request_count),
            "bytes": float(cost.response_bytes),
            "ms": float(cost.duration_ms),
            "rejected": rejected_count,
            "offset": observation.clock_offset_ms,
        },
    )


_INTERVAL_S = "EXTRACT(EPOCH FROM excluded.last_attempt_at - h.last_attempt_at)::float8"


def _mean(column: str) -> str:
    # Of the first polls the plain mean, later the exponentially weighted one.
    return (
        f"COALESCE(h.{column} + (excluded.{column} - h.{column}) / LEAST(h.poll_count + 1, {_COST_POLLS}),"
        f" excluded.{column})"
    )


async def _cursor(connection: AsyncConnection) -> Cursor:
    raw = (await connection.get_raw_connection()).driver_connection
    if not isinstance(raw, psycopg.AsyncConnection):
        raise TypeError(f"ingest needs psycopg, not {type(raw).__name__}")
    return raw.cursor()


def _days(observation: Observation) -> Iterator[date]:
    for job in observation.jobs:
        yield from _checkpoint_days(job.checkpoints)
        yield from (day_of(p.observed_at) for p in job.pressure)


def _checkpoint_days(checkpoints: Sequence[Checkpoint]) -> Iterator[date]:
    yield from (day_of(c.header.triggered_at) for c in checkpoints)
