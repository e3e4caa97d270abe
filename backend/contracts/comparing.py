"""The JSON of comparisons: two checkpoints, ``GET /api/v1/compare`` and ``GET /api/v1/jobs/{job}/compare``.

A difference is the value of ``a`` minus that of ``b``. It is null if the value of either side is null.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from backend.contracts.api import CheckpointOut, SubtaskPhasesOut
from backend.contracts.engines import CapabilitiesOut
from backend.contracts.freshness import Dated
from backend.contracts.micro_batches import MicroBatchOut
from backend.contracts.model import Model
from backend.contracts.subtask_matrix import MatrixUnit
from backend.domain.checkpoint import SubtaskMeasure
from backend.domain.micro_batch import BatchPhase
from backend.domain.verdict import Basis, Phase

SettingValue = bool | int | str | None


class ComparedJobOut(Model):
    """The job of one side, as it was at the time of the side."""

    id: str
    name: str
    target_name: str
    capabilities: CapabilitiesOut
    engine_version: str | None
    """Null if it is not known. It is known only for the current run of a job."""
    are_settings_known: bool
    """Whether the checkpoint settings of that time are stored."""
    only_vertices: list[str]
    """Names of the vertices that only this side has, at most 50. Empty if the graph of a side is not known."""
    only_vertex_count: int


class ComparedOut(Dated):
    """One of the two checkpoints. It is as old as the newest reading of its job, or final if it has ended."""

    job: ComparedJobOut
    checkpoint: CheckpointOut
    previous_id: int | None
    """The checkpoint before this one in its run."""
    next_id: int | None
    are_arrays_removed: bool
    """Whether retention has removed the values of the subtasks. The largest value of each phase stays."""
    batch: MicroBatchOut | None = None
    """Spark only: the micro-batch."""


class CauseOut(Model):
    """Where most of the difference arose: a step on the critical path of the checkpoint that took longer."""

    difference_ms: int
    phase: Phase | None
    batch_phase: BatchPhase | None = None
    """Spark only: the part of the micro-batch. Null for the time that no reported part covers."""
    vertex_id: str | None
    """Null if the values of the subtasks of a checkpoint are not known."""
    vertex: str | None
    subtask: int | None
    is_at_least: bool
    """Whether the difference is only a lower bound, because the checkpoint expired during this phase."""
    phase_difference_ms: int | None = None
    """The difference of the phase itself at this vertex, which contains what arose before it. Null if not known."""
    basis: Basis


class MeasureDifferenceOut(Model):
    """One measure on both sides. A time of a vertex is the largest of its subtasks' values.

    A number of bytes is their sum.
    """

    measure: SubtaskMeasure
    unit: MatrixUnit
    a: int | None
    b: int | None
    difference: int | None
    a_subtask: int | None = None
    """The subtask with the largest time."""
    b_subtask: int | None = None


class VertexDifferenceOut(Model):
    """One vertex on both sides."""

    vertex_id: str
    """Its id in the job of ``a``, if that has it."""
    vertex: str
    a_subtask_count: int | None
    """Null if the checkpoint has no values of this vertex."""
    b_subtask_count: int | None
    a_slowest: SubtaskPhasesOut | None
    """The subtask that acknowledged last or, if some did not acknowledge, the one of them with the latest barrier.

    Null too for all but the 100 vertices that acknowledged last.
    """
    b_slowest: SubtaskPhasesOut | None
    measures: list[MeasureDifferenceOut]


class SubtaskDifferenceOut(Model):
    """One subtask on both sides."""

    subtask: int
    a: SubtaskPhasesOut | None
    b: SubtaskPhasesOut | None
    measures: list[MeasureDifferenceOut]


class OpenedVertexOut(Model):
    """The subtasks of the requested vertex that differ most in one measure, the largest difference first."""

    vertex_id: str
    vertex: str
    measure: SubtaskMeasure
    subtask_count: int
    """Number of subtasks of the vertex, on the side that has more of them."""
    subtasks: list[SubtaskDifferenceOut]


class BatchPartDifferenceOut(Model):
    """One part of two micro-batches."""

    phase: BatchPhase | None
    """Null for the time that no reported part covers."""
    a_ms: int | None
    b_ms: int | None
    difference_ms: int | None


class SettingPairOut(Model):
    """One setting, as it was at the time of each side. A unit is part of the name."""

    name: str
    a: SettingValue
    """Null if it is not reported or not applicable, or if the settings of this side are not stored."""
    b: SettingValue
    is_different: bool
    is_known: bool = True
    """Whether both sides have it. If not, whether it differs is not known, and ``is_different`` is false."""


class LoadOut(Model):
    """The load of one vertex in the time around one checkpoint, as means over the readings."""

    reading_count: int
    busy_mean_ratio: float | None
    """Mean over the subtasks."""
    busy_max_ratio: float | None
    """The busiest subtask of each reading."""
    backpressured_mean_ratio: float | None
    backpressured_max_ratio: float | None
    records_per_s: float | None
    """Records that all subtasks read; of a source, records that it emitted.

    Measured if the engine reports this rate, which is a mean over its last minute. Otherwise the difference between the
    first and the last count. Null if the readings do not show it, for example after a restart.
    """
    records_per_s_basis: Basis | None = None
    queued_bytes: int | None


class LoadPairOut(Model):
    """The load of one vertex on both sides. A side without readings is null."""

    vertex_id: str
    vertex: str
    a: LoadOut | None
    b: LoadOut | None


class CheckpointComparisonOut(Model):
    """Two checkpoints side by side, of one job or of two. Vertices of two jobs are matched by their names."""

    kind: Literal["checkpoints"] = "checkpoints"
    job_id: str
    """The job of ``a``."""
    job: str
    capabilities: CapabilitiesOut
    """The capabilities of the engine of ``a``."""
    headline: str
    """One sentence: how long both took, and what differs most."""
    choice: str | None
    """Why ``b`` was chosen, or why there is none. Null if the request named it."""
    a: ComparedOut
    b: ComparedOut | None
    """Null if the request named no ``b``, and no earlier checkpoint is suitable. The lists are then empty."""
    difference_ms: int | None
    """The difference of the end-to-end durations. Null if both expired, because neither duration is known then."""
    cause: CauseOut | None
    """Null if the durations differ by less than 100 ms, or if the cause is not known."""
    vertices: list[VertexDifferenceOut] = Field(default_factory=list)
    """The vertices in topological order."""
    opened: OpenedVertexOut | None = None
    """Null unless the request named a vertex."""
    batch_parts: list[BatchPartDifferenceOut] = Field(default_factory=list)
    settings: list[SettingPairOut] = Field(default_factory=list)
    loads: list[LoadPairOut] = Field(default_factory=list)
    """Readings from 15 seconds before the trigger to 15 seconds after the end of each checkpoint."""
    as_of: datetime
