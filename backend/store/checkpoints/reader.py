"""Reads checkpoints: pages of headers, details down to subtasks, what was seen while they were open.

Per-subtask values come back as they were handed in: NULL is missing, and nothing is filled in.
"""

# ruff: noqa: S608  the text put into statements is this module's own column lists; every value is bound.

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.domain.barriers import BarrierEvent
from backend.domain.checkpoint import (
    DETAIL_ARRAYS,
    CheckpointHeader,
    CheckpointKind,
    CheckpointStatus,
    LateBarrier,
    Progress,
    SavepointFormat,
    VertexDetail,
)
from backend.domain.errors import UnknownEntityError
from backend.domain.failure import FailureReason
from backend.domain.ids import JobId, RunId, VertexId
from backend.store.schema.arrays import expand
from backend.store.schema.documents import barriers_from, details_from, progress_from


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """A header with its place, and the largest values of any subtask (None where no detail is stored)."""

    job_id: JobId
    run_id: RunId
    triggered_on: date
    header: CheckpointHeader
    start_delay_max_ms: int | None
    alignment_max_ms: int | None
    sync_max_ms: int | None
    async_max_ms: int | None
    observed_at: datetime

    @property
    def place(self) -> Place:
        """Where its details are."""
        return Place(self.run_id, self.header.checkpoint_id, self.triggered_on)

    @property
    def cursor(self) -> tuple[datetime, int, str]:
        """Its position in a list that is newest first."""
        return self.header.triggered_at, self.header.checkpoint_id, self.run_id


@dataclass(frozen=True, slots=True)
class Place:
    """The full key of a checkpoint."""

    run_id: RunId
    checkpoint_id: int
    triggered_on: date


@dataclass(frozen=True, slots=True)
class CheckpointFilter:
    """Which checkpoints of a job; None does not restrict. Instants are of the trigger, ``since`` inclusive."""

    status: CheckpointStatus | None = None
    since: datetime | None = None
    until: datetime | None = None
    run_id: str | None = None


@dataclass(frozen=True, slots=True)
class LiveRecord:
    """What was seen of a checkpoint while it was open: its last state and the curve of acknowledgements."""

    progress: Progress
    details: tuple[VertexDetail, ...]
    points: tuple[tuple[datetime, int], ...]


_COLUMNS = (
    "c.job_id, c.run_id, c.triggered_on, c.checkpoint_id, c.kind, c.status, c.is_unaligned, c.triggered_at,"
    " c.latest_ack_at, c.end_to_end_duration_ms, c.checkpointed_size_bytes, c.full_state_size_bytes,"
    " c.processed_bytes, c.persisted_bytes, c.subtask_count, c.acknowledged_count, c.failure_reason,"
    " c.failure_message, c.failed_at, c.external_path, c.is_discarded, c.savepoint_format, c.start_delay_max_ms,"
    " c.alignment_max_ms, c.sync_max_ms, c.async_max_ms, c.observed_at"
)
_NEWEST_FIRST = "ORDER BY c.triggered_at DESC, c.checkpoint_id DESC, c.run_id DESC"


async def list_checkpoints(
    connection: AsyncConnection,
    job_id: str,
    wanted: CheckpointFilter,
    *,
    before: tuple[datetime, int, str] | None,
    limit: int,
) -> list[CheckpointRecord]:
    """Checkpoints of a job over all its runs, newest first, those older than ``before`` (a record's cursor)."""
    conditions = ["c.job_id = :job"]
    values: dict[str, Any] = {"job": job_id, "limit": limit}
    if wanted.status is not None:
        conditions.append("c.status = :status")
        values["status"] = wanted.status.value
    if wanted.run_id is not None:
        conditions.append("c.run_id = :run")
        values["run"] = wanted.run_id
    if wanted.since is not None:
        conditions.append("c.triggered_at >= :since AND c.triggered_on >= CAST(:since AS timestamptz)::date")
        values["since"] = wanted.since
    if wanted.until is not None:
        conditions.append("c.triggered_at < :until AND c.triggered_on <= CAST(:until AS timestamptz)::date")
        values["until"] = wanted.until
    if before is not None:
        conditions.append("(c.triggered_at, c.checkpoint_id, c.run_id) < (:at, :id, :before_run)")
        values |= dict(zip(("at", "id", "before_run"), before, strict=True))
    query = f"SELECT {_COLUMNS} FROM checkpoints c WHERE {' AND '.join(conditions)} {_NEWEST_FIRST} LIMIT :limit"
    return [_record(row) for row in (await connection.execute(text(query), values)).mappings()]


async def get_checkpoint(connection: AsyncConnection, run_id: str, checkpoint_id: int) -> CheckpointRecord:
    """One checkpoint of a run; the newest, where an engine repeated the id on another day.

    Raises:
        UnknownEntityError: the run has none of this id (any more).

    """
    query = text(
        f"SELECT {_COLUMNS} FROM checkpoints c WHERE c.run_id = :run AND c.checkpoint_id = :id {_NEWEST_FIRST} LIMIT 1"
    )
    row = (await connection.execute(query, {"run": run_id, "id": checkpoint_id})).mappings().first()
    if row is None:
        raise UnknownEntityError(kind="checkpoint", id=checkpoint_id)
    return _record(row)


