"""Reads backpressure: the readings of runs, and series of means over subtasks."""

# ruff: noqa: S608  the statements contain only names of columns that stand in this module.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ARRAY,
    Date,
    RowMapping,
    Select,
    Text,
    bindparam,
    func,
    literal_column,
    select,
    text,
    true,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.domain.ids import VertexId
from backend.domain.pressure import VertexPressure
from backend.domain.stored_form import expand, expand_ratios
from backend.domain.verdict import Basis
from backend.store.checkpoints.progress_writer import PRESSURE_ARRAYS, RATIO_ARRAYS
from backend.store.postgres.statements import one_of
from backend.store.postgres.turns import kept, rows_in_turns
from backend.store.schema import tables
from backend.store.schema.partitions import day_of
from backend.store.schema.rows import value_of

_READING = tables.pressure.c
_DAY = timedelta(days=1)

Readings = tuple[VertexPressure, ...]
"""Readings of one run, oldest first."""


@dataclass(frozen=True, slots=True)
class PressurePoint:
    """The backpressure of one vertex at one instant. A ratio is the mean over its subtasks.

    ``queued_bytes`` is the number of bytes in the input and output queues of all its subtasks.
    """

    at: datetime
    vertex_id: VertexId
    busy_ratio: float | None
    backpressured_ratio: float | None
    idle_ratio: float | None
    queued_bytes: int | None


_BETWEEN = (
    select(tables.pressure)
    .where(
        one_of(_READING.run_id, "runs"),
        _READING.observed_at.between(bindparam("since"), bindparam("until")),
        _READING.observed_on.between(bindparam("first"), bindparam("last")),
    )
    .order_by(_READING.observed_at, _READING.vertex_id)
)


async def readings_between(
    connection: AsyncConnection, run_ids: Sequence[str], since: datetime, until: datetime, *, is_large: bool = False
) -> Mapping[str, Readings]:
    """Return the readings of each run from ``since`` to ``until`` (both inclusive), oldest first."""
    values = {"runs": list(run_ids), "since": since, "until": until, "first": day_of(since), "last": day_of(until)}
    return await _by_run(connection, _BETWEEN, values, is_large=is_large)


def _since() -> Select[Any]:
    arrays = (
        bindparam("runs", type_=ARRAY(Text)),
        bindparam("instants", type_=ARRAY(tables.Instant)),
        bindparam("days", type_=ARRAY(Date)),
    )
    runs = func.unnest(*arrays).table_valued("run_id", "since", "first").render_derived("k")
    recent = (
        select(tables.pressure)
        .where(
            _READING.run_id == runs.c.run_id,
            _READING.observed_at >= runs.c.since,
            # The day lets PostgreSQL skip partitions.
            _READING.observed_on >= runs.c.first,
        )
        .lateral("recent")
    )
    query = select(recent).select_from(runs.join(recent, true()))
    return query.order_by(recent.c.observed_at, recent.c.vertex_id)


_SINCE = _since()


async def readings_since(
    connection: AsyncConnection, since: Mapping[str, datetime], *, is_large: bool = False
) -> Mapping[str, Readings]:
    """Return the readings of each run at or after the run's instant in ``since``, oldest first."""
    instants = list(since.values())
    values = {"runs": list(since), "instants": instants, "days": [day_of(at) for at in instants]}
    return await _by_run(connection, _SINCE, values, is_large=is_large)


async def _by_run(
    connection: AsyncConnection, statement: Select[Any], values: Mapping[str, object], *, is_large: bool
) -> Mapping[str, Readings]:
    vertex_pressures: dict[str, list[VertexPressure]] = {}
    async for row in rows_in_turns(connection, statement, values, is_large=is_large):
        vertex_pressures.setdefault(row["run_id"], []).append(_reading(row))
    return {run_id: kept(readings, is_large=is_large) for run_id, readings in vertex_pressures.items()}


