"""Writes the checkpoints of one run: headers, per-vertex arrays, barrier events.

The caller holds the lock on the run's row, so rows read here do not change before the commit. Invariants: a terminal
header never changes, except that ``is_discarded`` can become true; arrays are written when their checkpoint is
terminal, and replaced only if more subtasks have reported since; writing observations repeatedly or in another order
leads to the same rows. A batch of a run with several channels is the exception: its values are those of all
channels that have reported it (``renew``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Final
from zlib import crc32

from psycopg.types.numeric import Int8
from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Date,
    Table,
    Text,
    bindparam,
    case,
    delete,
    func,
    literal_column,
    null,
    select,
    true,
    update,
)
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
from backend.store.postgres.copying import Cursor, copy_rows, insert_rows
from backend.store.postgres.encoding import clean
from backend.store.postgres.statements import beside_key, bound, each, replaced, sql_of
from backend.store.schema import tables
from backend.store.schema.arrays import compact, int8, limit_of
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

# A prepared INSERT of one row costs PostgreSQL less than a COPY of one row, but more than each further row
# of a COPY.
_INSERTED_MAX = 4
# One prepared INSERT of a few rows of details costs PostgreSQL as much as a COPY, but a pipeline can send it with the
# other statements.
_INSERTED_DETAILS_MAX = 10
# A third of the time after which a checkpoint that is no longer reported counts as lost.
_REREAD_STEP_S = 20

_HEADER = tables.checkpoints.c
_OWN_ROW = [c == bindparam(f"key_{c.name}", type_=c.type) for c in tables.checkpoints.primary_key]


def _of_keys(table: Table, *columns: ColumnElement[Any]) -> bytes:
    """Return the query for ``columns`` of the rows with the bound runs, checkpoint ids and days."""
    keys = func.unnest(
        bindparam("runs", type_=ARRAY(Text)),
        bindparam("ids", type_=ARRAY(BigInteger)),
        bindparam("days", type_=ARRAY(Date)),
    )
    key = keys.table_valued("run_id", "checkpoint_id", "triggered_on").render_derived("k")
    found = select(*columns).where(*(table.c[c.name] == c for c in key.c)).offset(literal_column("0")).lateral("found")
    # OFFSET makes PostgreSQL look up each key by the primary key, even if it misjudges the size of the table.
    return sql_of(select(found).select_from(key.join(found, true())))


_STORED = _of_keys(
    tables.checkpoints,
    *(_HEADER.run_id, _HEADER.checkpoint_id, _HEADER.triggered_on),
    *(_HEADER.status, _HEADER.observed_at, _HEADER.is_discarded),
)
_IDS = each(_HEADER.checkpoint_id, "ids")
# The primary key gives the newest day first, so PostgreSQL stops at the newest partition that has the checkpoint.
_NEWEST_DAY = (
    select(_HEADER.triggered_on)
    .where(_HEADER.run_id == bindparam("run"), _HEADER.checkpoint_id == _IDS.c.checkpoint_id)
    .order_by(_HEADER.triggered_on.desc())
    .limit(literal_column("1"))
    .lateral("newest")
)
STORED_DAYS = select(_IDS.c.checkpoint_id, _NEWEST_DAY.c.triggered_on).select_from(_IDS.join(_NEWEST_DAY, true()))
_STORED_DAYS = sql_of(STORED_DAYS)
_UPDATE = sql_of(
    update(tables.checkpoints)
    .where(*_OWN_ROW)
    .values(bound(c for c in beside_key(tables.checkpoints) if c.server_default is None))
)
_INSERT = sql_of(
    pg_insert(tables.checkpoints).values(bound(c for c in tables.checkpoints.c if c.server_default is None))
)
_DISCARD = sql_of(update(tables.checkpoints).where(*_OWN_ROW).values(is_discarded=true()))
_RAISE_MAXIMA = sql_of(
    update(tables.checkpoints)
    .where(*_OWN_ROW)
    # GREATEST ignores NULL, so a missing value does not replace a known one.
    .values({n: func.greatest(_HEADER[n], bindparam(n, type_=_HEADER[n].type)) for n in _MAXIMA})
)

_DETAIL = tables.checkpoint_details.c
# An array of one element has the value of every subtask (``schema.arrays``).
_REPORTED_COUNT = case(
    (_DETAIL.ack_delay_ms.is_(None), literal_column("0")),
    (func.cardinality(_DETAIL.ack_delay_ms) == literal_column("1"), _DETAIL.subtask_count),
    else_=func.cardinality(func.array_remove(_DETAIL.ack_delay_ms, null())),
)
_STORED_DETAILS = _of_keys(
    tables.checkpoint_details,
    *(_DETAIL.run_id, _DETAIL.checkpoint_id, _DETAIL.triggered_on, _DETAIL.vertex_id),
    _REPORTED_COUNT.label("reported_count"),
)
_RENEW_DETAIL = sql_of(
    update(tables.checkpoint_details)
    .where(*(c == bindparam(f"key_{c.name}", type_=c.type) for c in tables.checkpoint_details.primary_key))
    .values(bound(beside_key(tables.checkpoint_details)))
)

_BARRIERS = pg_insert(tables.barrier_events).values(bound(tables.barrier_events.c))
_WRITE_BARRIERS = sql_of(
    _BARRIERS.on_conflict_do_update(
        index_elements=tables.barrier_events.primary_key,
        set_=replaced(_BARRIERS, beside_key(tables.barrier_events)),
        where=_BARRIERS.excluded.event_count > tables.barrier_events.c.event_count,
    )
)
_EVENTS = tables.barrier_events.c
_REMOVE_BARRIERS = sql_of(
    delete(tables.barrier_events).where(
        _EVENTS.run_id == bindparam("run_id"),
        _EVENTS.checkpoint_id == bindparam("checkpoint_id"),
        _EVENTS.triggered_on == bindparam("triggered_on"),
    )
)


@dataclass(frozen=True, slots=True)
class StoredRun:
    """The ids of the run whose checkpoints are written, and of the run's job."""

    run_id: str
    job_id: str


