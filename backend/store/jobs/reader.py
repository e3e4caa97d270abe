"""Reads jobs and runs: which run of a job counts now, its graph and settings over time, and what happened to it."""

# ruff: noqa: S608  the text put into statements is this module's own column lists; every value is bound.

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast

from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.domain.checkpoint import CheckpointConfig, CheckpointCounts
from backend.domain.errors import UnknownEntityError
from backend.domain.ids import EngineRunId, JobId, RunId, TargetId
from backend.domain.observation import Engine, JobState
from backend.domain.topology import Placement, Topology
from backend.store.postgres.keyset import newest_first
from backend.store.schema.documents import config_from, counts_from, placements_from, topology_from
from backend.store.targets.targets import HealthState


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run. ``failed_unlisted_count``: failures that were counted and never listed."""

    id: RunId
    job_id: JobId
    target_id: TargetId
    engine_run_id: EngineRunId
    engine: Engine
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
    """A job with the run that counts now: the newest one that has not ended, else the newest."""

    id: JobId
    name: str
    run: RunRecord
    target_name: str
    target_state: HealthState
    clock_offset_ms: int | None
    """The clock of the run's engine minus ours, when it was read last; None where that is not known."""
    engine_version: str | None = None

    def engine_now(self, now: datetime) -> datetime:
        """What the engine's clock shows at ``now`` on ours."""
        return now + timedelta(milliseconds=self.clock_offset_ms or 0)

    @property
    def read_at_engine(self) -> datetime:
        """What the engine's clock showed when the run was read last."""
        at = self.run.observed_at
        # What Spark's listener sends is dated by its driver's clock.
        return at if self.run.engine is Engine.SPARK else self.engine_now(at)


@dataclass(frozen=True, slots=True)
class RunShape:
    """Graph and settings of a run at one time."""

    topology: Topology
    config: CheckpointConfig | None


@dataclass(frozen=True, slots=True)
class JobEventRecord:
    """Something that happened to a job. ``key`` orders events of one instant."""

    at: datetime
    kind: str
    run_id: RunId
    key: str
    text: str


_CAUSE_MAX = 200
_RUNS_BEFORE_MAX = 1000
_RUN_COLUMNS = (
    "r.id AS run_id, r.job_id, r.target_id, r.engine_run_id, r.engine, r.started_at, r.ended_at, r.state,"
    " r.engine_state, r.restart_count, r.counts, r.failed_listed_count, r.failed_listed_base, r.failed_unlisted_past,"
    " r.checkpoint_count, r.placements, r.problems, r.first_observed_at, r.observed_at"
)
_CURRENT = (
    f"SELECT DISTINCT ON (r.job_id) {_RUN_COLUMNS}, j.name, t.name AS target_name, t.is_enabled, t.removed_at,"
    " h.state AS target_state, COALESCE(r.clock_offset_ms, h.clock_offset_ms) AS clock_offset_ms, h.engine_version"
    " FROM runs r JOIN jobs j ON j.id = r.job_id"
    " JOIN targets t ON t.id = r.target_id LEFT JOIN target_health h ON h.target_id = t.id {where}"
    " ORDER BY r.job_id, t.removed_at IS NULL DESC, r.state = 'ended', r.started_at DESC, r.id"
)


async def list_current(connection: AsyncConnection) -> list[JobRecord]:
    """Every job of a target that is watched, with its current run."""
    rows = (await connection.execute(text(_CURRENT.format(where="WHERE t.removed_at IS NULL")))).mappings().all()
    return [_job(row) for row in rows]


async def get_job(connection: AsyncConnection, job_id: str) -> JobRecord:
    """One job, also where its target was removed.

    Raises:
        UnknownEntityError: there is none of this id.

    """
    query = text(_CURRENT.format(where="WHERE r.job_id = :id"))
    row = (await connection.execute(query, {"id": job_id})).mappings().first()
    if row is None:
        raise UnknownEntityError(kind="job", id=job_id)
    return _job(row)


async def list_runs(
    connection: AsyncConnection, job_id: str, *, before: tuple[datetime, str] | None, limit: int
) -> list[RunRecord]:
    """Runs of a job, newest first, those older than ``before`` (start, id)."""
    query = text(
        f"SELECT {_RUN_COLUMNS} FROM runs r WHERE r.job_id = :job"
        f" AND {newest_first({'at': 'r.started_at', 'id': 'r.id'})}"
    )
    at, run_id = before or (None, None)
    rows = await connection.execute(query, {"job": job_id, "at": at, "id": run_id, "limit": limit})
    return [_run(row) for row in rows.mappings()]