_SIZES = (
    select(_READING.observed_at, func.sum(_READING.subtask_count))
    .where(
        _READING.run_id == bindparam("run"),
        _READING.observed_at.between(bindparam("since"), bindparam("until")),
        _READING.observed_on.between(bindparam("first"), bindparam("last")),
    )
    .group_by(_READING.observed_at)
    .order_by(_READING.observed_at.desc())
)


async def since_within(
    connection: AsyncConnection, run_id: str, since: datetime, until: datetime, *, most: int
) -> datetime:
    """Return ``since``, or a later instant if more than ``most`` subtasks were read in the range.

    The readings from there to ``until`` are the newest ones with at most ``most`` subtasks, but at least one.
    """
    values = {"run": run_id, "since": since, "until": until, "first": day_of(since), "last": day_of(until)}
    found, count = until, 0
    for at, subtask_count in (await connection.execute(_SIZES, values)).all():
        count += subtask_count
        if count > most and found < until:
            return found
        found = at
    return since


_ARRAYS = (bindparam("runs", type_=ARRAY(Text)), *(bindparam(n, type_=ARRAY(Date)) for n in ("firsts", "lasts")))
_RUNS = func.unnest(*_ARRAYS).table_valued("run_id", "first", "last").render_derived("k")
_NEWEST = (
    select(_READING.run_id, _READING.observed_at)
    .where(_READING.run_id == _RUNS.c.run_id, _READING.observed_on.between(_RUNS.c.first, _RUNS.c.last))
    .order_by(_READING.observed_at.desc())
    .limit(literal_column("1"))
    .lateral("newest")
)
NEWEST_READING_AT = select(_NEWEST).select_from(_RUNS.join(_NEWEST, true()))


async def newest_reading_at(connection: AsyncConnection, seen_at: Mapping[str, datetime]) -> Mapping[str, datetime]:
    """Return the instant of each run's newest reading. A run without readings is absent.

    ``seen_at`` contains the last observation of each run. Readings from more than a day before or after it are not
    searched, so that only the partitions of three days are visited.
    """
    rows = await connection.execute(NEWEST_READING_AT, newest_reading_values(seen_at))
    return {row.run_id: row.observed_at for row in rows}


def newest_reading_values(seen_at: Mapping[str, datetime]) -> dict[str, object]:
    """Return the values to bind to ``NEWEST_READING_AT``."""
    days = [day_of(at) for at in seen_at.values()]
    return {"runs": list(seen_at), "firsts": [d - _DAY for d in days], "lasts": [d + _DAY for d in days]}


# This is SQL text because it computes with arrays and window functions.
_SERIES = text(
    "WITH instants AS (SELECT run_id, observed_at, count(*) OVER () AS total,"
    " row_number() OVER (PARTITION BY run_id ORDER BY observed_at) AS n"
    " FROM (SELECT DISTINCT run_id, observed_at FROM pressure WHERE run_id = ANY(:ids)"
    " AND observed_at >= :since AND observed_at < :until"
    " AND observed_on BETWEEN CAST(:since AS timestamptz)::date AND CAST(:until AS timestamptz)::date) d)"
    " SELECT p.observed_at, p.vertex_id,"
    " (SELECT avg(x) FROM unnest(p.busy_ratio) x) AS busy,"
    " (SELECT avg(x) FROM unnest(p.backpressured_ratio) x) AS held,"
    " (SELECT avg(x) FROM unnest(p.idle_ratio) x) AS idle,"
    # If an array has one element, that value applies to every subtask.
    " (SELECT sum(x) FROM unnest(p.queued_in_bytes) x)::int8"
    " * CASE WHEN cardinality(p.queued_in_bytes) = 1 THEN p.subtask_count ELSE 1 END AS queued_in,"
    " (SELECT sum(x) FROM unnest(p.queued_out_bytes) x)::int8"
    " * CASE WHEN cardinality(p.queued_out_bytes) = 1 THEN p.subtask_count ELSE 1 END AS queued_out"
    " FROM pressure p JOIN instants i ON i.run_id = p.run_id AND i.observed_at = p.observed_at"
    " WHERE p.observed_on BETWEEN CAST(:since AS timestamptz)::date AND CAST(:until AS timestamptz)::date"
    " AND i.n % (1 + i.total / :limit) = 0 ORDER BY p.observed_at, p.vertex_id"
)


