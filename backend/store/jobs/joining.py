"""Joins the reports of several targets on one run of a query: one run, one job, and one row for each batch.

The query's id and the run's id identify a run in every channel (``domain.channel``). The first target that reports a
run stores it, under the job of that target. What other targets report of it is joined to it. A target that reported a
job's run before gives the next run to the same job, so the job is the same whichever channel is first.

Each channel's newest state is kept in ``run_channels``. The state of the run is that of one of them
(``analysis.queries.speaking``). What each channel reported of a batch is kept with the batch, whose row has the joined
values (``analysis.queries.joining``). A run with one channel costs one index scan more when it is looked up.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from pydantic import TypeAdapter
from sqlalchemy import Integer, Text, and_, bindparam, delete, func, literal_column, select, true
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.dialects.postgresql import insert as pg_insert

from backend.analysis.queries.joining import joined
from backend.analysis.queries.speaking import speaker
from backend.domain.channel import BatchReport, Channel, RunChannel
from backend.domain.checkpoint import Checkpoint, CheckpointHeader, CheckpointStatus
from backend.domain.failure import FailureReason
from backend.domain.ids import EngineRunId, TargetId, job_id
from backend.domain.micro_batch import MicroBatch
from backend.domain.observation import NOT_LISTED, JobEventKind, JobState, Observation
from backend.domain.stored_form import batch_from, engine_from
from backend.store.checkpoints.writer import HeaderKey, StoredHeader, StoredRun
from backend.store.jobs.writer import Place, RunToWrite, capabilities_text, stored_run_id
from backend.store.postgres.copying import Cursor
from backend.store.postgres.encoding import clean, dump
from backend.store.postgres.statements import beside_key, bound, each, one_of, replaced, sql_of
from backend.store.schema import tables
from backend.store.schema.partitions import day_of
from backend.store.schema.rows import value_of
from backend.store.schema.watch_tables import run_channels

Places = Mapping[tuple[TargetId, EngineRunId], Place]
"""Where the runs of observations are stored, if other targets may report them too."""

_RUN, _CHANNEL, _TARGET = tables.runs.c, run_channels.c, tables.targets.c
_HEADER, _BATCH, _HEALTH = tables.checkpoints.c, tables.micro_batches.c, tables.target_health.c
_CHECKPOINT: Final[TypeAdapter[Checkpoint]] = TypeAdapter(Checkpoint)

# Two targets that report a new run at once wait for each other, so that one of them finds the run of the other. Several
# runs share a key, because the number of locks that a transaction can hold is limited.
_LOCK_KEYS = 256
_LOCK_SPACE = 35
_LOCK_NEW = sql_of(
    select(
        func.pg_advisory_xact_lock(
            literal_column(str(_LOCK_SPACE)), func.unnest(bindparam("keys", type_=ARRAY(Integer)))
        )
    )
)
_STORED = sql_of(
    select(
        *(_RUN.engine_run_id, _RUN.id, _RUN.job_id),
        select(_CHANNEL.run_id).where(_CHANNEL.run_id == _RUN.id).exists().label("is_shared"),
    )
    .where(one_of(_RUN.engine_run_id, "runs"))
    .order_by(_RUN.first_observed_at, _RUN.id)
)
_DEPLOYMENTS = sql_of(select(_TARGET.id, _TARGET.url, _TARGET.labels).where(one_of(_TARGET.id, "targets")))
_QUERY = func.split_part(_RUN.engine_run_id, literal_column("'/'"), literal_column("1"))
# A query that Spark starts every minute has some ten thousand runs in a month, of which only the newest are read.
_BEFORE_MAX = 100
_OWN = each(_CHANNEL.own_job_id, "jobs")
_NEWEST = (
    select(_CHANNEL.own_job_id, _QUERY.label("query"), _RUN.job_id, _RUN.started_at)
    .join_from(run_channels, tables.runs, _RUN.id == _CHANNEL.run_id)
    .where(_CHANNEL.own_job_id == _OWN.c.own_job_id)
    .order_by(_CHANNEL.observed_at.desc())
    .limit(literal_column(str(_BEFORE_MAX)))
    .lateral("newest")
)
_JOBS_BEFORE = sql_of(
    select(_NEWEST.c.own_job_id, _NEWEST.c.query, _NEWEST.c.job_id)
    .select_from(_OWN.join(_NEWEST, true()))
    .order_by(_NEWEST.c.started_at)
)
_JOBS_WITH_RUNS = sql_of(
    select(_RUN.job_id, func.bool_or(_RUN.state != bindparam("ended", type_=Text)))
    .where(one_of(_RUN.job_id, "jobs"))
    .group_by(_RUN.job_id)
)
_IS_WATCHED = and_(_TARGET.removed_at.is_(None), _TARGET.is_enabled).label("is_watched")
_CHANNELS = sql_of(
    select(run_channels, _IS_WATCHED)
    .join_from(run_channels, tables.targets, _TARGET.id == _CHANNEL.target_id)
    .where(one_of(_CHANNEL.run_id, "runs"))
)
_FIRST_CHANNELS = sql_of(
    select(
        *(_RUN.id, _RUN.target_id, _RUN.job_id, _RUN.engine, _RUN.capabilities, _RUN.state, _RUN.engine_state),
        *(_RUN.ended_at, _RUN.problems, _RUN.observed_at, tables.jobs.c.name, _HEALTH.clock_offset_ms, _IS_WATCHED),
    )
    .select_from(
        tables.runs.join(tables.jobs, tables.jobs.c.id == _RUN.job_id)
        .join(tables.targets, _TARGET.id == _RUN.target_id)
        .outerjoin(tables.target_health, _HEALTH.target_id == _RUN.target_id)
    )
    .where(one_of(_RUN.id, "runs"))
)
_NEW_CHANNEL = pg_insert(run_channels).values(bound(_CHANNEL))
_WRITE_CHANNEL = sql_of(
    _NEW_CHANNEL.on_conflict_do_update(
        index_elements=run_channels.primary_key, set_=replaced(_NEW_CHANNEL, beside_key(run_channels))
    )
)
_WITH_EXCEPTIONS = sql_of(
    select(tables.job_events.c.run_id)
    .where(one_of(tables.job_events.c.run_id, "runs"), tables.job_events.c.kind == bindparam("kind"))
    .distinct()
)
_KEYS = (
    func.unnest(bindparam("runs", type_=ARRAY(Text)), bindparam("ids", type_=ARRAY(_HEADER.checkpoint_id.type)))
    .table_valued("run_id", "checkpoint_id")
    .render_derived("k")
)
_FOUND = (
    select(
        *(c for c in _HEADER if c.name not in ("job_id", "changed_xid")),
        *(c for c in _BATCH if not c.primary_key),
    )
    .join_from(
        tables.checkpoints,
        tables.micro_batches,
        and_(*(_HEADER[c.name] == c for c in tables.micro_batches.primary_key)),
        isouter=True,
    )
    .where(
        *(_HEADER[c.name] == c for c in _KEYS.c),
        _HEADER.triggered_on.between(
            bindparam("first", type_=_HEADER.triggered_on.type), bindparam("last", type_=_HEADER.triggered_on.type)
        ),
    )
    .lateral("found")
)
_BATCHES = sql_of(select(_FOUND).select_from(_KEYS.join(_FOUND, true())))
# The status is written out, and the job is named, so that the index of the open checkpoints is used.
_OPEN_BATCHES = sql_of(
    select(*(c for c in _HEADER if c.name not in ("job_id", "changed_xid"))).where(
        one_of(_HEADER.job_id, "jobs"),
        one_of(_HEADER.run_id, "runs"),
        _HEADER.status == literal_column(f"'{CheckpointStatus.IN_PROGRESS.value}'"),
    )
)
_STOPPED = "the query stopped while this batch ran"
_VERDICT = tables.verdicts.c
_FORGET_VERDICT = sql_of(
    delete(tables.verdicts).where(*(c == bindparam(c.name, type_=c.type) for c in tables.verdicts.primary_key))
)


@dataclass(slots=True)
class Joined:
    """Runs as they are written. ``reports`` has what the channels reported of each of their batches, as JSON.

    ``renewed`` has the batches that are stored already and get other values, by run.
    """

    runs: Sequence[RunToWrite]
    reports: dict[HeaderKey, str] = field(default_factory=dict)
    renewed: dict[str, list[Checkpoint]] = field(default_factory=dict)
    headers: dict[HeaderKey, StoredHeader] = field(default_factory=dict)
    """The stored headers of the batches, also those that another channel dates on another day."""


def _is_joinable(observation: Observation) -> bool:
    return observation.engine.channel is not None and observation.engine.has_unique_run_ids


async def places_of(cursor: Cursor, observations: Iterable[Observation]) -> Places:
    """Return where the runs of the observations are stored, and lock them until the commit if they are new."""
    wanted = [(o, job) for o in observations if _is_joinable(o) for job in o.jobs]
    if not wanted:
        return {}
    run_ids = sorted({job.engine_run_id for _, job in wanted})
    stored = await _stored(cursor, run_ids)
    unknown = [run_id for run_id in run_ids if run_id not in stored]
    if unknown:
        keys = {zlib.crc32(run_id.encode(errors="replace")) % _LOCK_KEYS for run_id in unknown}
        # All writers lock in the same order, so that they cannot deadlock.
        await cursor.execute(_LOCK_NEW, {"keys": sorted(keys)})
        stored |= await _stored(cursor, unknown)
    places: dict[tuple[TargetId, EngineRunId], Place] = {}
    new: list[tuple[TargetId, EngineRunId, str, str]] = []
    for observation, job in wanted:
        own_id = stored_run_id(observation.target_id, observation.engine, job)
        known = stored.get(job.engine_run_id, [])
        own = next((Place(run, is_shared) for run, is_shared in known if run.run_id == own_id), None)
        if own is None and known:
            own = Place(known[0][0], True)
        if own is None:
            new.append((observation.target_id, job.engine_run_id, own_id, job.name))
        else:
            places[observation.target_id, job.engine_run_id] = own
    if new:
        places |= await _places_of_new(cursor, new)
    return places


async def _stored(cursor: Cursor, run_ids: Sequence[str]) -> dict[str, list[tuple[StoredRun, bool]]]:
    """Return the stored runs with these ids of the engine, and whether each has several channels."""
    await cursor.execute(_STORED, {"runs": run_ids})
    stored: dict[str, list[tuple[StoredRun, bool]]] = defaultdict(list)
    for engine_run_id, run, job, is_shared in await cursor.fetchall():
        stored[engine_run_id].append((StoredRun(run_id=run, job_id=job), is_shared))
    return dict(stored)


async def _places_of_new(cursor: Cursor, new: Sequence[tuple[TargetId, EngineRunId, str, str]]) -> Places:
    """Return the places of runs that no target has reported. The first report of this transaction stores a run."""
    await cursor.execute(_DEPLOYMENTS, {"targets": sorted({target for target, *_ in new})})
    deployments = {TargetId(i): labels.get("deployment") or url for i, url, labels in await cursor.fetchall()}
    own_jobs = {
        (target, name): job_id(deployment=deployments[target], name=name)
        for target, _, _, name in new
        if target in deployments
    }
    await cursor.execute(_JOBS_BEFORE, {"jobs": sorted(set(own_jobs.values()))})
    before: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for own_job, query, job in await cursor.fetchall():
        before[own_job].append((query, job))
    jobs = set(before) | {job for known in before.values() for _, job in known}
    is_open: dict[str, bool] = {}
    if jobs:
        await cursor.execute(_JOBS_WITH_RUNS, {"jobs": sorted(jobs), "ended": JobState.ENDED.value})
        is_open = dict(await cursor.fetchall())
    places: dict[tuple[TargetId, EngineRunId], Place] = {}
    first: dict[EngineRunId, StoredRun] = {}
    for target, engine_run_id, own_id, name in sorted(new, key=lambda n: (n[1], n[3])):
        own_job = own_jobs.get((target, name))
        if own_job is None:
            continue
        if engine_run_id in first:
            places[target, engine_run_id] = Place(first[engine_run_id], True)
            continue
        job = _job_before(own_job, before[own_job], engine_run_id, is_open)
        first[engine_run_id] = StoredRun(run_id=own_id, job_id=job)
        places[target, engine_run_id] = Place(first[engine_run_id], job != own_job)
    return places


def _job_before(
    own_job: str, before: Sequence[tuple[str, str]], engine_run_id: EngineRunId, is_open: Mapping[str, bool]
) -> str:
    """Return the job to which the channel's earlier runs belong: of this query, or else if they all belong to one.

    A query with another id is another query if a run of that job is open, or if the channel has a job of its own with
    this name. ``is_open`` has the jobs that have runs.
    """
    query = engine_run_id.partition("/")[0]
    of_query = [job for known, job in before if known == query]
    jobs = {job for _, job in before}
    if of_query:
        return of_query[-1]
    if len(jobs) != 1 or own_job in is_open:
        return own_job
    (job,) = jobs
    return own_job if is_open.get(job, False) else job


async def join_runs(cursor: Cursor, runs: Sequence[RunToWrite], now: datetime) -> Joined:
    """Join the reports on runs that have several channels to what is stored. The runs are locked."""
    shared = [run for run in runs if run.report.place is not None and run.report.place.is_shared]
    if not shared:
        return Joined(runs)
    ids = [run.key.run_id for run in shared]
    channels: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for row in await _rows(cursor, _CHANNELS, {"runs": ids}):
        channels[row["run_id"]][row["target_id"]] = row
    current = {row["id"]: row for row in await _rows(cursor, _FIRST_CHANNELS, {"runs": ids})}
    with_exceptions = {
        row["run_id"]
        for row in await _rows(cursor, _WITH_EXCEPTIONS, {"runs": ids, "kind": JobEventKind.EXCEPTION.value})
    }
    stored = await _stored_batches(cursor, shared)
    joined_runs = Joined([])
    for row in stored.values():
        key = (row["run_id"], row["checkpoint_id"], row["triggered_on"])
        joined_runs.headers[key] = (row["status"], row["observed_at"], row["is_discarded"])
    written: list[dict[str, Any]] = []
    speaking: dict[str, str] = {}
    fresh: set[str] = set()
    for run in shared:
        run_id = run.key.run_id
        known = channels[run_id]
        # The row of a run that this write has made has no channel before this one.
        is_first = not known and current[run_id]["target_id"] == run.report.target.id
        if not known and not is_first:
            first = _first_channel(run_id, current[run_id])
            known[first["target_id"]] = first
            written.append(first)
        own, is_fresh = _own_channel(run, known)
        if is_fresh:
            known[own["target_id"]] = own
            written.append(own)
            fresh.add(run_id)
        speaking[run_id] = speaker([_channel(row) for row in known.values()], current[run_id]["target_id"], now)
    ends = {
        run_id: said["ended_at"] or said["observed_at"]
        for run_id, target in speaking.items()
        if (said := channels[run_id].get(target)) is not None and said["state"] == JobState.ENDED.value
    }
    left_open = await _open_batches(cursor, [r for r in shared if r.key.run_id in ends], current, joined_runs)
    changed: dict[str, RunToWrite] = {}
    for run in shared:
        run_id = run.key.run_id
        batches = _join_batches(run, stored, _lead(channels[run_id].values(), run.key.job_id), joined_runs)
        if run_id in ends:
            batches = _ended_batches(batches, left_open.get(run_id, ()), ends[run_id])
        changed[run_id] = _as_written(
            run,
            batches,
            speaks=run_id in fresh and speaking[run_id] == run.report.target.id,
            has_exception=run_id in with_exceptions,
        )
    await cursor.executemany(_WRITE_CHANNEL, [_channel_values(row) for row in written])
    joined_runs.runs = [changed.get(run.key.run_id, run) for run in runs]
    return joined_runs


async def _rows(cursor: Cursor, statement: bytes, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    await cursor.execute(statement, values)
    names = [c.name for c in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in await cursor.fetchall()]


def _as_written(run: RunToWrite, batches: Sequence[Checkpoint], *, speaks: bool, has_exception: bool) -> RunToWrite:
    job = replace(run.report.job, checkpoints=tuple(batches))
    if has_exception:
        # A run ends with one error at most, of which each channel has other words.
        job = replace(job, exceptions=())
    if not speaks and job.state is JobState.ENDED:
        job = replace(job, state=JobState.UNKNOWN, ended_at=None)
    return replace(run, report=replace(run.report, job=job), is_newest=speaks)


def _first_channel(run_id: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the channel that has reported the run alone until now, from the row of the run."""
    engine = engine_from(row["capabilities"], row["engine"], None)
    ahead = timedelta(milliseconds=(row["clock_offset_ms"] or 0) if engine.is_pushed else 0)
    shared = ("target_id", "capabilities", "state", "engine_state", "ended_at", "problems", "observed_at", "name")
    return {
        **{name: row[name] for name in (*shared, "is_watched")},
        "run_id": run_id,
        "own_job_id": row["job_id"],
        "heard_at": row["observed_at"] - ahead,
        "news_at": row["observed_at"],
    }


