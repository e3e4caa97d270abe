"""Reads jobs and runs: a job's current run, its graph and settings over time, and its events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Integer, RowMapping, Select, and_, bindparam, case, func, or_, select, text, true
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.domain.checkpoint import CheckpointConfig, CheckpointCounts
from backend.domain.engines import EngineCapabilities
from backend.domain.errors import UnknownEntityError
from backend.domain.ids import EngineRunId, JobId, RunId, TargetId
from backend.domain.observation import JobEventKind, JobState
from backend.domain.target import TargetState
from backend.domain.topology import Placement, Topology
from backend.store.postgres.keyset import newest_first
from backend.store.postgres.statements import each, one_of
from backend.store.schema import tables
from backend.store.schema.documents import (
    DocumentKind,
    config_from,
    counts_from,
    engine_from,
    placements_from,
    topology_from,
)
from backend.store.schema.rows import value_of


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run. ``failed_unlisted_count``: failures in the coordinator's counters that were never listed."""

    id: RunId
    job_id: JobId
    target_id: TargetId
    engine_run_id: EngineRunId
    engine: EngineCapabilities
    started_at: datetime
    ended_at: datetime | None
    state: JobState
    engine_state: str
    restart_count: int | None
    counts: CheckpointCounts | None
    failed_unlisted_count: int
    checkpoint_count: int
    placements: tuple[Placement, ...]
    problems: tuple[str, ...]
    first_observed_at: datetime
    observed_at: datetime


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job with its current run: the newest one that has not ended, else the newest."""

    id: JobId
    name: str
    run: RunRecord
    target_name: str
    target_state: TargetState
    clock_offset_ms: int | None
    """The engine's clock minus ours at the last reading; None if not known."""
    engine_version: str | None = None

    def engine_now(self, now: datetime) -> datetime:
        """Return the time on the engine's clock at ``now`` on ours."""
        return now + timedelta(milliseconds=self.clock_offset_ms or 0)

    @property
    def read_at_engine(self) -> datetime:
        """The time on the engine's clock when the run was last read."""
        at = self.run.observed_at
        # Readings of a job that pushes carry the time of its own clock.
        return at if self.run.engine.is_pushed else self.engine_now(at)


@dataclass(frozen=True, slots=True)
class RunShape:
    """The graph and settings of a run at one time."""

    topology: Topology
    config: CheckpointConfig | None


@dataclass(frozen=True, slots=True)
class JobEventRecord:
    """An event of a job. ``key`` orders events of the same instant."""

    at: datetime
    kind: JobEventKind
    run_id: RunId
    key: str
    text: str


_CAUSE_MAX = 200
_RUNS_BEFORE_MAX = 1000
_RUN = tables.runs.c
_JOB = tables.jobs.c
_TARGET = tables.targets.c
_HEALTH = tables.target_health.c
_VERSION = tables.run_versions.c
_EVENT = tables.job_events.c
_CURRENT = (
    select(
        tables.runs,
        _JOB.name,
        _TARGET.name.label("target_name"),
        _TARGET.is_enabled,
        _TARGET.removed_at,
        _HEALTH.state.label("target_state"),
        func.coalesce(_RUN.clock_offset_ms, _HEALTH.clock_offset_ms).label("engine_clock_offset_ms"),
        _HEALTH.engine_version,
    )
    .ext(distinct_on(_RUN.job_id))
    .select_from(
        tables.runs.join(tables.jobs, _JOB.id == _RUN.job_id)
        .join(tables.targets, _TARGET.id == _RUN.target_id)
        .outerjoin(tables.target_health, _HEALTH.target_id == _TARGET.id)
    )
    .order_by(
        _RUN.job_id,
        _TARGET.removed_at.is_(None).desc(),
        _RUN.state == JobState.ENDED.value,
        _RUN.started_at.desc(),
        _RUN.id,
    )
)
_WATCHED = _CURRENT.where(_TARGET.removed_at.is_(None))
_OF_JOB = _CURRENT.where(_RUN.job_id == bindparam("job"))
_RUNS = select(tables.runs).where(_RUN.job_id == bindparam("job"))
_ONE_RUN = _RUNS.where(_RUN.id == bindparam("run"))
_UNENDED = (
    select(_RUN.engine_run_id, _RUN.started_at, _JOB.name)
    .join_from(tables.runs, tables.jobs, _JOB.id == _RUN.job_id)
    .where(_RUN.target_id == bindparam("target"), _RUN.state != JobState.ENDED.value)
)


async def list_current(connection: AsyncConnection) -> list[JobRecord]:
    """Return every job of every watched target, with its current run."""
    return [_job(row) for row in (await connection.execute(_WATCHED)).mappings()]


async def get_job(connection: AsyncConnection, job_id: str) -> JobRecord:
    """Return one job, even if its target was removed.

    Raises:
        UnknownEntityError: there is no such job.

    """
    row = (await connection.execute(_OF_JOB, {"job": job_id})).mappings().first()
    if row is None:
        raise UnknownEntityError(kind="job", id=job_id)
    return _job(row)


