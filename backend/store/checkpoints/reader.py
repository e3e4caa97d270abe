"""Reads checkpoints: pages of headers, details down to subtasks, and what was read while they were open.

Per-subtask values are returned as they were written; a missing value is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import date, datetime, timedelta
from functools import lru_cache
from operator import attrgetter
from typing import Any

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Result,
    Select,
    Table,
    and_,
    bindparam,
    exists,
    func,
    literal_column,
    select,
    true,
    tuple_,
    union_all,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.domain.barriers import BarrierEvent
from backend.domain.checkpoint import (
    DETAIL_ARRAYS,
    CheckpointHeader,
    CheckpointKind,
    CheckpointStatus,
    LateBarrier,
    Progress,
    VertexDetail,
)
from backend.domain.errors import UnknownEntityError
from backend.domain.ids import JobId, RunId
from backend.domain.stored_form import expand
from backend.store.postgres.binary import binary_rows
from backend.store.postgres.keyset import newest_first
from backend.store.postgres.statements import each, literal_count, one_of
from backend.store.postgres.turns import kept, rows_in_turns
from backend.store.schema import tables
from backend.store.schema.documents import barriers_from, details_from, progress_parts
from backend.store.schema.partitions import day_of
from backend.store.schema.rows import value_of, values_of


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """A checkpoint's header with its key, and for each phase the largest duration over all subtasks.

    A largest duration is None if no details are stored.
    """

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
    def place(self) -> CheckpointPlace:
        """The checkpoint's full key, under which its details are stored."""
        return CheckpointPlace(self.run_id, self.header.checkpoint_id, self.triggered_on)

    @property
    def has_maxima(self) -> bool:
        """Whether details were ever stored. The maxima stay even if ``store.downsampling`` has removed the details."""
        values = (self.start_delay_max_ms, self.alignment_max_ms, self.sync_max_ms, self.async_max_ms)
        return any(value is not None for value in values)

    @property
    def cursor(self) -> tuple[datetime, int, str]:
        """The sort key in lists of checkpoints, which are sorted newest first."""
        return self.header.triggered_at, self.header.checkpoint_id, self.run_id


@dataclass(frozen=True, slots=True)
class CheckpointPlace:
    """The full key of a checkpoint, which contains the day of its trigger."""

    run_id: RunId
    checkpoint_id: int
    triggered_on: date


@dataclass(frozen=True, slots=True)
class CheckpointFilter:
    """Selects checkpoints of a job. A field that is None does not restrict the selection.

    The trigger time must be at or after ``since`` and before ``until``.
    """

    status: CheckpointStatus | None = None
    since: datetime | None = None
    until: datetime | None = None
    run_id: str | None = None


@dataclass(frozen=True, slots=True)
class LiveRecord:
    """What was read of a checkpoint while it was open: the last progress and details, and the acknowledgement curve.

    Each of the ``points`` of the curve holds a time and the number of acknowledgements at that time.
    """

    progress: Progress
    details: tuple[VertexDetail, ...]
    points: tuple[tuple[datetime, int], ...]


_C = tables.checkpoints.c
_R = tables.runs.c
# A job's checkpoints with one of these statuses have an index of their own.
_WITH_INDEX = (CheckpointStatus.IN_PROGRESS, CheckpointStatus.FAILED)
# The day follows from the time, so it does not change the order. But only if the day is a sort key does PostgreSQL read
# the partitions in this order, and stop as soon as it has enough rows.
_NEWEST_FIRST = (_C.triggered_on.desc(), _C.triggered_at.desc(), _C.checkpoint_id.desc(), _C.run_id.desc())


# A page of 100 rows costs mostly the conversion of its values to text and back, so values that are known are left out:
# the job, and the day, which follows from the time.
_LISTED = tuple(column for column in _C if column.name not in ("job_id", "triggered_on", "changed_xid"))


async def list_checkpoints(
    connection: AsyncConnection,
    job_id: str,
    wanted: CheckpointFilter,
    *,
    before: tuple[datetime, int, str] | None,
    limit: int,
) -> list[CheckpointRecord]:
    """Return up to ``limit`` checkpoints of a job that match ``wanted``, over all its runs, newest first.

    Only checkpoints that are older than the cursor ``before`` are returned.
    """
    ends = [at for at in (wanted.until, before[0] if before is not None else None) if at is not None]
    if ends and wanted.since is None:
        # PostgreSQL plans this statement for its values, and opens each partition that it may read. So the two days
        # before the end are read first, and the others only if these have too few checkpoints.
        recent_day = day_of(min(ends)) - timedelta(days=1)
        statement, values = checkpoint_page(job_id, wanted, before=before, limit=limit, recent_day=recent_day)
        names, rows = await binary_rows(connection, statement, values)
        if len(rows) >= limit:
            return _listed(job_id, names, rows, limit)
    statement, values = checkpoint_page(job_id, wanted, before=before, limit=limit)
    return _listed(job_id, *await binary_rows(connection, statement, values), limit)


