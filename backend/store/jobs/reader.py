"""Reads jobs and runs: a job's current run, its graph and settings over time, and its events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    BigInteger,
    Integer,
    RowMapping,
    Select,
    Text,
    and_,
    bindparam,
    case,
    cast,
    func,
    literal_column,
    null,
    or_,
    select,
    text,
    true,
    union_all,
)
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.analysis.assembling import EXCEPTIONS_COUNT, LOSSES_COUNT, POD_ENDS_COUNT
from backend.domain import losses, pod_ends
from backend.domain.checkpoint import CheckpointConfig, CheckpointCounts, CheckpointStatus, ClusterSettings
from backend.domain.engines import EngineCapabilities
from backend.domain.errors import UnknownEntityError
from backend.domain.freshness import Polls
from backend.domain.ids import EngineRunId, JobId, RunId, TargetId
from backend.domain.losses import Loss
from backend.domain.observation import JobEventKind, JobState, KnownRun
from backend.domain.pod_ends import PodEnd
from backend.domain.stored_form import (
    cluster_from,
    config_from,
    counts_from,
    engine_from,
    placements_from,
    topology_from,
)
from backend.domain.target import TargetState
from backend.domain.topology import Placement, Topology
from backend.store.postgres.keyset import newest_first
from backend.store.postgres.statements import duration_after, each, one_of
from backend.store.schema import tables
from backend.store.schema.documents import DocumentKind
from backend.store.schema.rows import value_of
from backend.store.schema.watch_tables import run_channels


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run of a job.

    ``failed_unlisted_count`` is the number of failed checkpoints that the coordinator counted but never listed.
    """

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
    """A job with its current run: the newest run that has not ended, or else the newest run."""

    id: JobId
    name: str
    run: RunRecord
    target_name: str
    target_state: TargetState
    clock_offset_ms: int | None
    """The engine's clock minus ours at the last reading, or None if unknown."""
    engine_version: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)  # Of the target.
    polls: Polls = field(default_factory=Polls)

    def engine_now(self, now: datetime) -> datetime:
        """Return the time on the engine's clock when our clock shows ``now``."""
        return now + timedelta(milliseconds=self.clock_offset_ms or 0)

    @property
    def read_at_engine(self) -> datetime:
        """The time on the engine's clock at which the run was last read."""
        return self.run.observed_at + self.reading_offset

    @property
    def reading_offset(self) -> timedelta:
        """The engine's clock minus the clock that stamps the readings of the run.

        If the job pushes, its own clock stamps them, otherwise our clock.
        """
        is_own = self.run.engine.is_pushed
        return timedelta() if is_own else timedelta(milliseconds=self.clock_offset_ms or 0)


@dataclass(frozen=True, slots=True)
class JobMark:
    """Shows whether a job changed since it was last read, and holds the values that every observation changes.

    If ``run_id`` and ``revision`` are as before, only the other fields can differ from the ``JobRecord``.
    """

    job_id: JobId
    run_id: RunId
    revision: int
    observed_at: datetime
    target_name: str
    target_state: TargetState
    clock_offset_ms: int | None
    engine_version: str | None
    polls: Polls

    def applied_to(self, record: JobRecord) -> JobRecord:
        """Return the record with the values of this mark."""
        return replace(
            record,
            run=replace(record.run, observed_at=self.observed_at),
            target_name=self.target_name,
            target_state=self.target_state,
            clock_offset_ms=self.clock_offset_ms,
            engine_version=self.engine_version,
            polls=self.polls,
        )


@dataclass(frozen=True, slots=True)
class RunShape:
    """The graph and the settings of a run, and the settings of its cluster, at one point in time."""

    topology: Topology
    config: CheckpointConfig | None
    cluster_settings: ClusterSettings | None = None


@dataclass(frozen=True, slots=True)
class JobEventRecord:
    """An event of a job. ``key`` orders the events that have the same time."""

    at: datetime
    kind: JobEventKind
    run_id: RunId
    key: str
    text: str


_CAUSE_MAX = 200
_RUNS_BEFORE_MAX = 1000
_RUN = tables.runs.c
_JOB = tables.jobs.c
_CHECKPOINT = tables.checkpoints.c
_TARGET = tables.targets.c
_HEALTH = tables.target_health.c
_VERSION = tables.run_versions.c
_EVENT = tables.job_events.c
_CHANNEL = run_channels.c
_OF_TARGET = (
    _TARGET.name.label("target_name"),
    _TARGET.is_enabled,
    _TARGET.removed_at,
    _HEALTH.state.label("target_state"),
    _HEALTH.reason.is_not(None).label("is_partial"),
    func.coalesce(_RUN.clock_offset_ms, _HEALTH.clock_offset_ms).label("engine_clock_offset_ms"),
    _HEALTH.engine_version,
    *(_HEALTH.poll_interval_s, _HEALTH.set_interval_s, _HEALTH.poll_duration_ms),
    _HEALTH.reason.label("poll_reason"),
)


