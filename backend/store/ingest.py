"""Stores observations. They are written only through this module, which owns the transaction.

When ``write`` returns, the whole observation is committed. If ``write`` fails, no part of it is stored. Observations of
different targets that wait at the same time are committed in one transaction (``grouping``). Writing an
observation again, or observations in another order, leads to the same checkpoints, arrays and readings. So a caller
that does not know whether a write succeeded can repeat it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from operator import itemgetter
from typing import Any

import psycopg
import structlog
from sqlalchemy import (
    ColumnElement,
    Double,
    Text,
    and_,
    bindparam,
    case,
    cast,
    func,
    literal_column,
    null,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.domain.checkpoint import Checkpoint, CheckpointHeader
from backend.domain.clock import Clock
from backend.domain.errors import UnknownEntityError
from backend.domain.ids import TargetId
from backend.domain.observation import NOTHING_SHED, JobObservation, JobState, Observation
from backend.domain.target import TargetState
from backend.store.checkpoints.micro_batches import write_batches
from backend.store.checkpoints.progress_writer import write_late_barriers, write_pressure, write_progress
from backend.store.checkpoints.writer import (
    CheckpointPlan,
    CheckpointTally,
    StoredHeaders,
    StoredRun,
    copy_checkpoints,
    days_of_checkpoints,
    plan_checkpoints,
    request_headers,
    stored_headers,
    write_barriers,
    write_headers,
)
from backend.store.jobs.recent_runs import RecentRuns
from backend.store.jobs.writer import (
    Report,
    RunRows,
    RunToWrite,
    StateWrite,
    TargetKey,
    last_writes,
    lock_runs,
    locked_rows,
    request_locks,
    stored_run_id,
    write_states,
)
from backend.store.postgres.connections import reading, writing
from backend.store.postgres.copying import Cursor
from backend.store.postgres.encoding import clean
from backend.store.postgres.grouping import GroupedWrites
from backend.store.postgres.statements import bound, one_of, sql_of
from backend.store.schema import tables
from backend.store.schema.arrays import INT8_MAX
from backend.store.schema.partitions import Partitions, Retention, day_of
from backend.store.wall_clock import WallClock

_log = structlog.get_logger(__name__)

_REASON_MAX = 500
_NAMES_MAX = 3
# The largest number of observations in one transaction, and of their checkpoints and readings. A larger transaction
# would hold locks for a noticeable time.
_GROUP_MAX = 64
_GROUP_ROWS_MAX = 256
# The mean costs of a poll cover about this many polls: the newest poll has the weight 1/20.
_COST_POLLS: ColumnElement[float] = literal_column("20", Double)
_FAILURE_KINDS = (TargetState.UNREACHABLE, TargetState.MALFORMED)


_TARGET = tables.targets.c
_HEALTH = tables.target_health.c
_SHARE_TARGETS = sql_of(
    select(_TARGET.id, _TARGET.url, _TARGET.labels)
    .where(one_of(_TARGET.id, "ids"), _TARGET.removed_at.is_(None))
    .order_by(_TARGET.id)
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
    # If the target is removed, no row is written. The missing row shows ``_write_next`` that the target is removed.
    kept = select(*values.values()).where(_TARGET.id == bindparam("id"), _TARGET.removed_at.is_(None))
    insert = pg_insert(tables.target_health).from_select(list(values), kept)
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


_MEASURED = [_HEALTH.requests_per_poll, _HEALTH.bytes_per_poll, _HEALTH.poll_duration_ms]
_IS_OK = literal_column(f"'{TargetState.OK}'", Text)
_SHED = [_HEALTH.rejected_count, _HEALTH.shed_checkpoint_count, _HEALTH.shed_detail_count]
_REPORTED = [
    *(_HEALTH.reason, _HEALTH.engine, _HEALTH.engine_version),
    *(*_MEASURED, *_SHED),
    *(_HEALTH.clock_offset_ms, _HEALTH.set_interval_s),
]
_AT = bindparam("at", type_=tables.Instant)


def _success(new: Mapping[str, ColumnElement[Any]], at: ColumnElement[datetime]) -> dict[str, ColumnElement[Any]]:
    """Return the new values of the health of a target whose poll at ``at`` had the values ``new``."""
    seconds = cast(func.extract("EPOCH", at - _HEALTH.last_attempt_at), Double)
    # A gap in which no collector ran is not a poll interval, so the value is capped. The cap grows with the mean, so
    # that the mean can still reach a longer interval if one is configured.
    interval_s = func.least(seconds, func.greatest(literal_column("60"), literal_column("5") * _HEALTH.poll_interval_s))
    is_as_before = and_(_HEALTH.state == _IS_OK, _HEALTH.reason.is_(null()) == cast(new["reason"], Text).is_(null()))
    changes: dict[str, ColumnElement[Any]] = {
        "state": _IS_OK,
        "reason": new["reason"],
        "since": case((is_as_before, _HEALTH.since), else_=at),
        "last_success_at": at,
        "last_attempt_at": at,
        "engine": new["engine"],
        "engine_version": func.coalesce(new["engine_version"], _HEALTH.engine_version),
        "poll_count": _HEALTH.poll_count + literal_column("1"),
        "poll_interval_s": func.coalesce(
            _HEALTH.poll_interval_s + (interval_s - _HEALTH.poll_interval_s) / _COST_POLLS, seconds
        ),
        "set_interval_s": func.coalesce(new["set_interval_s"], _HEALTH.set_interval_s),
        "last_shed_at": func.coalesce(new["last_shed_at"], _HEALTH.last_shed_at),
        "clock_offset_ms": func.coalesce(new["clock_offset_ms"], _HEALTH.clock_offset_ms),
    }
    for column in _SHED:
        changes[column.name] = column + new[column.name]
    # This is the plain mean over the first polls, and then an exponentially weighted mean.
    weight = func.least(_HEALTH.poll_count + literal_column("1"), _COST_POLLS, type_=Double)
    for column in _MEASURED:
        value = new[column.name]
        changes[column.name] = func.coalesce(column + (value - column) / weight, value)
    return changes


def _report_success() -> bytes:
    insert = pg_insert(tables.target_health).values(
        bound([_HEALTH.target_id, *_REPORTED, _HEALTH.last_shed_at])
        | {"state": _IS_OK, "since": _AT, "last_success_at": _AT, "last_attempt_at": _AT}
        | {"poll_count": literal_column("1")}
    )
    new = insert.excluded
    return sql_of(
        insert.on_conflict_do_update(
            index_elements=tables.target_health.primary_key,
            set_=_success({c.name: c for c in new}, new.last_attempt_at),
            where=new.last_attempt_at > _HEALTH.last_attempt_at,
        )
    )


_REPORT_NEXT_SUCCESS = sql_of(
    update(tables.target_health)
    .where(_HEALTH.target_id == bindparam("target_id"), _HEALTH.last_attempt_at < _AT)
    .values(_success(bound([*_REPORTED, _HEALTH.last_shed_at]), _AT))
)
_REPORT_FAILURE = _report_failure()
_REPORT_SUCCESS = _report_success()


@dataclass(frozen=True, slots=True)
class IngestResult:
    """The counts of the rows that one write stored. ``rejected`` contains the reason for each refused checkpoint."""

    new_count: int
    updated_count: int
    detail_count: int
    pressure_count: int
    rejected: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Sifted:
    """An observation without the data that is out of bounds, and a reason for each refused checkpoint."""

    observation: Observation
    rejected: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunChange:
    """What a committed write stored about one run.

    ``ended`` contains the observation's terminal checkpoints, if the write added or changed a checkpoint. ``is_open``
    is whether the observation contains an open checkpoint. ``read_at`` is the time of its newest reading of
    backpressure.
    """

    job_id: str
    run_id: str
    ended: tuple[CheckpointHeader, ...]
    is_open: bool
    read_at: datetime | None


class IngestWriter:
    """Writes observations of any target. Several tasks and processes may write at once."""

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        retention: Retention | None = None,
        clock: Clock | None = None,
        on_commit: Callable[[Sequence[RunChange]], None] | None = None,
    ) -> None:
        """Create a writer. It calls ``on_commit`` after each commit; this function must return at once."""
        self._engine = engine
        self._on_commit = on_commit
        self._retention = retention or Retention()
        self._clock = clock or WallClock()
        self._partitions = Partitions(engine)
        self._recent = RecentRuns()
        self._refused: set[TargetId] = set()
        self._writes: GroupedWrites[_Sifted, IngestResult] = GroupedWrites(
            self._write_all,
            key=lambda sifted: sifted.observation.target_id,
            size=lambda sifted: sum(len(j.checkpoints) + len(j.pressure) for j in sifted.observation.jobs),
            count_max=_GROUP_MAX,
            size_max=_GROUP_ROWS_MAX,
        )

    async def write(self, observation: Observation) -> IngestResult:
        """Store and commit one observation.

        Raises:
            UnknownEntityError: the target is not stored, or was removed.
            StoreUnavailableError: PostgreSQL is unreachable; write the observation again later.
        """
        sifted = self._sift(observation, await self._max_age(observation.target_id))
        result = await self._writes.write(sifted)
        self._log_refused(sifted)
        return result

    def _log_refused(self, sifted: _Sifted) -> None:
        """Log the first refusal of a target, and when its checkpoints are accepted again, but not each poll between."""
        target_id = sifted.observation.target_id
        if sifted.rejected and target_id not in self._refused:
            self._refused.add(target_id)
            _log.warning("checkpoints refused", target=target_id, count=len(sifted.rejected), first=sifted.rejected[0])
        elif not sifted.rejected and any(job.checkpoints for job in sifted.observation.jobs):
            if target_id not in self._refused:
                return
            self._refused.discard(target_id)
            _log.info("checkpoints accepted again", target=target_id)

    async def _write_all(self, group: Sequence[_Sifted]) -> Sequence[IngestResult | UnknownEntityError]:
        days = {day for sifted in group for day in _days(sifted.observation)}
        await self._partitions.ensure(days)
        try:
            return await self._write_once(group)
        except (psycopg.errors.CheckViolation, psycopg.errors.ForeignKeyViolation):
            # Meanwhile, retention has dropped a partition that this process had seen, or has deleted a job. The
            # second attempt creates again what is missing.
            self._partitions.forget()
            await self._partitions.ensure(days)
            return await self._write_once(group)

    async def report_failure(self, target_id: TargetId, *, kind: TargetState, reason: str, at: datetime) -> None:
        """Record a failed poll. ``kind`` is ``unreachable`` or ``malformed``. ``reason`` is one line for people."""
        if kind not in _FAILURE_KINDS:
            raise ValueError(f"kind must be one of {', '.join(_FAILURE_KINDS)}, got {kind!r}")
        async with writing(self._engine) as connection:
            cursor = await _cursor(connection)
            values = {"state": kind.value, "reason": clean(reason)[:_REASON_MAX], "at": at, "id": target_id}
            await cursor.execute(_REPORT_FAILURE, values)

    async def _max_age(self, target_id: TargetId) -> timedelta:
        """Return the age limit of the target's data, which depends on its labels only if there are age rules."""
        if not self._retention.rules:
            return self._retention.max_age
        async with reading(self._engine) as connection:
            labels = (await connection.execute(select(_TARGET.labels).where(_TARGET.id == target_id))).scalar()
        return self._retention.age_of(labels or {})

    def _sift(self, observation: Observation, max_age: timedelta) -> _Sifted:
        """Return the observation without data that is out of bounds, and a reason for each refused checkpoint."""
        now = self._clock.now()
        rejected: list[str] = []
        jobs = [self._sift_job(job, now, max_age, rejected) for job in observation.jobs]
        return _Sifted(replace(observation, jobs=tuple(jobs)), tuple(rejected))

    def _sift_job(self, job: JobObservation, now: datetime, max_age: timedelta, rejected: list[str]) -> JobObservation:
        kept: list[Checkpoint] = []
        for checkpoint in job.checkpoints:
            header = checkpoint.header
            if not 0 <= header.checkpoint_id <= INT8_MAX:
                rejected.append(f"{job.name}: {header.checkpoint_id} is not a checkpoint id (allowed: 0 to 2^63 - 1)")
            elif not self._retention.accepts(header.triggered_at, now, max_age=max_age):
                allowed = f"{now - max_age:%Y-%m-%d} to tomorrow"
                at = header.triggered_at.isoformat()
                rejected.append(f"{job.name}: checkpoint {header.checkpoint_id} triggered at {at} (allowed: {allowed})")
            else:
                kept.append(checkpoint)
        pressure = tuple(p for p in job.pressure if self._retention.accepts(p.observed_at, now, max_age=max_age))
        return replace(job, checkpoints=tuple(kept), pressure=pressure)

    async def _write_once(self, group: Sequence[_Sifted]) -> Sequence[IngestResult | UnknownEntityError]:
        recent = self._recent.known([sifted.observation for sifted in group])
        if recent is not None:
            plan = plan_checkpoints(_checkpoints(recent.runs), recent.headers)
            if plan.is_small:
                # What is remembered is outdated if another process has written meanwhile. It is forgotten here, and
                # remembered again after the commit.
                self._recent.forget(recent.runs)
                with suppress(_OutdatedError, psycopg.errors.UniqueViolation):
                    return await self._write_next(group, recent.runs, plan)
        return await self._write_looked_up(group)

    async def _write_next(
        self, group: Sequence[_Sifted], runs: Sequence[RunToWrite], plan: CheckpointPlan
    ) -> Sequence[IngestResult | UnknownEntityError]:
        """Write observations that directly follow what this process wrote last to the same runs.

        Nothing is looked up. The transaction updates the runs' rows first and the targets' health rows last. It is
        rolled back if any of these rows is missing or has changed. Removing a target deletes its health row, so a
        removed target is detected too.

        Raises:
            _OutdatedError: another process has written one of these runs or targets meanwhile.
        """
        totals = {sifted.observation.target_id: _Total() for sifted in group}
        async with writing(self._engine) as connection:
            cursor = await _cursor(connection)
            of_health = cursor.connection.cursor()
            async with cursor.connection.pipeline():
                states = await write_states(cursor, runs, plan.tallies)
                await copy_checkpoints(cursor, plan)
                changes = await _write_rest(cursor, _Copied(runs, plan, [0] * len(runs)), totals)
                await of_health.executemany(_REPORT_NEXT_SUCCESS, _health_rows(group))
            last = await last_writes(states)
            if len(last) < len(runs) or of_health.rowcount < len(group):
                raise _OutdatedError
        self._recent.note(runs, last, plan)
        if self._on_commit is not None:
            self._on_commit(changes)
        return [_outcome(sifted, totals[sifted.observation.target_id]) for sifted in group]

    async def _write_looked_up(self, group: Sequence[_Sifted]) -> Sequence[IngestResult | UnknownEntityError]:
        written: list[tuple[_Copied, Sequence[StateWrite]]] = []
        async with writing(self._engine) as connection:
            cursor = await _cursor(connection)
            known = await _look_up(cursor, [sifted.observation for sifted in group])
            stored = [sifted for sifted in group if sifted.observation.target_id in known.targets]
            totals = {sifted.observation.target_id: _Total() for sifted in stored}
            changes: list[RunChange] = []
            first, *others = _rounds(known.targets, stored) or [[]]
            copied = await _copy_runs(cursor, first, known)
            for reports in others:
                async with cursor.connection.pipeline():
                    written.append((copied, await write_states(cursor, copied.runs, copied.checkpoints.tallies)))
                    changes += await _write_rest(cursor, copied, totals)
                copied = await _copy_runs(cursor, reports)
            # These statements and the commit are sent together, because waiting for the response of each of them costs
            # PostgreSQL more CPU time than some of the statements do.
            async with cursor.connection.pipeline():
                written.append((copied, await write_states(cursor, copied.runs, copied.checkpoints.tallies)))
                changes += await _write_rest(cursor, copied, totals)
                await cursor.executemany(_REPORT_SUCCESS, _health_rows(stored))
                # The driver's own commit would wait for one more response.
                await cursor.execute("COMMIT")
        for copied, states in written:
            self._recent.note(copied.runs, await last_writes(states), copied.checkpoints)
        if self._on_commit is not None:
            self._on_commit(changes)
        return [_outcome(sifted, totals.get(sifted.observation.target_id)) for sifted in group]


