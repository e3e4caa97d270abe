"""Stores observations. They are written only through this module, which owns the transaction.

When ``write`` returns, the whole observation is committed. If ``write`` fails, no part of it is stored. Observations of
different targets that wait at the same time are committed in one transaction (``grouping``). Writing an
observation again, or observations in another order, leads to the same checkpoints, arrays and readings. So a caller
that does not know whether a write succeeded can repeat it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from operator import itemgetter
from typing import Any

import psycopg
import structlog
from sqlalchemy import (
    select,
)
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.domain.checkpoint import Checkpoint, CheckpointHeader
from backend.domain.clock import Clock
from backend.domain.errors import UnknownEntityError
from backend.domain.ids import TargetId
from backend.domain.observation import JobObservation, Observation
from backend.domain.target import TargetState
from backend.store.checkpoints.micro_batches import without_work, write_batches
from backend.store.checkpoints.progress_writer import write_late_barriers, write_pressure, write_progress
from backend.store.checkpoints.writer import (
    CheckpointPlan,
    CheckpointTally,
    HeaderKey,
    StoredHeaders,
    StoredRun,
    copy_checkpoints,
    days_of_checkpoints,
    header_key,
    plan_checkpoints,
    renew,
    request_headers,
    stored_headers,
    write_barriers,
    write_headers,
)
from backend.store.jobs.checkpoint_folders import write_folders
from backend.store.jobs.joining import Places, forget_verdicts, join_runs, places_of
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
from backend.store.postgres.statements import one_of, sql_of
from backend.store.schema import tables
from backend.store.schema.arrays import INT8_MAX
from backend.store.schema.partitions import Partitions, Retention, day_of
from backend.store.targets.health_writing import (
    REASON_MAX,
    REPORT_FAILURE,
    REPORT_NEXT_SUCCESS,
    REPORT_SUCCESS,
    health_row,
)
from backend.store.wall_clock import WallClock

_log = structlog.get_logger(__name__)

# The largest number of observations in one transaction, and of their checkpoints and readings. A larger transaction
# would hold locks for a noticeable time.
_GROUP_MAX = 64
_GROUP_ROWS_MAX = 256
_FAILURE_KINDS = (TargetState.UNREACHABLE, TargetState.MALFORMED)


_TARGET = tables.targets.c
_SHARE_TARGETS = sql_of(
    select(_TARGET.id, _TARGET.url, _TARGET.labels)
    .where(one_of(_TARGET.id, "ids"), _TARGET.removed_at.is_(None))
    .order_by(_TARGET.id)
    .with_for_update(read=True)
)


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
            values = {"state": kind.value, "reason": clean(reason)[:REASON_MAX], "at": at, "id": target_id}
            await cursor.execute(REPORT_FAILURE, values)

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
                await write_folders(cursor, [sifted.observation for sifted in group])
                await of_health.executemany(REPORT_NEXT_SUCCESS, _health_rows(group))
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
            first, *others = _rounds(known, stored) or [[]]
            now = self._clock.now()
            copied = await _copy_runs(cursor, first, now, known)
            for reports in others:
                async with cursor.connection.pipeline():
                    written.append((copied, await write_states(cursor, copied.runs, copied.checkpoints.tallies)))
                    changes += await _write_rest(cursor, copied, totals)
                copied = await _copy_runs(cursor, reports, now)
            # These statements and the commit are sent together, because waiting for the response of each of them costs
            # PostgreSQL more CPU time than some of the statements do.
            async with cursor.connection.pipeline():
                written.append((copied, await write_states(cursor, copied.runs, copied.checkpoints.tallies)))
                changes += await _write_rest(cursor, copied, totals)
                await write_folders(cursor, [sifted.observation for sifted in stored])
                await cursor.executemany(REPORT_SUCCESS, _health_rows(stored))
                # The driver's own commit would wait for one more response.
                await cursor.execute("COMMIT")
        for copied, states in written:
            self._recent.note(copied.runs, await last_writes(states), copied.checkpoints)
        if self._on_commit is not None:
            self._on_commit(changes)
        return [_outcome(sifted, totals.get(sifted.observation.target_id)) for sifted in group]


class _OutdatedError(Exception):
    """What this process remembered of a run or a target is no longer true."""


def _rounds(known: _Known, group: Sequence[_Sifted]) -> Sequence[Sequence[Report]]:
    """Return the reports of all runs, in rounds. Within a round, rows are locked in the order of the reports.

    A run that one observation reports twice is in two rounds, which are written one after the other.
    """
    reports = [
        Report(
            known.targets[s.observation.target_id],
            job,
            s.observation.observed_at,
            s.observation.clock_offset_ms,
            s.observation.received_at,
            known.places.get((s.observation.target_id, job.engine_run_id)),
        )
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
    places: Places


async def _look_up(cursor: Cursor, observations: Sequence[Observation]) -> _Known:
    """Lock the targets and the runs of the observations, and read the headers of their checkpoints."""
    engines = {o.target_id: o.engine for o in observations}
    places = await places_of(cursor, observations)
    jobs = [(_run_id(o, job, places), job) for o in observations for job in o.jobs]
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
    headers = await stored_headers(of_headers) if is_any else {}
    return _Known(targets, await locked_rows(of_runs), headers, places)


def _run_id(observation: Observation, job: JobObservation, places: Places) -> str:
    place = places.get((observation.target_id, job.engine_run_id))
    return stored_run_id(observation.target_id, observation.engine, job) if place is None else place.run.run_id


@dataclass(frozen=True, slots=True)
class _Copied:
    """Runs that are locked and whose arrays are copied. The rest of their rows is still to be written."""

    runs: Sequence[RunToWrite]
    checkpoints: CheckpointPlan
    readings: Sequence[int]
    reports: Mapping[HeaderKey, str] = field(default_factory=dict)
    """What each channel reported of the batches of runs that have several."""
    renewed: Collection[HeaderKey] = ()
    """Stored batches that get other values."""
    learned: Collection[HeaderKey] = ()
    """Stored batches whose Spark jobs become known."""


async def _copy_runs(cursor: Cursor, reports: Sequence[Report], now: datetime, known: _Known | None = None) -> _Copied:
    """Lock the reported runs, which are different ones, and copy their arrays. A pipeline cannot send a COPY."""
    joined = await join_runs(cursor, await lock_runs(cursor, reports, None if known is None else known.runs), now)
    runs = joined.runs
    # Another writer may have created a run, with checkpoints, between the look-up and the lock. The headers are then
    # read again.
    headers = known.headers if known is not None and all(run.key.run_id in known.runs for run in runs) else None
    if headers is None:
        is_any = await request_headers(cursor, [(run.key.run_id, run.report.job.checkpoints) for run in runs])
        headers = await stored_headers(cursor) if is_any else {}
    checkpoints = plan_checkpoints(_checkpoints(runs), {**headers, **joined.headers})
    for number, run in enumerate(runs):
        renew(checkpoints, number, run.key, joined.renewed.get(run.key.run_id, ()), run.report.observed_at)
    await copy_checkpoints(cursor, checkpoints)
    readings = await write_pressure(cursor, [(r.key.run_id, r.report.job.pressure) for r in runs])
    renewed = {header_key(run_id, c.header) for run_id, batches in joined.renewed.items() for c in batches}
    working = {key: tally for key, tally in checkpoints.working if key not in renewed}
    learned = await without_work(cursor, working)
    for key in learned:
        working[key].updated += 1
    return _Copied(runs, checkpoints, readings, joined.reports, renewed, learned)


def _checkpoints(runs: Iterable[RunToWrite]) -> Sequence[tuple[StoredRun, Sequence[Checkpoint], datetime]]:
    return [(run.key, run.report.job.checkpoints, run.report.observed_at) for run in runs]


async def _write_rest(cursor: Cursor, copied: _Copied, totals: Mapping[TargetId, _Total]) -> Sequence[RunChange]:
    """Write what is not copied of the runs, apart from their states. Return what changed in each run."""
    runs, tallies = copied.runs, copied.checkpoints.tallies
    await write_headers(cursor, copied.checkpoints)
    batches = [(r.key.run_id, r.report.job.checkpoints) for r in runs]
    await write_batches(cursor, batches, reports=copied.reports, renewed=copied.renewed)
    await forget_verdicts(cursor, {*copied.renewed, *copied.learned})
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
    rows = [health_row(sifted.observation, len(sifted.rejected)) for sifted in group]
    # All writers lock the rows in the same order, so that they cannot deadlock.
    return sorted(rows, key=itemgetter("target_id"))


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
