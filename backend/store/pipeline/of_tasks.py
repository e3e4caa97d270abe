"""The statements that the tasks of Spark run over ADBC, and those that accept what they wrote.

They are whole texts without values to bind. Run ids and names of parts are hexadecimal numbers that the pipeline
creates, and everything else is a whole number, so they are safe in a text. This module imports no driver, because a
task on another machine has none but ADBC.
"""

# ruff: noqa: S608  the statements hold column lists of this project, whole numbers and hexadecimal ids.

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from backend.domain.rollup import DURATION_MAX_MS, Measure
from backend.store.pipeline.in_sql import ACCEPTED

STAGING: Final = "rollup_staging"
"""The table into which tasks write."""
SETTINGS: Final = ("SET statement_timeout = 600000", "SET timezone = 'UTC'")
"""The settings of each connection of a task."""
_INT8_MAX: Final = 2**63 - 1
_SELECT: Final = (
    "SELECT job_id, date_trunc('hour', triggered_at, 'UTC') AS hour, status, failure_reason,"
    " CASE WHEN status = 'completed' AND end_to_end_duration_ms IS NOT NULL THEN"
    f" triggered_at + LEAST(end_to_end_duration_ms, {DURATION_MAX_MS}) * interval '1 ms' END AS completed_at,"
    " CASE WHEN status = 'completed' THEN triggered_at END AS restorable_at, "
    + ", ".join(Measure)
    + " FROM checkpoints WHERE kind = 'checkpoint'"
)


def checkpoints_of(start_s: int, end_s: int, share: int, share_count: int) -> str:
    """Return the statement that reads the checkpoints that were triggered in a time, in seconds since the epoch.

    ``end_s`` is exclusive. Only the jobs are read whose hash, modulo ``share_count``, equals ``share``.
    """
    return (
        f"{_SELECT} AND triggered_at >= to_timestamp({start_s}) AND triggered_at < to_timestamp({end_s})"
        f" AND triggered_on >= (to_timestamp({start_s}) AT TIME ZONE 'UTC')::date"
        f" AND triggered_on <= (to_timestamp({end_s - 1}) AT TIME ZONE 'UTC')::date"
        # A hash can be negative, and so would be its remainder. The mask clears its sign.
        f" AND (hashtextextended(job_id, 0) & {_INT8_MAX}) % {share_count} = {share}"
    )


def is_running(run_id: str) -> str:
    """Return the statement that returns one row if the run has not ended."""
    return f"SELECT 1 FROM pipeline_runs WHERE id = '{run_id}' AND state = 'running'"


def accepting(run_id: str, parts: Sequence[str]) -> str:
    """Return the statement that marks the parts of a run as accepted. There must be at least one part."""
    rows = ", ".join(f"('{run_id}{ACCEPTED}', '{part}', '', to_timestamp(0))" for part in parts)
    return f"INSERT INTO {STAGING} (run_id, part, job_id, hour) VALUES {rows}"
