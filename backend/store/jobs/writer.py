"""Writes the state of one run: its place under a job, graph and settings over time, counters, and what happened to it.

Locks the run's row first, so writers of one run take turns. Invariant: state follows the newest observation; an older
one that arrives later changes no state (its checkpoints and readings are stored all the same). What happened is keyed
by what makes it the same happening, so reporting it twice, or in another order, adds nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from backend.domain.clock import to_epoch_ms
from backend.domain.errors import StoreUnavailableError
from backend.domain.ids import TargetId, job_id, run_id
from backend.domain.observation import Engine, JobObservation, JobState
from backend.store.checkpoints.writer import CheckpointTally, RunKey
from backend.store.postgres.copying import Cursor
from backend.store.schema.arrays import INT4_MAX
from backend.store.schema.documents import clean, config_document, dump, topology_document

_EVENT_TEXT_MAX = 4000
_COUNTED = (
    "checkpoint_count = checkpoint_count + %s, failed_listed_count = failed_listed_count + %s,"
    " first_observed_at = LEAST(first_observed_at, %s), started_at = LEAST(started_at, %s)"
)
# A document, and the run it is of; nothing where there was none before.
_Version = tuple[dict[str, Any] | None, str | None]


@dataclass(frozen=True, slots=True)
class TargetKey:
    """The target a run was seen at, and the deployment its jobs belong to."""

    id: TargetId
    deployment: str
    engine: Engine


@dataclass(frozen=True, slots=True)
class LockedRun:
    """A run whose row is locked until the commit. ``is_newest``: nothing newer of it was applied before."""

    key: RunKey
    row: Mapping[str, Any]
    is_newest: bool


async def lock_run(cursor: Cursor, target: TargetKey, job: JobObservation, observed_at: datetime) -> LockedRun:
    """Make job and run where they are new, and lock the run's row."""
    # Spark's ids are of one run alone, and its start may be told late or never.
    started_ms = None if target.engine is Engine.SPARK else to_epoch_ms(job.started_at)
    key = RunKey(
        run_id=run_id(target=target.id, engine_run_id=job.engine_run_id, started_at_ms=started_ms),
        job_id=job_id(deployment=target.deployment, name=job.name),
    )
    row = await _lock(cursor, key)
    is_new = row is None and await _make(cursor, target, job, key, observed_at)
    row = row or await _lock(cursor, key)
    if row is None:
        # Retention dropped it between two statements; written again, it is made again.
        raise StoreUnavailableError(f"run {key.run_id} vanished while it was written")
    # A target whose deployment label changed keeps its running jobs under the id their history has.
    key = RunKey(run_id=key.run_id, job_id=row["job_id"])
    if is_new or job.started_at < row["started_at"]:
        text = f"{clean(job.name)} started as {clean(job.engine_run_id)}"
        await _add_event(cursor, key, "run-started", key="", at=job.started_at, text=text)
    return LockedRun(key, row, is_new or observed_at > row["observed_at"])


async def _lock(cursor: Cursor, key: RunKey) -> Mapping[str, Any] | None:
    await cursor.execute(
        "SELECT job_id, state, started_at, observed_at, first_observed_at, counts, failed_listed_count,"
        " failed_listed_base, failed_unlisted_past FROM runs WHERE id = %s FOR UPDATE",
        (key.run_id,),
    )
    row = await cursor.fetchone()
    if row is None or cursor.description is None:
        return None
    return dict(zip((c.name for c in cursor.description), row, strict=True))


async def _make(cursor: Cursor, target: TargetKey, job: JobObservation, key: RunKey, observed_at: datetime) -> bool:
    """Make the run, and its job; False where another writer did."""
    await cursor.execute(
        "INSERT INTO jobs (id, deployment, name, first_seen_at) VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING",
        (key.job_id, target.deployment, clean(job.name), observed_at),
    )
    await cursor.execute(
        "INSERT INTO runs (id, job_id, target_id, engine_run_id, engine, started_at, ended_at, state, engine_state,"
        " first_observed_at, observed_at) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
        (
            *(key.run_id, key.job_id, target.id, clean(job.engine_run_id), target.engine.value, job.started_at),
            *(job.ended_at, job.state.value, clean(job.engine_state), observed_at, observed_at),
        ),
    )
    return cursor.rowcount == 1


async def write_state(
    cursor: Cursor, run: LockedRun, job: JobObservation, observed_at: datetime, tally: CheckpointTally
) -> None:
    """Apply what the observation says of the run itself, and count the checkpoints that were just written."""
    if run.is_newest:
        await _write_newest(cursor, run, job, observed_at, tally)
    else:
        await cursor.execute(
            f"UPDATE runs SET {_COUNTED} WHERE id = %s",  # noqa: S608
            (tally.new, tally.newly_failed, observed_at, job.started_at, run.key.run_id),
        )
    await _write_events(cursor, run, job, observed_at)