async def get_run(connection: AsyncConnection, job_id: str, run_id: str) -> RunRecord:
    """One run of a job.

    Raises:
        UnknownEntityError: the job has no such run.

    """
    query = text(f"SELECT {_RUN_COLUMNS} FROM runs r WHERE r.id = :run AND r.job_id = :job")
    row = (await connection.execute(query, {"run": run_id, "job": job_id})).mappings().first()
    if row is None:
        raise UnknownEntityError(kind="run", id=run_id)
    return _run(row)


@dataclass(frozen=True, slots=True)
class RunBefore:
    """A run before the current one: when it ran, by its engine's clock."""

    started_at: datetime
    ended_at: datetime


async def runs_before(
    connection: AsyncConnection, records: Sequence[JobRecord], since: Mapping[str, datetime]
) -> Mapping[str, tuple[RunBefore, ...]]:
    """Runs of each job that began before its current one and ended after ``since`` (by job), newest first.

    A job that is not in ``since``: all of them, up to a bound.
    """
    query = text(
        "SELECT i.job, r.started_at, r.ended FROM unnest(CAST(:jobs AS text[]), CAST(:runs AS text[]),"
        " CAST(:begins AS timestamptz[]), CAST(:sinces AS timestamptz[])) AS i(job, run, begin, since)"
        " CROSS JOIN LATERAL (SELECT started_at, ended FROM (SELECT id, started_at,"
        # One that vanished from its engine's list ended some time after it was read last.
        " coalesce(ended_at, observed_at + coalesce(clock_offset_ms, 0) * interval '1 ms') AS ended FROM runs"
        " WHERE job_id = i.job AND started_at <= i.begin) past"
        " WHERE id <> i.run AND (i.since IS NULL OR ended > i.since) ORDER BY started_at DESC LIMIT :limit) r"
    )
    values = {
        "jobs": [r.id for r in records],
        "runs": [r.run.id for r in records],
        "begins": [r.run.started_at for r in records],
        "sinces": [since.get(r.id) for r in records],
        "limit": _RUNS_BEFORE_MAX,
    }
    found: dict[str, list[RunBefore]] = {}
    for job, started_at, ended_at in (await connection.execute(query, values)).all():
        found.setdefault(job, []).append(RunBefore(started_at, max(started_at, ended_at)))
    return {job: tuple(rows) for job, rows in found.items()}


async def list_unended(connection: AsyncConnection, target_id: str) -> Mapping[tuple[EngineRunId, datetime], str]:
    """The runs of a target that had not ended when it was read last: (engine's run id, start) -> name of the job."""
    query = text(
        "SELECT r.engine_run_id, r.started_at, j.name FROM runs r JOIN jobs j ON j.id = r.job_id"
        " WHERE r.target_id = :target AND r.state <> 'ended'"
    )
    rows = await connection.execute(query, {"target": target_id})
    return {(EngineRunId(run), started_at): name for run, started_at, name in rows}


async def newest_shapes(connection: AsyncConnection, run_ids: Iterable[str]) -> Mapping[str, RunShape]:
    """The newest graph and settings of each run; an empty graph where none was reported."""
    ids = list(run_ids)
    query = text(
        "SELECT DISTINCT ON (run_id, kind) run_id, kind, document FROM run_versions WHERE run_id = ANY(:ids)"
        " ORDER BY run_id, kind, since DESC"
    )
    rows = (await connection.execute(query, {"ids": ids})).all()
    return _shapes(ids, rows)


async def config_since(connection: AsyncConnection, run_ids: Sequence[str]) -> Mapping[str, datetime]:
    """Since when each run has its newest settings, by our clock; nothing of one whose settings are not known.

    The first ones known were in force before they were read: those count from the start of all times.
    """
    query = text(
        "SELECT run_id, max(since) FROM run_versions WHERE run_id = ANY(:ids) AND kind = 'config'"
        " GROUP BY run_id HAVING count(*) > 1"
    )
    rows = (await connection.execute(query, {"ids": list(run_ids)})).all()
    return {row[0]: row[1] for row in rows}


async def shape_at(connection: AsyncConnection, run_id: str, at: datetime) -> RunShape:
    """Graph and settings in force at ``at``; the first ones known, for a time before these."""
    query = text(
        "SELECT DISTINCT ON (kind) run_id, kind, document FROM run_versions WHERE run_id = :id"
        " ORDER BY kind, since <= :at DESC, CASE WHEN since <= :at THEN since END DESC, since"
    )
    rows = (await connection.execute(query, {"id": run_id, "at": at})).all()
    return _shapes([run_id], rows)[run_id]


