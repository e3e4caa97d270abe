"""Writes the checkpoints of one run: headers, per-vertex arrays, barrier events.

The caller holds the lock on the run's row, so rows read here do not change before the commit. Invariants: a terminal
header never changes, except that ``is_discarded`` can become true; arrays are written once, when their checkpoint is
terminal; writing observations repeatedly or in another order leads to the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Final

from sqlalchemy import bindparam, func, select, true, update
from sqlalchemy.dialects.postgresql import insert as pg_insert

from backend.domain.barriers import BarrierEvent
from backend.domain.checkpoint import (
    DETAIL_ARRAYS,
    Checkpoint,
    CheckpointHeader,
    CheckpointStatus,
    VertexDetail,
    largest,
)
from backend.store.postgres.copying import Cursor, copy_rows
from backend.store.postgres.encoding import clean
from backend.store.postgres.statements import beside_key, bound, one_of, replaced, sql_of
from backend.store.schema import tables
from backend.store.schema.arrays import INT8_MAX, compact, limit_of
from backend.store.schema.documents import barriers_blob
from backend.store.schema.partitions import day_of
from backend.store.schema.rows import row_of

_MAXIMA: Final = {
    "start_delay_max_ms": "start_delay_ms",
    "alignment_max_ms": "alignment_duration_ms",
    "sync_max_ms": "sync_duration_ms",
    "async_max_ms": "async_duration_ms",
}
_LIMITS: Final[Mapping[str, int]] = {name: limit_of(tables.checkpoint_details.c[name]) for name in DETAIL_ARRAYS}

_HEADER = tables.checkpoints.c
_OWN_ROW = [c == bindparam(f"key_{c.name}", type_=c.type) for c in tables.checkpoints.primary_key]
_AMONG = (
    _HEADER.run_id == bindparam("run"),
    one_of(_HEADER.checkpoint_id, "ids"),
    one_of(_HEADER.triggered_on, "days"),
)
_STORED = sql_of(
    select(
        _HEADER.checkpoint_id, _HEADER.triggered_on, _HEADER.status, _HEADER.observed_at, _HEADER.is_discarded
    ).where(*_AMONG)
)
_STORED_DAYS = sql_of(
    select(_HEADER.checkpoint_id, func.max(_HEADER.triggered_on)).where(*_AMONG[:2]).group_by(_HEADER.checkpoint_id)
)
_UPDATE = sql_of(
    update(tables.checkpoints)
    .where(*_OWN_ROW)
    .values(bound(c for c in beside_key(tables.checkpoints) if c.server_default is None))
)
_DISCARD = sql_of(update(tables.checkpoints).where(*_OWN_ROW).values(is_discarded=true()))
_RAISE_MAXIMA = sql_of(
    update(tables.checkpoints)
    .where(*_OWN_ROW)
    # GREATEST ignores NULL, so a missing value does not replace a known one.
    .values({n: func.greatest(_HEADER[n], bindparam(n, type_=_HEADER[n].type)) for n in _MAXIMA})
)

_DETAIL = tables.checkpoint_details.c
_STORED_DETAILS = sql_of(
    select(_DETAIL.checkpoint_id, _DETAIL.triggered_on, _DETAIL.vertex_id).where(
        _DETAIL.run_id == bindparam("run"), one_of(_DETAIL.checkpoint_id, "ids"), one_of(_DETAIL.triggered_on, "days")
    )
)

_BARRIERS = pg_insert(tables.barrier_events).values(bound(tables.barrier_events.c))
_WRITE_BARRIERS = sql_of(
    _BARRIERS.on_conflict_do_update(
        index_elements=tables.barrier_events.primary_key,
        set_=replaced(_BARRIERS, beside_key(tables.barrier_events)),
        where=_BARRIERS.excluded.event_count > tables.barrier_events.c.event_count,
    )
)


@dataclass(frozen=True, slots=True)
class StoredRun:
    """The run whose checkpoints are written, and its job."""

    run_id: str
    job_id: str


@dataclass(slots=True)
class CheckpointTally:
    """The number of rows that one write changed."""

    new: int = 0
    updated: int = 0
    newly_failed: int = 0
    details: int = 0
    barriers: int = 0


@dataclass(slots=True)
class _Plan:
    insert: list[dict[str, Any]] = field(default_factory=list)
    update: list[dict[str, Any]] = field(default_factory=list)
    discard: list[dict[str, Any]] = field(default_factory=list)
    terminal: list[Checkpoint] = field(default_factory=list)
    fresh: set[tuple[int, date]] = field(default_factory=set)
    """Headers written now. Their rows already contain the maxima of the details written with them."""


async def write_checkpoints(
    cursor: Cursor, key: StoredRun, checkpoints: Sequence[Checkpoint], observed_at: datetime
) -> CheckpointTally:
    """Write headers, and the arrays of those that are terminal."""
    tally = CheckpointTally()
    if not checkpoints:
        return tally
    stored = await _stored_headers(cursor, key, [c.header for c in checkpoints])
    plan = _plan(key, checkpoints, stored, observed_at, tally)
    await copy_rows(cursor, tables.checkpoints, plan.insert)
    if plan.update:
        await cursor.executemany(_UPDATE, [row | _own_row(row) for row in plan.update])
    if plan.discard:
        await cursor.executemany(_DISCARD, [_own_row(row) for row in plan.discard])
    tally.details = await _write_details(cursor, key, plan)
    return tally


async def write_barriers(
    cursor: Cursor, key: StoredRun, barriers: Iterable[tuple[int, tuple[BarrierEvent, ...]]], days: Mapping[int, date]
) -> int:
    """Store the barrier events of checkpoints; of two readings of one checkpoint the longer one is kept."""
    rows = [
        {
            "run_id": key.run_id,
            "checkpoint_id": checkpoint_id,
            "triggered_on": days[checkpoint_id],
            "event_count": len(events),
            "events": barriers_blob(events),
        }
        for checkpoint_id, events in barriers
        if events and checkpoint_id in days
    ]
    if rows:
        await cursor.executemany(_WRITE_BARRIERS, rows)
    return len(rows)


async def days_of_checkpoints(cursor: Cursor, run_id: str, checkpoint_ids: Sequence[int]) -> dict[int, date]:
    """Return the trigger day of each stored checkpoint; the latest day if an id was used again."""
    await cursor.execute(_STORED_DAYS, {"run": run_id, "ids": list(checkpoint_ids)})
    return dict(await cursor.fetchall())


_Stored = Mapping[tuple[int, date], tuple[str, datetime, bool | None]]


async def _stored_headers(cursor: Cursor, key: StoredRun, headers: Sequence[CheckpointHeader]) -> _Stored:
    ids, days = [h.checkpoint_id for h in headers], list({day_of(h.triggered_at) for h in headers})
    await cursor.execute(_STORED, {"run": key.run_id, "ids": ids, "days": days})
    return {(c, day): (status, seen, discarded) for c, day, status, seen, discarded in await cursor.fetchall()}


def _plan(
    key: StoredRun, checkpoints: Sequence[Checkpoint], stored: _Stored, observed_at: datetime, tally: CheckpointTally
) -> _Plan:
    plan = _Plan()
    for checkpoint in _distinct(checkpoints):
        header = checkpoint.header
        row = _header_row(key, checkpoint, observed_at)
        known = stored.get((header.checkpoint_id, row["triggered_on"]))
        is_open = known is None or known[0] == CheckpointStatus.IN_PROGRESS
        if known is None:
            plan.insert.append(row)
            plan.fresh.add((header.checkpoint_id, row["triggered_on"]))
            tally.new += 1
        elif is_open and (header.status.is_terminal or observed_at > known[1]):
            plan.update.append(row)
            plan.fresh.add((header.checkpoint_id, row["triggered_on"]))
            tally.updated += 1
        elif header.is_discarded and not known[2]:
            plan.discard.append(row)
        if is_open and header.status is CheckpointStatus.FAILED:
            tally.newly_failed += 1
        if header.status.is_terminal and checkpoint.details:
            plan.terminal.append(checkpoint)
    return plan


def _distinct(checkpoints: Sequence[Checkpoint]) -> Iterable[Checkpoint]:
    # One reading may list a checkpoint twice (history and latest). A terminal entry is preferred, then more details.
    best: dict[tuple[int, date], Checkpoint] = {}
    for checkpoint in checkpoints:
        key = (checkpoint.header.checkpoint_id, day_of(checkpoint.header.triggered_at))
        rank = (checkpoint.header.status.is_terminal, len(checkpoint.details))
        other = best.get(key)
        if other is None or rank > (other.header.status.is_terminal, len(other.details)):
            best[key] = checkpoint
    return best.values()


def _header_row(key: StoredRun, checkpoint: Checkpoint, observed_at: datetime) -> dict[str, Any]:
    header = checkpoint.header
    return row_of(
        tables.checkpoints,
        header,
        run_id=key.run_id,
        job_id=key.job_id,
        triggered_on=day_of(header.triggered_at),
        observed_at=observed_at,
        **_maxima(checkpoint.details if header.status.is_terminal else ()),
    )


def _own_row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {f"key_{c.name}": row[c.name] for c in tables.checkpoints.primary_key}


def _maxima(details: Sequence[VertexDetail]) -> dict[str, int | None]:
    return {name: _int8(largest([largest(getattr(d, array)) for d in details])) for name, array in _MAXIMA.items()}


def _int8(value: int | None) -> int | None:
    return value if value is not None and abs(value) <= INT8_MAX else None


async def _write_details(cursor: Cursor, key: StoredRun, plan: _Plan) -> int:
    checkpoints = plan.terminal
    if not checkpoints:
        return 0
    # A header that becomes terminal now has no stored details yet.
    keys = {(c.header.checkpoint_id, day_of(c.header.triggered_at)) for c in checkpoints} - plan.fresh
    known: set[tuple[int, date, str]] = set()
    if keys:
        ids, days = list({c for c, _ in keys}), list({day for _, day in keys})
        await cursor.execute(_STORED_DETAILS, {"run": key.run_id, "ids": ids, "days": days})
        known = set(await cursor.fetchall())
    rows = []
    raised = []
    for checkpoint in checkpoints:
        day = day_of(checkpoint.header.triggered_at)
        new = {
            clean(d.vertex_id): d
            for d in checkpoint.details
            if (checkpoint.header.checkpoint_id, day, clean(d.vertex_id)) not in known
        }
        rows += [_detail_row(key, checkpoint.header.checkpoint_id, day, v, d) for v, d in new.items()]
        if new and (checkpoint.header.checkpoint_id, day) not in plan.fresh:
            identity = {"run_id": key.run_id, "checkpoint_id": checkpoint.header.checkpoint_id, "triggered_on": day}
            raised.append(_own_row(identity) | _maxima(list(new.values())))
    await copy_rows(cursor, tables.checkpoint_details, rows)
    if raised:
        await cursor.executemany(_RAISE_MAXIMA, raised)
    return len(rows)


def _detail_row(key: StoredRun, checkpoint_id: int, day: date, vertex_id: str, detail: VertexDetail) -> dict[str, Any]:
    arrays = {name: compact(getattr(detail, name), limit) for name, limit in _LIMITS.items()}
    return {
        "run_id": key.run_id,
        "checkpoint_id": checkpoint_id,
        "vertex_id": vertex_id,
        "triggered_on": day,
        "subtask_count": detail.subtask_count,
    } | arrays
