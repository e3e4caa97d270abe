"""The JSON of a job's history in a range: single checkpoints if there are few, otherwise one value for each step."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from backend.contracts.api import CheckpointOut
from backend.contracts.model import Model
from backend.domain.verdict import Basis


class HistoryPointOut(Model):
    """The checkpoints of one job that were triggered within one step. Savepoints are left out.

    The durations cover the completed and the expired checkpoints that reported one. An expired checkpoint counts with
    the time until it expired, so a value at or above the least of these is a lower bound. The percentiles are exact if
    the step is an hour, and otherwise have a relative error of at most 1 %.
    """

    at: datetime
    """The start of the step."""
    source: Literal["rollup", "checkpoints", "both"]
    """Whether the values were read from stored rollups, computed from checkpoints for this response, or both."""
    completed_count: int
    failed_count: int
    duration_p50_ms: float | None
    """``null`` if no completed or expired checkpoint of the step reported a duration."""
    duration_p95_ms: float | None
    duration_max_ms: int | None
    is_p50_lower_bound: bool = False
    is_p95_lower_bound: bool = False
    is_max_lower_bound: bool = False


class HistoryOut(Model):
    """The checkpoints of a job in a range. The size of the response does not depend on the number of checkpoints."""

    resolution: Literal["checkpoints", "steps"]
    """``checkpoints``: every checkpoint is in ``checkpoints``. ``steps``: ``points`` has one value for each step.

    There are steps if the range has more checkpoints than were requested, or if it begins before the oldest stored
    checkpoint and rollups reach further back.
    """
    since: datetime | None
    """The start of the range, on the engine's clock; ``null`` if the job has no checkpoint.

    It is later than requested if the job has nothing before it, or if the range is longer than 400 days.
    """
    until: datetime
    """The end of the range, on the engine's clock. If none was requested, it is now."""
    checkpoints: list[CheckpointOut]
    """Newest first."""
    points: list[HistoryPointOut]
    """Newest first. A step without checkpoints is absent."""
    step_s: int | None
    """The length of a step: a whole number of hours."""
    rolled_up_until: datetime | None
    """Up to here, stored rollups cover the range without a gap at its end; later hours are computed from checkpoints.

    ``null`` if no hour of the range has a rollup, or if there are no steps.
    """
    left_out_before: datetime | None
    """Hours before this instant that have no rollup yet are left out, because they have too many checkpoints.

    ``null`` if nothing is left out.
    """
    as_of: datetime


class UsualRangeOut(Model):
    """The range of durations that is usual for a job, from its checkpoints in the days before an instant.

    It is computed from stored rollups, with a relative error of at most 1 %. Expired checkpoints count with the time
    until they expired.
    """

    p10_ms: float
    p50_ms: float
    p90_ms: float
    is_p90_lower_bound: bool = False
    """Whether so many checkpoints expired that the 90th percentile is at least this."""
    checkpoint_count: int
    """The number of completed and expired checkpoints that the percentiles cover."""
    since: datetime
    until: datetime
    basis: Basis = Basis.RECONSTRUCTED


class UsualOut(Model):
    """The usual range of a job's durations; ``usual`` is ``null`` if too few hours before the instant are rolled up."""

    usual: UsualRangeOut | None
    as_of: datetime