def _listed(job_id: str, names: Sequence[str], rows: Iterable[tuple[Any, ...]], limit: int) -> list[CheckpointRecord]:
    at, job = names.index("triggered_at"), JobId(job_id)
    known = ((*row, job, day_of(row[at])) for row in rows)
    values = values_of(CheckpointRecord, (*names, "job_id", "triggered_on"), known)
    # Rows with the same time and id come in any order, and all of them come even if they exceed the limit.
    return sorted(values, key=attrgetter("cursor"), reverse=True)[:limit]


def checkpoint_page(
    job_id: str,
    wanted: CheckpointFilter,
    *,
    before: tuple[datetime, int, str] | None,
    limit: int,
    recent_day: date | None = None,
) -> tuple[Select[Any], dict[str, object]]:
    """Return the statement of ``list_checkpoints``, and the values to bind to it.

    With ``recent_day``, it reads no earlier day. It may return more than ``limit`` rows: see ``newest_first``.
    """
    restricted = {f.name: value for f in fields(wanted) if (value := getattr(wanted, f.name)) is not None}
    restricted.pop("status", None)
    days = {f"{name}_day": day_of(restricted[name]) for name in ("since", "until") if name in restricted}
    if before is not None:
        days["before_day"] = day_of(before[0])
    if recent_day is not None:
        restricted["recent_day"] = recent_day
    query = _matching(frozenset({*restricted, *(["before"] if before is not None else [])}), wanted.status)
    key = (_C.triggered_on, _C.triggered_at, _C.checkpoint_id, _C.run_id)
    after = None if before is None else (days["before_day"], *before)
    # PostgreSQL plans a first page once for all values. It would expect far too few rows if the days were bound, so it
    # plans other pages for their values.
    knows_limit = before is None and wanted.since is None and wanted.until is None
    # No index contains the run. Two runs of a job have a checkpoint with the same time and id hardly ever.
    statement, page = newest_first(
        query, *key, before=after, limit=limit, sorted_count=len(key) - 1, knows_limit=knows_limit
    )
    return statement, {"job": job_id} | restricted | days | page


@lru_cache(maxsize=64)
def _matching(restricted: frozenset[str], status: CheckpointStatus | None) -> Select[Any]:
    """Return the query for the checkpoints of a job that match a filter.

    ``restricted`` names the fields of the filter that are set, apart from the status. It contains ``before`` if the
    page has a cursor, and ``recent_day`` if earlier days are left out.
    """
    query = select(*_LISTED)
    if status is not None:
        query = query.where(has_status(status))
    if "run_id" not in restricted or status in _WITH_INDEX:
        query = query.where(_C.job_id == bindparam("job"))
        of_run = _C.run_id == bindparam("run_id")
    else:
        # With a condition on the job and one on the run, PostgreSQL expects far too few rows, because it does not know
        # that a run has one job only. It then reads and sorts all checkpoints of the run.
        of_run = (
            _C.run_id
            == select(_R.id).where(_R.id == bindparam("run_id"), _R.job_id == bindparam("job")).scalar_subquery()
        )
    conditions = {
        "run_id": (of_run,),
        # The conditions on the day let PostgreSQL skip partitions.
        "since": (_C.triggered_at >= bindparam("since"), _C.triggered_on >= bindparam("since_day")),
        "until": (_C.triggered_at < bindparam("until"), _C.triggered_on <= bindparam("until_day")),
        "before": (_C.triggered_on <= bindparam("before_day"),),
        "recent_day": (_C.triggered_on >= bindparam("recent_day"),),
    }
    return query.where(*(condition for name in sorted(restricted) for condition in conditions[name]))


def has_status(status: CheckpointStatus) -> ColumnElement[bool]:
    """Return the condition that a checkpoint has this status.

    The status is part of the statement and not bound to it, because PostgreSQL uses a partial index only if it knows
    the value when it plans the statement.
    """
    return _C.status == literal_column(f"'{status.value}'")


