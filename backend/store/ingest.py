"""The only write path for observations. Collectors call it; it owns the transaction.

When ``write`` returns, its transaction is committed, with all of one observation; if it fails, nothing is stored.
Writing an observation again, or observations in another order, leads to the same checkpoints, arrays and readings. So
a caller that does not know whether a write succeeded can repeat it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any

import psycopg
import structlog
from sqlalchemy import ColumnElement, Double, Text, bindparam, case, cast, func, literal_column, null, select
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.domain.checkpoint import Checkpoint
from backend.domain.clock import Clock
from backend.domain.errors import UnknownEntityError
from backend.domain.ids import TargetId
from backend.domain.observation import JobObservation, Observation
from backend.domain.target import TargetState
from backend.store.checkpoints.micro_batches import write_batches
from backend.store.checkpoints.progress_writer import write_late_barriers, write_pressure, write_progress
from backend.store.checkpoints.writer import CheckpointTally, days_of_checkpoints, write_barriers, write_checkpoints
from backend.store.jobs.writer import TargetKey, lock_run, write_state
from backend.store.postgres.connections import writing
from backend.store.postgres.copying import Cursor
from backend.store.postgres.encoding import clean
from backend.store.postgres.statements import bound, sql_of
from backend.store.schema import tables
from backend.store.schema.arrays import INT8_MAX
from backend.store.schema.partitions import Partitions, Retention, day_of
from backend.store.wall_clock import WallClock

_log = structlog.get_logger(__name__)

_REASON_MAX = 500
# Means cover about this many polls: the newest poll's weight is the inverse of it.
_COST_POLLS: ColumnElement[float] = literal_column("20", Double)
_FAILURE_KINDS = (TargetState.UNREACHABLE, TargetState.MALFORMED)


_TARGET = tables.targets.c
_HEALTH = tables.target_health.c
_SHARE_TARGET = sql_of(
    select(_TARGET.url, _TARGET.labels)
    .where(_TARGET.id == bindparam("id"), _TARGET.removed_at.is_(None))
    .with_for_update(read=True)
)


def _report_failure() -> bytes:
    at = bindparam("at", type_=tables.Instant)
    values: dict[str, ColumnElement[Any]] = {
        "target_id": _TARGET.id,
        "state": bindparam("state", type_=Text),
        "reason": bindparam("reason", type_=Text),
        "since": at,
        "last_attempt_at": at,
    }
    insert = pg_insert(tables.target_health).from_select(
        list(values), select(*values.values()).where(_TARGET.id == bindparam("id"))
    )
    new = insert.excluded
    return sql_of(
        insert.on_conflict_do_update(
            index_elements=tables.target_health.primary_key,
            set_={
                "state": new.state,
                "reason": new.reason,
                "since": case((_HEALTH.state == new.state, _HEALTH.since), else_=new.since),
                "last_attempt_at": new.last_attempt_at,
            },
            where=new.last_attempt_at >= _HEALTH.last_attempt_at,
        )
    )


def _report_success() -> bytes:
    at, ok = bindparam("at", type_=tables.Instant), literal_column(f"'{TargetState.OK}'", Text)
    measured = [_HEALTH.requests_per_poll, _HEALTH.bytes_per_poll, _HEALTH.poll_duration_ms]
    reported = [_HEALTH.engine, _HEALTH.engine_version, *measured, _HEALTH.rejected_count, _HEALTH.clock_offset_ms]
    insert = pg_insert(tables.target_health).values(
        bound([_HEALTH.target_id, *reported])
        | {"state": ok, "since": at, "last_success_at": at, "last_attempt_at": at, "poll_count": literal_column("1")}
    )
    new = insert.excluded
    seconds = cast(func.extract("EPOCH", new.last_attempt_at - _HEALTH.last_attempt_at), Double)
    # A gap while no collector ran is not an interval, so it is capped. A longer configured interval still raises it.
    interval_s = func.least(seconds, func.greatest(literal_column("60"), literal_column("5") * _HEALTH.poll_interval_s))
    changes: dict[str, ColumnElement[Any]] = {
        "state": ok,
        "reason": null(),
        "since": case((_HEALTH.state == ok, _HEALTH.since), else_=new.since),
        "last_success_at": new.last_success_at,
        "last_attempt_at": new.last_attempt_at,
        "engine": new.engine,
        "engine_version": func.coalesce(new.engine_version, _HEALTH.engine_version),
        "poll_count": _HEALTH.poll_count + literal_column("1"),
        "poll_interval_s": func.coalesce(
            _HEALTH.poll_interval_s + (interval_s - _HEALTH.poll_interval_s) / _COST_POLLS, seconds
        ),
        "rejected_count": _HEALTH.rejected_count + new.rejected_count,
        "clock_offset_ms": func.coalesce(new.clock_offset_ms, _HEALTH.clock_offset_ms),
    }
    # The plain mean over the first polls, then an exponentially weighted mean.
    weight = func.least(_HEALTH.poll_count + literal_column("1"), _COST_POLLS, type_=Double)
    for column in measured:
        value = new[column.name]
        changes[column.name] = func.coalesce(column + (value - column) / weight, value)
    return sql_of(
        insert.on_conflict_do_update(
            index_elements=tables.target_health.primary_key,
            set_=changes,
            where=new.last_attempt_at > _HEALTH.last_attempt_at,
        )
    )


_REPORT_FAILURE = _report_failure()
_REPORT_SUCCESS = _report_success()


@dataclass(frozen=True, slots=True)
class IngestResult:
    """The result of one write. ``rejected`` has one reason for each refused checkpoint."""

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
        """Store and commit one observation.

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
            # Retention dropped a partition that this process knew, or deleted a job between two statements.
            self._partitions.forget()
            await self._partitions.ensure(days)
            result = await self._write(accepted, len(rejected))
        if rejected:
            _log.warning("checkpoints refused", target=observation.target_id, count=len(rejected), first=rejected[0])
        return replace(result, rejected=tuple(rejected))

    async def report_failure(self, target_id: TargetId, *, kind: TargetState, reason: str, at: datetime) -> None:
        """Record a failed poll: ``kind`` is ``unreachable`` or ``malformed``; ``reason`` is one line for people."""
        if kind not in _FAILURE_KINDS:
            raise ValueError(f"kind must be one of {', '.join(_FAILURE_KINDS)}, got {kind!r}")
        async with writing(self._engine) as connection:
            cursor = await _cursor(connection)
            values = {"state": kind.value, "reason": clean(reason)[:_REASON_MAX], "at": at, "id": target_id}
            await cursor.execute(_REPORT_FAILURE, values)

    def _sift(self, observation: Observation) -> tuple[Observation, list[str]]:
        """Return the observation without data outside the bounds, and a reason for each refused checkpoint."""
        now = self._clock.now()
        rejected: list[str] = []
        jobs = [self._sift_job(job, now, rejected) for job in observation.jobs]
        return replace(observation, jobs=tuple(jobs)), rejected

    def _sift_job(self, job: JobObservation, now: datetime, rejected: list[str]) -> JobObservation:
        kept: list[Checkpoint] = []
        for checkpoint in job.checkpoints:
            header = checkpoint.header
            if not 0 <= header.checkpoint_id <= INT8_MAX:
                rejected.append(f"{job.name}: {header.checkpoint_id} is not a checkpoint id (allowed: 0 to 2^63 - 1)")
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
            # All writers use one order, so that they cannot deadlock. Names come first, because two targets of one
            # deployment create the same jobs.
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
    await cursor.execute(_SHARE_TARGET, {"id": observation.target_id})
    row = await cursor.fetchone()
    if row is None:
        raise UnknownEntityError(kind="target", id=observation.target_id)
    url, labels = row
    return TargetKey(observation.target_id, labels.get("deployment") or url, observation.engine)


async def _write_health(cursor: Cursor, observation: Observation, rejected_count: int) -> None:
    cost = observation.cost
    at = observation.received_at or observation.observed_at
    await cursor.execute(
        _REPORT_SUCCESS,
        {
            "target_id": observation.target_id,
            "at": at,
            "engine": clean(observation.engine.kind),
            "engine_version": clean(observation.engine_version) if observation.engine_version else None,
            "requests_per_poll": float(cost.request_count),
            "bytes_per_poll": float(cost.response_bytes),
            "poll_duration_ms": float(cost.duration_ms),
            "rejected_count": rejected_count,
            "clock_offset_ms": observation.clock_offset_ms,
        },
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