def _own_channel(run: RunToWrite, known: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Any], bool]:
    """Return the channel that reports now, and whether this is its newest report."""
    report, job = run.report, run.report.job
    before = known.get(report.target.id)
    is_fresh = before is None or report.observed_at > before["observed_at"]
    news_at = max(job.started_at, *(_end_of(c, report.at_engine) for c in job.checkpoints), job.started_at)
    if report.target.engine.is_pushed:
        news_at = max(news_at, report.observed_at)
    own = {
        "run_id": run.key.run_id,
        "target_id": report.target.id,
        "own_job_id": job_id(deployment=report.target.deployment, name=job.name),
        "name": clean(job.name),
        "capabilities": capabilities_text(report.target.engine),
        "state": job.state.value,
        "engine_state": clean(job.engine_state),
        "ended_at": job.ended_at,
        "problems": dump([clean(p) for p in job.problems]),
        "observed_at": report.observed_at,
        "heard_at": report.received_at or report.observed_at,
        "news_at": news_at if before is None else max(news_at, before["news_at"]),
        "is_watched": True,
        "channel": report.target.engine.channel,
    }
    return own, is_fresh


def _end_of(checkpoint: Checkpoint, now: datetime) -> datetime:
    header = checkpoint.header
    if not header.status.is_terminal:
        return max(header.triggered_at, now)
    return header.triggered_at + timedelta(milliseconds=header.end_to_end_duration_ms or 0)


