"""The rollup of one job's checkpoints over one hour, which stays in the store after the checkpoints are deleted.

Spark computes the rollups of closed hours. SQL computes those that Spark has not computed yet, with the same
definitions. An hour is a UTC hour, and a checkpoint belongs to the hour of its trigger. Savepoints are left out. The
statistics of a measure cover the *completed* checkpoints of the hour that reported the measure; ``present_count`` is
their number. Quantiles interpolate between the two nearest values, as PostgreSQL's ``percentile_cont`` does.

The statistics of the duration cover the *expired* checkpoints too, with the time until they expired. They would have
taken longer, so this time is a lower bound (they are censored, in the words of statistics). Without them, a job whose
checkpoints all expire would show the durations from before. The same holds for the phases: of an expired checkpoint,
they are the largest of the subtasks that acknowledged. ``is_lower_bound`` says which quantiles this concerns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

HOUR = timedelta(hours=1)
RUN_LOCK_KEY = 0x62617275
"""Key of the advisory lock that the active run of the pipeline holds. The API looks for the lock to show such a run."""
DURATION_MAX_MS = 10**12
"""About 30 years, longer than any real checkpoint.

A longer duration is cut to this value before the end of the checkpoint is computed, because the end might not be
representable otherwise.
"""


class Measure(StrEnum):
    """The measures in a rollup. Each value is the name of a column of the checkpoint header, and ends with the unit."""

    DURATION = "end_to_end_duration_ms"
    START_DELAY = "start_delay_max_ms"
    """The largest start delay among the subtasks. The next three measures are maxima over the subtasks too."""
    ALIGNMENT = "alignment_max_ms"
    SYNC = "sync_max_ms"
    ASYNC = "async_max_ms"
    CHECKPOINTED_SIZE = "checkpointed_size_bytes"
    FULL_STATE_SIZE = "full_state_size_bytes"
    PERSISTED = "persisted_bytes"
    PROCESSED = "processed_bytes"

    @property
    def is_censored(self) -> bool:
        """Whether the value of an expired checkpoint is a lower bound, and counts as one: durations and phases."""
        return self.value.endswith("_ms")


class RollupRunState(StrEnum):
    """The state of a pipeline run in the run log."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class MeasureRollup:
    """Exact statistics of one measure of one job over one hour. At least one checkpoint reported the measure.

    ``expired_min`` is the least value of an expired checkpoint, and ``exact_max`` the largest value below it; None if
    none expired, and for measures that do not count expired ones (``Measure.is_censored``).
    """

    present_count: int
    minimum: int
    maximum: int
    total: int
    p50: float
    p95: float
    p99: float
    expired_min: int | None = None
    exact_max: int | None = None


@dataclass(frozen=True, slots=True)
class HourRollup:
    """The rollup of one job over one hour. A measure that no completed checkpoint reported is not in ``measures``."""

    hour: datetime
    triggered_count: int
    completed_count: int
    failed_count: int
    failed_by_reason: Mapping[str, int] = field(default_factory=dict)
    last_completed_at: datetime | None = None
    restorable_at: datetime | None = None
    """When the newest completed checkpoint of the hour was triggered. A later failure replays the input since then.

    None as well in hours that were rolled up before this was stored.
    """
    measures: Mapping[Measure, MeasureRollup] = field(default_factory=dict)
    is_rolled_up: bool = True
    """False if the rollup was not stored, but computed from the checkpoints for this request."""


def is_lower_bound(value: float | None, expired_min: float | None, exact_max: float | None = None) -> bool:
    """Return whether a statistic is only a lower bound, because checkpoints expired with a value at or below it.

    A percentile above ``exact_max``, the largest value below ``expired_min``, is interpolated with one that is a lower
    bound, so it is one too.
    """
    if value is None or expired_min is None:
        return False
    return value >= expired_min or (exact_max is not None and value > exact_max)


def hour_of(instant: datetime) -> datetime:
    """Return the start of the UTC hour that contains the timezone-aware ``instant``."""
    return instant.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