ONE = (
    select(tables.checkpoints)
    .where(_C.run_id == bindparam("run"), _C.checkpoint_id == bindparam("id"))
    .order_by(*_NEWEST_FIRST)
    .limit(literal_count(1))
)


async def get_checkpoint(connection: AsyncConnection, run_id: str, checkpoint_id: int) -> CheckpointRecord:
    """Return one checkpoint of a run. If the engine used the id again on another day, return the newest one.

    Raises:
        UnknownEntityError: the run has no stored checkpoint with this id.
    """
    records = _records(await connection.execute(ONE, {"run": run_id, "id": checkpoint_id}))
    if not records:
        raise UnknownEntityError(kind="checkpoint", id=checkpoint_id)
    return records[0]


_OF_RUN = select(tables.checkpoints).where(_C.run_id == bindparam("run"))
_POSITION = tuple_(_C.triggered_at, _C.checkpoint_id)
_OWN = tuple_(bindparam("at", type_=tables.Instant), bindparam("id", type_=_C.checkpoint_id.type))
_UP_TO = (
    _OF_RUN.where(_POSITION <= _OWN, _C.triggered_on <= bindparam("day"))
    .order_by(_C.triggered_on.desc(), _C.triggered_at.desc(), _C.checkpoint_id.desc())
    .limit(bindparam("before"))
    .subquery()
)
_LATER = (
    _OF_RUN.where(_POSITION > _OWN, _C.triggered_on >= bindparam("day"))
    .order_by(_C.triggered_on, _C.triggered_at, _C.checkpoint_id)
    .limit(bindparam("after"))
    .subquery()
)
AROUND = union_all(select(_UP_TO), select(_LATER)).order_by("triggered_at", "checkpoint_id")


async def list_around(
    connection: AsyncConnection, record: CheckpointRecord, *, before: int, after: int
) -> list[CheckpointRecord]:
    """Return the checkpoint, with up to ``before`` earlier and ``after`` later checkpoints of its run, oldest first."""
    values = {
        "run": record.run_id,
        "day": record.triggered_on,
        "at": record.header.triggered_at,
        "id": record.header.checkpoint_id,
        "before": before + 1,
        "after": after,
    }
    return _records(await connection.execute(AROUND, values))


_COMPLETED_BEFORE = select(tables.checkpoints).where(
    _C.job_id == bindparam("job"),
    has_status(CheckpointStatus.COMPLETED),
    _C.triggered_at < bindparam("at"),
    _C.triggered_on <= bindparam("day"),
)
LAST_COMPLETED = _COMPLETED_BEFORE.order_by(*_NEWEST_FIRST).limit(literal_count(1))
_LAST_FAST = (
    # Savepoints are left out, because their durations do not compare with those of checkpoints.
    _COMPLETED_BEFORE.where(
        _C.kind == CheckpointKind.CHECKPOINT.value, _C.end_to_end_duration_ms < bindparam("faster_than_ms")
    )
    .order_by(*_NEWEST_FIRST)
    .limit(literal_count(1))
)


async def last_completed_before(
    connection: AsyncConnection, record: CheckpointRecord, *, faster_than_ms: int | None = None
) -> CheckpointRecord | None:
    """Return the job's newest completed checkpoint that was triggered before this one, or None.

    With ``faster_than_ms``, return the newest one that took less than this time and is not a savepoint.
    """
    values = {
        "job": record.job_id,
        "at": record.header.triggered_at,
        "day": record.triggered_on,
        "faster_than_ms": faster_than_ms,
    }
    query = LAST_COMPLETED if faster_than_ms is None else _LAST_FAST
    records = _records(await connection.execute(query, values))
    return records[0] if records else None


_RUN_IDS = each(_C.run_id, "runs")
_RECENT = (
    select(tables.checkpoints)
    .where(_C.run_id == _RUN_IDS.c.run_id, _C.triggered_on >= bindparam("since"))
    .order_by(_C.triggered_on.desc(), _C.triggered_at.desc(), _C.checkpoint_id.desc())
    .limit(bindparam("limit"))
    .lateral("recent")
)
RECENT_OF_RUNS = (
    select(_RECENT)
    .select_from(_RUN_IDS.join(_RECENT, true()))
    .order_by(_RECENT.c.triggered_at, _RECENT.c.checkpoint_id)
)


