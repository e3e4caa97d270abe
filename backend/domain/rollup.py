"""One hour of one job in a few numbers: what the pipeline keeps after the checkpoints themselves are gone.

Definitions, the same for whoever works them out (Spark for closed hours, SQL for what it has not done yet): an hour is
a UTC hour, and a checkpoint belongs to the one it was triggered in. Savepoints are left out. A measure is taken over
the hour's *completed* checkpoints that reported it; what is missing is missing, and ``present_count`` says how many
were not. Quantiles interpolate between the two nearest values, as PostgreSQL's ``percentile_cont`` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

HOUR = timedelta(hours=1)


class Measure(StrEnum):
    """What is rolled up: a column of the checkpoint header each, its unit last."""

    DURATION = "end_to_end_duration_ms"
    START_DELAY = "start_delay_max_ms"
    """The largest of any subtask, as are the three below."""
    ALIGNMENT = "alignment_max_ms"
    SYNC = "sync_max_ms"
    ASYNC = "async_max_ms"
    CHECKPOINTED_SIZE = "checkpointed_size_bytes"
    FULL_STATE_SIZE = "full_state_size_bytes"
    PERSISTED = "persisted_bytes"
    PROCESSED = "processed_bytes"


@dataclass(frozen=True, slots=True)
class MeasureRollup:
    """One measure of one job in one hour; exact, and never without a value."""

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
    """False: worked out from the checkpoints when it was asked for."""


def hour_of(instant: datetime) -> datetime:
    """The UTC hour an aware instant lies in."""
    return instant.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
