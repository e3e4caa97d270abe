"""Reads what the pipeline tells of itself: the run at work or the last one, when the next is due, or why none is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

# The advisory lock that a run holds while it lives, as ``pg_locks`` shows it.
_LOCK_KEY = 0x62617275


@dataclass(frozen=True, slots=True)
class PipelineRecord:
    """The pipeline as far as it has told; every field is None (or False) before its first word."""

    is_running: bool = False
    """A run is alive now; a run that was killed is not, whatever its row says."""
    last_state: str | None = None
    last_started_at: datetime | None = None
    last_ended_at: datetime | None = None
    last_reason: str | None = None
    hours_total: int | None = None
    hours_done: int = 0
    next_run_at: datetime | None = None
    reason: str | None = None
    complete_hour: datetime | None = None
    """Every closed hour before this one has been rolled up."""


async def read_pipeline(connection: AsyncConnection) -> PipelineRecord:
    """What is known of the pipeline."""
    run = (
        await connection.execute(
            text(
                "SELECT state, started_at, ended_at, reason, hours_total, hours_done FROM pipeline_runs"
                " ORDER BY started_at DESC, id LIMIT 1"
            )
        )
    ).first()
    schedule = (
        await connection.execute(
            text("SELECT next_run_at, reason, complete_hour FROM pipeline_schedule WHERE job = 'rollups'")
        )
    ).first()
    is_running = (
        await connection.execute(
            text(
                "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND classid = 0 AND objid = :key"
                " AND objsubid = 1 AND granted"
                " AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))"
            ),
            {"key": _LOCK_KEY},
        )
    ).scalar_one()
    record = PipelineRecord() if run is None else _of_run(*run, is_running=is_running)
    return record if schedule is None else replace(record, **schedule._mapping)


@dataclass(frozen=True, slots=True)
class SparkDemoRecord:
    """The demo query: at work, or ``reason`` says why not."""

    reason: str | None


async def read_spark_demo(connection: AsyncConnection) -> SparkDemoRecord | None:
    """What the demo query last said of itself; None where it is none of this installation, or still starts."""
    query = text("SELECT reason FROM pipeline_schedule WHERE job = 'spark-demo'")
    row = (await connection.execute(query)).first()
    return None if row is None else SparkDemoRecord(row[0])


def _of_run(
    state: str,
    started_at: datetime,
    ended_at: datetime | None,
    reason: str | None,
    hours_total: int | None,
    hours_done: int,
    *,
    is_running: bool,
) -> PipelineRecord:
    is_alive = is_running and state == "running"
    # It was killed, and no run has come after it to say so.
    shown = "interrupted" if state == "running" and not is_alive else state
    return PipelineRecord(is_alive, shown, started_at, ended_at, reason, hours_total, hours_done)
