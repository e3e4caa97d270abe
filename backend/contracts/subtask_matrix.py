"""The JSON of the heatmap of subtasks over checkpoints: ``GET /api/v1/jobs/{job}/subtask-matrix``."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from backend.contracts.model import Model
from backend.domain.checkpoint import CheckpointKind, CheckpointStatus, SubtaskMeasure
from backend.domain.verdict import Basis


class MatrixUnit(StrEnum):
    """The unit of the values in a matrix."""

    MS = "ms"
    BYTES = "bytes"


class MatrixGroup(StrEnum):
    """What the rows of a matrix are sorted by."""

    VERTEX = "vertex"
    HOST = "host"


class MatrixCheckpointOut(Model):
    """A column of the matrix: one ended checkpoint."""

    run_id: str
    checkpoint_id: int
    triggered_at: datetime
    kind: CheckpointKind
    status: CheckpointStatus
    is_unaligned: bool | None
    """Whether the type of the checkpoint is unaligned. Null if the engine does not report the type.

    Null too for Chandy-Lamport checkpoints, whose markers overtake nothing.
    """
    are_arrays_removed: bool
    """Whether the values of the subtasks were stored, but have been removed since, as the retention policy says."""


class MatrixVertexOut(Model):
    """A vertex that has values in the matrix."""

    vertex_id: str
    vertex: str
    """The engine's name of the vertex; its id if the engine reports no name."""
    parallelism: int
    """The largest number of subtasks that the vertex had in these checkpoints."""


class MatrixRowOut(Model):
    """A row of the matrix: one subtask or, if ``is_folded``, a whole vertex or a whole host."""

    vertex_id: str | None
    """Null if the row is a whole host."""
    subtask: int | None
    """Index of the subtask. Null if the row is a whole vertex or host."""
    host: str | None = None
    """The host on which the subtask ran when it was last reported. Null if that is not known, and by vertex."""


class SubtaskMatrixOut(Model):
    """One measure of the subtasks of a job in its newest ended checkpoints."""

    measure: SubtaskMeasure
    unit: MatrixUnit
    basis: Basis = Basis.MEASURED
    group: MatrixGroup = MatrixGroup.VERTEX
    is_folded: bool
    """Whether each row is a whole vertex, or a whole host if ``group`` is ``host``.

    This is so if there are too many subtasks, and no vertex was requested. The value of a vertex is the largest of its
    subtasks. The value of a host is the largest duration, or the sum of the bytes, of its subtasks.
    """
    checkpoints: list[MatrixCheckpointOut]
    """The columns, oldest first."""
    vertices: list[MatrixVertexOut]
    """All vertices that could be requested, in topological order."""
    rows: list[MatrixRowOut]
    """The rows, in the order of ``vertices`` and then by index of the subtask. By host, hosts come first, by name."""
    values: list[list[int | None]]
    """For each row, one value for each checkpoint. Null if the subtask reported none, for example because it did not
    acknowledge."""
    as_of: datetime