def _channel_of(row: Mapping[str, Any]) -> Channel:
    if "channel" in row:
        return row["channel"] or Channel.OTHER
    engine = engine_from(row["capabilities"], "", None)
    # An older version stored no channel. Its listener is the only one that pushes.
    return engine.channel or (Channel.LISTENER if engine.is_pushed else Channel.OTHER)


def _channel(row: Mapping[str, Any]) -> RunChannel:
    channel = _channel_of(row)
    return RunChannel(
        target=row["target_id"],
        channel=channel,
        is_pushed=channel is Channel.LISTENER,
        is_watched=row["is_watched"],
        has_ended=row["state"] == JobState.ENDED.value,
        is_listed=row["engine_state"] != NOT_LISTED,
        is_running=row["state"] == JobState.RUNNING.value,
        news_at=row["news_at"],
        heard_at=row["heard_at"],
    )


def _channel_values(row: Mapping[str, Any]) -> dict[str, Any]:
    values = {c.name: row[c.name] for c in run_channels.c}
    return values | {n: v if isinstance(v := values[n], str | None) else dump(v) for n in ("capabilities", "problems")}


def _lead(channels: Iterable[Mapping[str, Any]], job: str) -> Mapping[str, Any]:
    """Return the channel that stored the batches of which no reports are kept."""
    return min(channels, key=lambda row: (row["own_job_id"] != job, _channel_of(row).rank, row["target_id"]))