async def _write_newest(
    cursor: Cursor, run: LockedRun, job: JobObservation, observed_at: datetime, tally: CheckpointTally
) -> None:
    base, past = _unlisted(run, job, tally)
    await cursor.execute(
        f"UPDATE runs SET {_COUNTED}, ended_at = %s, state = %s, engine_state = %s,"  # noqa: S608
        " restart_count = COALESCE(%s, restart_count),"
        " counts = COALESCE(%s, counts), failed_listed_base = %s, failed_unlisted_past = %s,"
        " placements = COALESCE(%s, placements), problems = %s, clock_offset_ms = COALESCE(%s, clock_offset_ms),"
        " observed_at = %s WHERE id = %s",
        (
            *(tally.new, tally.newly_failed, observed_at, job.started_at),
            *(job.ended_at, job.state.value, clean(job.engine_state), _int4(job.restart_count)),
            *(dump(job.counts) if job.counts is not None else None, base, past),
            *(dump(job.placements) if job.placements else None, dump([clean(p) for p in job.problems])),
            *(job.clock_offset_ms, observed_at, run.key.run_id),
        ),
    )
    documents: dict[str, Mapping[str, Any]] = {}
    if job.topology is not None:
        documents["topology"] = topology_document(job.topology)
    if job.config is not None:
        documents["config"] = config_document(job.config)
    before = await _versions_before(cursor, run, list(documents), job.started_at) if documents else {}
    for kind, document in documents.items():
        await _write_version(cursor, run, kind, document, before.get(kind, (None, None)), job, observed_at)


def _int4(value: int | None) -> int | None:
    # No run was restarted that often; a gauge that says so is broken.
    return value if value is not None and abs(value) <= INT4_MAX else None


def _unlisted(run: LockedRun, job: JobObservation, tally: CheckpointTally) -> tuple[int, int]:
    """(failures listed before the coordinator's counters began, failures that were never listed in earlier counts).

    The counters restart with the coordinator; then what had never been listed until there is put aside.
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
    kind: str,
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
    await cursor.execute(
        "INSERT INTO run_versions (run_id, kind, since, document) VALUES (%s, %s, %s, %s)"
        " ON CONFLICT (run_id, kind, since) DO UPDATE SET document = excluded.document",
        (run.key.run_id, kind, at, dump(after)),
    )
    if before is None:
        return
    event, text = ("rescaled", _rescaled(before, after)) if kind == "topology" else _changed(before, after)
    if text:
        await _add_event(cursor, run.key, event, key=at.isoformat(), at=at, text=text)


async def _versions_before(
    cursor: Cursor, run: LockedRun, kinds: Sequence[str], started_at: datetime
) -> Mapping[str, _Version]:
    """The newest document of each kind: this run's, else that of the job's run before; and whose it is."""
    await cursor.execute(
        "SELECT DISTINCT ON (v.kind) v.kind, v.document, v.run_id FROM run_versions v JOIN runs r ON r.id = v.run_id"
        " WHERE v.kind = ANY(%s) AND (r.id = %s OR (r.job_id = %s AND r.started_at < %s))"
        " ORDER BY v.kind, (r.id = %s) DESC, r.started_at DESC, v.since DESC",
        (kinds, run.key.run_id, run.key.job_id, started_at, run.key.run_id),
    )
    return {kind: (document, owner) for kind, document, owner in await cursor.fetchall()}


def _rescaled(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    was = {v["name"]: v["parallelism"] for v in before["vertices"]}
    changes = [
        f"{v['name']}: {was[v['name']]} -> {v['parallelism']}"
        for v in after["vertices"]
        if v["name"] in was and was[v["name"]] != v["parallelism"]
    ]
    return "parallelism " + ", ".join(changes) if changes else ""


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, str]:
    names = [n for n in after if before.get(n) != after[n]]
    return "configuration-changed", ", ".join(f"{n}: {_word(before.get(n))} -> {_word(after[n])}" for n in names)


def _word(value: object) -> str:
    return "not reported" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


async def _write_events(cursor: Cursor, run: LockedRun, job: JobObservation, observed_at: datetime) -> None:
    if job.state is JobState.ENDED:
        ended_at = job.ended_at or observed_at
        await _add_event(cursor, run.key, "run-ended", key="", at=ended_at, text=f"ended {clean(job.engine_state)}")
    if job.restart_count:
        many = f"restart {job.restart_count} of this run"
        await _add_event(cursor, run.key, "restarted", key=str(job.restart_count), at=observed_at, text=many)
    for at, words in _distinct(job.exceptions):
        key = f"{to_epoch_ms(at)}-{hashlib.blake2b(words.encode('utf-8', 'replace'), digest_size=8).hexdigest()}"
        await _add_event(cursor, run.key, "exception", key=key, at=at, text=words)


def _distinct(exceptions: Sequence[tuple[datetime, str]]) -> Sequence[tuple[datetime, str]]:
    return list(dict.fromkeys(exceptions))


async def _add_event(cursor: Cursor, run: RunKey, kind: str, *, key: str, at: datetime, text: str) -> None:
    # Seen twice, it happened when it was seen first.
    await cursor.execute(
        "INSERT INTO job_events AS e (run_id, kind, key, job_id, at, text) VALUES (%s, %s, %s, %s, %s, %s)"
        " ON CONFLICT (run_id, kind, key) DO UPDATE SET at = excluded.at WHERE excluded.at < e.at",
        (run.run_id, kind, key, run.job_id, at, clean(text)[:_EVENT_TEXT_MAX]),
    )
