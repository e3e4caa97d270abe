"""Reads and writes the annotations of jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import Select, bindparam, case, delete, func, or_, select, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.domain.errors import UnknownEntityError
from backend.domain.ids import JobId
from backend.store.postgres.keyset import newest_first
from backend.store.postgres.statements import among, one_of
from backend.store.schema import tables
from backend.store.schema.rows import row_of, value_of


@dataclass(frozen=True, slots=True)
class Annotation:
    """An annotation of one job. ``request_digest`` identifies the content of the request that posted it."""

    job_id: JobId
    id: str
    at: datetime
    until: datetime | None
    at_engine: datetime
    text: str
    link: str | None
    tags: Sequence[str]
    author: str | None
    added_at: datetime
    request_digest: str

    @property
    def until_engine(self) -> datetime | None:
        """The end on the engine's clock."""
        return None if self.until is None else self.until + (self.at_engine - self.at)


OF_CLUSTERS: Final = "k"
"""How the ids of the annotations begin that come from Kubernetes. Ids of posted ones begin with another letter."""
_SNAPSHOTS_MAX: Final = 1_000
_OTHERS_MAX: Final = 9_000
"""How many annotations from Kubernetes a job keeps: the newest snapshots, and the newest of all others."""
_C = tables.job_annotations.c
_ALL = select(tables.job_annotations)
_OF_ID = _ALL.where(_C.id == bindparam("id")).order_by(_C.job_id)
_SINCE, _UNTIL = bindparam("since", type_=tables.Instant), bindparam("until", type_=tables.Instant)
# An annotation that began before the range may last into it, so its end is compared with the begin of the range.
_OF_JOB: Select[tuple[object, ...]] = _ALL.where(
    _C.job_id == bindparam("job"),
    or_(_SINCE.is_(None), func.coalesce(_C.until + (_C.at_engine - _C.at), _C.at_engine) >= _SINCE),
    or_(_UNTIL.is_(None), _C.at_engine < _UNTIL),
)
_COUNTS = (
    select(_C.job_id, func.count(), func.count().filter(_C.added_at > bindparam("after", type_=tables.Instant)))
    .where(one_of(_C.job_id, "jobs"), ~_C.id.startswith(OF_CLUSTERS))
    .group_by(_C.job_id)
)


# The key of an advisory lock that allows only one request at a time to count and post annotations.
_LOCK_KEY = 0x62617276


async def lock_posting(connection: AsyncConnection) -> None:
    """Wait for other requests that post annotations, and make later ones wait until this transaction ends."""
    await connection.execute(select(func.pg_advisory_xact_lock(_LOCK_KEY)))


async def add_annotations(connection: AsyncConnection, added: Sequence[Annotation]) -> None:
    """Store annotations. Those that are already stored, by job and id, stay unchanged."""
    rows = [row_of(tables.job_annotations, a, tags=list(a.tags)) for a in added]
    await connection.execute(insert(tables.job_annotations).on_conflict_do_nothing(), rows)


async def annotations_with_id(connection: AsyncConnection, annotation_id: str) -> list[Annotation]:
    """Return the annotations with this id, one for each job to which it was posted."""
    return [value_of(Annotation, row) for row in (await connection.execute(_OF_ID, {"id": annotation_id})).mappings()]


async def list_annotations(
    connection: AsyncConnection,
    job_id: str,
    since: datetime | None,
    until: datetime | None,
    *,
    before: tuple[datetime, str] | None,
    limit: int,
) -> list[Annotation]:
    """Return up to ``limit`` annotations of a job that overlap a range on the engine's clock, newest first."""
    query, page = newest_first(_OF_JOB, _C.at_engine, _C.id, before=before, limit=limit)
    values = {"job": job_id, "since": since, "until": until}
    return [value_of(Annotation, row) for row in (await connection.execute(query, values | page)).mappings()]


async def counts_of(
    connection: AsyncConnection, job_ids: Sequence[str], *, after: datetime
) -> Mapping[str, tuple[int, int]]:
    """Return how many posted annotations each job has, and how many of them were posted after ``after``.

    Those from Kubernetes do not count. A job without posted annotations is absent.
    """
    rows = await connection.execute(_COUNTS, {"jobs": list(job_ids), "after": after})
    return {job_id: (count, recent) for job_id, count, recent in rows}


async def keep_newest_of_clusters(connection: AsyncConnection, job_ids: Iterable[str]) -> None:
    """Delete the oldest annotations of these jobs that come from Kubernetes, as far as there are too many."""
    is_snapshot = _C.tags.contains(["snapshot"])
    order = func.row_number().over(partition_by=(_C.job_id, is_snapshot), order_by=(_C.at_engine.desc(), _C.id))
    limit = case((is_snapshot, _SNAPSHOTS_MAX), else_=_OTHERS_MAX)
    ranked = (
        select(_C.job_id, _C.id, (order > limit).label("is_surplus"))
        .where(among(_C.job_id, job_ids), _C.id.startswith(OF_CLUSTERS))
        .subquery()
    )
    surplus = select(ranked.c.job_id, ranked.c.id).where(ranked.c.is_surplus)
    await connection.execute(delete(tables.job_annotations).where(tuple_(_C.job_id, _C.id).in_(surplus)))


async def remove_annotation(connection: AsyncConnection, annotation_id: str, *, job_id: str | None) -> None:
    """Delete an annotation of one job or, if ``job_id`` is None, of every job to which it was posted.

    Raises:
        UnknownEntityError: there is no such annotation.
    """
    wanted = delete(tables.job_annotations).where(_C.id == annotation_id)
    if job_id is not None:
        wanted = wanted.where(_C.job_id == job_id)
    if (await connection.execute(wanted)).rowcount == 0:
        raise UnknownEntityError(kind="annotation", id=annotation_id)
