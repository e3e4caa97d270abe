"""Converts the states of the rollup pipeline and of the Spark demo to the API's shapes."""

from __future__ import annotations

from backend.contracts.status import PipelineOut, SparkDemoOut
from backend.domain.rollup import RollupRunState
from backend.store.pipeline.log import PipelineRecord, SparkDemoRecord


def pipeline_out(record: PipelineRecord) -> PipelineOut:
    """Convert the state of the rollup pipeline: its current run, its last run and its next run."""
    idle = "never" if record.last_state is None else "idle"
    return PipelineOut.of(
        record,
        state="running" if record.is_running else idle,
        last_run=None if record.last_state is RollupRunState.RUNNING else record.last_state,
        last_run_at=record.last_started_at,
        last_run_reason=record.last_reason,
        hours_done=record.hours_done if record.hours_total is not None else None,
        rolled_up_until=record.complete_hour,
    )


def spark_demo_out(record: SparkDemoRecord | None) -> SparkDemoOut | None:
    """Convert the state of the Spark demo's query. Return None if no state is stored."""
    if record is None:
        return None
    return SparkDemoOut(state="running" if record.reason is None else "unavailable", reason=record.reason)
