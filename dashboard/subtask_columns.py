"""Puts subtasks that the API sends in columns into the document of their checkpoint, which lacks them.

The document of a checkpoint with more than 2,000 subtasks has only the slowest of each vertex. The charts need all, so
the client reads the others in columns, which are five times as small. Of a checkpoint that is too large for that too,
the charts show what the document has, and the page says so.
"""

from __future__ import annotations

from backend.contracts.api import CheckpointDetailOut, SubtaskPhasesOut
from backend.contracts.subtasks import COLUMNS_MAX, CheckpointSubtasksOut, SubtaskColumnsOut
from backend.domain.verdict import Basis


def left_out_count(checkpoint: CheckpointDetailOut) -> int:
    """Return the number of subtasks that the document lacks."""
    return sum(max(0, v.subtask_count - len(v.subtasks)) for v in checkpoint.vertices)


def may_be_completed(checkpoint: CheckpointDetailOut) -> bool:
    """Return whether the document lacks subtasks, and all of them fit into one answer."""
    return left_out_count(checkpoint) > 0 and sum(v.subtask_count for v in checkpoint.vertices) <= COLUMNS_MAX


def completed(checkpoint: CheckpointDetailOut, subtasks: CheckpointSubtasksOut) -> CheckpointDetailOut:
    """Return the checkpoint with the subtasks of ``found``."""
    columns = {v.vertex_id: v for v in subtasks.vertices if v.first == 0 and v.count == v.subtask_count}
    vertices = [
        v.model_copy(update={"subtasks": _subtasks(columns[v.vertex_id])}) if v.vertex_id in columns else v
        for v in checkpoint.vertices
    ]
    return checkpoint.model_copy(update={"vertices": vertices})


def _subtasks(vertex: SubtaskColumnsOut) -> list[SubtaskPhasesOut]:
    columns = {name: values * vertex.count if len(values) == 1 else values for name, values in vertex.columns.items()}
    bases = columns.pop("first_barrier_basis", None)
    if bases is not None:
        by_word = {basis.value: basis for basis in Basis}
        columns |= {"first_barrier_basis": [by_word.get(str(word)) for word in bases]}
    names = list(columns)
    # The answer was checked as a whole. Checking each of thousands of subtasks again would take a second.
    return [
        SubtaskPhasesOut.model_construct(subtask=i, **dict(zip(names, values, strict=True)))
        for i, values in enumerate(zip(*columns.values(), strict=True))
    ]