class _OutdatedError(Exception):
    """What this process remembered of a run or a target is no longer true."""


def _rounds(targets: Mapping[TargetId, TargetKey], group: Sequence[_Sifted]) -> Sequence[Sequence[Report]]:
    """Return the reports of all runs, in rounds. Within a round, rows are locked in the order of the reports.

    A run that one observation reports twice is in two rounds, which are written one after the other.
    """
    reports = [
        Report(targets[s.observation.target_id], job, s.observation.observed_at, s.observation.clock_offset_ms)
        for s in group
        for job in s.observation.jobs
    ]
    rounds: list[list[Report]] = []
    seen: Counter[str] = Counter()
    # All writers create jobs in the same order, so that they cannot deadlock. The order begins with the name, because
    # two targets of one deployment create the same jobs.
    for report in sorted(reports, key=lambda r: (r.job.name, r.job.engine_run_id, r.job.started_at)):
        number = seen[report.key.run_id]
        seen[report.key.run_id] += 1
        if number == len(rounds):
            rounds.append([])
        rounds[number].append(report)
    return rounds


@dataclass(frozen=True, slots=True)
class _Known:
    """The stored targets, runs and headers that the observations are about.

    The rows of ``runs`` are locked until the commit. ``targets`` contains the targets that are stored and not removed.
    Their rows are locked too.
    """

    targets: Mapping[TargetId, TargetKey]
    runs: RunRows
    headers: StoredHeaders