async def series(
    connection: AsyncConnection, run_ids: Sequence[str], since: datetime, until: datetime, *, limit: int
) -> list[PressurePoint]:
    """Return the means over the subtasks of each vertex for the instants in a range, oldest first.

    If there are more than ``limit`` instants, only every n-th one is returned, so that about ``limit`` remain.
    """
    values = {"ids": list(run_ids), "since": since, "until": until, "limit": limit}
    return [
        PressurePoint(at, VertexId(vertex_id), busy, held, idle, _sum(queued_in, queued_out))
        for at, vertex_id, busy, held, idle, queued_in, queued_out in await connection.execute(_SERIES, values)
    ]


@dataclass(frozen=True, slots=True)
class WindowLoad:
    """The load of one vertex in a window of time: means over its readings.

    A maximum is that of the busiest subtask in each reading. ``records_per_s`` is the number of records that all
    subtasks read; of a vertex that only emits, what it emitted. It is None if the readings do not show it, for example
    because a task restarted in the window. It is measured if every reading has the engine's own rate, which is a mean
    over a minute like the shares of time. Otherwise it is the difference of the first and the last count.
    """

    vertex_id: VertexId
    reading_count: int
    busy_mean_ratio: float | None
    busy_max_ratio: float | None
    backpressured_mean_ratio: float | None
    backpressured_max_ratio: float | None
    records_per_s: float | None
    queued_bytes: int | None
    records_per_s_basis: Basis | None = None


def _whole(name: str) -> str:
    """Return the sum of an array over all subtasks; NULL if one of its values is missing.

    If an array has one element, that value applies to every subtask.
    """
    times = f"CASE WHEN cardinality(p.{name}) = 1 THEN p.subtask_count ELSE 1 END"
    return (
        f"CASE WHEN array_position(p.{name}, NULL) IS NULL THEN (SELECT sum(x) FROM unnest(p.{name}) x) * {times} END"
    )


