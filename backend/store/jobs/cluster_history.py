"""Brings what Kubernetes says of clusters into the history of their jobs: annotations, and ends of pods as events.

Each happening is annotated once, however often and by however many collectors it is seen. The jobs of a cluster are
those of its deployment, which is the label ``deployment`` of its target.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import datetime, timedelta
from typing import Final

import structlog
from sqlalchemy import delete, or_, select, true
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.domain.clock import to_epoch_ms
from backend.domain.cluster_history import Happening, News, ObjectState, between
from backend.domain.ids import JobId
from backend.domain.observation import JobEventKind
from backend.domain.pod_ends import PodEnd
from backend.store.jobs.annotations import (
    OF_CLUSTERS,
    Annotation,
    add_annotations,
    keep_newest_of_clusters,
    lock_posting,
)
from backend.store.jobs.reader import list_these
from backend.store.postgres.connections import writing
from backend.store.postgres.encoding import clean
from backend.store.postgres.statements import among
from backend.store.schema import tables, watch_tables

_log = structlog.get_logger(__name__)

AUTHOR: Final = "Kubernetes"
_WAIT: Final = timedelta(minutes=10)
"""How long after its time a happening waits for the jobs that it concerns. Runs are read later than Kubernetes."""
_BEFORE: Final = timedelta(minutes=1)
_AFTER: Final = timedelta(minutes=5)
_STATE, _DONE = watch_tables.cluster_states.c, watch_tables.cluster_happenings.c
_JOB, _RUN, _EVENT = tables.jobs.c, tables.runs.c, tables.job_events.c
_TARGET = tables.targets.c


class ClusterHistory:
    """Writes news of clusters to PostgreSQL. Each call is one transaction."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def note(self, news: Sequence[News], *, at: datetime) -> list[News]:
        """Store news. Return those whose jobs or runs are not stored yet, to be noted again later.

        Raises:
            StoreUnavailableError: PostgreSQL does not respond; nothing is stored.
        """
        async with writing(self._engine) as connection:
            jobs = await _jobs_of(connection, {n.deployment for n in news})
            found = await _compared(connection, news, jobs, at)
            found += [(n, n.what) for n in news if isinstance(n.what, Happening)]
            runs = await _runs_of(connection, jobs, {run for _, what in found for run in what.engine_run_ids})
            of = {id(n): _concerned(jobs.get(n.deployment, ()), what, runs) for n, what in found}
            await _annotate(connection, [(n.deployment, what, of[id(n)]) for n, what in found if of[id(n)]], at)
            for one in news:
                if isinstance(one.what, PodEnd) and one.deployment in jobs:
                    await _add_end(connection, one.what, jobs[one.deployment], one.target_url)
            waiting = {key for key, concerned in of.items() if not concerned}
            return [n for n in news if id(n) in waiting or (isinstance(n.what, PodEnd) and n.deployment not in jobs)]


async def _jobs_of(connection: AsyncConnection, deployments: Iterable[str]) -> dict[str, list[JobId]]:
    rows = await connection.execute(select(_JOB.deployment, _JOB.id).where(among(_JOB.deployment, deployments)))
    found: dict[str, list[JobId]] = {}
    for deployment, job in rows:
        found.setdefault(deployment, []).append(JobId(job))
    return found


async def _runs_of(
    connection: AsyncConnection, jobs: Mapping[str, Sequence[JobId]], engine_run_ids: Set[str]
) -> Set[tuple[str, str]]:
    """Return the jobs and the runs among these that are stored."""
    if not engine_run_ids:
        return set()
    ids = {job for some in jobs.values() for job in some}
    rows = await connection.execute(
        select(_RUN.job_id, _RUN.engine_run_id).where(
            among(_RUN.job_id, ids), among(_RUN.engine_run_id, engine_run_ids)
        )
    )
    return {(job, run) for job, run in rows}


def _concerned(jobs: Sequence[JobId], what: Happening, runs: Set[tuple[str, str]]) -> list[JobId]:
    return [j for j in jobs if not what.engine_run_ids or any((j, run) in runs for run in what.engine_run_ids)]


