"""Backpressure and queues of one vertex at one instant, per subtask. None is *not reported*.

Ratios are shares of the time (0..1) of the engine's own averaging window. On one TaskManager Flink's local
channels read the sender's buffers, so ``queued_in_bytes`` stays 0 there while ``queued_out_bytes`` tells.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from backend.domain.ids import VertexId

Ratios = tuple[float | None, ...]
Values = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class VertexPressure:
    """One reading of one vertex; tuples over subtask indices. Counts are totals since the attempt began."""

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
    """The gauge ``checkpointStartDelayNanos``, truncated to ms; 0 means never, else the last late barrier's value."""
    alignment_gauge_ms: Values = ()