def _current(*columns: Any) -> Select[Any]:
    """Return the query for these columns of each job's current run."""
    return (
        select(*columns)
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


_CURRENT = _current(tables.runs, _JOB.name, _TARGET.labels, *_OF_TARGET)
_WATCHED = _CURRENT.where(_TARGET.removed_at.is_(None))
_WATCHED_OF = _WATCHED.where(one_of(_RUN.job_id, "jobs"))
_THESE = _CURRENT.where(one_of(_RUN.job_id, "jobs"))
_MARKS = _current(_RUN.job_id, _RUN.id, _RUN.revision, _RUN.observed_at, _RUN.state, *_OF_TARGET).where(
    _TARGET.removed_at.is_(None)
)
_OF_JOB = _CURRENT.where(_RUN.job_id == bindparam("job"))
_RUNS = select(tables.runs).where(_RUN.job_id == bindparam("job"))
_ONE_RUN = _RUNS.where(_RUN.id == bindparam("run"))
_NEWEST_TERMINAL_ID = (
    select(_CHECKPOINT.checkpoint_id)
    .where(_CHECKPOINT.run_id == _RUN.id, _CHECKPOINT.status != CheckpointStatus.IN_PROGRESS.value)
    .order_by(_CHECKPOINT.triggered_on.desc(), _CHECKPOINT.triggered_at.desc(), _CHECKPOINT.checkpoint_id.desc())
    .limit(1)
    .scalar_subquery()
)
_HAS_CHANNELS = select(_CHANNEL.run_id).where(_CHANNEL.run_id == _RUN.id).exists()
# Of a run that others report too, the newest batch may be theirs. So the target reads all batches again.
_UNENDED = union_all(
    select(_RUN.engine_run_id, _RUN.started_at, _JOB.name, _NEWEST_TERMINAL_ID)
    .join_from(tables.runs, tables.jobs, _JOB.id == _RUN.job_id)
    .where(_RUN.target_id == bindparam("target"), _RUN.state != JobState.ENDED.value, ~_HAS_CHANNELS),
    select(_RUN.engine_run_id, _RUN.started_at, _CHANNEL.name, cast(null(), BigInteger))
    .join_from(run_channels, tables.runs, _RUN.id == _CHANNEL.run_id)
    .where(_CHANNEL.target_id == bindparam("target"), _CHANNEL.state != JobState.ENDED.value),
)


async def list_current(connection: AsyncConnection) -> list[JobRecord]:
    """Return every job of every watched target, with its current run."""
    return [_job(row) for row in (await connection.execute(_WATCHED)).mappings()]


async def list_current_of(connection: AsyncConnection, job_ids: Sequence[str]) -> list[JobRecord]:
    """Return those of the given jobs that belong to a watched target, each with its current run."""
    return [_job(row) for row in (await connection.execute(_WATCHED_OF, {"jobs": list(job_ids)})).mappings()]


async def list_these(connection: AsyncConnection, job_ids: Iterable[str]) -> list[JobRecord]:
    """Return those of the given jobs that exist, each with its current run, even if their targets were removed."""
    ids = list(job_ids)
    if not ids:
        return []
    return [_job(row) for row in (await connection.execute(_THESE, {"jobs": ids})).mappings()]


async def list_marks(connection: AsyncConnection) -> list[JobMark]:
    """Return the mark of every job of every watched target."""
    return [
        JobMark(
            row.job_id,
            row.id,
            row.revision,
            row.observed_at,
            row.target_name,
            _state_of(row._mapping),
            row.engine_clock_offset_ms,
            row.engine_version,
            _polls(row._mapping),
        )
        for row in (await connection.execute(_MARKS)).all()
    ]


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
    """Return up to ``limit`` of the job's runs that are older than ``before`` (start, id), newest first."""
    query, page = newest_first(_RUNS, _RUN.started_at, _RUN.id, before=before, limit=limit)
    return [_run(row) for row in (await connection.execute(query, {"job": job_id} | page)).mappings()]


_RUNS_BETWEEN = (
    _RUNS.where(
        _RUN.first_observed_at <= bindparam("until"),
        _RUN.observed_at >= bindparam("since"),
    )
    .order_by(_RUN.started_at.desc(), _RUN.id.desc())
    .limit(bindparam("limit"))
)


async def runs_between(
    connection: AsyncConnection, job_id: str, since: datetime, until: datetime, *, limit: int
) -> list[RunRecord]:
    """Return up to ``limit`` of the job's runs that were observed in a range (both ends included), newest first."""
    values = {"job": job_id, "since": since, "until": until, "limit": limit}
    return [_run(row) for row in (await connection.execute(_RUNS_BETWEEN, values)).mappings()]


async def get_run(connection: AsyncConnection, job_id: str, run_id: str) -> RunRecord:
    """Return one run of a job.

    Raises:
        UnknownEntityError: the job has no such run.
    """
    row = (await connection.execute(_ONE_RUN, {"job": job_id, "run": run_id})).mappings().first()
    if row is None:
        raise UnknownEntityError(kind="run", id=run_id)
    return _run(row)


@dataclass(frozen=True, slots=True)
class RunBefore:
    """The start and the end of a run before the current one, on the engine's clock."""

    started_at: datetime
    ended_at: datetime


# This is SQL text because SQLAlchemy Core would need twice as many lines. The jobs, their current runs and their
# times are passed as parallel arrays.
_RUNS_BEFORE = text(
    "SELECT i.job, r.started_at, r.ended FROM unnest(CAST(:jobs AS text[]), CAST(:runs AS text[]),"
    " CAST(:begins AS timestamptz[]), CAST(:sinces AS timestamptz[])) AS i(job, run, begin, since)"
    " CROSS JOIN LATERAL (SELECT started_at, ended FROM (SELECT id, started_at,"
    # If the engine no longer lists a run, its end is unknown. The time of its last reading counts as its end.
    " coalesce(ended_at, observed_at + coalesce(clock_offset_ms, 0) * interval '1 ms') AS ended FROM runs"
    " WHERE job_id = i.job AND started_at <= i.begin) past"
    " WHERE id <> i.run AND (i.since IS NULL OR ended > i.since) ORDER BY started_at DESC LIMIT :limit) r"
)


async def runs_before(
    connection: AsyncConnection, records: Sequence[JobRecord], since: Mapping[str, datetime]
) -> Mapping[str, tuple[RunBefore, ...]]:
    """Return each job's runs that began before its current run, newest first.

    If ``since`` contains the job, only runs that ended after that time are returned. At most ``_RUNS_BEFORE_MAX`` runs
    are returned for each job.
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


async def list_unended(connection: AsyncConnection, target_id: str) -> dict[tuple[EngineRunId, datetime], KnownRun]:
    """Return the runs of a target that had not ended when they were last read.

    The keys are pairs of the engine's run id and the start of the run.
    """
    rows = await connection.execute(_UNENDED, {"target": target_id})
    return {(EngineRunId(run), started_at): KnownRun(name, newest_id) for run, started_at, name, newest_id in rows}


_NEWEST_VERSIONS = (
    select(_VERSION.run_id, _VERSION.kind, _VERSION.document)
    .ext(distinct_on(_VERSION.run_id, _VERSION.kind))
    .where(one_of(_VERSION.run_id, "runs"))
    .order_by(_VERSION.run_id, _VERSION.kind, _VERSION.since.desc())
)


_NEWEST_CONFIGS = _NEWEST_VERSIONS.where(_VERSION.kind == DocumentKind.CONFIG.value)


async def newest_shapes(connection: AsyncConnection, run_ids: Iterable[str]) -> Mapping[str, RunShape]:
    """Return the newest graph and settings of each run. The graph is empty if the engine reported none."""
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
    """Return when each run's newest settings were first read, by our clock.

    A run whose settings never changed is absent, because its only settings were in force before they were first read.
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


async def newest_configs(connection: AsyncConnection, run_ids: Iterable[str]) -> Mapping[str, CheckpointConfig | None]:
    """Return the newest settings of each run, or None if the engine reported none."""
    ids = list(run_ids)
    rows = (await connection.execute(_NEWEST_CONFIGS, {"runs": ids})).all() if ids else []
    return {run_id: shape.config for run_id, shape in _shapes(ids, rows).items()}


async def shape_at(connection: AsyncConnection, run_id: str, at: datetime) -> RunShape:
    """Return the graph and the settings that a run had at ``at``.

    If none are known for that time, return the first known ones.
    """
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
    # Events are on the engine's clock, the time of the first reading is on ours. Their difference is known to about a
    # second.
    offset_ms = func.coalesce(_RUN.clock_offset_ms, _HEALTH.clock_offset_ms, literal_column("0"))
    first_at = duration_after(_RUN.first_observed_at, offset_ms + literal_column("1000"))
    return (
        select(tables.job_events, exception.label("cause"))
        .select_from(
            tables.job_events.join(tables.runs, _RUN.id == _EVENT.run_id).outerjoin(
                tables.target_health, _HEALTH.target_id == _RUN.target_id
            )
        )
        # A restart that the first reading already counted happened earlier, at an unknown time, so it is not listed.
        .where(
            _EVENT.job_id == bindparam("job"),
            ~and_(_EVENT.kind == JobEventKind.RESTARTED.value, _EVENT.at <= first_at),
        )
    )


_EVENTS = _events()


async def list_events(
    connection: AsyncConnection, job_id: str, *, before: tuple[datetime, str, str, str] | None, limit: int
) -> list[JobEventRecord]:
    """Return up to ``limit`` of the job's events that are older than ``before`` (time, run, kind, key), newest first.

    The text of a restart contains the exception that caused it: the newest one since the previous restart.
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
_NEWEST_OF_RUN = (
    select(_EVENT.run_id, _EVENT.at, _EVENT.text)
    .where(_EVENT.run_id == _RUN_IDS.c.run_id, _EVENT.kind == bindparam("kind", type_=Text))
    .order_by(_EVENT.at.desc())
    .limit(bindparam("limit", type_=Integer))
    .lateral("event")
)
_NEWEST_EVENTS = (
    select(_NEWEST_OF_RUN).select_from(_RUN_IDS.join(_NEWEST_OF_RUN, true())).order_by(_NEWEST_OF_RUN.c.at.desc())
)


async def newest_exceptions(
    connection: AsyncConnection, run_ids: Sequence[str], *, limit: int = EXCEPTIONS_COUNT
) -> Mapping[str, tuple[tuple[datetime, str], ...]]:
    """Return the newest ``limit`` exceptions of each run, newest first."""
    newest = await _newest(connection, run_ids, JobEventKind.EXCEPTION, limit)
    return {run_id: tuple(rows) for run_id, rows in newest.items()}


async def newest_losses(connection: AsyncConnection, run_ids: Sequence[str]) -> Mapping[str, tuple[Loss, ...]]:
    """Return the newest losses of output of each run, newest first."""
    newest = await _newest(connection, run_ids, JobEventKind.ROWS_LOST, LOSSES_COUNT)
    read = {run_id: tuple(x for row in rows if (x := losses.read(*row)) is not None) for run_id, rows in newest.items()}
    return {run_id: rows for run_id, rows in read.items() if rows}


async def newest_pod_ends(connection: AsyncConnection, run_ids: Sequence[str]) -> Mapping[str, tuple[PodEnd, ...]]:
    """Return the newest ends of pods of each run, newest first."""
    newest = await _newest(connection, run_ids, JobEventKind.POD_ENDED, POD_ENDS_COUNT)
    read = {i: tuple(x for row in rows if (x := pod_ends.read(*row)) is not None) for i, rows in newest.items()}
    return {run_id: rows for run_id, rows in read.items() if rows}


async def _newest(
    connection: AsyncConnection, run_ids: Sequence[str], kind: JobEventKind, limit: int
) -> dict[str, list[tuple[datetime, str]]]:
    values = {"runs": list(run_ids), "kind": kind.value, "limit": limit}
    newest: dict[str, list[tuple[datetime, str]]] = {}
    for run_id, at, words in await connection.execute(_NEWEST_EVENTS, values):
        newest.setdefault(run_id, []).append((at, words))
    return newest


def _shapes(run_ids: Sequence[str], rows: Sequence[Any]) -> dict[str, RunShape]:
    documents = {(run_id, kind): document for run_id, kind, document in rows}
    return {
        i: RunShape(
            topology_from(documents.get((i, DocumentKind.TOPOLOGY))),
            config_from(documents.get((i, DocumentKind.CONFIG))),
            cluster_from(documents.get((i, DocumentKind.CLUSTER))),
        )
        for i in run_ids
    }


def _job(row: RowMapping) -> JobRecord:
    return value_of(
        JobRecord,
        row,
        id=JobId(row["job_id"]),
        run=_run(row),
        target_state=_state_of(row),
        clock_offset_ms=row["engine_clock_offset_ms"],
        polls=_polls(row),
    )


def _polls(row: RowMapping) -> Polls:
    return Polls(row["poll_interval_s"], row["poll_duration_ms"], row["poll_reason"], row["set_interval_s"])


def _state_of(row: RowMapping) -> TargetState:
    """Return the state of the target as far as it concerns the job."""
    if not row["is_enabled"] or row["removed_at"] is not None:
        return TargetState.PAUSED
    state = TargetState(row["target_state"] or TargetState.PENDING)
    # The other jobs of a target that is read in part are current.
    is_unread = state is TargetState.OK and row["is_partial"] and row["state"] == JobState.UNREADABLE
    return TargetState.PARTIAL if is_unread else state


def _run(row: RowMapping) -> RunRecord:
    counts = counts_from(row["counts"])
    unlisted = (counts.failed if counts else 0) - row["failed_listed_count"] + row["failed_listed_base"]
    return value_of(
        RunRecord,
        row,
        engine=engine_from(row["capabilities"], row["engine"], row.get("engine_version")),
        counts=counts,
        failed_unlisted_count=row["failed_unlisted_past"] + max(0, unlisted),
        placements=placements_from(row["placements"]),
        problems=tuple(row["problems"]),
    )
