"""Writes what was read of a run: the progress of open checkpoints, their late barriers, and the backpressure.

The caller holds the lock on the run's row. Invariants: only the newest progress of a checkpoint is stored. Each point
of the acknowledgement curve, each late barrier and each reading is stored once, in whatever order they arrive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ARRAY, REAL, BigInteger, Date, Double, Text, bindparam, func, literal_column, select, text, true
from sqlalchemy.dialects.postgresql import insert as pg_insert

from backend.domain.checkpoint import Checkpoint, LateBarrier, Progress
from backend.domain.pressure import VertexPressure
from backend.store.postgres.copying import Cursor, copy_rows
from backend.store.postgres.encoding import clean, dump
from backend.store.postgres.statements import beside_key, bound, replaced, sql_of
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
_RATE_ARRAYS: Final = tuple(
    c.name for c in _READING if isinstance(c.type, ARRAY) and isinstance(c.type.item_type, Double)
)
PRESSURE_ARRAYS: Final = RATIO_ARRAYS + _COUNT_ARRAYS + _RATE_ARRAYS
"""The array columns of a reading. Bit ``i`` of the column ``asked`` is set if the ``i``-th of them was read."""

_LIVE = pg_insert(tables.live_progress).values(bound(tables.live_progress.c))
_WRITE_LIVE = sql_of(
    _LIVE.on_conflict_do_update(
        index_elements=tables.live_progress.primary_key,
        set_=replaced(_LIVE, beside_key(tables.live_progress))
        # If the new progress has no details, the stored details stay.
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


def _stored_readings() -> bytes:
    keys = func.unnest(
        bindparam("runs", type_=ARRAY(Text)),
        bindparam("instants", type_=ARRAY(tables.Instant)),
        bindparam("days", type_=ARRAY(Date)),
    )
    key = keys.table_valued("run_id", "observed_at", "observed_on").render_derived("k")
    of_key = select(_READING.run_id, _READING.vertex_id, _READING.observed_at).where(
        *(_READING[c.name] == c for c in key.c)
    )
    # OFFSET makes PostgreSQL look up each key in the index, even if it misjudges the size of the table.
    found = of_key.offset(literal_column("0")).lateral("found")
    return sql_of(select(found).select_from(key.join(found, true())))


_STORED_READINGS = _stored_readings()


async def write_progress(
    cursor: Cursor, runs: Iterable[tuple[str, Sequence[Progress], Sequence[Checkpoint], datetime]]
) -> None:
    """Store the progress of open checkpoints.

    ``runs`` contains, for each run, its progress, the checkpoints with the details that are known so far, and the
    time of the observation.
    """
    rows = [row for run in runs for row in _progress_rows(*run)]
    if rows:
        await cursor.executemany(_WRITE_LIVE, rows)
        await cursor.executemany(_WRITE_POINT, rows)


def _progress_rows(
    run_id: str, progress: Sequence[Progress], checkpoints: Sequence[Checkpoint], observed_at: datetime
) -> Iterator[dict[str, Any]]:
    by_id: dict[int, Progress | None] = {p.checkpoint_id: p for p in progress}
    opened = {c.header.checkpoint_id: c for c in checkpoints if not c.header.status.is_terminal}
    for checkpoint_id in sorted(by_id | opened):
        seen, checkpoint = by_id.get(checkpoint_id), opened.get(checkpoint_id)
        if seen is not None:
            at, acknowledged, total = seen.observed_at, seen.acknowledged_count, seen.subtask_count
        elif checkpoint is not None:
            header = checkpoint.header
            at, acknowledged, total = observed_at, header.acknowledged_count, header.subtask_count
        else:
            continue
        yield {
            "run_id": run_id,
            "checkpoint_id": checkpoint_id,
            "observed_at": at,
            "acknowledged_count": min(acknowledged, INT4_MAX),
            "subtask_count": min(total, INT4_MAX),
            "document": dump(progress_document(seen, checkpoint.details if checkpoint is not None else ())),
        }


async def write_late_barriers(cursor: Cursor, runs: Iterable[tuple[str, Sequence[Progress]]]) -> None:
    """Store late barriers: the first barriers of subtasks that had not acknowledged the checkpoint.

    If a barrier was read twice, the earlier reading is stored.
    """
    rows = [
        _late_row(run_id, p.checkpoint_id, late)
        for run_id, progress in runs
        for p in progress
        for late in p.late_barriers
    ]
    if rows:
        await cursor.executemany(_WRITE_LATE, rows)


async def write_pressure(cursor: Cursor, runs: Sequence[tuple[str, Sequence[VertexPressure]]]) -> list[int]:
    """Store the readings that are not stored yet. Return how many of each run were new."""
    instants = sorted({(run_id, r.observed_at) for run_id, readings in runs for r in readings})
    if not instants:
        return [0] * len(runs)
    values = {
        "runs": [run_id for run_id, _ in instants],
        "instants": [at for _, at in instants],
        "days": [day_of(at) for _, at in instants],
    }
    await cursor.execute(_STORED_READINGS, values)
    known = set(await cursor.fetchall())
    counts: list[int] = []
    rows: list[dict[str, Any]] = []
    for run_id, readings in runs:
        new = {(run_id, clean(r.vertex_id), r.observed_at): r for r in readings}
        own = [_pressure_row(run_id, v, r) for (_, v, at), r in new.items() if (run_id, v, at) not in known]
        counts.append(len(own))
        rows += own
    await copy_rows(cursor, tables.pressure, rows)
    return counts


def _late_row(run_id: str, checkpoint_id: int, late: LateBarrier) -> dict[str, Any]:
    return row_of(tables.late_barriers, late, run_id=run_id, checkpoint_id=checkpoint_id)


def _pressure_row(run_id: str, vertex_id: str, reading: VertexPressure) -> dict[str, Any]:
    arrays: dict[str, Any] = {name: compact_ratios(getattr(reading, name)) for name in RATIO_ARRAYS + _RATE_ARRAYS}
    arrays |= {name: compact(getattr(reading, name)) for name in _COUNT_ARRAYS}
    return arrays | {
        "run_id": run_id,
        "observed_at": reading.observed_at,
        "vertex_id": vertex_id,
        "observed_on": day_of(reading.observed_at),
        "subtask_count": max(len(getattr(reading, name)) for name in PRESSURE_ARRAYS),
        "asked": sum(1 << i for i, name in enumerate(PRESSURE_ARRAYS) if getattr(reading, name)),
    }