_Stored = Mapping[tuple[str, int], dict[str, Any]]


async def _stored_batches(cursor: Cursor, runs: Sequence[RunToWrite]) -> _Stored:
    """Return the stored rows of the batches in the reports. A channel may date a batch on the next day."""
    found = [(run.key.run_id, c.header) for run in runs for c in run.report.job.checkpoints]
    if not found:
        return {}
    days = [day_of(header.triggered_at) for _, header in found]
    values = {
        "runs": [run_id for run_id, _ in found],
        "ids": [header.checkpoint_id for _, header in found],
        "first": min(days) - timedelta(days=1),
        "last": max(days) + timedelta(days=1),
    }
    return {(row["run_id"], row["checkpoint_id"]): row for row in await _rows(cursor, _BATCHES, values)}


def _join_batches(run: RunToWrite, stored: _Stored, lead: Mapping[str, Any], to: Joined) -> list[Checkpoint]:
    """Return the batches of the report that change what is stored, with the values of all channels."""
    run_id, target = run.key.run_id, run.report.target
    kept: list[Checkpoint] = []
    for checkpoint in run.report.job.checkpoints:
        mine = BatchReport(target.id, target.engine.channel or Channel.OTHER, checkpoint)
        row = stored.get((run_id, checkpoint.header.checkpoint_id))
        is_ended = row is not None and row["status"] != CheckpointStatus.IN_PROGRESS.value
        if row is not None and is_ended:
            merged = _merged(row, mine, lead)
            if merged is not None:
                reports, result = merged
                kept.append(result)
                to.reports[_key(run_id, result)] = _text(reports)
                to.renewed.setdefault(run_id, []).append(result)
            continue
        dated = checkpoint if row is None else _on_day_of(row, checkpoint)
        kept.append(dated)
        if dated.header.status.is_terminal:
            to.reports[_key(run_id, dated)] = _text([mine])
    return kept


