"""Reads backpressure: the readings of runs, and a series of means over subtasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ARRAY, Result, RowMapping, Select, Text, bindparam, func, literal_column, select, text, true
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.domain.ids import VertexId
from backend.domain.pressure import VertexPressure
from backend.store.checkpoints.progress_writer import PRESSURE_ARRAYS, RATIO_ARRAYS
from backend.store.postgres.statements import each, one_of
from backend.store.schema import tables
from backend.store.schema.arrays import expand, expand_ratios
from backend.store.schema.partitions import day_of
from backend.store.schema.rows import value_of

_READING = tables.pressure.c

Readings = tuple[VertexPressure, ...]
"""Readings of one run, oldest first."""


@dataclass(frozen=True, slots=True)
class PressurePoint:
    """Means over the subtasks of one vertex at one instant; ``queued_bytes`` is the sum of both queues."""

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
    connection: AsyncConnection, run_ids: Sequence[str], since: datetime, until: datetime
) -> Mapping[str, Readings]:
    """Readings of each run from ``since`` to ``until`` (both inclusive), oldest first."""
    values = {"runs": list(run_ids), "since": since, "until": until, "first": day_of(since), "last": day_of(until)}
    return _by_run(await connection.execute(_BETWEEN, values))


def _since() -> Select[Any]:
    arrays = bindparam("runs", type_=ARRAY(Text)), bindparam("instants", type_=ARRAY(tables.Instant))
    runs = func.unnest(*arrays).table_valued("run_id", "since").render_derived("k")
    recent = (
        select(tables.pressure)
        .where(_READING.run_id == runs.c.run_id, _READING.observed_at >= runs.c.since)
        .lateral("recent")
    )
    query = select(recent).select_from(runs.join(recent, true()))
    return query.order_by(recent.c.observed_at, recent.c.vertex_id)


_SINCE = _since()


async def readings_since(connection: AsyncConnection, since: Mapping[str, datetime]) -> Mapping[str, Readings]:
    """Return the readings of each run at or after its instant in ``since``, oldest first."""
    values = {"runs": list(since), "instants": list(since.values())}
    return _by_run(await connection.execute(_SINCE, values))


def _by_run(rows: Result[Any]) -> Mapping[str, Readings]:
    found: dict[str, list[VertexPressure]] = {}
    for row in rows.mappings():
        found.setdefault(row["run_id"], []).append(_reading(row))
    return {run_id: tuple(readings) for run_id, readings in found.items()}


_RUNS = each(_READING.run_id, "runs")
_NEWEST = (
    select(_READING.run_id, _READING.observed_at)
    .where(_READING.run_id == _RUNS.c.run_id)
    .order_by(_READING.observed_at.desc())
    .limit(literal_column("1"))
    .lateral("newest")
)
_NEWEST_READING_AT = select(_NEWEST).select_from(_RUNS.join(_NEWEST, true()))


async def newest_reading_at(connection: AsyncConnection, run_ids: Sequence[str]) -> Mapping[str, datetime]:
    """Return the instant of each run's newest reading."""
    rows = await connection.execute(_NEWEST_READING_AT, {"runs": list(run_ids)})
    return {row.run_id: row.observed_at for row in rows}


# Text: arithmetic over arrays and windows.
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
    # One stored element stands for every subtask.
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
    """Return means over subtasks in a range, oldest first: all instants, or every n-th to keep about ``limit``."""
    values = {"ids": list(run_ids), "since": since, "until": until, "limit": limit}
    return [
        PressurePoint(at, VertexId(vertex_id), busy, held, idle, _sum(queued_in, queued_out))
        for at, vertex_id, busy, held, idle, queued_in, queued_out in await connection.execute(_SERIES, values)
    ]


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
