"""The JSON of rollups under ``/api/v1/jobs/{job}/rollups``: one item an hour; definitions in ``domain.rollup``."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from backend.contracts.api import Model
from backend.domain.failure import FailureReason


class MeasureRollupOut(Model):
    """One measure over the hour's completed checkpoints that reported it; unit as in its name; exact."""

    present_count: int
    """Completed checkpoints that reported it; those that did not count for nothing here."""
    min: int
    max: int
    sum: str
    """A whole number, as text: sums of bytes pass what a JSON number holds."""
    p50: float
    """Percentiles interpolate between the two nearest values."""
    p95: float
    p99: float


class RollupHourOut(Model):
    """The checkpoints (no savepoints) of one job that were triggered within one UTC hour."""

    hour: datetime
    """Its first instant."""
    resolution_s: int = 3600
    source: Literal["rollup", "checkpoints"]
    """``checkpoints``: worked out now, for the hour is not over or has changed since it was rolled up."""
    triggered_count: int
    completed_count: int
    failed_count: int
    failed_by_reason: dict[FailureReason, int]
    last_completed_at: datetime | None
    measures: dict[str, MeasureRollupOut]
    """By name of the checkpoint's field. One that no completed checkpoint reported is absent, not zero."""
