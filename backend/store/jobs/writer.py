"""Writes the state of runs: their jobs, their graphs and settings over time, their counters and their events.

The rows of the runs are locked first, so writers of the same run wait for each other. Invariant: the stored state is
that of the newest observation. An older observation that arrives later changes no state, but its checkpoints and
readings are stored. A key identifies an event, so an event that is reported twice, or in another order, is stored once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import orjson
from psycopg.types.numeric import Int8
from sqlalchemy import Boolean, ColumnElement, Text, and_, bindparam, case, func, literal_column, or_, select, update
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.dialects.postgresql import insert as pg_insert

from backend.domain.clock import to_epoch_ms
from backend.domain.engines import EngineCapabilities
from backend.domain.errors import StoreUnavailableError
from backend.domain.ids import TargetId, job_id, run_id
from backend.domain.observation import JobEventKind, JobObservation, JobState
from backend.store.checkpoints.writer import CheckpointTally, StoredRun
from backend.store.postgres.copying import Cursor
from backend.store.postgres.encoding import clean, dump
from backend.store.postgres.statements import beside_key, bound, one_of, replaced, sql_of
from backend.store.schema import tables
from backend.store.schema.documents import (
    DocumentKind,
    capabilities_document,
    cluster_document,
    config_document,
    topology_document,
)
from backend.store.schema.rows import row_of

_EVENT_TEXT_MAX = 4000
# A stored document and the id of the run to which it belongs. Both are None if no document is stored.
_Version = tuple[dict[str, Any] | None, str | None]

_RUN = tables.runs.c
# The version of a row is the transaction that wrote it. Every write to a run or to its checkpoints writes the row, and
# so changes the version.
_ROW_VERSION: ColumnElement[str] = literal_column("runs.xmin::text", Text)
_ROW = [
    *(_RUN.id, _RUN.job_id, _RUN.started_at, _RUN.observed_at, _RUN.counts, _RUN.restart_count),
    *(_RUN.failed_listed_count, _RUN.failed_listed_base, _RUN.failed_unlisted_past),
]
_LOCK = sql_of(
    select(*_ROW)
    .where(one_of(_RUN.id, "runs"))
    # All writers lock the rows in the same order, so that they cannot deadlock.
    .order_by(_RUN.id)
    .with_for_update()
)
_MAKE_JOB = sql_of(pg_insert(tables.jobs).values(bound(tables.jobs.c)).on_conflict_do_nothing())
_MAKE_RUN = sql_of(
    pg_insert(tables.runs)
    .values(
        bound(
            c
            for c in tables.runs.c
            if c.server_default is None and (not c.nullable or c.name in ("ended_at", "capabilities"))
        )
    )
    .on_conflict_do_nothing()
    .returning(_RUN.id)
)
_COUNTED = {
    "checkpoint_count": _RUN.checkpoint_count + bindparam("new_count", type_=_RUN.checkpoint_count.type),
    "failed_listed_count": _RUN.failed_listed_count + bindparam("failed_count", type_=_RUN.failed_listed_count.type),
    "first_observed_at": func.least(_RUN.first_observed_at, bindparam("seen_at", type_=tables.Instant)),
    "started_at": func.least(_RUN.started_at, bindparam("started_at", type_=tables.Instant)),
}
_HAS_CHANGES = bindparam("has_changes", type_=Boolean)


def _revised(*changes: ColumnElement[bool]) -> dict[str, ColumnElement[int]]:
    """Return the new value of ``revision``: the old value, plus one if any of ``changes`` is true."""
    return {"revision": _RUN.revision + case((or_(*changes), literal_column("1")), else_=literal_column("0"))}


_COUNT = sql_of(update(tables.runs).where(_RUN.id == bindparam("run")).values(_COUNTED | _revised(_HAS_CHANGES)))
# If an observation does not report one of these values, the stored value stays.
_KEPT = [_RUN.restart_count, _RUN.counts, _RUN.placements, _RUN.clock_offset_ms]
_REPLACED = [
    *(_RUN.ended_at, _RUN.state, _RUN.engine_state, _RUN.failed_listed_base, _RUN.failed_unlisted_past),
    *(_RUN.problems, _RUN.capabilities, _RUN.observed_at, _RUN.target_id),
]
_NEW_VALUES: dict[str, ColumnElement[Any]] = {
    **bound(_REPLACED),
    **{c.name: func.coalesce(bindparam(c.name, type_=c.type), c) for c in _KEPT},
}
# Of the values that each observation replaces, these are the ones that readers show as the state of the run. The others
# change with every observation, or follow from these.
_SHOWN = [
    *(_RUN.state, _RUN.engine_state, _RUN.ended_at, _RUN.restart_count, _RUN.counts, _RUN.placements, _RUN.problems),
    _RUN.capabilities,
]
_IS_SHOWN_CHANGED = or_(*(c.is_distinct_from(_NEW_VALUES[c.name]) for c in _SHOWN))
_APPLIED = (
    update(tables.runs)
    .where(_RUN.id == bindparam("run"))
    .values(_COUNTED | _NEW_VALUES | _revised(_HAS_CHANGES, _IS_SHOWN_CHANGED))
    .returning(*_ROW, _ROW_VERSION.label("version"))
)
_APPLY = sql_of(_APPLIED)
_IS_VERSION = bindparam("version", type_=Text) == _ROW_VERSION
_APPLY_TO_VERSION = sql_of(_APPLIED.where(_IS_VERSION))
# This statement sets only the values that most polls change. It takes half the CPU time of the whole update.
_ADVANCE = sql_of(
    update(tables.runs)
    .where(_RUN.id == bindparam("run"), _IS_VERSION)
    .values(
        checkpoint_count=_COUNTED["checkpoint_count"],
        failed_listed_count=_COUNTED["failed_listed_count"],
        counts=_NEW_VALUES["counts"],
        clock_offset_ms=_NEW_VALUES["clock_offset_ms"],
        observed_at=_NEW_VALUES["observed_at"],
        revision=_RUN.revision + bindparam("revision_step", type_=_RUN.revision.type),
    )
    .returning(_RUN.id, _ROW_VERSION.label("version"))
)
_ADVANCED = ("counts", "clock_offset_ms", "observed_at")

_VERSION = tables.run_versions.c
_NEW_VERSION = pg_insert(tables.run_versions).values(bound(_VERSION))
_WRITE_VERSION = sql_of(
    _NEW_VERSION.on_conflict_do_update(
        index_elements=tables.run_versions.primary_key,
        set_=replaced(_NEW_VERSION, beside_key(tables.run_versions)),
    )
)
_IS_OWN = _VERSION.run_id == bindparam("run")
_VERSIONS_BEFORE = sql_of(
    select(_VERSION.kind, _VERSION.document, _VERSION.run_id)
    .ext(distinct_on(_VERSION.kind))
    .join_from(tables.run_versions, tables.runs, _RUN.id == _VERSION.run_id)
    .where(
        one_of(_VERSION.kind, "kinds"),
        or_(_IS_OWN, and_(_RUN.job_id == bindparam("job"), _RUN.started_at < bindparam("started_at"))),
    )
    .order_by(_VERSION.kind, _IS_OWN.desc(), _RUN.started_at.desc(), _VERSION.since.desc())
)

_NEW_EVENT = pg_insert(tables.job_events).values(bound(tables.job_events.c))
_WRITE_EVENT = sql_of(
    _NEW_EVENT.on_conflict_do_update(
        index_elements=tables.job_events.primary_key,
        # If an event is reported twice, the earlier of the two times is stored.
        set_={"at": _NEW_EVENT.excluded.at},
        where=_NEW_EVENT.excluded.at < tables.job_events.c.at,
    )
)


@dataclass(frozen=True, slots=True)
class TargetKey:
    """The target that reported a run, the deployment to which the target's jobs belong, and the engine."""

    id: TargetId
    deployment: str
    engine: EngineCapabilities


