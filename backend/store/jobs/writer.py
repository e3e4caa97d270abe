"""Writes the state of one run: its job, its graph and settings over time, its counters and its events.

Locks the run's row first, so writers of one run take turns. Invariant: state follows the newest observation. An older
one that arrives later changes no state, but its checkpoints and readings are stored. An event's key identifies it, so
reporting it twice or in another order adds nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from sqlalchemy import and_, bindparam, func, or_, select, update
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
from backend.store.schema.documents import DocumentKind, capabilities_document, config_document, topology_document
from backend.store.schema.rows import row_of

_EVENT_TEXT_MAX = 4000
# A document and the id of its run; both are None if there is no document.
_Version = tuple[dict[str, Any] | None, str | None]

_RUN = tables.runs.c
_LOCK = sql_of(
    select(
        *(_RUN.job_id, _RUN.started_at, _RUN.observed_at, _RUN.counts),
        *(_RUN.failed_listed_count, _RUN.failed_listed_base, _RUN.failed_unlisted_past),
    )
    .where(_RUN.id == bindparam("run"))
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
)
_COUNTED = {
    "checkpoint_count": _RUN.checkpoint_count + bindparam("new_count", type_=_RUN.checkpoint_count.type),
    "failed_listed_count": _RUN.failed_listed_count + bindparam("failed_count", type_=_RUN.failed_listed_count.type),
    "first_observed_at": func.least(_RUN.first_observed_at, bindparam("seen_at", type_=tables.Instant)),
    "started_at": func.least(_RUN.started_at, bindparam("started_at", type_=tables.Instant)),
}
_COUNT = sql_of(update(tables.runs).where(_RUN.id == bindparam("run")).values(_COUNTED))
# An observation that does not report one of these keeps the value that is known.
_KEPT = [_RUN.restart_count, _RUN.counts, _RUN.placements, _RUN.clock_offset_ms]
_REPLACED = [
    *(_RUN.ended_at, _RUN.state, _RUN.engine_state, _RUN.failed_listed_base, _RUN.failed_unlisted_past),
    *(_RUN.problems, _RUN.capabilities, _RUN.observed_at),
]
_APPLY = sql_of(
    update(tables.runs)
    .where(_RUN.id == bindparam("run"))
    .values(_COUNTED | bound(_REPLACED) | {c.name: func.coalesce(bindparam(c.name, type_=c.type), c) for c in _KEPT})
)

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
        # An event that was reported twice keeps the earlier time.
        set_={"at": _NEW_EVENT.excluded.at},
        where=_NEW_EVENT.excluded.at < tables.job_events.c.at,
    )
)


@dataclass(frozen=True, slots=True)
class TargetKey:
    """The target at which a run was seen, and the deployment of its jobs."""

    id: TargetId
    deployment: str
    engine: EngineCapabilities


@dataclass(frozen=True, slots=True)
class LockedRun:
    """A run whose row is locked until the commit. ``is_newest``: no newer observation of it was applied."""

    key: StoredRun
    row: Mapping[str, Any]
    engine: EngineCapabilities
    is_newest: bool


async def lock_run(cursor: Cursor, target: TargetKey, job: JobObservation, observed_at: datetime) -> LockedRun:
    """Create the job and the run if they are new, and lock the run's row."""
    # If the engine's id names one run alone, the start may be known late or never.
    started_ms = None if target.engine.has_unique_run_ids else to_epoch_ms(job.started_at)
    key = StoredRun(
        run_id=run_id(target=target.id, engine_run_id=job.engine_run_id, started_at_ms=started_ms),
        job_id=job_id(deployment=target.deployment, name=job.name),
    )
    row = await _lock(cursor, key)
    is_new = row is None and await _make(cursor, target, job, key, observed_at)
    row = row or await _lock(cursor, key)
    if row is None:
        # Retention deleted the run between two statements; the next write creates it again.
        raise StoreUnavailableError(f"run {key.run_id} vanished while it was written")
    # If a target's deployment label changes, its running jobs keep their ids, and so their history.
    key = StoredRun(run_id=key.run_id, job_id=row["job_id"])
    if is_new or job.started_at < row["started_at"]:
        text = f"{clean(job.name)} started as {clean(job.engine_run_id)}"
        await _add_event(cursor, key, JobEventKind.RUN_STARTED, key="", at=job.started_at, text=text)
    return LockedRun(key, row, target.engine, is_new or observed_at > row["observed_at"])


async def _lock(cursor: Cursor, key: StoredRun) -> Mapping[str, Any] | None:
    await cursor.execute(_LOCK, {"run": key.run_id})
    row = await cursor.fetchone()
    if row is None or cursor.description is None:
        return None
    return dict(zip((c.name for c in cursor.description), row, strict=True))


async def _make(cursor: Cursor, target: TargetKey, job: JobObservation, key: StoredRun, observed_at: datetime) -> bool:
    """Create the run and its job; return False if another writer created the run."""
    await cursor.execute(
        _MAKE_JOB,
        {
            "id": key.job_id,
            "deployment": target.deployment,
            "name": clean(job.name),
            "first_seen_at": observed_at,
        },
    )
    values = row_of(
        tables.runs,
        job,
        id=key.run_id,
        job_id=key.job_id,
        target_id=target.id,
        engine=clean(target.engine.kind),
        capabilities=dump(capabilities_document(target.engine)),
        first_observed_at=observed_at,
        observed_at=observed_at,
    )
    await cursor.execute(_MAKE_RUN, values)
    return cursor.rowcount == 1


