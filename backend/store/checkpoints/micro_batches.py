"""Writes and reads what a Spark micro-batch has beside its header.

The writer runs under the lock on the run's row, after the headers. Invariant: a row is written once and never changes,
like the terminal header it belongs to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any

from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.domain.checkpoint import Checkpoint
from backend.domain.ids import RunId
from backend.domain.micro_batch import BatchPhase, BatchState, MicroBatch, SourceProgress
from backend.domain.verdict import Basis
from backend.store.checkpoints.reader import Place
from backend.store.postgres.copying import Cursor
from backend.store.schema.arrays import INT8_MAX
from backend.store.schema.documents import clean, dump
from backend.store.schema.partitions import day_of

_PHASES = tuple(BatchPhase)
_STATE_NAMES = frozenset(f.name for f in fields(BatchState))
_SOURCE_NAMES = frozenset(f.name for f in fields(SourceProgress))
_TEXT_MAX = 2000


async def write_batches(cursor: Cursor, run_id: str, checkpoints: Sequence[Checkpoint]) -> None:
    """Write the batches among ``checkpoints``, unless they are there already."""
    rows = [_row(run_id, c, c.batch) for c in checkpoints if c.batch is not None and c.header.status.is_terminal]
    if rows:
        await cursor.executemany(
            "INSERT INTO micro_batches (run_id, checkpoint_id, triggered_on, phases_ms, input_row_count,"
            " processed_rows_per_s, watermark_at, state, sources, number_basis) SELECT %(run)s, %(id)s, %(day)s,"
            " %(phases)s::int8[], %(rows)s, %(rate)s, %(watermark)s, %(state)s::jsonb, %(sources)s::jsonb, %(basis)s"
            # Of two reports of one batch the header kept one; what is beside it has to be of the same.
            " FROM checkpoints WHERE run_id = %(run)s AND checkpoint_id = %(id)s AND triggered_on = %(day)s"
            " AND status = %(status)s ON CONFLICT DO NOTHING",
            rows,
        )


@dataclass(frozen=True, slots=True)
class KnownBatch:
    """The newest batch of a query that is stored. ``is_own``: of the run that was asked about."""

    checkpoint_id: int
    is_failed: bool
    is_own: bool
    ended_at: datetime | None


async def newest_batch(
    connection: AsyncConnection, target_id: str, *, query_id: str, engine_run_id: str
) -> KnownBatch | None:
    """The newest batch that the run completed; where it completed none, the newest of the query's other runs."""
    query = text(
        "SELECT c.checkpoint_id, c.status = 'failed', r.engine_run_id = :run,"
        " c.triggered_at + c.end_to_end_duration_ms * interval '1 ms'"
        " FROM runs r JOIN checkpoints c ON c.job_id = r.job_id AND c.run_id = r.id"
        " WHERE r.target_id = :target AND starts_with(r.engine_run_id, :query)"
        " AND (r.engine_run_id <> :run OR c.status = 'completed')"
        " ORDER BY r.engine_run_id = :run DESC, c.triggered_at DESC, c.checkpoint_id DESC LIMIT 1"
    )
    values = {"target": target_id, "query": query_id, "run": engine_run_id}
    row = (await connection.execute(query, values)).first()
    return None if row is None else KnownBatch(*row)


async def batches_of(connection: AsyncConnection, places: Iterable[Place]) -> Mapping[Place, MicroBatch]:
    """What these checkpoints have beside their headers; nothing for one that is no micro-batch."""
    keys = list(places)
    if not keys:
        return {}
    query = text(
        "SELECT b.* FROM unnest(CAST(:runs AS text[]), CAST(:ids AS int8[]), CAST(:days AS date[]))"
        " AS k(run_id, id, day)"
        " JOIN micro_batches b ON b.run_id = k.run_id AND b.checkpoint_id = k.id AND b.triggered_on = k.day"
        # The planner cannot prune partitions by the rows of a join, so it is told the range.
        " WHERE b.triggered_on BETWEEN :first AND :last"
    )
    days = [k.triggered_on for k in keys]
    values = {"runs": [k.run_id for k in keys], "ids": [k.checkpoint_id for k in keys], "days": days}
    rows = (await connection.execute(query, values | {"first": min(days), "last": max(days)})).mappings()
    return {Place(RunId(r["run_id"]), r["checkpoint_id"], r["triggered_on"]): _batch(r) for r in rows}


def _row(run_id: str, checkpoint: Checkpoint, batch: MicroBatch) -> dict[str, Any]:
    header = checkpoint.header
    return {
        "run": run_id,
        "id": header.checkpoint_id,
        "day": day_of(header.triggered_at),
        "status": header.status.value,
        "phases": [_int8(batch.phase_ms(p)) for p in _PHASES] if batch.phases_ms else None,
        "rows": _int8(batch.input_row_count),
        "rate": batch.processed_rows_per_s,
        "watermark": batch.watermark_at,
        "state": None if batch.state is None else dump(asdict(batch.state)),
        "sources": dump([{n: _cut(v) for n, v in asdict(s).items()} for s in batch.sources]),
        "basis": batch.number_basis.value,
    }


def _int8(value: int | None) -> int | None:
    return value if value is not None and abs(value) <= INT8_MAX else None


def _cut(value: object) -> object:
    return clean(value)[:_TEXT_MAX] if isinstance(value, str) else value


def _batch(row: RowMapping) -> MicroBatch:
    phases = zip(_PHASES, row["phases_ms"] or (), strict=False)
    state = row["state"]
    return MicroBatch(
        phases_ms=tuple((phase, ms) for phase, ms in phases if ms is not None),
        input_row_count=row["input_row_count"],
        processed_rows_per_s=row["processed_rows_per_s"],
        watermark_at=row["watermark_at"],
        state=None if state is None else BatchState(**{n: v for n, v in state.items() if n in _STATE_NAMES}),
        sources=tuple(SourceProgress(**{n: v for n, v in s.items() if n in _SOURCE_NAMES}) for s in row["sources"]),
        number_basis=Basis(row["number_basis"]),
    )