def stored_run_id(target_id: TargetId, engine: EngineCapabilities, job: JobObservation) -> str:
    """Return the id under which the run of an observation is stored."""
    # If each run has its own run id at the engine, the start is not part of the run's identity, because the start may
    # become known late or never.
    started_ms = None if engine.has_unique_run_ids else to_epoch_ms(job.started_at)
    return run_id(target=target_id, engine_run_id=job.engine_run_id, started_at_ms=started_ms)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run is stored that other targets may report too (``joining``).

    ``is_shared`` is whether another target reports it, or stored the job to which it belongs.
    """

    run: StoredRun
    is_shared: bool


@dataclass(frozen=True, slots=True)
class Report:
    """What one observation reports about one run of a target."""

    target: TargetKey
    job: JobObservation
    observed_at: datetime
    engine_clock_offset_ms: int | None = None
    """The clock of the target's engine minus ours, unless the run has a clock of its own; None if it is unknown."""
    received_at: datetime | None = None
    """For pushed data, the time of arrival on our clock."""
    place: Place | None = None
    """Where the run is stored, if that does not follow from its target."""
    key: StoredRun = field(init=False)
    """The ids that a new run and its job get."""

    def __post_init__(self) -> None:
        target, job = self.target, self.job
        key = (
            self.place.run
            if self.place is not None
            else StoredRun(
                run_id=stored_run_id(target.id, target.engine, job),
                job_id=job_id(deployment=target.deployment, name=job.name),
            )
        )
        object.__setattr__(self, "key", key)

    @property
    def at_engine(self) -> datetime:
        """The time of the observation on the engine's clock, which is the clock of all events."""
        if self.target.engine.is_pushed:
            return self.observed_at
        own_ms = self.job.clock_offset_ms
        return self.observed_at + timedelta(
            milliseconds=(self.engine_clock_offset_ms if own_ms is None else own_ms) or 0
        )


