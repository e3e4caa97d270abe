"""The JSON of a job's backpressure over time: ``GET /api/v1/jobs/{job}/backpressure/history``."""

from __future__ import annotations

from datetime import datetime

from backend.contracts.api import Floats, Ints
from backend.contracts.model import Model
from backend.domain.pressure import PressureMeasure
from backend.domain.verdict import VerdictKind


class VertexHistoryOut(Model):
    """The backpressure of one vertex. Each array has one value for each bucket; null means *no reading*."""

    vertex_id: str
    vertex: str
    """The engine's name of the vertex; its id if the engine reports no name."""
    is_source: bool = False
    """Whether the vertex has no input. Flink reports no busy time for a source of the older kind (SourceFunction)."""
    parallelism: int
    """The largest number of subtasks that the vertex had in the range."""
    busy_ratio: Floats
    """Mean over the readings in the bucket and over the subtasks."""
    backpressured_ratio: Floats
    """Mean over the readings in the bucket and over the subtasks."""
    idle_ratio: Floats
    """Mean over the readings in the bucket and over the subtasks."""
    busy_max_ratio: Floats
    """The largest value of a subtask in a reading of the bucket."""
    backpressured_max_ratio: Floats
    """The largest value of a subtask in a reading of the bucket."""
    queued_bytes: Ints
    """Bytes in the input and output queues of all subtasks: mean over the readings in the bucket.

    The sum of these means over the vertices is the mean of the job. Vertices are read at different instants, so the sum
    of the largest values is not the largest value of the job.
    """
    queued_max_bytes: Ints
    """Bytes in the input and output queues of all subtasks: the largest sum of a reading in the bucket."""
    time_to_consume_s: Floats
    """Reconstructed: the bytes queued before the vertex, divided by the bytes that it read in a second.

    Queued before it are its input queues and the output queues of its upstream vertices, also if these feed other
    vertices too. Null if the engine does not report the queues or the bytes, without two readings of one attempt, or if
    nothing was read while bytes were queued.
    """
    records_in_skew_ratio: Floats
    """The most records that a subtask has read since its attempt began, divided by the mean over the subtasks."""


class SubtaskHistoryOut(Model):
    """One measure of all subtasks of one vertex."""

    vertex_id: str
    measure: PressureMeasure
    values: list[Floats]
    """For each subtask, one mean for each bucket. Null if the subtask has no reading in the bucket."""


class SuspectOut(Model):
    """A vertex with full subtasks that is downstream of a back-pressured vertex."""

    vertex_id: str
    vertex: str
    subtasks: list[int]
    """The full subtasks: busy nearly all the time and not back-pressured."""
    kind: VerdictKind
    reason: str


class PressureHistoryOut(Model):
    """The backpressure of a job over a time range, in buckets of equal length.

    A large job has so many values that only some readings of each bucket are used: ``readings_used_count`` of
    ``readings_count``. A bucket without readings is absent.
    """

    since: datetime
    until: datetime
    bucket_s: int
    buckets: list[datetime]
    """The begin of each bucket that has readings, oldest first."""
    vertices: list[VertexHistoryOut]
    """The vertices with readings, in topological order."""
    subtasks: SubtaskHistoryOut | None = None
    """Null if the request names no vertex."""
    suspects: list[SuspectOut] | None
    """The suspects at the end of the range, in the order in which a verdict considers them.

    They are computed from the readings of the last two minutes. Null if there are none, so nothing is known.
    """
    readings_count: int
    """The number of instants at which readings were taken in the range."""
    readings_used_count: int
    left_out_before: datetime | None = None
    """If the range has more than 200 runs, readings of older runs before this instant are left out."""
    as_of: datetime
