"""Reads the ended checkpoints of a job as the backtest needs them: each with its acknowledgements and its settings.

The statement is the same without Spark, where rows are streamed job by job, and with it, where each task reads the jobs
of a share of the hash values. This module does not import pyspark.
"""

# ruff: noqa: S608  the statements hold this module's own names and whole numbers.

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from backend.backtest.jobs import StoredRow
from backend.domain.errors import StoreUnavailableError, UnknownEntityError

COLUMNS: Final = (
    *("job_id", "run_id", "checkpoint_id", "triggered_ms", "status", "failure_reason", "duration_ms"),
    *("subtask_count", "acknowledged_count", "timeout_ms", "settings", "acks"),
)
"""The columns of ``SELECT``, in order."""
_INT8_MAX = 2**63 - 1
# The settings of a run are those that were first read before the trigger, or else the first ones. The trigger is by the
# engine's clock, and the reading by ours, unless the job pushes.
_SETTINGS = (
    "SELECT v.since, nullif(v.document ->> 'timeout_ms', '')::int8 AS timeout_ms FROM run_versions v"
    " WHERE v.run_id = c.run_id AND v.kind = 'config'"
    " ORDER BY v.since <= c.triggered_at - o.ahead DESC,"
    " CASE WHEN v.since <= c.triggered_at - o.ahead THEN v.since END DESC, v.since LIMIT 1"
)
_AHEAD = (
    "SELECT CASE WHEN t.origin = 'push' THEN interval '0'"
    " ELSE coalesce(r.clock_offset_ms, h.clock_offset_ms, 0) * interval '1 ms' END AS ahead"
    " FROM runs r JOIN targets t ON t.id = r.target_id LEFT JOIN target_health h ON h.target_id = t.id"
    " WHERE r.id = c.run_id"
)
_ACKS = (
    "SELECT coalesce(json_agg(json_build_array(d.subtask_count, d.ack_delay_ms) ORDER BY d.vertex_id), '[]')::text"
    " AS acks FROM checkpoint_details d WHERE d.run_id = c.run_id AND d.checkpoint_id = c.checkpoint_id"
    " AND d.triggered_on = c.triggered_on"
)
SELECT: Final = (
    "SELECT c.job_id, c.run_id, c.checkpoint_id::int8,"
    " (extract(epoch FROM c.triggered_at) * 1000)::int8 AS triggered_ms, c.status, c.failure_reason,"
    " c.end_to_end_duration_ms::int8 AS duration_ms, c.subtask_count::int8,"
    " c.acknowledged_count::int8, s.timeout_ms, coalesce(s.since::text, '') AS settings, a.acks"
    f" FROM checkpoints c CROSS JOIN LATERAL ({_AHEAD}) o LEFT JOIN LATERAL ({_SETTINGS}) s ON true"
    f" CROSS JOIN LATERAL ({_ACKS}) a"
    " WHERE c.kind = 'checkpoint' AND c.status IN ('completed', 'failed')"
)
ORDER: Final = " ORDER BY c.job_id, c.triggered_at, c.checkpoint_id, c.run_id"
_FETCHED = 500
_CONNECT_TIMEOUT_S = 10
_OPTIONS = "-c statement_timeout=600000 -c lock_timeout=30000 -c timezone=UTC"


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A job with stored checkpoints: its id, its name, and the number of them."""

    id: str
    name: str
    checkpoint_count: int


def since_condition(since_s: int | None) -> str:
    """Return the condition for checkpoints that were triggered at or after ``since_s`` (seconds since the epoch)."""
    if since_s is None:
        return ""
    instant = f"to_timestamp({int(since_s)})"
    return f" AND c.triggered_at >= {instant} AND c.triggered_on >= ({instant} AT TIME ZONE 'UTC')::date"


def slice_condition(slice_: int, slices: int) -> str:
    """Return the condition for the jobs of a share of the hash values."""
    # A hash can be negative, and so would be its remainder. The mask clears its sign.
    return f" AND (hashtextextended(c.job_id, 0) & {_INT8_MAX}) % {int(slices)} = {int(slice_)}"


def row_of(values: Mapping[str, Any]) -> StoredRow:
    """Return a row of ``COLUMNS`` as the backtest reads it."""
    own = {name: values[name] for name in COLUMNS if name not in ("job_id", "acks")}
    return StoredRow(**own, acks=json.loads(values["acks"]))


class History:
    """The stored checkpoints, read in this process. All are read as of one instant."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def jobs(self, wanted: Sequence[str], since_s: int | None) -> list[StoredJob]:
        """Return the jobs whose name or id is in ``wanted``, or all jobs, with their ended checkpoints.

        Raises:
            UnknownEntityError: one of ``wanted`` is no job.
        """
        counted = (
            "SELECT j.id, j.name, (SELECT count(*) FROM checkpoints c WHERE c.job_id = j.id AND c.kind = 'checkpoint'"
            f" AND c.status IN ('completed', 'failed'){since_condition(since_s)}) FROM jobs j"
            " WHERE %(all)s OR j.id = ANY(%(wanted)s) OR j.name = ANY(%(wanted)s) ORDER BY j.name, j.id"
        )
        rows = self._connection.execute(counted, {"all": not wanted, "wanted": list(wanted)}).fetchall()
        found = [StoredJob(*row) for row in rows]
        for name in wanted:
            if not any(name in (job.id, job.name) for job in found):
                raise UnknownEntityError(kind="job", id=name)
        return found

    def rows(self, job_id: str, since_s: int | None) -> Iterator[StoredRow]:
        """Yield the ended checkpoints of a job in the order of their triggers. Few of them are in memory at a time."""
        query = f"{SELECT} AND c.job_id = %(job)s{since_condition(since_s)}{ORDER}"
        with self._connection.cursor(name="backtest") as cursor:
            cursor.itersize = _FETCHED
            cursor.execute(query, {"job": job_id})
            for row in cursor:
                yield row_of(dict(zip(COLUMNS, row, strict=True)))


@contextmanager
def open_history(database_url: str) -> Iterator[History]:
    """Connect to the database at ``database_url`` and yield what is stored in it, as of now.

    Raises:
        StoreUnavailableError: PostgreSQL does not respond, at the start or within the block.
    """
    try:
        with psycopg.connect(
            database_url,
            connect_timeout=_CONNECT_TIMEOUT_S,
            options=_OPTIONS,
            application_name="barrierscope-backtest",
        ) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            yield History(connection)
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        lines = str(error).strip().splitlines()
        raise StoreUnavailableError(lines[0] if lines else type(error).__name__) from error