async def list_around(
    connection: AsyncConnection, record: CheckpointRecord, *, before: int, after: int
) -> list[CheckpointRecord]:
    """The checkpoint with up to so many of its run triggered before and after it, oldest first."""
    query = text(
        f"SELECT * FROM (SELECT {_COLUMNS} FROM checkpoints c WHERE c.job_id = :job AND c.run_id = :run"
        " AND (c.triggered_at, c.checkpoint_id) <= (:at, :id)"
        " ORDER BY c.triggered_at DESC, c.checkpoint_id DESC LIMIT :before) a UNION ALL"
        f" SELECT * FROM (SELECT {_COLUMNS} FROM checkpoints c WHERE c.job_id = :job AND c.run_id = :run"
        " AND (c.triggered_at, c.checkpoint_id) > (:at, :id)"
        " ORDER BY c.triggered_at, c.checkpoint_id LIMIT :after) b ORDER BY triggered_at, checkpoint_id"
    )
    values = {
        "job": record.job_id,
        "run": record.run_id,
        "at": record.header.triggered_at,
        "id": record.header.checkpoint_id,
        "before": before + 1,
        "after": after,
    }
    return [_record(row) for row in (await connection.execute(query, values)).mappings()]


async def last_completed_before(
    connection: AsyncConnection, record: CheckpointRecord, *, faster_than_ms: int | None = None
) -> CheckpointRecord | None:
    """The newest completed checkpoint of the job triggered before this one, of those that were fast enough."""
    query = text(
        f"SELECT {_COLUMNS} FROM checkpoints c WHERE c.job_id = :job AND c.status = 'completed'"
        " AND (CAST(:limit AS int8) IS NULL OR c.end_to_end_duration_ms < CAST(:limit AS int8))"
        f" AND c.triggered_at < :at {_NEWEST_FIRST} LIMIT 1"
    )
    values = {"job": record.job_id, "at": record.header.triggered_at, "limit": faster_than_ms}
    row = (await connection.execute(query, values)).mappings().first()
    return None if row is None else _record(row)


async def recent_of_runs(
    connection: AsyncConnection, run_ids: Sequence[str], *, limit: int, since: date
) -> Mapping[str, list[CheckpointRecord]]:
    """The newest ``limit`` checkpoints of each run, oldest first; ``since`` bounds the days looked at."""
    query = text(
        f"SELECT {_COLUMNS} FROM runs i CROSS JOIN LATERAL"
        " (SELECT * FROM checkpoints WHERE job_id = i.job_id AND run_id = i.id"
        " AND triggered_on >= :since ORDER BY triggered_at DESC, checkpoint_id DESC LIMIT :limit) c"
        " WHERE i.id = ANY(:runs)"
        " ORDER BY c.triggered_at, c.checkpoint_id"
    )
    values = {"runs": list(run_ids), "limit": limit, "since": since}
    found: dict[str, list[CheckpointRecord]] = {r: [] for r in run_ids}
    for row in (await connection.execute(query, values)).mappings():
        found[row["run_id"]].append(_record(row))
    return found


async def details_of(connection: AsyncConnection, places: Iterable[Place]) -> Mapping[Place, tuple[VertexDetail, ...]]:
    """Per-vertex details of these checkpoints; nothing for one that has none."""
    keys = list(places)
    query = text(
        f"SELECT d.run_id, d.checkpoint_id, d.triggered_on, d.vertex_id, d.subtask_count, {_DETAIL_COLUMNS}"
        " FROM unnest(CAST(:runs AS text[]), CAST(:ids AS int8[]), CAST(:days AS date[])) AS k(run_id, id, day)"
        " JOIN checkpoint_details d ON d.run_id = k.run_id AND d.checkpoint_id = k.id AND d.triggered_on = k.day"
        # The planner cannot prune partitions by the rows of a join, so it is told the range.
        " WHERE d.triggered_on BETWEEN :first AND :last ORDER BY d.vertex_id"
    )
    if not keys:
        return {}
    days = [k.triggered_on for k in keys]
    values = {"runs": [k.run_id for k in keys], "ids": [k.checkpoint_id for k in keys], "days": days}
    rows = await connection.execute(query, values | {"first": min(days), "last": max(days)})
    found: dict[Place, list[VertexDetail]] = {}
    for run_id, checkpoint_id, day, vertex_id, count, *arrays in rows:
        values_by_name = {n: expand(a, count) for n, a in zip(DETAIL_ARRAYS, arrays, strict=True)}
        detail = VertexDetail(vertex_id=VertexId(vertex_id), **values_by_name)
        found.setdefault(Place(RunId(run_id), checkpoint_id, day), []).append(detail)
    return {place: tuple(details) for place, details in found.items()}


_DETAIL_COLUMNS = ", ".join(f"d.{name}" for name in DETAIL_ARRAYS)