@dataclass(frozen=True, slots=True)
class LastWrite:
    """What this process last wrote to a run.

    ``version`` is that of ``row``. ``state`` contains the values that the last whole update of the row had.
    """

    row: Mapping[str, Any]
    version: str
    state: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StateWrite:
    """A statement that was sent. ``row`` is the new row of the run, or None if the statement returns the row."""

    cursor: Cursor
    state: Mapping[str, Any]
    row: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class RunToWrite:
    """A run with its row as it is before this report.

    ``is_newest`` is whether no newer observation of the run was applied before. Without ``last`` the row is locked
    until the commit. With ``last`` it is the row that this process wrote last: ``write_states`` locks it, and writes
    nothing if another transaction has written it since.
    """

    report: Report
    key: StoredRun
    row: Mapping[str, Any]
    is_newest: bool
    last: LastWrite | None = None


RunRows = Mapping[str, Mapping[str, Any]]
"""The stored rows of runs, by id."""


async def request_locks(cursor: Cursor, run_ids: Iterable[str]) -> None:
    """Execute the statement that locks the stored rows of these runs. ``locked_rows`` returns them."""
    await cursor.execute(_LOCK, {"runs": list(run_ids)})


async def locked_rows(cursor: Cursor) -> RunRows:
    """Return the rows that ``request_locks`` locked with ``cursor``."""
    names = [c.name for c in cursor.description or ()]
    rows = [dict(zip(names, row, strict=True)) for row in await cursor.fetchall()]
    return {row["id"]: row for row in rows}


