"""The JSON of rollups under ``/api/v1/jobs/{job}/rollups``: one item per hour. Definitions: ``domain.rollup``."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from backend.contracts.model import Model
from backend.domain.failure import FailureReason


class MeasureRollupOut(Model):
    """Exact statistics of one measure over the hour's completed checkpoints; the unit is part of the measure's name."""

    present_count: int
    """Number of completed checkpoints that reported the measure; the others are left out."""
    min: int
    max: int
    sum: str
    """A whole number as text, since a sum of bytes can exceed the range of JSON numbers."""
    p50: float
    """Percentiles interpolate between the two nearest values."""
    p95: float
    p99: float


class RollupHourOut(Model):
    """The checkpoints of one job, without savepoints, that were triggered within one UTC hour."""

    hour: datetime
    """The first instant of the hour."""
    resolution_s: int = 3600
    source: Literal["rollup", "checkpoints"]
    """``checkpoints``: computed for this answer, since the hour is not rolled up, or changed after it was."""
    triggered_count: int
    completed_count: int
    failed_count: int
    failed_by_reason: dict[FailureReason, int]
    last_completed_at: datetime | None
    measures: dict[str, MeasureRollupOut]
    """By name of the checkpoint's field. A measure that no completed checkpoint reported is absent, not zero."""