async def _look_up(cursor: Cursor, observations: Sequence[Observation]) -> _Known:
    """Lock the targets and the runs of the observations, and read the headers of their checkpoints."""
    engines = {o.target_id: o.engine for o in observations}
    jobs = [(stored_run_id(o.target_id, o.engine, job), job) for o in observations for job in o.jobs]
    of_targets, of_runs, of_headers = (cursor.connection.cursor() for _ in range(3))
    # Each statement sees what was committed before it began. So the headers are read after the locks are held, although
    # all statements are sent at once.
    async with cursor.connection.pipeline():
        await of_targets.execute(_SHARE_TARGETS, {"ids": list(engines)})
        await request_locks(of_runs, dict(jobs))
        is_any = await request_headers(of_headers, [(run_id, job.checkpoints) for run_id, job in jobs])
    targets = {
        TargetId(i): TargetKey(TargetId(i), labels.get("deployment") or url, engines[TargetId(i)])
        for i, url, labels in await of_targets.fetchall()
    }
    return _Known(targets, await locked_rows(of_runs), await stored_headers(of_headers) if is_any else {})


@dataclass(frozen=True, slots=True)
class _Copied:
    """Runs that are locked and whose arrays are copied. The rest of their rows is still to be written."""

    runs: Sequence[RunToWrite]
    checkpoints: CheckpointPlan
    readings: Sequence[int]


