"""Reads the measures of the checkpoints in a window of time. Savepoints and open checkpoints are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, bindparam, exists, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.domain.checkpoint import CheckpointKind, CheckpointStatus
from backend.domain.failure import FailureReason
from backend.domain.ids import RunId
from backend.domain.rollup import Measure
from backend.store.schema import tables
from backend.store.schema.partitions import day_of

_C = tables.checkpoints.c


@dataclass(frozen=True, slots=True)
class WindowCounts:
    """The number of checkpoints in a window, exact however many there are."""

    completed_count: int
    failed_by_reason: Mapping[FailureReason, int]

    @property
    def failed_count(self) -> int:
        """All failures."""
        return sum(self.failed_by_reason.values())


@dataclass(frozen=True, slots=True)
class WindowCheckpoint:
    """The values of one checkpoint that are compared. A value that was not reported is None."""

    status: CheckpointStatus
    is_expired: bool
    values: Mapping[Measure, int | None]


_IN_SPAN = (
    _C.kind == CheckpointKind.CHECKPOINT.value,
    _C.triggered_at >= bindparam("since"),
    _C.triggered_at < bindparam("until"),
    # The days let PostgreSQL skip partitions.
    _C.triggered_on.between(bindparam("first"), bindparam("last")),
)


def _in_window(query: Select[Any]) -> Select[Any]:
    return query.where(_C.job_id == bindparam("job"), _C.status != CheckpointStatus.IN_PROGRESS.value, *_IN_SPAN)


_COUNTS = _in_window(select(_C.status, _C.failure_reason, func.count())).group_by(_C.status, _C.failure_reason)
_NEWEST = (
    _in_window(select(_C.status, _C.failure_reason, *(_C[m.value] for m in Measure)))
    .order_by(_C.triggered_on.desc(), _C.triggered_at.desc())
    .limit(bindparam("limit"))
)

_HAS_OPEN = select(
    exists().where(
        _C.run_id == bindparam("run"),
        _C.status == CheckpointStatus.IN_PROGRESS.value,
        _C.observed_at >= bindparam("seen", type_=tables.Instant),
        *_IN_SPAN,
    )
)


async def window_counts(connection: AsyncConnection, job_id: str, since: datetime, until: datetime) -> WindowCounts:
    """Return the number of a job's checkpoints that were triggered from ``since`` until before ``until``."""
    completed, failed = 0, dict[FailureReason, int]()
    for status, reason, count in await connection.execute(_COUNTS, _values(job_id, since, until)):
        if status == CheckpointStatus.COMPLETED.value:
            completed += count
        else:
            known = FailureReason(reason) if reason is not None else FailureReason.UNKNOWN
            failed[known] = failed.get(known, 0) + count
    return WindowCounts(completed, dict(sorted(failed.items())))


async def window_checkpoints(
    connection: AsyncConnection, job_id: str, since: datetime, until: datetime, *, limit: int
) -> Sequence[WindowCheckpoint]:
    """Return the newest ``limit`` of the checkpoints in a window, newest first."""
    rows = await connection.execute(_NEWEST, _values(job_id, since, until) | {"limit": limit})
    return [
        WindowCheckpoint(
            CheckpointStatus(row[0]),
            row[1] == FailureReason.EXPIRED.value,
            dict(zip(Measure, row[2:], strict=True)),
        )
        for row in rows
    ]


async def has_open(
    connection: AsyncConnection, run_id: RunId, since: datetime, until: datetime, *, seen_since: datetime
) -> bool:
    """Return whether a checkpoint that a run triggered in a window is still open, and was read at ``seen_since``."""
    values = {"run": run_id, "seen": seen_since, **_span(since, until)}
    return bool((await connection.execute(_HAS_OPEN, values)).scalar_one())


def _values(job_id: str, since: datetime, until: datetime) -> dict[str, object]:
    return {"job": job_id, **_span(since, until)}


def _span(since: datetime, until: datetime) -> dict[str, object]:
    return {"since": since, "until": until, "first": day_of(since), "last": day_of(until)}
