"""Reads what a job's state, its checkpoints' durations and its input were in each hour of some days.

Of each hour, the newest few completed checkpoints are read, and one reading of the sources or the newest few
micro-batches, so the cost does not depend on how many there were. Hours whose checkpoints are deleted come from the
rollups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.analysis.measures.growing import HourValues
from backend.domain.ids import JobId, VertexId
from backend.domain.rollup import HOUR, Measure, hour_of

_CHECKPOINTS_MAX: Final = 5
_BATCHES_MAX: Final = 10
_SIZES = text(
    "WITH hours AS (SELECT generate_series(CAST(:since AS timestamptz),"
    " CAST(:until AS timestamptz) - interval '1 second', interval '1 hour') AS hour)"
    " SELECT h.hour, c.size, c.duration FROM hours h CROSS JOIN LATERAL ("
    " SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY n.full_state_size_bytes) AS size,"
    " percentile_cont(0.5) WITHIN GROUP (ORDER BY n.end_to_end_duration_ms) AS duration, count(*) AS number FROM ("
    " SELECT full_state_size_bytes, end_to_end_duration_ms FROM checkpoints"
    " WHERE job_id = :job AND triggered_on = CAST(h.hour AT TIME ZONE 'UTC' AS date)"
    " AND triggered_at >= h.hour AND triggered_at < h.hour + interval '1 hour'"
    " AND kind = 'checkpoint' AND status = 'completed'"
    " ORDER BY triggered_on DESC, triggered_at DESC, checkpoint_id DESC LIMIT :most) n) c"
    " WHERE c.number > 0 ORDER BY h.hour"
)
_ROLLED_UP = text(
    "SELECT hour, measure, p50 FROM rollup_measures WHERE job_id = :job AND hour >= :since AND hour < :until"
    " AND measure = ANY(:measures)"
)
_BEGIN = text(
    "SELECT LEAST(first_seen_at, (SELECT min(started_at) FROM runs WHERE job_id = :job)) FROM jobs WHERE id = :job"
)

# The arrays of a reading have one element if it applies to every subtask. A count that is not known makes the sum NULL.
_INPUTS = text(
    "WITH hours AS (SELECT generate_series(CAST(:since AS timestamptz),"
    " CAST(:until AS timestamptz) - interval '1 second', interval '1 hour') AS hour),"
    " own AS (SELECT id, first_observed_at, observed_at FROM runs WHERE job_id = :job AND observed_at >= :since)"
    " SELECT h.hour, r.id, f.at, CASE WHEN s.sent_number = :source_count THEN s.sent END,"
    " CASE WHEN s.taken_number = :source_count THEN s.taken END FROM hours h"
    " JOIN own r ON r.first_observed_at < h.hour + interval '1 hour' AND r.observed_at >= h.hour"
    " CROSS JOIN LATERAL (SELECT min(observed_at) AS at FROM pressure WHERE run_id = r.id"
    " AND observed_on = CAST(h.hour AT TIME ZONE 'UTC' AS date)"
    " AND observed_at >= h.hour AND observed_at < h.hour + interval '1 hour') f"
    " CROSS JOIN LATERAL (SELECT sum(v.sent)::int8 AS sent, count(v.sent) AS sent_number,"
    " sum(v.taken)::int8 AS taken, count(v.taken) AS taken_number FROM (SELECT"
    " CASE WHEN array_position(p.records_out_count, NULL) IS NULL"
    " THEN (SELECT sum(x) FROM unnest(p.records_out_count) x)"
    " * CASE WHEN cardinality(p.records_out_count) = 1 THEN p.subtask_count ELSE 1 END END AS sent,"
    " CASE WHEN array_position(p.records_in_count, NULL) IS NULL"
    " THEN (SELECT sum(x) FROM unnest(p.records_in_count) x)"
    " * CASE WHEN cardinality(p.records_in_count) = 1 THEN p.subtask_count ELSE 1 END END AS taken"
    " FROM pressure p WHERE p.run_id = r.id AND p.observed_at = f.at"
    " AND p.observed_on = CAST(h.hour AT TIME ZONE 'UTC' AS date) AND p.vertex_id = ANY(:sources)) v) s"
    " ORDER BY r.id, f.at"
)
# The rows of a micro-batch came in since the one before was triggered. The oldest one only says since when.
_BATCH_INPUTS = text(
    "WITH hours AS (SELECT generate_series(CAST(:since AS timestamptz),"
    " CAST(:until AS timestamptz) - interval '1 second', interval '1 hour') AS hour)"
    " SELECT h.hour, extract(epoch FROM c.newest - c.oldest)::float8, c.counts FROM hours h CROSS JOIN LATERAL ("
    " SELECT min(n.triggered_at) AS oldest, max(n.triggered_at) AS newest,"
    " array_agg(b.input_row_count ORDER BY n.triggered_at, n.checkpoint_id) AS counts FROM ("
    " SELECT run_id, checkpoint_id, triggered_on, triggered_at FROM checkpoints"
    " WHERE job_id = :job AND triggered_on = CAST(h.hour AT TIME ZONE 'UTC' AS date)"
    " AND triggered_at >= h.hour AND triggered_at < h.hour + interval '1 hour'"
    " AND kind = 'checkpoint' AND status = 'completed'"
    " ORDER BY triggered_on DESC, triggered_at DESC, checkpoint_id DESC LIMIT :most) n"
    " LEFT JOIN micro_batches b ON b.run_id = n.run_id AND b.checkpoint_id = n.checkpoint_id"
    " AND b.triggered_on = n.triggered_on) c WHERE c.newest > c.oldest ORDER BY h.hour"
)


async def begin_of(connection: AsyncConnection, job_id: JobId) -> datetime | None:
    """Return since when the job is known: the start of its first known run, or when it was first seen if earlier."""
    begin: datetime | None = (await connection.execute(_BEGIN, {"job": job_id})).scalar_one_or_none()
    return begin


async def hours_of_growth(
    connection: AsyncConnection,
    job_id: JobId,
    sources: Sequence[VertexId],
    since: datetime,
    until: datetime,
    *,
    is_micro_batched: bool = False,
) -> list[HourValues]:
    """Return the hours in the range that have completed checkpoints, oldest first.

    The input of an hour is the mean rate of ``sources`` from its first reading to that of the next hour in the run. If
    each checkpoint is a micro-batch, it is the mean rate of the newest batches of the hour.
    """
    begin = hour_of(since)
    values = {"job": job_id, "since": begin, "until": until}
    rows = await connection.execute(_SIZES, values | {"most": _CHECKPOINTS_MAX})
    hours: dict[datetime, tuple[float | None, float | None]] = {hour: (size, took) for hour, size, took in rows}
    measures = [Measure.FULL_STATE_SIZE.value, Measure.DURATION.value]
    rolled_up: dict[datetime, dict[str, float]] = {}
    for hour, measure, middle in await connection.execute(_ROLLED_UP, values | {"measures": measures}):
        rolled_up.setdefault(hour, {})[measure] = middle
    for hour, middles in rolled_up.items():
        hours.setdefault(hour, (middles.get(measures[0]), middles.get(measures[1])))
    if is_micro_batched:
        inputs = await _batch_inputs(connection, values)
    else:
        inputs = await _inputs(connection, values, sources) if sources else {}
    return [HourValues(hour, *hours[hour], inputs.get(hour)) for hour in sorted(hours)]


async def _batch_inputs(connection: AsyncConnection, values: dict[str, object]) -> dict[datetime, float]:
    rows = await connection.execute(_BATCH_INPUTS, values | {"most": _BATCHES_MAX})
    return {hour: sum(counts[1:]) / span_s for hour, span_s, counts in rows if None not in counts[1:]}


async def _inputs(
    connection: AsyncConnection, values: dict[str, object], sources: Sequence[VertexId]
) -> dict[datetime, float]:
    """Return what the sources sent. If they never sent anything, as in a job that is one vertex, what they took in."""
    own = {"sources": list(sources), "source_count": len(sources)}
    rows = (await connection.execute(_INPUTS, values | own)).all()
    sent = _rates((hour, run, at, count) for hour, run, at, count, _ in rows)
    return sent or _rates((hour, run, at, count) for hour, run, at, _, count in rows)


def _rates(rows: Iterable[tuple[datetime, str, datetime, int | None]]) -> dict[datetime, float]:
    rates: dict[datetime, float] = {}
    counted = [(hour, run, at, total) for hour, run, at, total in rows if total is not None]
    for (hour, run, at, total), (_, run_after, at_after, total_after) in pairwise(counted):
        if run != run_after or at_after - at > 2 * HOUR:
            continue
        # The counts begin at zero with each attempt, and a source without output has none.
        if total_after > total:
            rates[hour] = (total_after - total) / ((at_after - at) / timedelta(seconds=1))
    return rates