async def _copy_runs(cursor: Cursor, reports: Sequence[Report], known: _Known | None = None) -> _Copied:
    """Lock the reported runs, which are different ones, and copy their arrays. A pipeline cannot send a COPY."""
    runs = await lock_runs(cursor, reports, None if known is None else known.runs)
    # Another writer may have created a run, with checkpoints, between the look-up and the lock. The headers are then
    # read again.
    headers = known.headers if known is not None and all(run.key.run_id in known.runs for run in runs) else None
    if headers is None:
        is_any = await request_headers(cursor, [(run.key.run_id, run.report.job.checkpoints) for run in runs])
        headers = await stored_headers(cursor) if is_any else {}
    checkpoints = plan_checkpoints(_checkpoints(runs), headers)
    await copy_checkpoints(cursor, checkpoints)
    readings = await write_pressure(cursor, [(r.key.run_id, r.report.job.pressure) for r in runs])
    return _Copied(runs, checkpoints, readings)


def _checkpoints(runs: Iterable[RunToWrite]) -> Sequence[tuple[StoredRun, Sequence[Checkpoint], datetime]]:
    return [(run.key, run.report.job.checkpoints, run.report.observed_at) for run in runs]


async def _write_rest(cursor: Cursor, copied: _Copied, totals: Mapping[TargetId, _Total]) -> Sequence[RunChange]:
    """Write what is not copied of the runs, apart from their states. Return what changed in each run."""
    runs, tallies = copied.runs, copied.checkpoints.tallies
    await write_headers(cursor, copied.checkpoints)
    await write_batches(cursor, [(r.key.run_id, r.report.job.checkpoints) for r in runs])
    await write_progress(
        cursor, [(r.key.run_id, r.report.job.progress, r.report.job.checkpoints, r.report.observed_at) for r in runs]
    )
    await write_late_barriers(cursor, [(r.key.run_id, r.report.job.progress) for r in runs])
    for run in runs:
        if run.report.job.barriers:
            days = await days_of_checkpoints(cursor, run.key.run_id, [c for c, _ in run.report.job.barriers])
            await write_barriers(cursor, run.key, run.report.job.barriers, days)
    for run, tally, reading_count in zip(runs, tallies, copied.readings, strict=True):
        total = totals[run.report.target.id]
        total.new += tally.new
        total.updated += tally.updated
        total.details += tally.details
        total.readings += reading_count
    return [_change(run, tally) for run, tally in zip(runs, tallies, strict=True)]


