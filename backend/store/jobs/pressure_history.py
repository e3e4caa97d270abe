"""Reads backpressure over a time range in buckets: of each vertex, and of each subtask of one vertex.

The cost is bounded: if the range has more readings than the limit, only some readings of each bucket are read, at
regular distances. Each bucket with readings keeps at least one.
"""

# ruff: noqa: S608  the statements contain only names of columns that stand in this module.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import bindparam, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.domain.ids import VertexId
from backend.domain.pressure import PressureMeasure
from backend.store.postgres.statements import one_of
from backend.store.schema import tables
from backend.store.schema.partitions import day_of

_DIGITS: Final = 4
"""Shares of time are rounded to this many digits, because they are drawn and not computed with."""


@dataclass(frozen=True, slots=True)
class HistoryRange:
    """The range from ``since`` (inclusive) to ``until`` (exclusive), on the clock of the readings.

    ``bucket_s`` is the length of a bucket. ``used_max`` is the largest number of instants whose readings are used in
    each bucket.
    """

    run_ids: Sequence[str]
    since: datetime
    until: datetime
    bucket_s: int
    used_max: int

    @property
    def values(self) -> dict[str, object]:
        """The values to bind to the statements."""
        return {
            "ids": list(self.run_ids),
            "since": self.since,
            "until": self.until,
            "bucket_s": self.bucket_s,
            "used_max": self.used_max,
        }

    def begin_of(self, bucket: int) -> datetime:
        """Return the begin of a bucket."""
        return datetime.fromtimestamp(bucket * self.bucket_s, UTC)


@dataclass(frozen=True, slots=True)
class VertexBucket:
    """The backpressure of one vertex in one bucket. Ratios are means over subtasks and readings, or maxima."""

    begin: datetime
    vertex_id: VertexId
    subtask_count: int
    busy: float | None
    backpressured: float | None
    idle: float | None
    busy_max: float | None
    backpressured_max: float | None
    queued_bytes: int | None
    queued_in_bytes: int | None
    """The mean of the input queues alone."""
    queued_out_bytes: int | None
    """The mean of the output queues alone."""
    queued_max_bytes: int | None
    intake_bytes_per_s: float | None
    """What all subtasks read between the readings. None without two readings of one attempt."""
    records_in_skew: float | None


@dataclass(frozen=True, slots=True)
class ReadingCounts:
    """The number of instants with readings in a range, and the number of them that are used."""

    found: int
    used: int


# This is SQL text because it computes with arrays and window functions. A reading is used if its number in the bucket
# is a multiple of the distance that leaves ``used_max`` readings.
_USED = (
    "WITH instants AS (SELECT run_id, observed_at, b, count(*) OVER (PARTITION BY b) AS total,"
    " row_number() OVER (PARTITION BY b ORDER BY observed_at) - 1 AS n"
    " FROM (SELECT DISTINCT run_id, observed_at, floor(extract(epoch FROM observed_at) / :bucket_s)::int8 AS b"
    " FROM pressure WHERE run_id = ANY(:ids) AND observed_at >= :since AND observed_at < :until"
    " AND observed_on BETWEEN CAST(:since AS timestamptz)::date AND CAST(:until AS timestamptz)::date) d),"
    " used AS (SELECT run_id, observed_at, b FROM instants"
    " WHERE n % ceil(total::float8 / :used_max)::int8 = 0)"
)
_COUNTS = text(_USED + " SELECT (SELECT count(*) FROM instants), (SELECT count(*) FROM used)")
_OF_USED = (
    " JOIN used u ON u.run_id = p.run_id AND u.observed_at = p.observed_at"
    " WHERE p.observed_on BETWEEN CAST(:since AS timestamptz)::date AND CAST(:until AS timestamptz)::date"
)
# One pass over the arrays of a reading computes all its values. Arrays of different lengths are filled up with NULL,
# which avg, max and sum leave out. If an array has one element, that value applies to every subtask.
_TIMES = "CASE WHEN cardinality(p.{0}) = 1 THEN p.subtask_count ELSE 1 END"
_READINGS = (
    " SELECT u.b, u.run_id, u.observed_at, p.vertex_id, p.subtask_count,"
    " v.busy, v.busy_max, v.held, v.held_max, v.idle,"
    f" (v.sum_in * {_TIMES.format('queued_in_bytes')})::int8 AS queued_in,"
    f" (v.sum_out * {_TIMES.format('queued_out_bytes')})::int8 AS queued_out, v.skew,"
    " CASE WHEN cardinality(p.bytes_in_count) > 0 AND array_position(p.bytes_in_count, NULL) IS NULL"
    f" THEN (SELECT sum(x) FROM unnest(p.bytes_in_count) x) * {_TIMES.format('bytes_in_count')} END AS taken"
    " FROM pressure p"
    " CROSS JOIN LATERAL (SELECT avg(busy) AS busy, max(busy) AS busy_max, avg(held) AS held, max(held) AS held_max,"
    " avg(idle) AS idle, sum(queue_in) AS sum_in, sum(queue_out) AS sum_out,"
    " max(records)::float8 / nullif(avg(records), 0) AS skew"
    " FROM unnest(p.busy_ratio, p.backpressured_ratio, p.idle_ratio, p.queued_in_bytes, p.queued_out_bytes,"
    " p.records_in_count) AS t(busy, held, idle, queue_in, queue_out, records) OFFSET 0) v" + _OF_USED
)
# The totals of bytes begin at zero with each attempt. A step down, or another number of subtasks, is no rate.
_IS_STEP = "FILTER (WHERE step >= 0 AND subtask_count = count_before)"
_BY_VERTEX = text(
    _USED + " SELECT b, vertex_id, max(subtask_count) AS subtask_count, avg(busy) AS busy, avg(held) AS held,"
    " avg(idle) AS idle, max(busy_max) AS busy_max, max(held_max) AS held_max,"
    " max(skew)::float8 AS skew, avg(queued)::int8 AS queued_mean, max(queued) AS queued_max,"
    " avg(queued_in)::int8 AS queued_in_mean, avg(queued_out)::int8 AS queued_out_mean,"
    f" sum(step) {_IS_STEP}::float8 / nullif(sum(step_s) {_IS_STEP}, 0) AS intake"
    " FROM (SELECT *, CASE WHEN queued_in IS NULL AND queued_out IS NULL THEN NULL"
    " ELSE COALESCE(queued_in, 0) + COALESCE(queued_out, 0) END AS queued,"
    " taken - lag(taken) OVER own AS step, lag(subtask_count) OVER own AS count_before,"
    " extract(epoch FROM observed_at - lag(observed_at) OVER own)::float8 AS step_s"
    f" FROM ({_READINGS}) q WINDOW own AS (PARTITION BY run_id, vertex_id ORDER BY observed_at)) r"
    " GROUP BY b, vertex_id ORDER BY b, vertex_id"
)
_ARRAYS: Mapping[PressureMeasure, str] = {
    PressureMeasure.BUSY: "busy_ratio",
    PressureMeasure.BACKPRESSURED: "backpressured_ratio",
    PressureMeasure.IDLE: "idle_ratio",
}
_BY_SUBTASK = {
    measure: text(
        _USED + " SELECT u.b, s.i - 1, avg(s.x) FROM pressure p"
        f" JOIN used u ON u.run_id = p.run_id AND u.observed_at = p.observed_at"
        f" CROSS JOIN LATERAL unnest(CASE WHEN cardinality(p.{name}) = 1"
        f" THEN array_fill(p.{name}[1], ARRAY[p.subtask_count]) ELSE p.{name} END) WITH ORDINALITY AS s(x, i)"
        " WHERE p.vertex_id = :vertex AND p.observed_on"
        " BETWEEN CAST(:since AS timestamptz)::date AND CAST(:until AS timestamptz)::date"
        " AND s.x IS NOT NULL GROUP BY u.b, s.i"
    )
    for measure, name in _ARRAYS.items()
}