@dataclass(slots=True)
class CheckpointTally:
    """Counts what one write of checkpoints changed.

    ``reread`` counts those of the ``updated`` headers that were open before the write and are still open.
    """

    new: int = 0
    updated: int = 0
    reread: int = 0
    newly_failed: int = 0
    details: int = 0

    @property
    def is_changed(self) -> bool:
        """Whether a list of jobs shows the change.

        A list does not show the progress of an open checkpoint, but it shows whether the checkpoint is lost. So an open
        checkpoint that was only read again counts as changed once every ``_REREAD_STEP_S`` seconds, which is enough to
        show that it is not lost.
        """
        return bool(self.new or self.updated > self.reread or self.details)


HeaderKey = tuple[str, int, date]
"""The primary key of a header: the run, the checkpoint's id and the day of its trigger."""


StoredHeader = tuple[str, datetime, bool | None]
"""A stored header: status, time of the observation, and whether the checkpoint was discarded."""
StoredHeaders = Mapping[HeaderKey, StoredHeader]


@dataclass(slots=True)
class CheckpointPlan:
    """The changes that a write of checkpoints makes. ``tallies`` contains their counts, one tally for each run."""

    tallies: list[CheckpointTally]
    insert: list[dict[str, Any]] = field(default_factory=list)
    update: list[dict[str, Any]] = field(default_factory=list)
    discard: list[dict[str, Any]] = field(default_factory=list)
    terminal: list[tuple[HeaderKey, Sequence[VertexDetail], CheckpointTally]] = field(default_factory=list)
    fresh: set[HeaderKey] = field(default_factory=set)
    """Keys of the headers that this write adds or updates. These rows already contain the maxima of their details."""
    details: list[dict[str, Any]] = field(default_factory=list)
    renewed: list[dict[str, Any]] = field(default_factory=list)
    """Details to which subtasks of a failed checkpoint have added something since they were stored."""
    raised: list[dict[str, Any]] = field(default_factory=list)
    """New maxima of headers that were stored without some of their details, or whose details are renewed."""
    working: list[tuple[HeaderKey, CheckpointTally]] = field(default_factory=list)
    """Batches with Spark jobs whose headers are stored and final. Their jobs may have become known since."""
    after: dict[HeaderKey, StoredHeader] = field(default_factory=dict)
    """The short form of these headers as they are stored after the plan is written."""

    @property
    def is_small(self) -> bool:
        """Whether ``copy_checkpoints`` has nothing to look up and nothing to copy."""
        detail_count = sum(len(details) for _, details, _ in self.terminal)
        is_little = len(self.insert) <= _INSERTED_MAX and detail_count <= _INSERTED_DETAILS_MAX
        return is_little and not self.working and all(key in self.fresh for key, _, _ in self.terminal)