async def _open_batches(
    cursor: Cursor, runs: Sequence[RunToWrite], current: Mapping[str, Mapping[str, Any]], to: Joined
) -> dict[str, list[dict[str, Any]]]:
    """Return the stored open batches of the runs that end with this write."""
    ending = [run for run in runs if current[run.key.run_id]["state"] != JobState.ENDED.value]
    if not ending:
        return {}
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    values = {"runs": [r.key.run_id for r in ending], "jobs": sorted({r.key.job_id for r in ending})}
    for row in await _rows(cursor, _OPEN_BATCHES, values):
        found[row["run_id"]].append(row)
        key = (row["run_id"], row["checkpoint_id"], row["triggered_on"])
        to.headers[key] = (row["status"], row["observed_at"], row["is_discarded"])
    return found


def _ended_batches(
    batches: Iterable[Checkpoint], left_open: Iterable[Mapping[str, Any]], ended_at: datetime
) -> list[Checkpoint]:
    """Return the batches of a run that has ended, with its open ones as stopped.

    A driver has no more to say of a batch if its application ended with the query. What a channel reports of the batch
    later replaces this (``_merged``).
    """
    found = [c if c.header.status.is_terminal else _stopped(c, ended_at) for c in batches]
    known = {c.header.checkpoint_id for c in found}
    rest = (_on_day_of(row, Checkpoint(value_of(CheckpointHeader, row), batch=MicroBatch())) for row in left_open)
    return found + [_stopped(c, ended_at) for c in rest if c.header.checkpoint_id not in known]