async def reading_counts(connection: AsyncConnection, wanted: HistoryRange) -> ReadingCounts:
    """Return how many instants have readings in the range, and how many of them are used."""
    found, used = (await connection.execute(_COUNTS, wanted.values)).one()
    return ReadingCounts(found, used)


_LAST_RUN = (
    select(tables.pressure.c.run_id)
    .where(
        one_of(tables.pressure.c.run_id, "ids"),
        tables.pressure.c.observed_at.between(bindparam("since"), bindparam("until")),
        tables.pressure.c.observed_on.between(bindparam("first"), bindparam("last")),
    )
    .order_by(tables.pressure.c.observed_at.desc())
    .limit(1)
)


async def last_run_between(
    connection: AsyncConnection, run_ids: Sequence[str], since: datetime, until: datetime
) -> str | None:
    """Return which run has the newest reading from ``since`` to ``until`` (both inclusive), or None if none has."""
    values = {"ids": list(run_ids), "since": since, "until": until, "first": day_of(since), "last": day_of(until)}
    return (await connection.execute(_LAST_RUN, values)).scalar_one_or_none()


async def vertex_buckets(connection: AsyncConnection, wanted: HistoryRange) -> list[VertexBucket]:
    """Return the backpressure of each vertex in each bucket that has readings, oldest first."""
    rows = await connection.execute(_BY_VERTEX, wanted.values)
    return [
        VertexBucket(
            begin=wanted.begin_of(row.b),
            vertex_id=VertexId(row.vertex_id),
            subtask_count=row.subtask_count,
            busy=_rounded(row.busy),
            backpressured=_rounded(row.held),
            idle=_rounded(row.idle),
            busy_max=_rounded(row.busy_max),
            backpressured_max=_rounded(row.held_max),
            queued_bytes=row.queued_mean,
            queued_in_bytes=row.queued_in_mean,
            queued_out_bytes=row.queued_out_mean,
            queued_max_bytes=row.queued_max,
            intake_bytes_per_s=row.intake,
            records_in_skew=_rounded(row.skew),
        )
        for row in rows
    ]


async def subtask_buckets(
    connection: AsyncConnection, wanted: HistoryRange, vertex_id: str, measure: PressureMeasure
) -> dict[tuple[datetime, int], float]:
    """Return one measure of each subtask of a vertex, as the mean over each bucket that has readings.

    The keys are the begin of the bucket and the index of the subtask.
    """
    rows = await connection.execute(_BY_SUBTASK[measure], wanted.values | {"vertex": vertex_id})
    return {(wanted.begin_of(b), subtask): round(mean, _DIGITS) for b, subtask, mean in rows}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)