async def list_runs(
    connection: AsyncConnection, job_id: str, *, before: tuple[datetime, str] | None, limit: int
) -> list[RunRecord]:
    """Return a job's runs older than ``before`` (start, id), newest first."""
    query, page = newest_first(_RUNS, _RUN.started_at, _RUN.id, before=before, limit=limit)
    return [_run(row) for row in (await connection.execute(query, {"job": job_id} | page)).mappings()]


async def get_run(connection: AsyncConnection, job_id: str, run_id: str) -> RunRecord:
    """One run of a job.

    Raises:
        UnknownEntityError: the job has no such run.

    """
    row = (await connection.execute(_ONE_RUN, {"job": job_id, "run": run_id})).mappings().first()
    if row is None:
        raise UnknownEntityError(kind="run", id=run_id)
    return _run(row)


@dataclass(frozen=True, slots=True)
class RunBefore:
    """The times of a run before the current one, on its engine's clock."""

    started_at: datetime
    ended_at: datetime


# Text: each job has its own run and instants, passed as parallel arrays; Core would need twice as many lines.
_RUNS_BEFORE = text(
    "SELECT i.job, r.started_at, r.ended FROM unnest(CAST(:jobs AS text[]), CAST(:runs AS text[]),"
    " CAST(:begins AS timestamptz[]), CAST(:sinces AS timestamptz[])) AS i(job, run, begin, since)"
    " CROSS JOIN LATERAL (SELECT started_at, ended FROM (SELECT id, started_at,"
    # A run that its engine no longer lists ended some time after its last reading.
    " coalesce(ended_at, observed_at + coalesce(clock_offset_ms, 0) * interval '1 ms') AS ended FROM runs"
    " WHERE job_id = i.job AND started_at <= i.begin) past"
    " WHERE id <> i.run AND (i.since IS NULL OR ended > i.since) ORDER BY started_at DESC LIMIT :limit) r"
)


async def runs_before(
    connection: AsyncConnection, records: Sequence[JobRecord], since: Mapping[str, datetime]
) -> Mapping[str, tuple[RunBefore, ...]]:
    """Return the runs of each job that began before its current one and ended after ``since`` (by job), newest first.

    For a job that is not in ``since``, return all earlier runs, up to a bound.
    """
    values = {
        "jobs": [r.id for r in records],
        "runs": [r.run.id for r in records],
        "begins": [r.run.started_at for r in records],
        "sinces": [since.get(r.id) for r in records],
        "limit": _RUNS_BEFORE_MAX,
    }
    found: dict[str, list[RunBefore]] = {}
    for job, started_at, ended_at in (await connection.execute(_RUNS_BEFORE, values)).all():
        found.setdefault(job, []).append(RunBefore(started_at, max(started_at, ended_at)))
    return {job: tuple(rows) for job, rows in found.items()}


async def list_unended(connection: AsyncConnection, target_id: str) -> Mapping[tuple[EngineRunId, datetime], str]:
    """Return a target's runs that had not ended when last read: (engine's run id, start) -> name of the job."""
    rows = await connection.execute(_UNENDED, {"target": target_id})
    return {(EngineRunId(run), started_at): name for run, started_at, name in rows}


_NEWEST_VERSIONS = (
    select(_VERSION.run_id, _VERSION.kind, _VERSION.document)
    .ext(distinct_on(_VERSION.run_id, _VERSION.kind))
    .where(one_of(_VERSION.run_id, "runs"))
    .order_by(_VERSION.run_id, _VERSION.kind, _VERSION.since.desc())
)


async def newest_shapes(connection: AsyncConnection, run_ids: Iterable[str]) -> Mapping[str, RunShape]:
    """Return the newest graph and settings of each run; the graph is empty if none was reported."""
    ids = list(run_ids)
    rows = (await connection.execute(_NEWEST_VERSIONS, {"runs": ids})).all()
    return _shapes(ids, rows)


_CONFIG_SINCE = (
    select(_VERSION.run_id, func.max(_VERSION.since))
    .where(one_of(_VERSION.run_id, "runs"), _VERSION.kind == DocumentKind.CONFIG.value)
    .group_by(_VERSION.run_id)
    .having(func.count() > 1)
)


async def config_since(connection: AsyncConnection, run_ids: Sequence[str]) -> Mapping[str, datetime]:
    """Return when each run's newest settings were first seen, by our clock; a run without a change is absent.

    The first known settings were in force before they were read, so they have no such time.
    """
    rows = (await connection.execute(_CONFIG_SINCE, {"runs": list(run_ids)})).all()
    return {row[0]: row[1] for row in rows}


_IN_FORCE = _VERSION.since <= bindparam("at")
_VERSIONS_AT = (
    select(_VERSION.run_id, _VERSION.kind, _VERSION.document)
    .ext(distinct_on(_VERSION.kind))
    .where(_VERSION.run_id == bindparam("run"))
    .order_by(_VERSION.kind, _IN_FORCE.desc(), case((_IN_FORCE, _VERSION.since)).desc(), _VERSION.since)
)


