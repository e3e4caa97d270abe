"""Handles requests about annotations: what scripts and people post about jobs, such as deployments.

The time of an annotation is on the clock of the caller, which is taken as ours. The checkpoints of a job have times on
its engine's clock, so each annotation also gets its time on that clock.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final, cast

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.contracts.annotations import AnnotationIn, AnnotationOut, AnnotationsIn
from backend.contracts.api import Page
from backend.domain.clock import Clock
from backend.domain.errors import (
    ConflictError,
    FieldProblem,
    InvalidInputError,
    RateLimitedError,
    UnknownEntityError,
)
from backend.services.jobs.reader import TimeRange
from backend.services.paging import decode_cursor, page_of
from backend.store.jobs.annotations import (
    Annotation,
    add_annotations,
    annotations_with_id,
    counts_of,
    list_annotations,
    lock_posting,
    remove_annotation,
)
from backend.store.jobs.reader import JobRecord, get_job, list_current
from backend.store.postgres.connections import reading, writing

JOBS_MAX: Final = 500
"""The largest number of jobs to which one request may post."""
MINUTE_MAX: Final = 30
"""The largest number of annotations that a job may get within a minute."""
STORED_MAX: Final = 10_000
"""The largest number of annotations that a job may have."""
_MINUTE = timedelta(minutes=1)
_AHEAD_MAX = timedelta(days=1)
_LONGEST = timedelta(days=31)


class AnnotationService:
    """Posts, lists and deletes annotations."""

    def __init__(self, engine: AsyncEngine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    async def page(self, job_id: str, wanted: TimeRange, *, cursor: str | None, limit: int) -> Page[AnnotationOut]:
        """Return one page of a job's annotations that overlap a range on the engine's clock, newest first.

        Raises:
            UnknownEntityError: there is no such job.
            InvalidInputError: the cursor does not belong to this list.
        """
        before = cast("tuple[datetime, str] | None", decode_cursor(cursor, (datetime, str)))
        async with reading(self._engine) as connection:
            await get_job(connection, job_id)
            found = await list_annotations(
                connection, job_id, wanted.since, wanted.until, before=before, limit=limit + 1
            )
        items, following = page_of(found, limit, lambda a: (a.at_engine, a.id))
        return Page[AnnotationOut](items=[_out(a) for a in items], next=following, as_of=self._clock.now())

    async def add_to_job(self, job_id: str, wanted: AnnotationIn, *, key: str | None) -> AnnotationOut:
        """Post an annotation to one job. A repeated request with the same ``key`` returns what the first one posted.

        Raises:
            UnknownEntityError: there is no such job.
            InvalidInputError: the times are invalid.
            ConflictError: the key was used for another request, or the job has too many annotations.
            RateLimitedError: the job got too many annotations within a minute.
        """
        async with writing(self._engine) as connection:
            job = await get_job(connection, job_id)
            (added,) = await self._add(connection, wanted, _id_of(key, job_id), jobs=lambda: [job])
        return _out(added)

    async def add(self, wanted: AnnotationsIn, *, key: str | None) -> Page[AnnotationOut]:
        """Post an annotation to every watched job that fits the selection of the request.

        A repeated request with the same ``key`` returns what the first one posted.

        Raises:
            UnknownEntityError: no job fits.
            InvalidInputError: the request selects nothing or too many jobs, or the times are invalid.
            ConflictError: the key was used for another request, or a job has too many annotations.
            RateLimitedError: a job got too many annotations within a minute.
        """
        if wanted.job is None and wanted.target is None and not wanted.labels:
            problem = FieldProblem("job", "nothing is selected", "at least one of job, target and labels")
            raise InvalidInputError([problem], what="annotation")
        async with writing(self._engine) as connection:
            watched = await list_current(connection)
            found = await self._add(connection, wanted, _id_of(key, None), jobs=lambda: _selected(watched, wanted))
        return Page[AnnotationOut](items=[_out(a) for a in found], next=None, as_of=self._clock.now())

    async def remove(self, annotation_id: str, *, job_id: str | None) -> None:
        """Delete an annotation of one job or, if ``job_id`` is None, of every job to which it was posted.

        Raises:
            UnknownEntityError: there is no such annotation.
        """
        async with writing(self._engine) as connection:
            await remove_annotation(connection, annotation_id, job_id=job_id)

    async def _add(
        self,
        connection: AsyncConnection,
        wanted: AnnotationIn,
        annotation_id: str,
        *,
        jobs: Callable[[], Sequence[JobRecord]],
    ) -> list[Annotation]:
        now, digest = self._clock.now(), _digest(wanted)
        # If the request has no key, its id is new, so no annotation has this id yet.
        before = await annotations_with_id(connection, annotation_id)
        if not before:
            at = wanted.at or now
            _check_times(at, wanted.until, now)
            chosen = jobs()
            # Only one request at a time counts and posts, because concurrent requests would not count each other's
            # annotations.
            await lock_posting(connection)
            await _check_counts(connection, chosen, now)
            added = [_annotation(job, wanted, annotation_id, at, now, digest) for job in chosen]
            await add_annotations(connection, added)
            # Another request with the same key may have been faster. Then the annotations that it stored are returned.
            before = await annotations_with_id(connection, annotation_id)
        if any(a.request_digest != digest for a in before):
            raise ConflictError("this Idempotency-Key was used for another request", kind="idempotency-key-used")
        return before


def _selected(watched: Sequence[JobRecord], wanted: AnnotationsIn) -> list[JobRecord]:
    job_records = [
        job
        for job in watched
        if wanted.job in (None, job.name)
        and wanted.target in (None, job.target_name, job.run.target_id)
        and wanted.labels.items() <= job.labels.items()
    ]
    if not job_records:
        raise UnknownEntityError(kind="job", id=wanted.job or wanted.target or wanted.labels)
    if len(job_records) > JOBS_MAX:
        problem = FieldProblem("job", f"{len(job_records)} jobs fit", f"at most {JOBS_MAX} jobs")
        raise InvalidInputError([problem], what="annotation")
    return job_records


def _annotation(
    job: JobRecord, wanted: AnnotationIn, annotation_id: str, at: datetime, now: datetime, digest: str
) -> Annotation:
    return Annotation(
        job_id=job.id,
        id=annotation_id,
        at=at,
        until=wanted.until,
        at_engine=job.engine_now(at),
        text=wanted.text,
        link=wanted.link,
        tags=tuple(wanted.tags),
        author=wanted.author,
        added_at=now,
        request_digest=digest,
    )


def _check_times(at: datetime, until: datetime | None, now: datetime) -> None:
    problem = None
    if at > now + _AHEAD_MAX:
        problem = FieldProblem("at", "is too far in the future", "at most a day from now")
    elif at.year < 1970:
        problem = FieldProblem("at", "is too early", "1970 or later")
    elif until is not None and not at <= until <= at + _LONGEST:
        problem = FieldProblem("until", "is before `at` or too long after it", f"within {_LONGEST.days} days of `at`")
    if problem is not None:
        raise InvalidInputError([problem], what="annotation")


async def _check_counts(connection: AsyncConnection, jobs: Sequence[JobRecord], now: datetime) -> None:
    counts = await counts_of(connection, [job.id for job in jobs], after=now - _MINUTE)
    if any(recent >= MINUTE_MAX for _, recent in counts.values()):
        detail = f"a job gets at most {MINUTE_MAX} annotations in a minute"
        raise RateLimitedError(detail, retry_after_s=int(_MINUTE.total_seconds()))
    if any(count >= STORED_MAX for count, _ in counts.values()):
        detail = f"a job has at most {STORED_MAX} annotations; delete some"
        raise ConflictError(detail, kind="too-many-annotations")


def _id_of(key: str | None, job_id: str | None) -> str:
    """Return a new id or, if there is a key, the id that belongs to it.

    The same key gives different ids for different jobs.
    """
    if key is None:
        return "n" + secrets.token_hex(8)
    text = f"{len(key)}:{key}{job_id or ''}"
    return "n" + hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()


def _digest(wanted: AnnotationIn) -> str:
    return hashlib.blake2b(wanted.model_dump_json().encode(), digest_size=12).hexdigest()


def _out(annotation: Annotation) -> AnnotationOut:
    return AnnotationOut.of(annotation)