def _stopped(batch: Checkpoint, ended_at: datetime) -> Checkpoint:
    header = replace(
        batch.header,
        status=CheckpointStatus.FAILED,
        end_to_end_duration_ms=None,
        failure_reason=FailureReason.COORDINATOR_SHUTDOWN,
        failure_message=_STOPPED,
        failed_at=max(ended_at, batch.header.triggered_at),
    )
    return replace(batch, header=header)


def _merged(
    row: Mapping[str, Any], mine: BatchReport, lead: Mapping[str, Any]
) -> tuple[list[BatchReport], Checkpoint] | None:
    """Return the reports on a batch that has ended, and the batch that follows from them; None if nothing is new."""
    if not mine.checkpoint.header.status.is_terminal:
        return None
    reports = reports_in(row["reports"])
    # That the batch was stopped follows from the end of the query, and no channel has reported it.
    if not reports and row["failure_reason"] != FailureReason.COORDINATOR_SHUTDOWN.value:
        reports = [BatchReport(lead["target_id"], _channel_of(lead), _stored_batch(row))]
    before = next((report for report in reports if report.target == mine.target), None)
    if before is not None:
        with_work = _with_later_work(before, mine)
        if with_work is None:
            return None
        reports.remove(before)
        mine = with_work
    reports.append(mine)
    return reports, _on_day_of(row, joined(reports).checkpoint)


