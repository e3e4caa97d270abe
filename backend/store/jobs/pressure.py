"""Reads backpressure: the readings of runs, and means over subtasks along a time range."""

# ruff: noqa: S608  the text put into statements is this module's own column lists; every value is bound.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.domain.ids import VertexId
from backend.domain.pressure import VertexPressure
from backend.store.checkpoints.progress_writer import PRESSURE_ARRAYS, RATIO_ARRAYS
from backend.store.schema.arrays import expand, expand_ratios

_COLUMNS = "p.run_id, p.observed_at, p.vertex_id, p.subtask_count, p.asked, " + ", ".join(
    f"p.{name}" for name in PRESSURE_ARRAYS
)


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


async def readings_between(
    connection: AsyncConnection, run_ids: Sequence[str], since: datetime, until: datetime
) -> Mapping[str, Readings]:
    """Readings of each run from ``since`` to ``until`` (both inclusive), oldest first."""
    query = text(
        f"SELECT {_COLUMNS} FROM pressure p WHERE p.run_id = ANY(:ids) AND p.observed_at BETWEEN :since AND :until"
        " AND p.observed_on BETWEEN CAST(:since AS timestamptz)::date AND CAST(:until AS timestamptz)::date"
        " ORDER BY p.observed_at, p.vertex_id"
    )
    found: dict[str, list[VertexPressure]] = {}
    values = {"ids": list(run_ids), "since": since, "until": until}
    for row in (await connection.execute(query, values)).mappings():
        found.setdefault(row["run_id"], []).append(_reading(row))
    return {run_id: tuple(readings) for run_id, readings in found.items()}


async def readings_since(connection: AsyncConnection, since: Mapping[str, datetime]) -> Mapping[str, Readings]:
    """Readings of each run at or after its own instant."""
    query = text(
        f"SELECT {_COLUMNS} FROM unnest(CAST(:ids AS text[]), CAST(:since AS timestamptz[])) AS i(run_id, since)"
        " CROSS JOIN LATERAL (SELECT * FROM pressure WHERE run_id = i.run_id AND observed_at >= i.since) p"
        " ORDER BY p.observed_at, p.vertex_id"
    )
    found: dict[str, list[VertexPressure]] = {}
    values = {"ids": list(since), "since": list(since.values())}
    for row in (await connection.execute(query, values)).mappings():
        found.setdefault(row["run_id"], []).append(_reading(row))
    return {run_id: tuple(readings) for run_id, readings in found.items()}


async def newest_reading_at(connection: AsyncConnection, run_ids: Sequence[str]) -> Mapping[str, datetime]:
    """When each run was read last."""
    query = text(
        "SELECT i.run_id, p.observed_at FROM unnest(CAST(:ids AS text[])) AS i(run_id) CROSS JOIN LATERAL"
        " (SELECT observed_at FROM pressure WHERE run_id = i.run_id ORDER BY observed_at DESC LIMIT 1) p"
    )
    rows = await connection.execute(query, {"ids": list(run_ids)})
    return {row.run_id: row.observed_at for row in rows}


async def series(
    connection: AsyncConnection, run_ids: Sequence[str], since: datetime, until: datetime, *, limit: int
) -> list[PressurePoint]:
    """Means over subtasks along a range, oldest first: every reading, or every n-th so that ``limit`` holds."""
    query = text(
        "WITH instants AS (SELECT run_id, observed_at, count(*) OVER () AS total,"
        " row_number() OVER (PARTITION BY run_id ORDER BY observed_at) AS n"
        " FROM (SELECT DISTINCT run_id, observed_at FROM pressure WHERE run_id = ANY(:ids)"
        " AND observed_at >= :since AND observed_at < :until"
        " AND observed_on BETWEEN CAST(:since AS timestamptz)::date AND CAST(:until AS timestamptz)::date) d)"
        " SELECT p.observed_at, p.vertex_id,"
        " (SELECT avg(x) FROM unnest(p.busy_ratio) x) AS busy,"
        " (SELECT avg(x) FROM unnest(p.backpressured_ratio) x) AS held,"
        " (SELECT avg(x) FROM unnest(p.idle_ratio) x) AS idle,"
        f" {_total('queued_in_bytes')} AS queued_in, {_total('queued_out_bytes')} AS queued_out"
        " FROM pressure p JOIN instants i ON i.run_id = p.run_id AND i.observed_at = p.observed_at"
        " WHERE p.observed_on BETWEEN CAST(:since AS timestamptz)::date AND CAST(:until AS timestamptz)::date"
        " AND i.n % (1 + i.total / :limit) = 0 ORDER BY p.observed_at, p.vertex_id"
    )
    values = {"ids": list(run_ids), "since": since, "until": until, "limit": limit}
    return [
        PressurePoint(at, VertexId(vertex_id), busy, held, idle, _sum(queued_in, queued_out))
        for at, vertex_id, busy, held, idle, queued_in, queued_out in await connection.execute(query, values)
    ]


def _total(column: str) -> str:
    # One stored element stands for every subtask.
    return (
        f"(SELECT sum(x) FROM unnest(p.{column}) x)::int8"
        f" * CASE WHEN cardinality(p.{column}) = 1 THEN p.subtask_count ELSE 1 END"
    )


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
    return VertexPressure(vertex_id=VertexId(row["vertex_id"]), observed_at=row["observed_at"], **arrays)
