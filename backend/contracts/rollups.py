"""The JSON of rollups under ``/api/v1/jobs/{job}/rollups``, one item per hour. ``domain.rollup`` defines the values."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from backend.contracts.model import Model
from backend.domain.failure import FailureReason


class MeasureRollupOut(Model):
    """Exact statistics of one measure over an hour's completed checkpoints. The measure's name ends with the unit.

    The statistics of the duration cover the expired checkpoints too, with the time until they expired. Those of the
    phases (``..._max_ms``) cover them with the largest value of the subtasks that acknowledged.
    """

    present_count: int
    """Number of these checkpoints that reported the measure. The statistics leave out the others."""
    min: int
    max: int
    sum: str
    """The sum, a whole number. It is text, because a sum of bytes can exceed the range of JSON numbers."""
    p50: float
    """The median. This and the other percentiles interpolate between the two nearest values."""
    p95: float
    p99: float
    expired_min: int | None = None
    """The least value of an expired checkpoint. Statistics at or above it are lower bounds. Null if none expired."""
    exact_max: int | None = None
    """The largest value below ``expired_min``. Percentiles above it are lower bounds, too.

    Null if there is none, and in hours whose checkpoints were deleted before this was stored.
    """


class RollupHourOut(Model):
    """The rollup of one job's checkpoints that were triggered within one UTC hour. Savepoints are left out."""

    hour: datetime
    """The first instant of the hour."""
    resolution_s: int = 3600
    source: Literal["rollup", "checkpoints"]
    """``rollup``: read from the stored rollup. ``checkpoints``: computed from the checkpoints for this response.

    An hour is computed if it has no rollup yet, or if its checkpoints have changed since its rollup.
    """
    triggered_count: int
    completed_count: int
    failed_count: int
    failed_by_reason: dict[FailureReason, int]
    last_completed_at: datetime | None
    replay_debt_ms: int | None = None
    """What a failure at the end of the hour would have replayed: the age of the newest completed checkpoint then.

    Null while the hour is not over, and if no hour of this response had a completed checkpoint by then.
    """
    is_replay_debt_at_least: bool = False
    """Whether the debt was larger, because that checkpoint completed after the end of the hour."""
    measures: dict[str, MeasureRollupOut]
    """The statistics by measure. The name of a measure is the name of a field of a checkpoint.

    A measure that none of the counted checkpoints reported is absent, not zero.
    """
