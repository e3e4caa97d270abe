"""Reads rollups, and fills in from the checkpoints what has not been rolled up: the same numbers either way.

An hour is taken from its rollup only if that is complete: no checkpoint of the hour was written by a transaction that
the rollup may not have seen. Everything else within a range is summed up where it lies, so a page is never empty, or
behind, for want of Spark. Definitions: ``domain.rollup``.
"""

# ruff: noqa: S608  what is put into statements is this module's own text and column names; every value is bound.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.analysis.log_buckets import BOUNDS, Buckets
from backend.domain.rollup import HOUR, HourRollup, Measure, MeasureRollup, hour_of
from backend.store.schema.partitions import day_of

DURATION_MAX_MS = 10**12
"""Of what lasts longer (30 years), no end is reckoned."""
_FAR = datetime(2200, 1, 1, tzinfo=UTC)
_HOUR = "date_trunc('hour', c.triggered_at, 'UTC')"
_COMPLETED_AT = f"c.triggered_at + LEAST(c.end_to_end_duration_ms, {DURATION_MAX_MS}) * interval '1 ms'"


@dataclass(frozen=True, slots=True)
class Coverage:
    """How a range is put together: hours whose rollups hold, and the gaps between them (from, to)."""

    hours: tuple[datetime, ...]
    gaps: tuple[tuple[datetime, datetime], ...]


@dataclass(frozen=True, slots=True)
class Totals:
    """The checkpoints of one job in a range: counts, and the buckets of the completed ones' durations."""

    completed_count: int
    failed_count: int
    last_completed_at: datetime | None
    duration_buckets: Buckets


async def cover(connection: AsyncConnection, since: datetime, until: datetime | None) -> Coverage:
    """What of ``since`` to ``until`` (None: open) rollups answer, and what has to be read from the checkpoints."""
    end = until or _FAR
    if end <= since:
        return Coverage((), ())
    hours = await _complete_hours(connection, since, end)
    gaps: list[tuple[datetime, datetime]] = []
    at = since
    for hour in hours:
        if at < hour:
            gaps.append((at, hour))
        at = hour + HOUR
    if at < end:
        gaps.append((at, end))
    return Coverage(tuple(hours), tuple(gaps))


async def totals_of(
    connection: AsyncConnection, job_ids: Sequence[str], since: datetime, until: datetime | None = None
) -> Mapping[str, Totals]:
    """Totals of each job over its checkpoints triggered in a range; nothing for a job without any."""
    covered = await cover(connection, since, until)
    in_gaps, values = _in_gaps(covered.gaps)
    values |= {"jobs": list(job_ids), "hours": list(covered.hours), "measure": Measure.DURATION.value}
    tail = (
        "tail AS MATERIALIZED (SELECT c.job_id, c.status, c.end_to_end_duration_ms AS value,"
        f" CASE WHEN c.status = 'completed' THEN {_COMPLETED_AT} END AS completed_at FROM checkpoints c"
        f" WHERE c.job_id = ANY(:jobs) AND c.kind = 'checkpoint' AND c.status <> 'in-progress' AND ({in_gaps}))"
    )
    of_hours = "job_id = ANY(:jobs) AND hour = ANY(CAST(:hours AS timestamptz[]))"
    counts = text(
        f"WITH {tail} SELECT job_id, sum(completed)::int8, sum(failed)::int8, max(last) FROM ("
        "SELECT job_id, completed_count AS completed, failed_count AS failed, last_completed_at AS last"
        f" FROM rollups WHERE {of_hours} UNION ALL"
        " SELECT job_id, (status = 'completed')::int, (status = 'failed')::int, completed_at FROM tail"
        ") parts GROUP BY job_id HAVING sum(completed) + sum(failed) > 0"
    )
    buckets = text(
        f"WITH {tail} SELECT job_id, bucket, sum(number)::int8 FROM ("
        "SELECT m.job_id, b.bucket, b.number FROM rollup_measures m"
        " CROSS JOIN LATERAL unnest(m.bucket_index, m.bucket_count) b(bucket, number)"
        f" WHERE m.{of_hours.replace('AND hour', 'AND m.hour')} AND m.measure = :measure UNION ALL"
        " SELECT job_id, CASE WHEN value > 0 THEN width_bucket(value - 1, CAST(:bounds AS int8[])) ELSE -1 END,"
        " count(*) FROM tail WHERE status = 'completed' AND value IS NOT NULL GROUP BY 1, 2"
        ") parts GROUP BY job_id, bucket ORDER BY job_id, bucket"
    )
    found: dict[str, dict[int, int]] = {}
    for job_id, bucket, number in await connection.execute(buckets, values | {"bounds": list(BOUNDS)}):
        found.setdefault(job_id, {})[bucket] = number
    return {
        job_id: Totals(completed, failed, last, found.get(job_id, {}))
        for job_id, completed, failed, last in await connection.execute(counts, values)
    }


async def hours_of(
    connection: AsyncConnection, job_id: str, since: datetime, until: datetime, *, limit: int
) -> list[HourRollup]:
    """The newest ``limit`` hours of one job that begin in a range and have checkpoints, newest first."""
    whole = (_next_hour(since), _next_hour(until))
    covered = await cover(connection, *whole)
    rolled_up = await _rolled_up(connection, job_id, covered.hours, limit)
    worked_out = await _worked_out(connection, job_id, covered.gaps, limit)
    return sorted([*rolled_up, *worked_out], key=lambda r: r.hour, reverse=True)[:limit]