async def lock_runs(cursor: Cursor, reports: Sequence[Report], rows: RunRows | None = None) -> list[RunToWrite]:
    """Lock the rows of the reported runs, which must be different runs. Create those that are new, with their jobs.

    ``rows`` contains the stored rows, if the caller has locked them already.
    """
    if rows is None:
        rows = await _lock(cursor, [report.key for report in reports])
    runs, events = [], []
    unknown = [report for report in reports if report.key.run_id not in rows]
    made = await _make(cursor, unknown)
    if unknown:
        rows = {**rows, **await _lock(cursor, [report.key for report in unknown])}
    for report in reports:
        row = rows.get(report.key.run_id)
        is_new = report.key.run_id in made
        if row is None:
            # Retention deleted the run between two statements. The next write creates the run again.
            raise StoreUnavailableError(f"run {report.key.run_id} vanished while it was written")
        # If the deployment label of a target changes, its running jobs keep their ids and so their history.
        key = StoredRun(run_id=report.key.run_id, job_id=row["job_id"])
        job = report.job
        if is_new or job.started_at < row["started_at"]:
            text = f"{clean(job.name)} started as {clean(job.engine_run_id)}"
            events.append(_event(key, JobEventKind.RUN_STARTED, key="", at=job.started_at, text=text))
        runs.append(RunToWrite(report, key, row, is_new or report.observed_at > row["observed_at"]))
    if events:
        await cursor.executemany(_WRITE_EVENT, events)
    return runs


async def _lock(cursor: Cursor, keys: Sequence[StoredRun]) -> RunRows:
    await request_locks(cursor, [key.run_id for key in keys])
    return await locked_rows(cursor)


async def _make(cursor: Cursor, reports: Sequence[Report]) -> set[str]:
    """Create the runs and their jobs. Return the runs without those that another writer has created meanwhile.

    All rows of a table are sent at once. A collector that starts may report thousands of runs.
    """
    if not reports:
        return set()
    jobs = [
        {
            "id": report.key.job_id,
            "deployment": report.target.deployment,
            "name": clean(report.job.name),
            "first_seen_at": report.observed_at,
        }
        for report in reports
    ]
    runs = [
        row_of(
            tables.runs,
            report.job,
            id=report.key.run_id,
            job_id=report.key.job_id,
            target_id=report.target.id,
            engine=clean(report.target.engine.kind),
            capabilities=capabilities_text(report.target.engine),
            first_observed_at=report.observed_at,
            observed_at=report.observed_at,
        )
        for report in reports
    ]
    await cursor.executemany(_MAKE_JOB, jobs)
    await cursor.executemany(_MAKE_RUN, runs, returning=True)
    made: set[str] = set()
    has_more: bool | None = True
    while has_more:
        made.update(run_id for (run_id,) in await cursor.fetchall())
        has_more = cursor.nextset()
    return made


@lru_cache(maxsize=64)
def capabilities_text(engine: EngineCapabilities) -> str:
    """Return the stored form of an engine's capabilities."""
    return dump(capabilities_document(engine))


async def write_states(
    cursor: Cursor, runs: Sequence[RunToWrite], tallies: Sequence[CheckpointTally]
) -> Sequence[StateWrite]:
    """Count the checkpoints of this write, and write the events of the runs.

    ``tallies`` contains the counts of each run. If no newer observation of a run was applied before, also write the
    run's state, graph and settings. ``last_writes`` returns what was written of these runs.
    """
    applied: list[StateWrite] = []
    counted: list[dict[str, Any]] = []
    for run, tally in zip(runs, tallies, strict=True):
        counts = _counts(run, tally)
        if run.is_newest:
            if await _write_documents(cursor, run):
                counts["has_changes"] = True
            applied.append(await _write_state(cursor, run, tally, counts))
        else:
            counted.append(counts)
    if counted:
        await cursor.executemany(_COUNT, counted)
    events = [event for run in runs for event in _events(run)]
    if events:
        await cursor.executemany(_WRITE_EVENT, events)
    return applied


