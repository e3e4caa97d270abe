"""The rollup of one job over one hour, which the pipeline keeps after the checkpoints are deleted.

Spark computes the rollups of closed hours, and SQL those that Spark has not computed yet, with the same definitions. An
hour is a UTC hour, and a checkpoint belongs to the hour of its trigger. Savepoints are left out. A measure covers the
*completed* checkpoints in the hour that reported it; ``present_count`` is their number. Quantiles interpolate between
the two nearest values, as PostgreSQL's ``percentile_cont`` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

HOUR = timedelta(hours=1)


class Measure(StrEnum):
    """The measures of a rollup. Each is a column of the checkpoint header, with its unit last."""

    DURATION = "end_to_end_duration_ms"
    START_DELAY = "start_delay_max_ms"
    """The largest value of any subtask. The same holds for the next three measures."""
    ALIGNMENT = "alignment_max_ms"
    SYNC = "sync_max_ms"
    ASYNC = "async_max_ms"
    CHECKPOINTED_SIZE = "checkpointed_size_bytes"
    FULL_STATE_SIZE = "full_state_size_bytes"
    PERSISTED = "persisted_bytes"
    PROCESSED = "processed_bytes"


class RollupRunState(StrEnum):
    """The states of a pipeline run in its log."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class MeasureRollup:
    """One measure of one job in one hour. It is exact and always has a value."""

    present_count: int
    minimum: int
    maximum: int
    total: int
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class HourRollup:
    """One job in one hour. A measure that no completed checkpoint reported is not in ``measures``."""

    hour: datetime
    triggered_count: int
    completed_count: int
    failed_count: int
    failed_by_reason: Mapping[str, int] = field(default_factory=dict)
    last_completed_at: datetime | None = None
    measures: Mapping[Measure, MeasureRollup] = field(default_factory=dict)
    is_rolled_up: bool = True
    """False if it was computed from the checkpoints for this request."""


def hour_of(instant: datetime) -> datetime:
    """The begin of the UTC hour that contains an aware instant."""
    return instant.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
