"""Reads the records of the rollup pipeline and of the Spark demo.

The pipeline records its current or last run, and when the next run is due.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import RowMapping, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.domain.rollup import RUN_LOCK_KEY, RollupRunState
from backend.store.schema import tables
from backend.store.schema.rows import value_of


@dataclass(frozen=True, slots=True)
class PipelineRecord:
    """The recorded state of the rollup pipeline. Before the first record, every field has its default."""

    is_running: bool = False
    """Whether a run is alive now. A killed run is not alive, although its row still says ``running``."""
    last_state: RollupRunState | None = None
    last_started_at: datetime | None = None
    last_reason: str | None = None
    hours_total: int | None = None
    hours_done: int = 0
    next_run_at: datetime | None = None
    complete_hour: datetime | None = None
    """Every hour before this one has been rolled up."""


async def read_pipeline(connection: AsyncConnection) -> PipelineRecord:
    """Return the recorded state of the rollup pipeline."""
    runs = tables.pipeline_runs
    newest = select(runs).order_by(runs.c.started_at.desc(), runs.c.id).limit(1)
    run = (await connection.execute(newest)).mappings().first()
    schedule = await _schedule(connection, "rollups")
    is_running = (
        await connection.execute(
            text(
                "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND classid = 0 AND objid = :key"
                " AND objsubid = 1 AND granted"
                " AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))"
            ),
            {"key": RUN_LOCK_KEY},
        )
    ).scalar_one()
    record = PipelineRecord() if run is None else _of_run(run, is_running=is_running)
    if schedule is None:
        return record
    return replace(
        record,
        next_run_at=schedule["next_run_at"],
        complete_hour=schedule["complete_hour"],
    )


@dataclass(frozen=True, slots=True)
class SparkDemoRecord:
    """The state of the Spark demo's query.

    If ``reason`` is None, the query runs; otherwise ``reason`` states why it does not.
    """

    reason: str | None


async def read_spark_demo(connection: AsyncConnection) -> SparkDemoRecord | None:
    """Return the last reported state of the Spark demo's query.

    Return None if this installation has no demo, or if the demo is still starting.
    """
    row = await _schedule(connection, "spark-demo")
    return None if row is None else value_of(SparkDemoRecord, row)


async def _schedule(connection: AsyncConnection, job: str) -> RowMapping | None:
    table = tables.pipeline_schedule
    return (await connection.execute(select(table).where(table.c.job == job))).mappings().first()


def _of_run(run: RowMapping, *, is_running: bool) -> PipelineRecord:
    state = RollupRunState(run["state"])
    is_alive = is_running and state is RollupRunState.RUNNING
    return PipelineRecord(
        is_running=is_alive,
        # If the row says ``running`` but no run is alive, the run was killed and no later run has recorded that yet.
        last_state=RollupRunState.INTERRUPTED if state is RollupRunState.RUNNING and not is_alive else state,
        last_started_at=run["started_at"],
        last_reason=run["reason"],
        hours_total=run["hours_total"],
        hours_done=run["hours_done"],
    )