async def _write_state(cursor: Cursor, run: RunToWrite, tally: CheckpointTally, counts: dict[str, Any]) -> StateWrite:
    state, last = _state(run, tally), run.last
    # A pipeline keeps the results of several statements only if each has a cursor of its own.
    own = cursor.connection.cursor()
    if last is None:
        await own.execute(_APPLY, state | counts, prepare=True)
        return StateWrite(own, state)
    values = state | counts | {"version": last.version}
    # If an observation does not report one of these values, the stored value stays.
    state |= {c.name: last.state[c.name] for c in _KEPT if state[c.name] is None}
    if any(value != last.state[name] for name, value in state.items() if name not in _ADVANCED):
        await own.execute(_APPLY_TO_VERSION, values, prepare=True)
        return StateWrite(own, state)
    row = {
        **last.row,
        "observed_at": state["observed_at"],
        # ``state`` has no counts if neither this observation nor the last whole update reported them. The stored ones
        # then stay.
        "counts": orjson.loads(state["counts"]) if state["counts"] is not None else last.row["counts"],
        "failed_listed_count": last.row["failed_listed_count"] + tally.newly_failed,
    }
    is_changed = tally.is_changed or row["counts"] != last.row["counts"]
    await own.execute(_ADVANCE, values | {"revision_step": Int8(is_changed)}, prepare=True)
    return StateWrite(own, state, row)


async def last_writes(written: Iterable[StateWrite]) -> Mapping[str, LastWrite]:
    """Return what ``write_states`` wrote, by run. A run is absent if another transaction had written it."""
    writes: dict[str, LastWrite] = {}
    for write in written:
        for run, row in (await locked_rows(write.cursor)).items():
            writes[run] = LastWrite(write.row or row, row["version"], write.state)
    return writes


def _counts(run: RunToWrite, tally: CheckpointTally) -> dict[str, Any]:
    return {
        "run": run.key.run_id,
        "new_count": tally.new,
        "failed_count": tally.newly_failed,
        "seen_at": run.report.observed_at,
        "started_at": run.report.job.started_at,
        "has_changes": tally.is_changed,
    }


def _state(run: RunToWrite, tally: CheckpointTally) -> dict[str, Any]:
    job = run.report.job
    base, past = _unlisted(run, job, tally)
    return row_of(
        tables.runs,
        job,
        counts=dump(job.counts) if job.counts is not None else None,
        failed_listed_base=base,
        failed_unlisted_past=past,
        placements=dump(job.placements) if job.placements else None,
        problems=dump([clean(p) for p in job.problems]),
        capabilities=capabilities_text(run.report.target.engine),
        observed_at=run.report.observed_at,
        target_id=run.report.target.id,
    )


async def _write_documents(cursor: Cursor, run: RunToWrite) -> bool:
    """Write the graph and the settings if they changed. Return whether one of them did."""
    job = run.report.job
    documents: dict[DocumentKind, Mapping[str, Any]] = {}
    if job.topology is not None:
        documents[DocumentKind.TOPOLOGY] = topology_document(job.topology)
    if job.config is not None:
        documents[DocumentKind.CONFIG] = config_document(job.config)
    if job.cluster_settings is not None:
        documents[DocumentKind.CLUSTER] = cluster_document(job.cluster_settings)
    before = await _versions_before(cursor, run, list(documents), job.started_at) if documents else {}
    written = [
        await _write_version(cursor, run, kind, document, before.get(kind, (None, None)))
        for kind, document in documents.items()
    ]
    return any(written)


def _unlisted(run: RunToWrite, job: JobObservation, tally: CheckpointTally) -> tuple[int, int]:
    """Return the two numbers from which unlisted failures are computed.

    An unlisted failure is a failed checkpoint that the coordinator counted but never listed. The coordinator's counters
    begin again when the coordinator restarts. The first number is how many failures had been listed when the current
    counters began. The second number is how many unlisted failures there were under all earlier counters.
    """
    base, past = run.row["failed_listed_base"], run.row["failed_unlisted_past"]
    before = run.row["counts"]
    if before is None or job.counts is None or job.counts.total >= before["total"]:
        return base, past
    listed = run.row["failed_listed_count"]
    return listed + tally.newly_failed, past + max(0, before["failed"] - (listed - base))