async def write_state(
    cursor: Cursor, run: LockedRun, job: JobObservation, observed_at: datetime, tally: CheckpointTally
) -> None:
    """Apply the observation's state of the run, and count the checkpoints that were just written."""
    counted = {
        "run": run.key.run_id,
        "new_count": tally.new,
        "failed_count": tally.newly_failed,
        "seen_at": observed_at,
        "started_at": job.started_at,
    }
    if run.is_newest:
        base, past = _unlisted(run, job, tally)
        own = row_of(
            tables.runs,
            job,
            counts=dump(job.counts) if job.counts is not None else None,
            failed_listed_base=base,
            failed_unlisted_past=past,
            placements=dump(job.placements) if job.placements else None,
            problems=dump([clean(p) for p in job.problems]),
            capabilities=dump(capabilities_document(run.engine)),
            observed_at=observed_at,
        )
        await cursor.execute(_APPLY, own | counted)
        await _write_documents(cursor, run, job, observed_at)
    else:
        await cursor.execute(_COUNT, counted)
    await _write_events(cursor, run, job, observed_at)


async def _write_documents(cursor: Cursor, run: LockedRun, job: JobObservation, observed_at: datetime) -> None:
    documents: dict[DocumentKind, Mapping[str, Any]] = {}
    if job.topology is not None:
        documents[DocumentKind.TOPOLOGY] = topology_document(job.topology)
    if job.config is not None:
        documents[DocumentKind.CONFIG] = config_document(job.config)
    before = await _versions_before(cursor, run, list(documents), job.started_at) if documents else {}
    for kind, document in documents.items():
        await _write_version(cursor, run, kind, document, before.get(kind, (None, None)), job, observed_at)


def _unlisted(run: LockedRun, job: JobObservation, tally: CheckpointTally) -> tuple[int, int]:
    """Return (failures listed before the coordinator's counters began, unlisted failures of earlier counters).

    The counters restart with the coordinator. The unlisted failures until then are added to the second number.
    """
    base, past = run.row["failed_listed_base"], run.row["failed_unlisted_past"]
    before = run.row["counts"]
    if before is None or job.counts is None or job.counts.total >= before["total"]:
        return base, past
    listed = run.row["failed_listed_count"]
    return listed + tally.newly_failed, past + max(0, before["failed"] - (listed - base))


async def _write_version(
    cursor: Cursor,
    run: LockedRun,
    kind: DocumentKind,
    document: Mapping[str, Any],
    known: _Version,
    job: JobObservation,
    observed_at: datetime,
) -> None:
    after = orjson.loads(dump(document))
    before, owner = known
    is_first = owner != run.key.run_id
    if before == after and not is_first:
        return
    at = min(job.started_at, observed_at) if is_first else observed_at
    row = {"run_id": run.key.run_id, "kind": kind.value, "since": at, "document": dump(after)}
    await cursor.execute(_WRITE_VERSION, row)
    if before is None:
        return
    event, text = (
        (JobEventKind.RESCALED, _rescaled(before, after)) if kind is DocumentKind.TOPOLOGY else _changed(before, after)
    )
    if text:
        await _add_event(cursor, run.key, event, key=at.isoformat(), at=at, text=text)


async def _versions_before(
    cursor: Cursor, run: LockedRun, kinds: Sequence[DocumentKind], started_at: datetime
) -> Mapping[DocumentKind, _Version]:
    """Return the newest document of each kind with the id of its run: this run, else the job's previous run."""
    values = {
        "kinds": [kind.value for kind in kinds],
        "run": run.key.run_id,
        "job": run.key.job_id,
        "started_at": started_at,
    }
    await cursor.execute(_VERSIONS_BEFORE, values)
    return {DocumentKind(kind): (document, owner) for kind, document, owner in await cursor.fetchall()}


def _rescaled(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    was = {v["name"]: v["parallelism"] for v in before["vertices"]}
    changes = [
        f"{v['name']}: {was[v['name']]} -> {v['parallelism']}"
        for v in after["vertices"]
        if v["name"] in was and was[v["name"]] != v["parallelism"]
    ]
    return "parallelism " + ", ".join(changes) if changes else ""


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[JobEventKind, str]:
    names = [n for n in after if before.get(n) != after[n]]
    return JobEventKind.CONFIGURATION_CHANGED, ", ".join(
        f"{n}: {_word(before.get(n))} -> {_word(after[n])}" for n in names
    )


def _word(value: object) -> str:
    return "not reported" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


async def _write_events(cursor: Cursor, run: LockedRun, job: JobObservation, observed_at: datetime) -> None:
    if job.state is JobState.ENDED:
        ended_at = job.ended_at or observed_at
        await _add_event(
            cursor, run.key, JobEventKind.RUN_ENDED, key="", at=ended_at, text=f"ended {clean(job.engine_state)}"
        )
    if job.restart_count:
        many = f"restart {job.restart_count} of this run"
        await _add_event(cursor, run.key, JobEventKind.RESTARTED, key=str(job.restart_count), at=observed_at, text=many)
    for at, words in _distinct(job.exceptions):
        key = f"{to_epoch_ms(at)}-{hashlib.blake2b(words.encode('utf-8', 'replace'), digest_size=8).hexdigest()}"
        await _add_event(cursor, run.key, JobEventKind.EXCEPTION, key=key, at=at, text=words)


def _distinct(exceptions: Sequence[tuple[datetime, str]]) -> Sequence[tuple[datetime, str]]:
    return list(dict.fromkeys(exceptions))


async def _add_event(cursor: Cursor, run: StoredRun, kind: JobEventKind, *, key: str, at: datetime, text: str) -> None:
    row = {
        "run_id": run.run_id,
        "kind": kind.value,
        "key": key,
        "job_id": run.job_id,
        "at": at,
        "text": clean(text)[:_EVENT_TEXT_MAX],
    }
    await cursor.execute(_WRITE_EVENT, row)