async def request_headers(cursor: Cursor, runs: Iterable[tuple[str, Sequence[Checkpoint]]]) -> bool:
    """Execute the query for the stored headers of these runs' checkpoints. Return False if there is no checkpoint.

    ``stored_headers`` returns the result.
    """
    keys = {header_key(run_id, c.header) for run_id, checkpoints in runs for c in checkpoints}
    if keys:
        await cursor.execute(_STORED, _columns(keys))
    return bool(keys)


async def stored_headers(cursor: Cursor) -> StoredHeaders:
    """Return the result of the query that ``request_headers`` executed with ``cursor``."""
    return {(r, c, day): (status, seen, gone) for r, c, day, status, seen, gone in await cursor.fetchall()}


def plan_checkpoints(
    runs: Sequence[tuple[StoredRun, Sequence[Checkpoint], datetime]], stored: StoredHeaders
) -> CheckpointPlan:
    """Compare the checkpoints with their ``stored`` headers, and return what must be written.

    ``runs`` contains different runs, each with its checkpoints and the time of their observation.
    """
    plan = CheckpointPlan([CheckpointTally() for _ in runs])
    for (key, checkpoints, observed_at), tally in zip(runs, plan.tallies, strict=True):
        _add_to(plan, key, checkpoints, stored, observed_at, tally)
    return plan


def renew(
    plan: CheckpointPlan, number: int, key: StoredRun, batches: Iterable[Checkpoint], observed_at: datetime
) -> None:
    """Add to the plan that stored batches get the values of ``batches``. ``number`` is the place of their run in it."""
    for batch in batches:
        plan.update.append(_header_row(key, batch, observed_at))
        plan.tallies[number].updated += 1


async def copy_checkpoints(cursor: Cursor, plan: CheckpointPlan) -> None:
    """Copy the headers and the arrays if they are many. ``write_headers`` must write the rest."""
    if len(plan.insert) > _INSERTED_MAX:
        await copy_rows(cursor, tables.checkpoints, plan.insert)
        plan.insert = []
    await _copy_details(cursor, plan)


async def write_headers(cursor: Cursor, plan: CheckpointPlan) -> None:
    """Write the rows that ``copy_checkpoints`` has left. No result is read, so a pipeline may send the statements."""
    if plan.insert:
        await cursor.executemany(_INSERT, [_typed(row) for row in plan.insert])
    await insert_rows(cursor, tables.checkpoint_details, plan.details)
    if plan.renewed:
        await cursor.executemany(_RENEW_DETAIL, plan.renewed)
    if plan.update:
        await cursor.executemany(_UPDATE, [row | _own_row(row) for row in plan.update])
    if plan.discard:
        await cursor.executemany(_DISCARD, [_own_row(row) for row in plan.discard])
    if plan.raised:
        await cursor.executemany(_RAISE_MAXIMA, plan.raised)


async def write_barriers(
    cursor: Cursor, key: StoredRun, barriers: Iterable[tuple[int, tuple[BarrierEvent, ...]]], days: Mapping[int, date]
) -> int:
    """Store the barrier events of checkpoints that are in ``days``. Return the number of checkpoints with events.

    If a checkpoint was read twice, the longer list of events is stored. An empty list removes the stored events.
    """
    barriers = list(barriers)
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
    removed = [
        {"run_id": key.run_id, "checkpoint_id": checkpoint_id, "triggered_on": days[checkpoint_id]}
        for checkpoint_id, events in barriers
        if not events and checkpoint_id in days
    ]
    if removed:
        await cursor.executemany(_REMOVE_BARRIERS, removed)
    return len(rows)


async def days_of_checkpoints(cursor: Cursor, run_id: str, checkpoint_ids: Sequence[int]) -> dict[int, date]:
    """Return the trigger day of each stored checkpoint. If an id was used again, return the latest day."""
    # In a pipeline, a late result of an earlier statement replaces the result of a query on the same cursor. So this
    # query has a cursor of its own.
    own = cursor.connection.cursor()
    await own.execute(_STORED_DAYS, {"run": run_id, "ids": list(checkpoint_ids)})
    return dict(await own.fetchall())


def header_key(run_id: str, header: CheckpointHeader) -> HeaderKey:
    """Return the primary key of a checkpoint of this run."""
    return run_id, header.checkpoint_id, day_of(header.triggered_at)


def _typed(row: Mapping[str, Any]) -> dict[str, Any]:
    # The driver chooses the type of an integer by its size, and prepares a statement for each combination of types.
    return {name: Int8(value) if type(value) is int else value for name, value in row.items()}


def _columns(keys: Iterable[HeaderKey]) -> dict[str, Any]:
    runs, ids, days = zip(*keys, strict=True)
    return {"runs": list(runs), "ids": list(ids), "days": list(days)}