async def _write_version(
    cursor: Cursor, run: RunToWrite, kind: DocumentKind, document: Mapping[str, Any], known: _Version
) -> bool:
    job, observed_at = run.report.job, run.report.observed_at
    after = orjson.loads(dump(document))
    before, owner = known
    is_first = owner != run.key.run_id
    # A setting that this version added and that is not reported is no change.
    if before is not None and _reported(before) == _reported(after) and not is_first:
        return False
    at = min(job.started_at, observed_at) if is_first else observed_at
    row = {"run_id": run.key.run_id, "kind": kind.value, "since": at, "document": dump(after)}
    await cursor.execute(_WRITE_VERSION, row)
    if before is None:
        return True
    event, text = (
        (JobEventKind.RESCALED, _rescaled(before, after)) if kind is DocumentKind.TOPOLOGY else _changed(before, after)
    )
    if text:
        event_at = job.started_at if is_first else run.report.at_engine
        await cursor.execute(_WRITE_EVENT, _event(run.key, event, key=_key(kind, at), at=event_at, text=text))
    return True


def _key(kind: DocumentKind, at: datetime) -> str:
    # Settings of the job and of its cluster can change at the same time. Both changes are events of the same kind.
    return f"{at.isoformat()} {kind.value}" if kind is DocumentKind.CLUSTER else at.isoformat()


async def _versions_before(
    cursor: Cursor, run: RunToWrite, kinds: Sequence[DocumentKind], started_at: datetime
) -> Mapping[DocumentKind, _Version]:
    """Return the newest document of each kind, and the id of the run to which it belongs.

    A document of this run is preferred. If there is none, the document of the job's previous run is returned.
    """
    values = {
        "kinds": [kind.value for kind in kinds],
        "run": run.key.run_id,
        "job": run.key.job_id,
        "started_at": started_at,
    }
    # In a pipeline, a late result of an earlier statement replaces the result of a query on the same cursor. So this
    # query has a cursor of its own.
    own = cursor.connection.cursor()
    await own.execute(_VERSIONS_BEFORE, values)
    return {DocumentKind(kind): (document, owner) for kind, document, owner in await own.fetchall()}


def _reported(document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if value is not None}


def _rescaled(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    was = {v["name"]: v["parallelism"] for v in before["vertices"]}
    changes = [
        f"{v['name']}: {was[v['name']]} -> {v['parallelism']}"
        for v in after["vertices"]
        if v["name"] in was and was[v["name"]] != v["parallelism"]
    ]
    return "parallelism " + ", ".join(changes) if changes else ""


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[JobEventKind, str]:
    names = [n for n in dict.fromkeys([*after, *before]) if before.get(n) != after.get(n)]
    return JobEventKind.CONFIGURATION_CHANGED, ", ".join(
        f"{n}: {_word(before.get(n))} -> {_word(after.get(n))}" for n in names
    )


def _word(value: object) -> str:
    return "not reported" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _events(run: RunToWrite) -> Iterator[dict[str, Any]]:
    job, at_engine = run.report.job, run.report.at_engine
    if job.state is JobState.ENDED:
        text = f"ended {clean(job.engine_state)}"
        yield _event(run.key, JobEventKind.RUN_ENDED, key="", at=job.ended_at or at_engine, text=text)
    # If the newest observation before this one reported the same restart, the event of the restart is already stored,
    # with an earlier time.
    if job.restart_count and (job.restart_count != run.row["restart_count"] or not run.is_newest):
        text = f"restart {job.restart_count} of this run"
        yield _event(run.key, JobEventKind.RESTARTED, key=str(job.restart_count), at=at_engine, text=text)
    told = [(at, words, JobEventKind.EXCEPTION) for at, words in job.exceptions]
    told += [(loss.at, loss.text, JobEventKind.ROWS_LOST) for loss in job.losses]
    told += [(at, words, JobEventKind.RESTORED) for at, words in job.effects]
    for at, words, kind in dict.fromkeys(told):
        key = f"{to_epoch_ms(at)}-{hashlib.blake2b(words.encode('utf-8', 'replace'), digest_size=8).hexdigest()}"
        yield _event(run.key, kind, key=key, at=at, text=words)


def _event(run: StoredRun, kind: JobEventKind, *, key: str, at: datetime, text: str) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "kind": kind.value,
        "key": key,
        "job_id": run.job_id,
        "at": at,
        "text": clean(text)[:_EVENT_TEXT_MAX],
    }