def _with_later_work(before: BatchReport, mine: BatchReport) -> BatchReport | None:
    """Return the report with the Spark jobs that its target has learned since, or None if it has learned none."""
    batch, now = before.checkpoint.batch, mine.checkpoint.batch
    if batch is None or now is None or batch.work is not None or now.work is None:
        return None
    return replace(before, checkpoint=replace(before.checkpoint, batch=replace(batch, work=now.work)))


def _stored_batch(row: Mapping[str, Any]) -> Checkpoint:
    batch = None if row["number_basis"] is None else batch_from(row)
    return Checkpoint(value_of(CheckpointHeader, row), batch=batch)


def _on_day_of(row: Mapping[str, Any], checkpoint: Checkpoint) -> Checkpoint:
    """Return the checkpoint with a trigger on the day of its row, which is part of the key of the row."""
    if day_of(checkpoint.header.triggered_at) == row["triggered_on"]:
        return checkpoint
    return replace(checkpoint, header=replace(checkpoint.header, triggered_at=row["triggered_at"]))


def _key(run_id: str, checkpoint: Checkpoint) -> HeaderKey:
    return run_id, checkpoint.header.checkpoint_id, day_of(checkpoint.header.triggered_at)


def _text(reports: Iterable[BatchReport]) -> str:
    return dump(list(reports))


def reports_in(document: Sequence[Mapping[str, Any]] | None) -> list[BatchReport]:
    """Return what the channels reported of a batch from its stored form."""
    known = set(Channel)
    return [
        BatchReport(
            target=report["target"],
            channel=Channel(report["channel"]) if report["channel"] in known else Channel.OTHER,
            checkpoint=_CHECKPOINT.validate_python(report["checkpoint"]),
        )
        for report in document or ()
    ]


async def forget_verdicts(cursor: Cursor, keys: Iterable[HeaderKey]) -> None:
    """Delete the verdicts on batches whose values changed, so that they are judged again."""
    rows = [{"run_id": run, "checkpoint_id": number, "triggered_on": day} for run, number, day in keys]
    if rows:
        await cursor.executemany(_FORGET_VERDICT, rows)