def _change(run: RunToWrite, tally: CheckpointTally) -> RunChange:
    job = run.report.job
    headers = [c.header for c in job.checkpoints]
    return RunChange(
        job_id=run.key.job_id,
        run_id=run.key.run_id,
        ended=tuple(h for h in headers if h.status.is_terminal) if tally.is_changed else (),
        is_open=any(not h.status.is_terminal for h in headers),
        read_at=max((r.observed_at for r in job.pressure), default=None),
    )


@dataclass(slots=True)
class _Total:
    """What one write of an observation has stored so far."""

    new: int = 0
    updated: int = 0
    details: int = 0
    readings: int = 0


def _outcome(sifted: _Sifted, total: _Total | None) -> IngestResult | UnknownEntityError:
    if total is None:
        return UnknownEntityError(kind="target", id=sifted.observation.target_id)
    return IngestResult(total.new, total.updated, total.details, total.readings, sifted.rejected)


def _health_rows(group: Sequence[_Sifted]) -> Sequence[dict[str, Any]]:
    rows = [_health_row(sifted.observation, len(sifted.rejected)) for sifted in group]
    # All writers lock the rows in the same order, so that they cannot deadlock.
    return sorted(rows, key=itemgetter("target_id"))


def _health_row(observation: Observation, rejected_count: int) -> dict[str, Any]:
    cost, shed = observation.cost, observation.shed_in_all
    at = observation.received_at or observation.observed_at
    return {
        "target_id": observation.target_id,
        "at": at,
        "reason": _unread_reason(observation),
        "engine": clean(observation.engine.kind),
        "engine_version": clean(observation.engine_version) if observation.engine_version else None,
        "requests_per_poll": float(cost.request_count),
        "bytes_per_poll": float(cost.response_bytes),
        "poll_duration_ms": float(cost.duration_ms),
        "rejected_count": rejected_count,
        "shed_checkpoint_count": shed.checkpoint_count,
        "shed_detail_count": shed.detail_count,
        "last_shed_at": at if shed != NOTHING_SHED else None,
        "clock_offset_ms": observation.clock_offset_ms,
        "set_interval_s": observation.set_interval_s,
    }


def _unread_reason(observation: Observation) -> str | None:
    """Return why some jobs of the target cannot be read, or None if all of them can."""
    unread = [job for job in observation.jobs if job.state is JobState.UNREADABLE]
    if not unread:
        return None
    names = [job.name for job in unread[:_NAMES_MAX]]
    more = f" and {len(unread) - len(names)} more" if len(unread) > len(names) else ""
    why = next((f": {problem}" for job in unread for problem in job.problems), "")
    return clean(f"{', '.join(names)}{more} cannot be read{why}")[:_REASON_MAX]


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