# This is SQL text because it computes with arrays and window functions. The arrays of large jobs stay in PostgreSQL.
_WINDOW_LOADS = text(
    "WITH instants AS (SELECT observed_at, count(*) OVER () AS total,"
    " row_number() OVER (ORDER BY observed_at) AS n"
    " FROM (SELECT DISTINCT observed_at FROM pressure WHERE run_id = :run"
    " AND observed_at BETWEEN :since AND :until AND observed_on BETWEEN :first AND :last) d),"
    " readings AS (SELECT p.vertex_id, p.observed_at,"
    " (SELECT avg(x) FROM unnest(p.busy_ratio) x) AS busy,"
    " (SELECT max(x) FROM unnest(p.busy_ratio) x) AS busiest,"
    " (SELECT avg(x) FROM unnest(p.backpressured_ratio) x) AS held,"
    " (SELECT max(x) FROM unnest(p.backpressured_ratio) x) AS most_held,"
    f" {_whole('records_in_count')} AS taken, {_whole('records_out_count')} AS sent,"
    # Only a source emits without reading. Flink reports a rate of 0 for what it reads.
    f" coalesce(nullif({_whole('records_in_per_s')}, 0), {_whole('records_out_per_s')},"
    f" {_whole('records_in_per_s')}) AS rate,"
    " (SELECT sum(x) FROM unnest(p.queued_in_bytes) x)"
    " * CASE WHEN cardinality(p.queued_in_bytes) = 1 THEN p.subtask_count ELSE 1 END AS queued_in,"
    " (SELECT sum(x) FROM unnest(p.queued_out_bytes) x)"
    " * CASE WHEN cardinality(p.queued_out_bytes) = 1 THEN p.subtask_count ELSE 1 END AS queued_out"
    " FROM pressure p JOIN instants i ON i.observed_at = p.observed_at"
    " WHERE p.run_id = :run AND p.observed_on BETWEEN :first AND :last"
    " AND (i.n = 1 OR i.n = i.total OR i.n % (1 + i.total / :limit) = 0)),"
    " ends AS (SELECT vertex_id, max(observed_at) - min(observed_at) AS long,"
    # If what it emitted is missing, the rate is missing too.
    " (array_agg(CASE WHEN taken = 0 THEN sent ELSE taken END ORDER BY observed_at))[1] AS began,"
    " (array_agg(CASE WHEN taken = 0 THEN sent ELSE taken END ORDER BY observed_at DESC))[1] AS ended"
    " FROM readings GROUP BY vertex_id),"
    " loads AS ("
    " SELECT r.vertex_id, count(*) AS reading_count, avg(busy)::float8 AS busy_mean_ratio,"
    " avg(busiest)::float8 AS busy_max_ratio, avg(held)::float8 AS backpressured_mean_ratio,"
    " avg(most_held)::float8 AS backpressured_max_ratio,"
    " CASE WHEN e.ended < e.began THEN NULL WHEN count(rate) = count(*) THEN avg(rate)"
    # Flink reads its counters every 10 s by default, so an equal count of a shorter time does not show a standstill.
    " WHEN e.ended = e.began AND e.long < interval '15 s' THEN NULL"
    " WHEN e.long > interval '0' THEN ((e.ended - e.began) / extract(epoch FROM e.long))::float8 END AS records_per_s,"
    " count(rate) = count(*) AS is_metered,"
    " avg(CASE WHEN queued_in IS NULL THEN queued_out ELSE queued_in + coalesce(queued_out, 0) END)::int8"
    " AS queued_bytes"
    " FROM readings r JOIN ends e USING (vertex_id) GROUP BY r.vertex_id, e.began, e.ended, e.long)"
    " SELECT vertex_id, reading_count, busy_mean_ratio, busy_max_ratio, backpressured_mean_ratio,"
    " backpressured_max_ratio, records_per_s, CASE WHEN records_per_s IS NULL THEN NULL"
    f" WHEN is_metered THEN '{Basis.MEASURED.value}' ELSE '{Basis.RECONSTRUCTED.value}' END AS records_per_s_basis,"
    " queued_bytes FROM loads"
)


async def window_loads(
    connection: AsyncConnection, run_id: str, since: datetime, until: datetime, *, limit: int
) -> Mapping[VertexId, WindowLoad]:
    """Return the load of each vertex of a run from ``since`` to ``until`` (both inclusive).

    Of more than ``limit`` instants, about ``limit`` are read, with the first and the last one among them. A vertex
    without readings is absent.
    """
    values = {"run": run_id, "since": since, "until": until, "first": day_of(since), "last": day_of(until)}
    rows = await connection.execute(_WINDOW_LOADS, values | {"limit": limit})
    loads: dict[VertexId, WindowLoad] = {}
    for row in rows.mappings():
        own = {**row, "vertex_id": VertexId(row["vertex_id"])}
        if own["records_per_s_basis"] is not None:
            own["records_per_s_basis"] = Basis(own["records_per_s_basis"])
        loads[own["vertex_id"]] = WindowLoad(**own)
    return loads


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None and b is None else (a or 0) + (b or 0)


def _reading(row: RowMapping) -> VertexPressure:
    count, asked = row["subtask_count"], row["asked"]
    arrays: dict[str, Any] = {}
    for bit, name in enumerate(PRESSURE_ARRAYS):
        if asked & (1 << bit):
            arrays[name] = (expand_ratios if name in RATIO_ARRAYS else expand)(row[name], count)
        else:
            arrays[name] = ()
    return value_of(VertexPressure, row, **arrays)