async def recent_of_runs(
    connection: AsyncConnection, run_ids: Sequence[str], *, limit: int, since: date
) -> Mapping[str, list[CheckpointRecord]]:
    """Return the newest ``limit`` checkpoints of each run since the day ``since``. They are sorted oldest first."""
    records: dict[str, list[CheckpointRecord]] = {r: [] for r in run_ids}
    values = {"runs": list(run_ids), "limit": limit, "since": since}
    for record in _records(await connection.execute(RECENT_OF_RUNS, values)):
        records[record.run_id].append(record)
    return records


_END = (
    select(_C.run_id, _C.triggered_at, _C.end_to_end_duration_ms, _C.status, _C.checkpoint_id)
    .where(
        _C.run_id == _RUN_IDS.c.run_id,
        _C.triggered_on >= bindparam("since"),
        _C.status != CheckpointStatus.IN_PROGRESS.value,
        _C.kind == CheckpointKind.CHECKPOINT.value,
    )
    .order_by(_C.triggered_on.desc(), _C.triggered_at.desc(), _C.checkpoint_id.desc())
    .limit(bindparam("limit"))
    .lateral("recent_end")
)
_RECENT_ENDS = (
    select(_END.c.run_id, _END.c.triggered_at, _END.c.end_to_end_duration_ms, _END.c.status)
    .select_from(_RUN_IDS.join(_END, true()))
    .order_by(_END.c.triggered_at, _END.c.checkpoint_id)
)
RecentEnd = tuple[datetime, int | None, CheckpointStatus]
"""An ended checkpoint: its trigger time, its duration in milliseconds, and its status."""


async def recent_ends(
    connection: AsyncConnection, run_ids: Sequence[str], *, limit: int, since: date
) -> Mapping[str, list[RecentEnd]]:
    """Return the newest ``limit`` ended checkpoints of each run since the day ``since``, oldest first.

    Savepoints are left out. A run without such checkpoints is absent.
    """
    ends: dict[str, list[RecentEnd]] = {}
    values = {"runs": list(run_ids), "limit": limit, "since": since}
    for run_id, at, duration_ms, status in (await connection.execute(_RECENT_ENDS, values)).all():
        ends.setdefault(run_id, []).append((at, duration_ms, CheckpointStatus(status)))
    return ends


def of_places(table: Table, *, left_out: str = "") -> Select[Any]:
    """Return the query for the rows of a table that belong to given checkpoints, without the column ``left_out``.

    ``place_values`` returns the values to bind to the query.
    """
    columns = (table.c.run_id, table.c.checkpoint_id, table.c.triggered_on)
    arrays = (bindparam(c.name, type_=ARRAY(c.type)) for c in columns)
    places = func.unnest(*arrays).table_valued(*(c.name for c in columns)).render_derived("k")
    return (
        select(*(c for c in table.c if c.name != left_out))
        .join_from(places, table, and_(*(c == places.c[c.name] for c in columns)))
        # The planner cannot skip partitions based on a join, so the query also contains the range of days.
        .where(table.c.triggered_on.between(bindparam("first"), bindparam("last")))
    )


def place_values(places: Sequence[CheckpointPlace]) -> dict[str, Any]:
    """Return the values to bind to a query made by ``of_places``. ``places`` must not be empty."""
    days = [p.triggered_on for p in places]
    return {
        "run_id": [p.run_id for p in places],
        "checkpoint_id": [p.checkpoint_id for p in places],
        "triggered_on": days,
        "first": min(days),
        "last": max(days),
    }


_DETAILS = of_places(tables.checkpoint_details).order_by(tables.checkpoint_details.c.vertex_id)
_DETAILS_OF_VERTICES = _DETAILS.where(one_of(tables.checkpoint_details.c.vertex_id, "vertices"))


async def details_of(
    connection: AsyncConnection,
    places: Iterable[CheckpointPlace],
    *,
    vertices: Sequence[str] = (),
    is_large: bool = False,
) -> Mapping[CheckpointPlace, tuple[VertexDetail, ...]]:
    """Return the details of these checkpoints, one for each vertex, or for each of ``vertices`` unless it is empty.

    A checkpoint without details is absent. ``is_large`` is whether the checkpoints have many subtasks.
    """
    keys = list(places)
    if not keys:
        return {}
    vertex_details: dict[CheckpointPlace, list[VertexDetail]] = {}
    query = _DETAILS_OF_VERTICES if vertices else _DETAILS
    values = place_values(keys) | ({"vertices": list(vertices)} if vertices else {})
    async for row in rows_in_turns(connection, query, values, is_large=is_large):
        count = row["subtask_count"]
        detail = value_of(VertexDetail, row, **{name: expand(row[name], count) for name in DETAIL_ARRAYS})
        vertex_details.setdefault(value_of(CheckpointPlace, row), []).append(detail)
    return {place: kept(details, is_large=is_large) for place, details in vertex_details.items()}