async def _compared(
    connection: AsyncConnection, news: Sequence[News], jobs: Mapping[str, Sequence[JobId]], at: datetime
) -> list[tuple[News, Happening]]:
    """Keep the states of objects, and return what happened since the states that were kept before.

    While a happening waits for its jobs, the earlier state stays. So a collector that starts anew finds it again.
    """
    seen = [(n, n.what) for n in news if isinstance(n.what, ObjectState)]
    if not seen:
        return []
    subjects = sorted({state.subject for _, state in seen})
    # Two collectors that see one upgrade come here one after the other.
    rows = await connection.execute(
        select(_STATE.subject, _STATE.state)
        .where(among(_STATE.subject, subjects))
        .order_by(_STATE.subject)
        .with_for_update()
    )
    kept = {subject: ObjectState.of(subject, document) for subject, document in rows}
    ids = {state.job_id for state in (*kept.values(), *(state for _, state in seen)) if state.job_id}
    runs = await _runs_of(connection, jobs, ids)
    happened: list[tuple[News, Happening]] = []
    for one, after in seen:
        before = kept.get(after.subject)
        if before is not None and after.at < before.at:
            # Another collector has seen a newer state already.
            continue
        if before is not None and (what := between(before, after)) is not None:
            is_written = bool(_concerned(jobs.get(one.deployment, ()), what, runs))
            if is_written or at - what.at < _WAIT:
                happened.append((one, what))
            if not is_written and at - what.at < _WAIT:
                continue
        kept[after.subject] = after
    new = insert(watch_tables.cluster_states)
    newer = new.on_conflict_do_update(
        index_elements=[_STATE.subject], set_={"state": new.excluded.state, "noted_at": new.excluded.noted_at}
    )
    values = [{"subject": s, "state": kept[s].document(), "noted_at": at} for s in subjects]
    await connection.execute(newer, values)
    return happened


async def _annotate(
    connection: AsyncConnection, happened: Sequence[tuple[str, Happening, Sequence[JobId]]], at: datetime
) -> None:
    if not happened:
        return
    await lock_posting(connection)
    rows = {(deployment, what.key): (what, jobs) for deployment, what, jobs in happened}
    deployments, keys = {deployment for deployment, _ in rows}, [key for _, key in rows]
    known = select(_DONE.deployment, _DONE.key).where(among(_DONE.deployment, deployments), among(_DONE.key, keys))
    done = {(deployment, key) for deployment, key in await connection.execute(known)}
    new = {row: what for row, what in rows.items() if row not in done}
    if not new:
        return
    ids = {job for _, jobs in new.values() for job in jobs}
    records = {record.id: record for record in await list_these(connection, ids)}
    added = [
        Annotation(
            job_id=job,
            id=_id_of(deployment, what.key),
            # The nodes of a cluster have one clock, so the times of Kubernetes are on the engine's clock, not on ours.
            at=what.at - timedelta(milliseconds=records[job].clock_offset_ms or 0),
            until=None,
            at_engine=what.at,
            text=clean(what.text),
            link=None,
            tags=("kubernetes", what.tag),
            author=AUTHOR,
            added_at=at,
            request_digest=_id_of(deployment, what.text),
        )
        for (deployment, _), (what, jobs) in new.items()
        for job in jobs
        if job in records
    ]
    if added:
        await add_annotations(connection, added)
        await keep_newest_of_clusters(connection, {a.job_id for a in added})
    written = {(a.job_id, a.id) for a in added}
    noted = [
        {"deployment": deployment, "key": key, "noted_at": at}
        for (deployment, key), (_, jobs) in new.items()
        if any((job, _id_of(deployment, key)) in written for job in jobs)
    ]
    if noted:
        await connection.execute(insert(watch_tables.cluster_happenings).on_conflict_do_nothing(), noted)
    _log.info("history of clusters annotated", happenings=len(noted), annotations=len(added))


async def _add_end(connection: AsyncConnection, end: PodEnd, jobs: Sequence[JobId], target_url: str | None) -> None:
    """Add the end of a pod to the runs of these jobs that ran at its time, in the cluster with this address.

    The nodes of a cluster share one time, so the time of the end is on the engine's clock, as the times of runs are.
    """
    found = await connection.execute(
        select(_RUN.id, _RUN.job_id)
        .select_from(tables.runs.join(tables.targets, _TARGET.id == _RUN.target_id))
        .where(
            _TARGET.url == target_url if target_url is not None else true(),
            among(_RUN.job_id, jobs),
            _RUN.started_at <= end.at + _BEFORE,
            or_(_RUN.ended_at.is_(None), _RUN.ended_at >= end.at - _AFTER),
        )
    )
    rows = [
        {
            "run_id": run,
            "kind": JobEventKind.POD_ENDED.value,
            "key": f"{to_epoch_ms(end.at)}-{end.pod}",
            "job_id": job,
            "at": end.at,
            "text": clean(end.text),
        }
        for run, job in found
    ]
    if rows:
        new = insert(tables.job_events).values(rows).on_conflict_do_nothing().returning(_EVENT.run_id)
        runs = list(await connection.scalars(new))
        # A finding that was made before the end was known is made again.
        await connection.execute(delete(tables.findings).where(among(tables.findings.c.run_id, runs)))


def _id_of(deployment: str, text: str) -> str:
    words = f"{len(deployment)}:{deployment}{text}".encode("utf-8", "replace")
    return OF_CLUSTERS + hashlib.blake2b(words, digest_size=16).hexdigest()
