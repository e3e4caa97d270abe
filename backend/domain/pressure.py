"""Backpressure and queues of one vertex at one instant, for each subtask. None means *not reported*.

Ratios are shares of time (0..1) in the window over which the engine averages. Within one TaskManager, Flink's local
channels read the buffers of the sender. For such channels ``queued_in_bytes`` stays 0, and the queue is part of
``queued_out_bytes``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from backend.domain.ids import VertexId

Ratios = tuple[float | None, ...]
Values = tuple[int | None, ...]


FETCH_INTERVAL_KEY: Final = "metrics.fetcher.update-interval"
"""Among a cluster's settings: how often the engine fetches the metrics of its tasks, as ``10000 ms``.

A value may be that much older than its reading, because another client may have made the engine fetch.
"""


class PressureMeasure(StrEnum):
    """The shares of time that are measured for each subtask."""

    BUSY = "busy"
    BACKPRESSURED = "backpressured"
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class VertexPressure:
    """One reading of one vertex. Tuples are indexed by subtask. Counts are totals since the subtask's attempt began."""

    vertex_id: VertexId
    observed_at: datetime
    busy_ratio: Ratios
    backpressured_ratio: Ratios
    idle_ratio: Ratios
    out_pool_usage_ratio: Ratios = ()
    in_pool_usage_ratio: Ratios = ()
    queued_in_bytes: Values = ()
    queued_out_bytes: Values = ()
    records_in_count: Values = ()
    records_out_count: Values = ()
    bytes_in_count: Values = ()
    start_delay_gauge_ms: Values = ()
    """The gauge ``checkpointStartDelayNanos``, in whole milliseconds.

    Its value is the start delay of the last checkpoint whose barrier arrived late, or 0 if no barrier has arrived late.
    """
    alignment_gauge_ms: Values = ()
    records_in_per_s: Ratios = ()
    """The engine's own rate, as a mean over its last minute.

    It is left out while an attempt is so young that the mean covers a time before it. A collector may read one of the
    two rates only: what a source emits, and what any other vertex reads.
    """
    records_out_per_s: Ratios = ()


_OFFSET_MIN = timedelta(seconds=1)


def on_clock(readings: Iterable[VertexPressure], offset: timedelta) -> tuple[VertexPressure, ...]:
    """Return the readings with their times on another clock. ``offset`` is that clock minus the clock of the readings.

    An offset below one second changes nothing, because readings are averages over many seconds.
    """
    if abs(offset) < _OFFSET_MIN:
        # The same tuple, because a large one is freed in its own way.
        return readings if isinstance(readings, tuple) else tuple(readings)
    return tuple(replace(r, observed_at=r.observed_at + offset) for r in readings)