async def list_events(
    connection: AsyncConnection, job_id: str, *, before: tuple[datetime, str, str, str] | None, limit: int
) -> list[JobEventRecord]:
    """What happened to a job, newest first, what is older than ``before`` (at, run, kind, key).

    A restart says which exception it followed: the newest since the restart before it, whenever that was learnt of.
    """
    query = text(
        "SELECT e.at, e.kind, e.run_id, e.key, e.text, cause.text FROM job_events e JOIN runs r ON r.id = e.run_id"
        " LEFT JOIN LATERAL (SELECT x.text FROM job_events x WHERE e.kind = 'restarted' AND x.run_id = e.run_id"
        " AND x.kind = 'exception' AND x.at <= e.at AND x.at > COALESCE((SELECT max(p.at) FROM job_events p"
        " WHERE p.run_id = e.run_id AND p.kind = 'restarted' AND p.at < e.at), '-infinity')"
        " ORDER BY x.at DESC, x.key LIMIT 1) cause ON TRUE"
        # What was already so when the run was seen first did not happen then.
        " WHERE e.job_id = :job AND NOT (e.kind = 'restarted' AND e.at <= r.first_observed_at)"
        f" AND {newest_first({'at': 'e.at', 'run': 'e.run_id', 'kind': 'e.kind', 'key': 'e.key'})}"
    )
    at, run, kind, key = before or (None, None, None, None)
    values = {"job": job_id, "at": at, "run": run, "kind": kind, "key": key, "limit": limit}
    rows = (await connection.execute(query, values)).all()
    return [
        JobEventRecord(when, what, RunId(of), name, words if why is None else f"{words}: {_first_line(why)}")
        for when, what, of, name, words, why in rows
    ]


def _first_line(words: str) -> str:
    return words.partition("\n")[0][:_CAUSE_MAX]


async def newest_exceptions(
    connection: AsyncConnection, run_ids: Sequence[str], *, limit: int = 10
) -> Mapping[str, tuple[tuple[datetime, str], ...]]:
    """The newest exceptions of each run, newest first."""
    query = text(
        "SELECT i.run_id, e.at, e.text FROM unnest(CAST(:ids AS text[])) AS i(run_id) CROSS JOIN LATERAL"
        " (SELECT at, text FROM job_events WHERE run_id = i.run_id AND kind = 'exception'"
        " ORDER BY at DESC LIMIT :limit) e ORDER BY e.at DESC"
    )
    found: dict[str, list[tuple[datetime, str]]] = {}
    for run_id, at, words in (await connection.execute(query, {"ids": list(run_ids), "limit": limit})).all():
        found.setdefault(run_id, []).append((at, words))
    return {run_id: tuple(rows) for run_id, rows in found.items()}


def _shapes(run_ids: Sequence[str], rows: Sequence[Any]) -> dict[str, RunShape]:
    documents = {(run_id, kind): document for run_id, kind, document in rows}
    return {
        i: RunShape(topology_from(documents.get((i, "topology"))), config_from(documents.get((i, "config"))))
        for i in run_ids
    }


def _job(row: RowMapping) -> JobRecord:
    return JobRecord(
        id=JobId(row["job_id"]),
        name=row["name"],
        run=_run(row),
        target_name=row["target_name"],
        target_state=_target_state(row),
        clock_offset_ms=row["clock_offset_ms"],
        engine_version=row["engine_version"],
    )


def _target_state(row: RowMapping) -> HealthState:
    if not row["is_enabled"] or row["removed_at"] is not None:
        return "paused"
    return cast("HealthState", row["target_state"] or "pending")


def _run(row: RowMapping) -> RunRecord:
    counts = counts_from(row["counts"])
    listed = row["failed_listed_count"] - row["failed_listed_base"]
    return RunRecord(
        id=RunId(row["run_id"]),
        job_id=JobId(row["job_id"]),
        target_id=TargetId(row["target_id"]),
        engine_run_id=EngineRunId(row["engine_run_id"]),
        engine=Engine(row["engine"]),
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        state=JobState(row["state"]),
        engine_state=row["engine_state"],
        restart_count=row["restart_count"],
        counts=counts,
        failed_unlisted_count=row["failed_unlisted_past"] + max(0, (counts.failed if counts else 0) - listed),
        checkpoint_count=row["checkpoint_count"],
        placements=placements_from(row["placements"]),
        problems=tuple(row["problems"]),
        first_observed_at=row["first_observed_at"],
        observed_at=row["observed_at"],
    )