async def shape_at(connection: AsyncConnection, run_id: str, at: datetime) -> RunShape:
    """Return the graph and settings in force at ``at``; before the first known ones, return those."""
    rows = (await connection.execute(_VERSIONS_AT, {"run": run_id, "at": at})).all()
    return _shapes([run_id], rows)[run_id]


def _events() -> Select[Any]:
    cause, before = tables.job_events.alias("cause"), tables.job_events.alias("before")
    restart_before = (
        select(func.max(before.c.at))
        .where(before.c.run_id == _EVENT.run_id, before.c.kind == JobEventKind.RESTARTED.value, before.c.at < _EVENT.at)
        .correlate(tables.job_events)
        .scalar_subquery()
    )
    exception = (
        select(cause.c.text)
        .where(
            _EVENT.kind == JobEventKind.RESTARTED.value,
            cause.c.run_id == _EVENT.run_id,
            cause.c.kind == JobEventKind.EXCEPTION.value,
            cause.c.at <= _EVENT.at,
            or_(restart_before.is_(None), cause.c.at > restart_before),
        )
        .order_by(cause.c.at.desc(), cause.c.key)
        .limit(1)
        .correlate(tables.job_events)
        .scalar_subquery()
    )
    return (
        select(tables.job_events, exception.label("cause"))
        .join_from(tables.job_events, tables.runs, _RUN.id == _EVENT.run_id)
        # A restart counted at the first reading happened earlier, at an unknown time.
        .where(
            _EVENT.job_id == bindparam("job"),
            ~and_(_EVENT.kind == JobEventKind.RESTARTED.value, _EVENT.at <= _RUN.first_observed_at),
        )
    )


_EVENTS = _events()


async def list_events(
    connection: AsyncConnection, job_id: str, *, before: tuple[datetime, str, str, str] | None, limit: int
) -> list[JobEventRecord]:
    """Return a job's events older than ``before`` (at, run, kind, key), newest first.

    The text of a restart names the exception before it: the newest one since the previous restart.
    """
    key = (_EVENT.at, _EVENT.run_id, _EVENT.kind, _EVENT.key)
    query, page = newest_first(_EVENTS, *key, before=before, limit=limit)
    return [
        value_of(JobEventRecord, row, text=_with_cause(row["text"], row["cause"]))
        for row in (await connection.execute(query, {"job": job_id} | page)).mappings()
    ]


def _with_cause(words: str, cause: str | None) -> str:
    return words if cause is None else f"{words}: {_first_line(cause)}"


def _first_line(words: str) -> str:
    return words.partition("\n")[0][:_CAUSE_MAX]


_RUN_IDS = each(_EVENT.run_id, "runs")
_EXCEPTION = (
    select(_EVENT.run_id, _EVENT.at, _EVENT.text)
    .where(_EVENT.run_id == _RUN_IDS.c.run_id, _EVENT.kind == "exception")
    .order_by(_EVENT.at.desc())
    .limit(bindparam("limit", type_=Integer))
    .lateral("exception")
)
_NEWEST_EXCEPTIONS = select(_EXCEPTION).select_from(_RUN_IDS.join(_EXCEPTION, true())).order_by(_EXCEPTION.c.at.desc())


async def newest_exceptions(
    connection: AsyncConnection, run_ids: Sequence[str], *, limit: int = 10
) -> Mapping[str, tuple[tuple[datetime, str], ...]]:
    """The newest exceptions of each run, newest first."""
    found: dict[str, list[tuple[datetime, str]]] = {}
    for run_id, at, words in await connection.execute(_NEWEST_EXCEPTIONS, {"runs": list(run_ids), "limit": limit}):
        found.setdefault(run_id, []).append((at, words))
    return {run_id: tuple(rows) for run_id, rows in found.items()}


def _shapes(run_ids: Sequence[str], rows: Sequence[Any]) -> dict[str, RunShape]:
    documents = {(run_id, kind): document for run_id, kind, document in rows}
    return {
        i: RunShape(
            topology_from(documents.get((i, DocumentKind.TOPOLOGY))),
            config_from(documents.get((i, DocumentKind.CONFIG))),
        )
        for i in run_ids
    }


def _job(row: RowMapping) -> JobRecord:
    return value_of(
        JobRecord,
        row,
        id=JobId(row["job_id"]),
        run=_run(row),
        target_state=_target_state(row),
        clock_offset_ms=row["engine_clock_offset_ms"],
    )


def _target_state(row: RowMapping) -> TargetState:
    if not row["is_enabled"] or row["removed_at"] is not None:
        return TargetState.PAUSED
    return TargetState(row["target_state"] or TargetState.PENDING)


def _run(row: RowMapping) -> RunRecord:
    counts = counts_from(row["counts"])
    listed = row["failed_listed_count"] - row["failed_listed_base"]
    return value_of(
        RunRecord,
        row,
        engine=engine_from(row["capabilities"], row["engine"], row.get("engine_version")),
        counts=counts,
        failed_unlisted_count=row["failed_unlisted_past"] + max(0, (counts.failed if counts else 0) - listed),
        placements=placements_from(row["placements"]),
        problems=tuple(row["problems"]),
    )
