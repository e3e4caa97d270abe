"""Converts the pipeline's own state to the API's shape."""

from __future__ import annotations

from backend.contracts import api
from backend.domain.rollup import RollupRunState
from backend.store.pipeline.log import PipelineRecord, SparkDemoRecord


def pipeline_out(record: PipelineRecord) -> api.PipelineOut:
    """Convert the pipeline's current, last and next run."""
    if record.is_running:
        state = "running"
    elif record.reason is not None:
        state = "unavailable"
    else:
        state = "never" if record.last_state is None else "idle"
    return api.PipelineOut.of(
        record,
        state=state,
        last_run=None if record.last_state is RollupRunState.RUNNING else record.last_state,
        last_run_at=record.last_started_at,
        last_run_reason=record.last_reason,
        hours_done=record.hours_done if record.hours_total is not None else None,
        rolled_up_until=record.complete_hour,
    )


def spark_demo_out(record: SparkDemoRecord | None) -> api.SparkDemoOut | None:
    """Convert the state of the demo query; None if there is none."""
    if record is None:
        return None
    return api.SparkDemoOut(state="running" if record.reason is None else "unavailable", reason=record.reason)
