"""Writes the progress of open checkpoints, late barriers, and readings of backpressure.

The caller holds the lock on the run's row. Invariant: the newest progress of a checkpoint is kept. Points of the
acknowledgement curve, late barriers and readings are stored once each, in whatever order they arrive.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ARRAY, REAL, BigInteger, bindparam, select, text
from sqlalchemy.dialects.postgresql import insert as pg_insert

from backend.domain.checkpoint import Checkpoint, LateBarrier, Progress
from backend.domain.pressure import VertexPressure
from backend.store.postgres.copying import Cursor, copy_rows
from backend.store.postgres.encoding import clean, dump
from backend.store.postgres.statements import beside_key, bound, one_of, replaced, sql_of
from backend.store.schema import tables
from backend.store.schema.arrays import INT4_MAX, compact, compact_ratios
from backend.store.schema.documents import progress_document
from backend.store.schema.partitions import day_of
from backend.store.schema.rows import row_of

_READING = tables.pressure.c
RATIO_ARRAYS: Final = tuple(
    c.name for c in _READING if isinstance(c.type, ARRAY) and isinstance(c.type.item_type, REAL)
)
_COUNT_ARRAYS: Final = tuple(
    c.name for c in _READING if isinstance(c.type, ARRAY) and isinstance(c.type.item_type, BigInteger)
)
PRESSURE_ARRAYS: Final = RATIO_ARRAYS + _COUNT_ARRAYS
"""The arrays of a reading; bit ``i`` of the column ``asked`` is set if the ``i``-th array was read."""

_LIVE = pg_insert(tables.live_progress).values(bound(tables.live_progress.c))
_WRITE_LIVE = sql_of(
    _LIVE.on_conflict_do_update(
        index_elements=tables.live_progress.primary_key,
        set_=replaced(_LIVE, beside_key(tables.live_progress))
        # A reading without details keeps the stored ones.
        | {
            "document": text(
                "CASE WHEN excluded.document -> 'details' = '[]' THEN jsonb_set(excluded.document, '{details}',"
                " live_progress.document -> 'details') ELSE excluded.document END"
            )
        },
        where=_LIVE.excluded.observed_at > tables.live_progress.c.observed_at,
    )
)
_WRITE_POINT = sql_of(
    pg_insert(tables.progress_points).values(bound(tables.progress_points.c)).on_conflict_do_nothing()
)
_LATE = pg_insert(tables.late_barriers).values(bound(tables.late_barriers.c))
_WRITE_LATE = sql_of(
    _LATE.on_conflict_do_update(
        index_elements=tables.late_barriers.primary_key,
        set_=replaced(_LATE, beside_key(tables.late_barriers)),
        where=_LATE.excluded.seen_at < tables.late_barriers.c.seen_at,
    )
)
_STORED_READINGS = sql_of(
    select(_READING.vertex_id, _READING.observed_at).where(
        _READING.run_id == bindparam("run"),
        one_of(_READING.observed_at, "instants"),
        one_of(_READING.observed_on, "days"),
    )
)


async def write_progress(
    cursor: Cursor, run_id: str, progress: Sequence[Progress], checkpoints: Sequence[Checkpoint], observed_at: datetime
) -> None:
    """Store the progress of open checkpoints; ``checkpoints`` may hold the details so far of those in progress."""
    by_id: dict[int, Progress | None] = {p.checkpoint_id: p for p in progress}
    opened = {c.header.checkpoint_id: c for c in checkpoints if not c.header.status.is_terminal}
    rows = []
    for checkpoint_id in sorted(by_id | opened):
        seen, checkpoint = by_id.get(checkpoint_id), opened.get(checkpoint_id)
        if seen is not None:
            at, acknowledged, total = seen.observed_at, seen.acknowledged_count, seen.subtask_count
        elif checkpoint is not None:
            header = checkpoint.header
            at, acknowledged, total = observed_at, header.acknowledged_count, header.subtask_count
        else:
            continue
        document = dump(progress_document(seen, checkpoint.details if checkpoint is not None else ()))
        rows.append(
            {
                "run_id": run_id,
                "checkpoint_id": checkpoint_id,
                "observed_at": at,
                "acknowledged_count": min(acknowledged, INT4_MAX),
                "subtask_count": min(total, INT4_MAX),
                "document": document,
            }
        )
    if rows:
        await cursor.executemany(_WRITE_LIVE, rows)
        await cursor.executemany(_WRITE_POINT, rows)


async def write_late_barriers(cursor: Cursor, run_id: str, progress: Sequence[Progress]) -> None:
    """Store the first barriers of subtasks that had not acknowledged; of two readings the earlier one is kept."""
    rows = [_late_row(run_id, p.checkpoint_id, late) for p in progress for late in p.late_barriers]
    if rows:
        await cursor.executemany(_WRITE_LATE, rows)


async def write_pressure(cursor: Cursor, run_id: str, readings: Sequence[VertexPressure]) -> int:
    """Store the readings that are not stored yet; return how many were new."""
    if not readings:
        return 0
    instants, days = {r.observed_at for r in readings}, {day_of(r.observed_at) for r in readings}
    await cursor.execute(_STORED_READINGS, {"run": run_id, "instants": list(instants), "days": list(days)})
    known = set(await cursor.fetchall())
    new = {(clean(r.vertex_id), r.observed_at): r for r in readings}
    rows = [_pressure_row(run_id, v, r) for (v, at), r in new.items() if (v, at) not in known]
    await copy_rows(cursor, tables.pressure, rows)
    return len(rows)


def _late_row(run_id: str, checkpoint_id: int, late: LateBarrier) -> dict[str, Any]:
    return row_of(tables.late_barriers, late, run_id=run_id, checkpoint_id=checkpoint_id)


def _pressure_row(run_id: str, vertex_id: str, reading: VertexPressure) -> dict[str, Any]:
    arrays: dict[str, Any] = {name: compact_ratios(getattr(reading, name)) for name in RATIO_ARRAYS}
    arrays |= {name: compact(getattr(reading, name)) for name in _COUNT_ARRAYS}
    return arrays | {
        "run_id": run_id,
        "observed_at": reading.observed_at,
        "vertex_id": vertex_id,
        "observed_on": day_of(reading.observed_at),
        "subtask_count": max(len(getattr(reading, name)) for name in PRESSURE_ARRAYS),
        "asked": sum(1 << i for i, name in enumerate(PRESSURE_ARRAYS) if getattr(reading, name)),
    }