_LATE = tables.late_barriers.c
_LATE_BARRIERS = (
    select(tables.late_barriers)
    .where(one_of(_LATE.run_id, "runs"), _LATE.seen_at >= bindparam("since"))
    .order_by(_LATE.vertex_id, _LATE.subtask)
)


async def late_barriers_of(
    connection: AsyncConnection, run_ids: Sequence[str], since: datetime
) -> Mapping[str, Mapping[int, tuple[LateBarrier, ...]]]:
    """Return the late barriers that were seen at or after ``since``, by run and checkpoint."""
    found: dict[str, dict[int, tuple[LateBarrier, ...]]] = {}
    values = {"runs": list(run_ids), "since": since}
    for row in (await connection.execute(_LATE_BARRIERS, values)).mappings():
        of_run = found.setdefault(row["run_id"], {})
        of_run[row["checkpoint_id"]] = (*of_run.get(row["checkpoint_id"], ()), value_of(LateBarrier, row))
    return found


async def live_of(connection: AsyncConnection, run_id: str, checkpoint_id: int) -> LiveRecord | None:
    """Return what was read of one checkpoint while it was open, or None if it was never seen open."""
    return (await lives_of(connection, [(run_id, checkpoint_id)])).get((run_id, checkpoint_id))


async def lives_of(
    connection: AsyncConnection, keys: Sequence[tuple[str, int]]
) -> Mapping[tuple[str, int], LiveRecord]:
    """Return what was read of checkpoints while they were open, by (run, id).

    A checkpoint that was never seen open is absent.
    """
    if not keys:
        return {}
    values = {"run_id": [run for run, _ in keys], "checkpoint_id": [number for _, number in keys]}
    rows = (await connection.execute(_LIVES, values)).mappings()
    newest = {(row["run_id"], row["checkpoint_id"]): row for row in rows}
    points: dict[tuple[str, int], list[tuple[datetime, int]]] = {}
    for row in (await connection.execute(_POINTS, values)).mappings():
        point = (row["observed_at"], row["acknowledged_count"])
        points.setdefault((row["run_id"], row["checkpoint_id"]), []).append(point)
    return {
        key: LiveRecord(
            progress=value_of(Progress, row, **progress_parts(row["document"])),
            details=details_from(row["document"]),
            points=tuple(points.get(key, ())),
        )
        for key, row in newest.items()
    }


def _of_checkpoints(table: Table) -> Select[Any]:
    columns = (table.c.run_id, table.c.checkpoint_id)
    arrays = (bindparam(c.name, type_=ARRAY(c.type)) for c in columns)
    keys = func.unnest(*arrays).table_valued(*(c.name for c in columns)).render_derived("k")
    return select(table).join_from(keys, table, and_(*(c == keys.c[c.name] for c in columns)))


_LIVES = _of_checkpoints(tables.live_progress)
_POINTS = _of_checkpoints(tables.progress_points).order_by(tables.progress_points.c.observed_at)


_E = tables.barrier_events.c
_OF_PLACE = (
    _E.run_id == bindparam("run_id"),
    _E.checkpoint_id == bindparam("checkpoint_id"),
    _E.triggered_on == bindparam("triggered_on"),
)
_EVENTS = select(_E.events).where(*_OF_PLACE)
_HAS_EVENTS = select(exists().where(*_OF_PLACE))


async def barriers_of(connection: AsyncConnection, place: CheckpointPlace) -> tuple[BarrierEvent, ...] | None:
    """Return the barrier events of one checkpoint, or None if none are stored."""
    blob = (await connection.execute(_EVENTS, asdict(place))).scalar_one_or_none()
    return None if blob is None else barriers_from(bytes(blob))


async def has_barriers(connection: AsyncConnection, place: CheckpointPlace) -> bool:
    """Return whether barrier events of one checkpoint are stored."""
    return bool((await connection.execute(_HAS_EVENTS, asdict(place))).scalar_one())


def _records(rows: Result[Any]) -> list[CheckpointRecord]:
    return values_of(CheckpointRecord, tuple(rows.keys()), rows)