def _add_to(
    plan: CheckpointPlan,
    key: StoredRun,
    checkpoints: Sequence[Checkpoint],
    stored: StoredHeaders,
    observed_at: datetime,
    tally: CheckpointTally,
) -> None:
    for checkpoint in _distinct(checkpoints):
        header = checkpoint.header
        own = header_key(key.run_id, header)
        known = stored.get(own)
        is_open = known is None or known[0] == CheckpointStatus.IN_PROGRESS
        plan.after[own] = (header.status.value, observed_at, header.is_discarded)
        if known is None:
            plan.insert.append(_header_row(key, checkpoint, observed_at))
            plan.fresh.add(own)
            tally.new += 1
        elif is_open and (header.status.is_terminal or observed_at > known[1]):
            plan.update.append(_header_row(key, checkpoint, observed_at))
            plan.fresh.add(own)
            tally.updated += 1
            is_step = _step(key.run_id, observed_at) != _step(key.run_id, known[1])
            tally.reread += not header.status.is_terminal and not is_step
        elif header.is_discarded and not known[2]:
            plan.discard.append(_identity(own))
            plan.after[own] = (*known[:2], True)
        else:
            plan.after[own] = known
        if is_open and header.status is CheckpointStatus.FAILED:
            tally.newly_failed += 1
        if not is_open and checkpoint.batch is not None and checkpoint.batch.work is not None:
            plan.working.append((own, tally))
        if header.status.is_terminal and checkpoint.details:
            plan.terminal.append((own, checkpoint.details, tally))


def _step(run_id: str, instant: datetime) -> int:
    """Return the number of the ``_REREAD_STEP_S`` interval that contains ``instant``.

    The intervals of different runs begin at different times, so that not all open checkpoints count as changed at once.
    """
    return (int(instant.timestamp()) + crc32(run_id.encode()) % _REREAD_STEP_S) // _REREAD_STEP_S


def _distinct(checkpoints: Sequence[Checkpoint]) -> Iterable[Checkpoint]:
    # One reading may list a checkpoint twice: in the history and as the latest. A terminal entry is preferred, then
    # the entry with more details.
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
    return {name: int8(largest([largest(getattr(d, array)) for d in details])) for name, array in _MAXIMA.items()}


def _identity(key: HeaderKey) -> dict[str, Any]:
    return {"run_id": key[0], "checkpoint_id": key[1], "triggered_on": key[2]}


async def _copy_details(cursor: Cursor, plan: CheckpointPlan) -> None:
    # Details are stored only for terminal headers. So a header that this write adds or updates has no stored details
    # yet.
    keys = {key for key, _, _ in plan.terminal} - plan.fresh
    known: dict[tuple[str, int, date, str], int] = {}
    if keys:
        await cursor.execute(_STORED_DETAILS, _columns(keys))
        known = {(run_id, number, day, vertex): count for run_id, number, day, vertex, count in await cursor.fetchall()}
    rows = []
    for key, details, tally in plan.terminal:
        named = {clean(d.vertex_id): d for d in details}
        new = {v: d for v, d in named.items() if (*key, v) not in known}
        more = {v: d for v, d in named.items() if v not in new and _reported_count(d) > known[*key, v]}
        rows += [_detail_row(key, v, d) for v, d in new.items()]
        plan.renewed += [_renewed_row(key, v, d) for v, d in more.items()]
        tally.details += len(new) + len(more)
        if (new or more) and key not in plan.fresh:
            plan.raised.append(_own_row(_identity(key)) | _maxima([*new.values(), *more.values()]))
    if len(rows) <= _INSERTED_DETAILS_MAX:
        plan.details = rows
    else:
        await copy_rows(cursor, tables.checkpoint_details, rows)


def _detail_row(key: HeaderKey, vertex_id: str, detail: VertexDetail) -> dict[str, Any]:
    arrays = {name: compact(getattr(detail, name), limit) for name, limit in _LIMITS.items()}
    return _identity(key) | {"vertex_id": vertex_id, "subtask_count": detail.subtask_count} | arrays


def _reported_count(detail: VertexDetail) -> int:
    return detail.subtask_count - len(detail.pending)


def _renewed_row(key: HeaderKey, vertex_id: str, detail: VertexDetail) -> dict[str, Any]:
    row = _detail_row(key, vertex_id, detail)
    names = {c.name for c in tables.checkpoint_details.primary_key}
    return {f"key_{name}" if name in names else name: value for name, value in row.items()}
