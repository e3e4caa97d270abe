"""Computes hourly rollups in PostgreSQL, for runs so small that starting Spark would take longer than the work.

Starting Spark takes about as long as PostgreSQL needs for a million checkpoints. The staged rows equal those of
``transforms.hourly_rollups`` to the last bit: ``domain.rollup`` has the definitions, and quantiles are PostgreSQL's own
``percentile_cont``. This module does not import pyspark.
"""

# ruff: noqa: S608  the statements hold this module's own column lists.

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from backend.analysis.numbers import log_buckets
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.failure import FailureReason
from backend.domain.rollup import DURATION_MAX_MS, HOUR, Measure

SMALL_RUN_MAX = 1_000_000
"""The largest number of checkpoints that a run rolls up in PostgreSQL instead of Spark."""

ACCEPTED = "/accepted"
"""The suffix of the run id in a staged row that marks a part as accepted.

Such a row contains only the name of the part. Only rows of accepted parts are used.
"""
PART = "sql"
"""The name of the staged parts that this module writes."""
STATEMENT_HOURS = 6
"""Number of hours that one statement computes. It bounds the memory of the server's process."""
BOUNDS = list(log_buckets.BOUNDS)
"""The value of ``bounds`` in ``STAGE``."""

_OF_HOURS = (
    "SELECT c.* FROM checkpoints c WHERE c.kind = 'checkpoint'"
    " AND date_trunc('hour', c.triggered_at, 'UTC') = ANY(%(hours)s)"
    " AND c.triggered_at >= %(since)s AND c.triggered_on >= (%(since)s AT TIME ZONE 'UTC')::date"
    " AND c.triggered_at < %(until)s AND c.triggered_on <= (%(until)s AT TIME ZONE 'UTC')::date"
)
COUNT_UP_TO = f"SELECT count(*) FROM (SELECT 1 FROM ({_OF_HOURS}) c LIMIT %(most)s) found"
"""Counts the checkpoints of some hours. The count ends at ``most``."""

_IS_COMPLETED = f"c.status = '{CheckpointStatus.COMPLETED}'"
_IS_EXPIRED = f"(c.status = '{CheckpointStatus.FAILED}' AND c.failure_reason = '{FailureReason.EXPIRED}')"


def _is_counted(measure: Measure) -> str:
    return f"({_IS_COMPLETED} OR {_IS_EXPIRED})" if measure.is_censored else _IS_COMPLETED


_VALUES = ", ".join(f"array_agg(c.{m}) FILTER (WHERE {_is_counted(m)} AND c.{m} IS NOT NULL) AS {m}" for m in Measure)
_LEAST = ", ".join(f"min(c.{m}) FILTER (WHERE {_IS_EXPIRED}) AS {m}_expired" for m in Measure if m.is_censored)
_PAIRS = ", ".join(f"('{m}', h.{m}, {f'h.{m}_expired' if m.is_censored else 'NULL'})" for m in Measure)
STAGE = f"""
WITH per_hour AS (
    SELECT c.job_id, date_trunc('hour', c.triggered_at, 'UTC') AS hour, count(*) AS triggered_count,
        count(*) FILTER (WHERE c.status = 'completed') AS completed_count,
        count(*) FILTER (WHERE c.status = 'failed') AS failed_count,
        array_agg(coalesce(c.failure_reason, 'unknown')) FILTER (WHERE c.status = 'failed') AS reasons,
        max(c.triggered_at + least(c.end_to_end_duration_ms, {DURATION_MAX_MS}) * interval '1 ms')
            FILTER (WHERE c.status = 'completed' AND c.end_to_end_duration_ms IS NOT NULL) AS last_completed_at,
        max(c.triggered_at) FILTER (WHERE c.status = 'completed') AS restorable_at,
        {_LEAST},
        {_VALUES}
    FROM ({_OF_HOURS}) c GROUP BY 1, 2
), counts AS (
    INSERT INTO rollup_staging (run_id, part, job_id, hour, triggered_count, completed_count, failed_count,
        failed_by_reason, last_completed_at, restorable_at)
    SELECT %(run)s, '{PART}', job_id, hour, triggered_count, completed_count, failed_count,
        (SELECT coalesce(jsonb_object_agg(reason, number), '{{}}') FROM
            (SELECT reason, count(*) AS number FROM unnest(reasons) reason GROUP BY reason) r),
        last_completed_at, restorable_at
    FROM per_hour
)
INSERT INTO rollup_staging (run_id, part, job_id, hour, measure, present_count, minimum, maximum, total,
    p50, p95, p99, expired_min, exact_max, bucket_index, bucket_count)
SELECT %(run)s, '{PART}', h.job_id, h.hour, m.measure, s.present_count, s.minimum, s.maximum, s.total,
    s.quantiles[1], s.quantiles[2], s.quantiles[3], m.expired_min, s.exact_max, b.bucket_index, b.bucket_count
FROM per_hour h CROSS JOIN LATERAL (VALUES {_PAIRS}) m (measure, measured, expired_min)
CROSS JOIN LATERAL (
    SELECT count(*) AS present_count, min(v) AS minimum, max(v) AS maximum, sum(v)::text AS total,
        max(v) FILTER (WHERE v < m.expired_min) AS exact_max,
        percentile_cont(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY v) AS quantiles
    FROM unnest(m.measured) v
) s
CROSS JOIN LATERAL (
    SELECT array_agg(bucket ORDER BY bucket)::text AS bucket_index,
        array_agg(number ORDER BY bucket)::text AS bucket_count
    FROM (
        SELECT CASE WHEN v > 0 THEN width_bucket(v - 1, %(bounds)s::int8[]) ELSE {log_buckets.ZERO} END AS bucket,
            count(*) AS number
        FROM unnest(m.measured) v GROUP BY 1
    ) counted
) b
WHERE m.measured IS NOT NULL
"""
"""Computes the rollups of some hours, and writes them to the staging table."""


def span_of(hours: Sequence[datetime]) -> dict[str, object]:
    """Return the values with which the statements of this module select the checkpoints of ``hours``."""
    return {"hours": list(hours), "since": min(hours), "until": max(hours) + HOUR}
