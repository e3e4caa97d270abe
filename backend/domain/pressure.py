"""Backpressure and queues of one vertex at one instant, by subtask. None means *not reported*.

Ratios are shares of time (0..1) in the engine's own averaging window. Within one TaskManager, Flink's local channels
read the sender's buffers, so ``queued_in_bytes`` stays 0 there and ``queued_out_bytes`` has the queue.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from backend.domain.ids import VertexId

Ratios = tuple[float | None, ...]
Values = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class VertexPressure:
    """One reading of one vertex. Tuples are by subtask index. Counts are totals since the attempt began."""

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
    """The gauge ``checkpointStartDelayNanos`` in whole ms: the value of the last late barrier, else 0."""
    alignment_gauge_ms: Values = ()
