"""The JSON of a job's backpressure: the latest reading of each vertex, and older ones on request."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from backend.contracts.api import Floats, Ints
from backend.contracts.model import Model
from backend.domain.verdict import Basis


class VertexPressureOut(Model):
    """Backpressure of one vertex at one instant. The arrays are indexed by subtask."""

    vertex_id: str
    vertex: str
    is_source: bool = False
    """Whether the vertex has no input. Flink reports no busy time for a source of the older kind (SourceFunction)."""
    observed_at: datetime
    busy_ratio: Floats
    backpressured_ratio: Floats
    idle_ratio: Floats
    out_pool_usage_ratio: Floats = Field(default_factory=list)
    in_pool_usage_ratio: Floats = Field(default_factory=list)
    queued_in_bytes: Ints = Field(default_factory=list)
    queued_out_bytes: Ints = Field(default_factory=list)
    records_in_count: Ints = Field(default_factory=list)
    records_in_per_s: Floats = Field(default_factory=list)
    """Records that each subtask read in a second, as the engine reports it: a mean over its last minute.

    Empty if the engine does not report it, for a source, and until no task was restarted for more than a minute.
    """
    records_out_per_s: Floats = Field(default_factory=list)
    """The same of records that each subtask of a source emitted. Empty for other vertices."""
    records_per_s: Floats = Field(default_factory=list)
    """Records that each subtask read in a second; of a source, records that it emitted.

    Measured if the engine reports this rate. Otherwise the difference from the previous reading, which may be wrong by
    several times if the engine updates its counts less often than they are read.
    """
    records_per_s_basis: Basis | None = None
    """Null if no rate is known."""
    subtasks: list[int] = Field(default_factory=list)
    """The indices of the subtasks that the arrays hold. Empty if they hold all.

    If the job has more than 10,000 subtasks, the arrays hold those with the highest values. Name the vertex in the
    request to get all of its subtasks.
    """


class PressurePointOut(Model):
    """Backpressure of one vertex at one instant, as means over its subtasks."""

    at: datetime
    vertex_id: str
    busy_ratio: float | None
    backpressured_ratio: float | None
    idle_ratio: float | None
    queued_bytes: int | None


class BackpressureOut(Model):
    """The latest reading of each vertex in topological order.

    If the request names a time range, there is also a series of readings.
    """

    vertices: list[VertexPressureOut]
    series: list[PressurePointOut] = Field(default_factory=list)
    as_of: datetime