async def _complete_hours(connection: AsyncConnection, since: datetime, until: datetime) -> list[datetime]:
    mark = (
        await connection.execute(
            text(
                "SELECT complete_xid, complete_hour FROM pipeline_schedule WHERE complete_xid IS NOT NULL"
                # A copy of the database on another server: its ids say nothing there.
                " AND complete_xid <= pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
            )
        )
    ).first()
    if mark is None:
        return []
    last = min(until, mark.complete_hour)
    query = text(
        "SELECT h.hour FROM rollup_hours h WHERE h.hour >= :since AND h.hour + interval '1 hour' <= :until"
        f" AND h.hour NOT IN (SELECT {_HOUR} FROM checkpoints c JOIN rollup_hours s ON s.hour = {_HOUR}"
        " WHERE c.kind = 'checkpoint' AND c.changed_xid >= :xid AND c.changed_xid >= s.horizon_xid"
        " AND c.triggered_at >= :since AND c.triggered_at < :until"
        " AND c.triggered_on >= :first_day AND c.triggered_on <= :last_day) ORDER BY h.hour"
    )
    values = {
        "since": since,
        "until": last,
        "xid": mark.complete_xid,
        "first_day": day_of(since),
        "last_day": day_of(last),
    }
    return list((await connection.execute(query, values)).scalars())


def _in_gaps(gaps: Sequence[tuple[datetime, datetime]]) -> tuple[str, dict[str, Any]]:
    """A condition on ``c`` that holds in the gaps, with the days as values so that partitions are left out."""
    conditions, values = ["false"], dict[str, Any]()
    for n, (since, until) in enumerate(gaps):
        conditions.append(
            f"(c.triggered_at >= :since_{n} AND c.triggered_at < :until_{n}"
            f" AND c.triggered_on >= :first_{n} AND c.triggered_on <= :last_{n})"
        )
        values |= {f"since_{n}": since, f"until_{n}": until, f"first_{n}": day_of(since), f"last_{n}": day_of(until)}
    return " OR ".join(conditions), values


async def _rolled_up(
    connection: AsyncConnection, job_id: str, hours: Sequence[datetime], limit: int
) -> list[HourRollup]:
    if not hours:
        return []
    values = {"job": job_id, "hours": list(hours), "limit": limit}
    wanted = "job_id = :job AND hour = ANY(CAST(:hours AS timestamptz[]))"
    query = text(
        "SELECT hour, triggered_count, completed_count, failed_count, failed_by_reason, last_completed_at"
        f" FROM rollups WHERE {wanted} ORDER BY hour DESC LIMIT :limit"
    )
    rows = (await connection.execute(query, values)).all()
    of_measures = text(
        "SELECT hour, measure, present_count, minimum, maximum, total, p50, p95, p99 FROM rollup_measures"
        f" WHERE {wanted} AND measure = ANY(:measures)"
    )
    # What a later version rolls up besides is none of ours.
    values |= {"hours": [row.hour for row in rows], "measures": [m.value for m in Measure]}
    measures: dict[datetime, dict[Measure, MeasureRollup]] = {}
    for hour, measure, present, low, high, total, p50, p95, p99 in await connection.execute(of_measures, values):
        found = MeasureRollup(present, low, high, int(total), p50, p95, p99)
        measures.setdefault(hour, {})[Measure(measure)] = found
    return [_hour(row, _in_order(measures.get(row.hour, {})), is_rolled_up=True) for row in rows]


async def _worked_out(
    connection: AsyncConnection, job_id: str, gaps: Sequence[tuple[datetime, datetime]], limit: int
) -> list[HourRollup]:
    in_gaps, values = _in_gaps(gaps)
    done = "FILTER (WHERE c.status = 'completed')"
    numbers = ", ".join(
        f"count(c.{m}) {done}, min(c.{m}) {done}, max(c.{m}) {done}, sum(c.{m}) {done},"
        f" percentile_cont(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY c.{m}) {done}"
        for m in Measure
    )
    query = text(
        f"SELECT {_HOUR}, count(*), count(*) {done}, count(*) FILTER (WHERE c.status = 'failed'),"
        " (SELECT coalesce(jsonb_object_agg(reason, number), '{}') FROM (SELECT reason, count(*) AS number"
        " FROM unnest(array_agg(coalesce(c.failure_reason, 'unknown')) FILTER (WHERE c.status = 'failed')) reason"
        f" GROUP BY reason) r), max({_COMPLETED_AT}) {done}, {numbers} FROM checkpoints c"
        f" WHERE c.job_id = :job AND c.kind = 'checkpoint' AND ({in_gaps}) GROUP BY 1 ORDER BY 1 DESC LIMIT :limit"
    )
    found = []
    for row in await connection.execute(query, values | {"job": job_id, "limit": limit}):
        head, tail = row[:6], row[6:]
        measures = {
            m: MeasureRollup(present, low, high, int(total), *quantiles)
            for m, (present, low, high, total, quantiles) in zip(
                Measure, (tail[i : i + 5] for i in range(0, len(tail), 5)), strict=True
            )
            if present
        }
        found.append(_hour(head, measures, is_rolled_up=False))
    return found


def _hour(head: Sequence[Any], measures: Mapping[Measure, MeasureRollup], *, is_rolled_up: bool) -> HourRollup:
    hour, triggered, completed, failed, by_reason, last = head
    return HourRollup(hour, triggered, completed, failed, by_reason, last, measures, is_rolled_up)


def _next_hour(instant: datetime) -> datetime:
    return hour_of(instant - timedelta(microseconds=1)) + HOUR


def _in_order(measures: Mapping[Measure, MeasureRollup]) -> Mapping[Measure, MeasureRollup]:
    return {measure: measures[measure] for measure in Measure if measure in measures}
