"""Finds the checkpoints that ended since an earlier look, for the counters of ``/metrics``.

One query finds them for all jobs: the index on the transaction that last wrote a row leads to the newest rows of today
and yesterday. A row that was written again, for example because its details came later, is found again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import BigInteger, Date, bindparam, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.domain.checkpoint import CheckpointKind, CheckpointStatus
from backend.domain.failure import FailureReason
from backend.domain.ids import JobId, RunId
from backend.store.schema import tables
from backend.store.schema.partitions import day_of
from backend.store.schema.rows import value_of

LOOK_BACK: Final = timedelta(days=1)
"""A checkpoint that was triggered longer ago is not found. Its job ended it long before, or was read very late."""

_C = tables.checkpoints.c
# Every row that a later look must find has this id or a greater one, whether its transaction has ended by now or not.
_HORIZON = text("SELECT (pg_snapshot_xmin(pg_current_snapshot())::text)::bigint")
_ENDED = select(_C.job_id, _C.run_id, _C.checkpoint_id, _C.status, _C.failure_reason).where(
    _C.triggered_on >= bindparam("day", type_=Date),
    _C.changed_xid >= bindparam("since", type_=BigInteger),
    _C.kind == CheckpointKind.CHECKPOINT.value,
    _C.status != CheckpointStatus.IN_PROGRESS.value,
)


@dataclass(frozen=True, slots=True)
class EndedSince:
    """A checkpoint that has ended, without its savepoints. ``failure_reason`` is None if it completed."""

    job_id: JobId
    run_id: RunId
    checkpoint_id: int
    status: CheckpointStatus
    failure_reason: FailureReason | None


async def horizon_of(connection: AsyncConnection) -> int:
    """Return the mark from which a later ``ended_since`` finds every checkpoint that is written from now on."""
    return int((await connection.execute(_HORIZON)).scalar_one())


async def ended_since(connection: AsyncConnection, horizon: int, now: datetime) -> Sequence[EndedSince]:
    """Return the ended checkpoints whose rows were written at or after ``horizon``, without savepoints."""
    values = {"since": horizon, "day": day_of(now - LOOK_BACK)}
    return [value_of(EndedSince, row) for row in (await connection.execute(_ENDED, values)).mappings()]
