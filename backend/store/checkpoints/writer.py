"""Writes the checkpoints of one run: headers, per-vertex arrays, barrier events.

The caller holds the lock on the run's row, so what is read here stays true until the commit. Invariants: a terminal
header never changes again (only ``is_discarded`` may become true); arrays are written once, when their checkpoint is
terminal; writing the same twice, or in another order, ends in the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Final

from psycopg import sql

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
from backend.store.schema.arrays import INT2_MAX, INT4_MAX, INT8_MAX, compact
from backend.store.schema.documents import barriers_blob, clean, clean_or_none
from backend.store.schema.partitions import day_of

_HEADER_TYPES: Final = {
    "run_id": "text",
    "checkpoint_id": "int8",
    "triggered_on": "date",
    "job_id": "text",
    "kind": "text",
    "status": "text",
    "is_unaligned": "bool",
    "triggered_at": "timestamptz",
    "latest_ack_at": "timestamptz",
    "end_to_end_duration_ms": "int8",
    "checkpointed_size_bytes": "int8",
    "full_state_size_bytes": "int8",
    "processed_bytes": "int8",
    "persisted_bytes": "int8",
    "subtask_count": "int4",
    "acknowledged_count": "int4",
    "failure_reason": "text",
    "failure_message": "text",
    "failed_at": "timestamptz",
    "external_path": "text",
    "is_discarded": "bool",
    "savepoint_format": "text",
    "start_delay_max_ms": "int8",
    "alignment_max_ms": "int8",
    "sync_max_ms": "int8",
    "async_max_ms": "int8",
    "observed_at": "timestamptz",
}
_HEADER_KEY: Final = ("run_id", "checkpoint_id", "triggered_on")
_MAXIMA: Final = {
    "start_delay_max_ms": "start_delay_ms",
    "alignment_max_ms": "alignment_duration_ms",
    "sync_max_ms": "sync_duration_ms",
    "async_max_ms": "async_duration_ms",
}

_ARRAY_TYPES: Final[Mapping[str, tuple[str, int]]] = {
    name: ("int4[]", INT4_MAX) if name.endswith("_ms") else ("int8[]", INT8_MAX) for name in DETAIL_ARRAYS
} | {"unaligned": ("int2[]", INT2_MAX)}
_DETAIL_TYPES: Final = {
    "run_id": "text",
    "checkpoint_id": "int8",
    "vertex_id": "text",
    "triggered_on": "date",
    "subtask_count": "int4",
} | {name: kind for name, (kind, _) in _ARRAY_TYPES.items()}

_UPDATE = sql.SQL("UPDATE checkpoints SET {assignments} WHERE {key}").format(
    assignments=sql.SQL(", ").join(
        sql.SQL("{} = {}").format(sql.Identifier(n), sql.Placeholder(n)) for n in _HEADER_TYPES if n not in _HEADER_KEY
    ),
    key=sql.SQL(" AND ").join(sql.SQL("{} = {}").format(sql.Identifier(n), sql.Placeholder(n)) for n in _HEADER_KEY),
)
_RAISE_MAXIMA = sql.SQL("UPDATE checkpoints SET {assignments} WHERE {key}").format(
    assignments=sql.SQL(", ").join(
        # GREATEST ignores NULL: what is missing does not win.
        sql.SQL("{0} = GREATEST({0}, {1})").format(sql.Identifier(n), sql.Placeholder(n))
        for n in _MAXIMA
    ),
    key=sql.SQL(" AND ").join(sql.SQL("{} = {}").format(sql.Identifier(n), sql.Placeholder(n)) for n in _HEADER_KEY),
)


@dataclass(frozen=True, slots=True)
class RunKey:
    """The run whose checkpoints are written, and the job it belongs to."""

    run_id: str
    job_id: str


@dataclass(slots=True)
class CheckpointTally:
    """What one write did."""

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
    """Headers that are written now, and so hold the maxima of the details that come with them."""


async def write_checkpoints(
    cursor: Cursor, key: RunKey, checkpoints: Sequence[Checkpoint], observed_at: datetime
) -> CheckpointTally:
    """Write headers, and the arrays of those that are terminal."""
    tally = CheckpointTally()
    if not checkpoints:
        return tally
    stored = await _stored_headers(cursor, key, [c.header for c in checkpoints])
    plan = _plan(key, checkpoints, stored, observed_at, tally)
    await copy_rows(cursor, "checkpoints", _HEADER_TYPES, plan.insert)
    if plan.update:
        await cursor.executemany(_UPDATE, plan.update)
    if plan.discard:
        await cursor.executemany(
            "UPDATE checkpoints SET is_discarded = true WHERE run_id = %(run_id)s"
            " AND checkpoint_id = %(checkpoint_id)s AND triggered_on = %(triggered_on)s",
            plan.discard,
        )
    tally.details = await _write_details(cursor, key, plan)
    return tally


async def write_barriers(
    cursor: Cursor, key: RunKey, barriers: Iterable[tuple[int, tuple[BarrierEvent, ...]]], days: Mapping[int, date]
) -> int:
    """Write the barrier events of checkpoints; of two readings of one checkpoint the longer one stays."""
    rows = [
        (key.run_id, checkpoint_id, days[checkpoint_id], len(events), barriers_blob(events))
        for checkpoint_id, events in barriers
        if events and checkpoint_id in days
    ]
    if rows:
        await cursor.executemany(
            "INSERT INTO barrier_events AS b (run_id, checkpoint_id, triggered_on, event_count, events)"
            " VALUES (%s, %s, %s, %s, %s) ON CONFLICT (run_id, checkpoint_id, triggered_on) DO UPDATE"
            " SET event_count = excluded.event_count, events = excluded.events"
            " WHERE excluded.event_count > b.event_count",
            rows,
        )
    return len(rows)


async def days_of_checkpoints(cursor: Cursor, run_id: str, checkpoint_ids: Sequence[int]) -> dict[int, date]:
    """The day on which each of these checkpoints was triggered, as far as it is stored; the latest, if repeated."""
    await cursor.execute(
        "SELECT checkpoint_id, max(triggered_on) FROM checkpoints WHERE run_id = %s AND checkpoint_id = ANY(%s)"
        " GROUP BY checkpoint_id",
        (run_id, list(checkpoint_ids)),
    )
    return dict(await cursor.fetchall())


_Stored = Mapping[tuple[int, date], tuple[str, datetime, bool | None]]


async def _stored_headers(cursor: Cursor, key: RunKey, headers: Sequence[CheckpointHeader]) -> _Stored:
    await cursor.execute(
        "SELECT checkpoint_id, triggered_on, status, observed_at, is_discarded FROM checkpoints"
        " WHERE run_id = %s AND checkpoint_id = ANY(%s) AND triggered_on = ANY(%s)",
        (key.run_id, [h.checkpoint_id for h in headers], list({day_of(h.triggered_at) for h in headers})),
    )
    return {(c, day): (status, seen, discarded) for c, day, status, seen, discarded in await cursor.fetchall()}


def _plan(
    key: RunKey, checkpoints: Sequence[Checkpoint], stored: _Stored, observed_at: datetime, tally: CheckpointTally
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
    # One reading may list a checkpoint twice (history and latest): the terminal one, then the more detailed, stands.
    best: dict[tuple[int, date], Checkpoint] = {}
    for checkpoint in checkpoints:
        key = (checkpoint.header.checkpoint_id, day_of(checkpoint.header.triggered_at))
        rank = (checkpoint.header.status.is_terminal, len(checkpoint.details))
        other = best.get(key)
        if other is None or rank > (other.header.status.is_terminal, len(other.details)):
            best[key] = checkpoint
    return best.values()


def _header_row(key: RunKey, checkpoint: Checkpoint, observed_at: datetime) -> dict[str, Any]:
    h = checkpoint.header
    row = {
        "run_id": key.run_id,
        "checkpoint_id": h.checkpoint_id,
        "triggered_on": day_of(h.triggered_at),
        "job_id": key.job_id,
        "kind": h.kind.value,
        "status": h.status.value,
        "is_unaligned": h.is_unaligned,
        "triggered_at": h.triggered_at,
        "latest_ack_at": h.latest_ack_at,
        "end_to_end_duration_ms": _int8(h.end_to_end_duration_ms),
        "checkpointed_size_bytes": _int8(h.checkpointed_size_bytes),
        "full_state_size_bytes": _int8(h.full_state_size_bytes),
        "processed_bytes": _int8(h.processed_bytes),
        "persisted_bytes": _int8(h.persisted_bytes),
        "subtask_count": min(h.subtask_count, INT4_MAX),
        "acknowledged_count": min(h.acknowledged_count, INT4_MAX),
        "failure_reason": h.failure_reason.value if h.failure_reason is not None else None,
        "failure_message": clean_or_none(h.failure_message),
        "failed_at": h.failed_at,
        "external_path": clean_or_none(h.external_path),
        "is_discarded": h.is_discarded,
        "savepoint_format": None if h.savepoint_format is None else h.savepoint_format.value,
        "observed_at": observed_at,
    }
    details = checkpoint.details if h.status.is_terminal else ()
    return row | _maxima(details)


def _maxima(details: Sequence[VertexDetail]) -> dict[str, int | None]:
    return {name: _int8(largest([largest(getattr(d, array)) for d in details])) for name, array in _MAXIMA.items()}


def _int8(value: int | None) -> int | None:
    return value if value is not None and abs(value) <= INT8_MAX else None


async def _write_details(cursor: Cursor, key: RunKey, plan: _Plan) -> int:
    checkpoints = plan.terminal
    if not checkpoints:
        return 0
    # A header that was not terminal until now has no details.
    keys = {(c.header.checkpoint_id, day_of(c.header.triggered_at)) for c in checkpoints} - plan.fresh
    known: set[tuple[int, date, str]] = set()
    if keys:
        await cursor.execute(
            "SELECT checkpoint_id, triggered_on, vertex_id FROM checkpoint_details"
            " WHERE run_id = %s AND checkpoint_id = ANY(%s) AND triggered_on = ANY(%s)",
            (key.run_id, list({c for c, _ in keys}), list({day for _, day in keys})),
        )
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
            identity = dict(zip(_HEADER_KEY, (key.run_id, checkpoint.header.checkpoint_id, day), strict=True))
            raised.append(identity | _maxima(list(new.values())))
    await copy_rows(cursor, "checkpoint_details", _DETAIL_TYPES, rows)
    if raised:
        await cursor.executemany(_RAISE_MAXIMA, raised)
    return len(rows)


def _detail_row(key: RunKey, checkpoint_id: int, day: date, vertex_id: str, detail: VertexDetail) -> dict[str, Any]:
    arrays = {name: compact(getattr(detail, name), limit) for name, (_, limit) in _ARRAY_TYPES.items()}
    return {
        "run_id": key.run_id,
        "checkpoint_id": checkpoint_id,
        "vertex_id": vertex_id,
        "triggered_on": day,
        "subtask_count": detail.subtask_count,
    } | arrays