async def late_barriers_of(
    connection: AsyncConnection, run_ids: Sequence[str], since: datetime
) -> Mapping[str, Mapping[int, tuple[LateBarrier, ...]]]:
    """First barriers of subtasks that had not acknowledged, by run and checkpoint, seen at or after ``since``."""
    query = text(
        "SELECT run_id, checkpoint_id, vertex_id, subtask, start_delay_ms, seen_at, resolution_ms FROM late_barriers"
        " WHERE run_id = ANY(:ids) AND seen_at >= :since ORDER BY vertex_id, subtask"
    )
    found: dict[str, dict[int, tuple[LateBarrier, ...]]] = {}
    for run_id, checkpoint_id, vertex_id, *values in await connection.execute(
        query, {"ids": list(run_ids), "since": since}
    ):
        of_run = found.setdefault(run_id, {})
        of_run[checkpoint_id] = (*of_run.get(checkpoint_id, ()), LateBarrier(VertexId(vertex_id), *values))
    return found


async def live_of(connection: AsyncConnection, run_id: str, checkpoint_id: int) -> LiveRecord | None:
    """What was seen of one checkpoint while it was open; None where it was never seen open."""
    return (await lives_of(connection, [(run_id, checkpoint_id)])).get((run_id, checkpoint_id))


async def lives_of(
    connection: AsyncConnection, keys: Sequence[tuple[str, int]]
) -> Mapping[tuple[str, int], LiveRecord]:
    """What was seen of each of these checkpoints (run, id) while it was open; nothing of one never seen open."""
    if not keys:
        return {}
    chosen = "FROM unnest(CAST(:runs AS text[]), CAST(:ids AS int8[])) AS k(run_id, id) JOIN {table} t"
    chosen += " ON t.run_id = k.run_id AND t.checkpoint_id = k.id"
    values = {"runs": [run for run, _ in keys], "ids": [number for _, number in keys]}
    rows = await connection.execute(
        text(
            "SELECT t.run_id, t.checkpoint_id, observed_at, acknowledged_count, subtask_count, document "
            + chosen.format(table="live_progress")
        ),
        values,
    )
    newest = {(run, number): rest for run, number, *rest in rows}
    rows = await connection.execute(
        text(
            "SELECT t.run_id, t.checkpoint_id, observed_at, acknowledged_count "
            + chosen.format(table="progress_points")
            + " ORDER BY observed_at"
        ),
        values,
    )
    points: dict[tuple[str, int], list[tuple[datetime, int]]] = {}
    for run, number, at, count in rows:
        points.setdefault((run, number), []).append((at, count))
    return {
        key: LiveRecord(
            progress=progress_from(key[1], observed_at, acknowledged, total, document),
            details=details_from(document),
            points=tuple(points.get(key, ())),
        )
        for key, (observed_at, acknowledged, total, document) in newest.items()
    }


async def barriers_of(connection: AsyncConnection, place: Place) -> tuple[BarrierEvent, ...] | None:
    """Per-channel barrier events of one checkpoint; None where the engine reports none."""
    blob = (await connection.execute(_barriers("events"), _place_values(place))).scalar_one_or_none()
    return None if blob is None else barriers_from(bytes(blob))


async def has_barriers(connection: AsyncConnection, place: Place) -> bool:
    """Whether per-channel barrier events of one checkpoint are stored."""
    return (await connection.execute(_barriers("1"), _place_values(place))).first() is not None


def _barriers(what: str) -> Any:
    return text(
        f"SELECT {what} FROM barrier_events WHERE run_id = :run AND checkpoint_id = :id AND triggered_on = :day"
    )


def _place_values(place: Place) -> dict[str, Any]:
    return {"run": place.run_id, "id": place.checkpoint_id, "day": place.triggered_on}


def _record(row: RowMapping) -> CheckpointRecord:
    reason, form = row["failure_reason"], row["savepoint_format"]
    header = CheckpointHeader(
        checkpoint_id=row["checkpoint_id"],
        kind=CheckpointKind(row["kind"]),
        status=CheckpointStatus(row["status"]),
        triggered_at=row["triggered_at"],
        is_unaligned=row["is_unaligned"],
        latest_ack_at=row["latest_ack_at"],
        end_to_end_duration_ms=row["end_to_end_duration_ms"],
        checkpointed_size_bytes=row["checkpointed_size_bytes"],
        full_state_size_bytes=row["full_state_size_bytes"],
        processed_bytes=row["processed_bytes"],
        persisted_bytes=row["persisted_bytes"],
        subtask_count=row["subtask_count"],
        acknowledged_count=row["acknowledged_count"],
        failure_reason=None if reason is None else FailureReason(reason),
        failure_message=row["failure_message"],
        failed_at=row["failed_at"],
        external_path=row["external_path"],
        is_discarded=row["is_discarded"],
        savepoint_format=None if form is None else SavepointFormat(form),
    )
    return CheckpointRecord(
        job_id=JobId(row["job_id"]),
        run_id=RunId(row["run_id"]),
        triggered_on=row["triggered_on"],
        header=header,
        start_delay_max_ms=row["start_delay_max_ms"],
        alignment_max_ms=row["alignment_max_ms"],
        sync_max_ms=row["sync_max_ms"],
        async_max_ms=row["async_max_ms"],
        observed_at=row["observed_at"],
    )
