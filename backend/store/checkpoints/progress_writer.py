"""Writes what is known while checkpoints are open, and how the vertices fared: live progress, late barriers, pressure.

The caller holds the lock on the run's row. Invariant: the newest progress of a checkpoint stands; points of the
acknowledgement curve, late barriers and readings are kept once each, whatever the order they come in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from backend.domain.checkpoint import Checkpoint, LateBarrier, Progress
from backend.domain.pressure import VertexPressure
from backend.store.postgres.copying import Cursor, copy_rows
from backend.store.schema.arrays import INT4_MAX, INT8_MAX, compact, compact_ratios
from backend.store.schema.documents import clean, dump, progress_document
from backend.store.schema.partitions import day_of

RATIO_ARRAYS: Final = (
    "busy_ratio",
    "backpressured_ratio",
    "idle_ratio",
    "out_pool_usage_ratio",
    "in_pool_usage_ratio",
)
COUNT_ARRAYS: Final = (
    "queued_in_bytes",
    "queued_out_bytes",
    "records_in_count",
    "records_out_count",
    "bytes_in_count",
    "start_delay_gauge_ms",
    "alignment_gauge_ms",
)
PRESSURE_ARRAYS: Final = RATIO_ARRAYS + COUNT_ARRAYS
"""The arrays of a reading; bit ``i`` of the column ``asked`` says whether the ``i``-th was read at all."""

_PRESSURE_TYPES: Final[Mapping[str, str]] = (
    {"run_id": "text", "observed_at": "timestamptz", "vertex_id": "text", "observed_on": "date"}
    | {"subtask_count": "int4"}
    | dict.fromkeys(RATIO_ARRAYS, "float4[]")
    | dict.fromkeys(COUNT_ARRAYS, "int8[]")
    | {"asked": "int4"}
)


async def write_progress(
    cursor: Cursor, run_id: str, progress: Sequence[Progress], checkpoints: Sequence[Checkpoint], observed_at: datetime
) -> None:
    """Write how far open checkpoints had come; ``checkpoints`` may hold the details so far of those in progress."""
    by_id: dict[int, Progress | None] = {p.checkpoint_id: p for p in progress}
    opened = {c.header.checkpoint_id: c for c in checkpoints if not c.header.status.is_terminal}
    rows = []
    for checkpoint_id in sorted(by_id | opened):
        seen, checkpoint = by_id.get(checkpoint_id), opened.get(checkpoint_id)
        if seen is not None:
            at, counts = seen.observed_at, (seen.acknowledged_count, seen.subtask_count)
        elif checkpoint is not None:
            at, counts = observed_at, (checkpoint.header.acknowledged_count, checkpoint.header.subtask_count)
        else:
            continue
        document = dump(progress_document(seen, checkpoint.details if checkpoint is not None else ()))
        rows.append((run_id, checkpoint_id, at, *(min(c, INT4_MAX) for c in counts), document))
    if not rows:
        return
    await cursor.executemany(
        "INSERT INTO live_progress AS l (run_id, checkpoint_id, observed_at, acknowledged_count, subtask_count,"
        " document) VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (run_id, checkpoint_id) DO UPDATE SET"
        " observed_at = excluded.observed_at, acknowledged_count = excluded.acknowledged_count,"
        " subtask_count = excluded.subtask_count,"
        # Details that were handed on before are not handed on again.
        " document = CASE WHEN excluded.document -> 'details' = '[]' THEN"
        " jsonb_set(excluded.document, '{details}', l.document -> 'details') ELSE excluded.document END"
        " WHERE excluded.observed_at > l.observed_at",
        rows,
    )
    await cursor.executemany(
        "INSERT INTO progress_points (run_id, checkpoint_id, observed_at, acknowledged_count)"
        " VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING",
        [row[:4] for row in rows],
    )


async def write_late_barriers(cursor: Cursor, run_id: str, progress: Sequence[Progress]) -> None:
    """Write first barriers of subtasks that had not acknowledged; of two readings the earlier one stands."""
    rows = [_late_row(run_id, p.checkpoint_id, late) for p in progress for late in p.late_barriers]
    if rows:
        await cursor.executemany(
            "INSERT INTO late_barriers AS l (run_id, checkpoint_id, vertex_id, subtask, start_delay_ms, seen_at,"
            " resolution_ms) VALUES (%s, %s, %s, %s, %s, %s, %s)"
            " ON CONFLICT (run_id, checkpoint_id, vertex_id, subtask) DO UPDATE SET seen_at = excluded.seen_at,"
            " start_delay_ms = excluded.start_delay_ms, resolution_ms = excluded.resolution_ms"
            " WHERE excluded.seen_at < l.seen_at",
            rows,
        )


async def write_pressure(cursor: Cursor, run_id: str, readings: Sequence[VertexPressure]) -> int:
    """Write readings of vertices that are not stored yet; return how many those were."""
    if not readings:
        return 0
    await cursor.execute(
        "SELECT vertex_id, observed_at FROM pressure WHERE run_id = %s AND observed_at = ANY(%s) AND"
        " observed_on = ANY(%s)",
        (run_id, list({r.observed_at for r in readings}), list({day_of(r.observed_at) for r in readings})),
    )
    known = set(await cursor.fetchall())
    new = {(clean(r.vertex_id), r.observed_at): r for r in readings}
    rows = [_pressure_row(run_id, v, r) for (v, at), r in new.items() if (v, at) not in known]
    await copy_rows(cursor, "pressure", _PRESSURE_TYPES, rows)
    return len(rows)


def _late_row(run_id: str, checkpoint_id: int, late: LateBarrier) -> tuple[Any, ...]:
    delay_ms = max(-INT8_MAX, min(late.start_delay_ms, INT8_MAX))
    return run_id, checkpoint_id, clean(late.vertex_id), late.subtask, delay_ms, late.seen_at, late.resolution_ms


def _pressure_row(run_id: str, vertex_id: str, reading: VertexPressure) -> dict[str, Any]:
    arrays: dict[str, Any] = {name: compact_ratios(getattr(reading, name)) for name in RATIO_ARRAYS}
    arrays |= {name: compact(getattr(reading, name)) for name in COUNT_ARRAYS}
    return arrays | {
        "run_id": run_id,
        "observed_at": reading.observed_at,
        "vertex_id": vertex_id,
        "observed_on": day_of(reading.observed_at),
        "subtask_count": max(len(getattr(reading, name)) for name in PRESSURE_ARRAYS),
        "asked": sum(1 << i for i, name in enumerate(PRESSURE_ARRAYS) if getattr(reading, name)),
    }
