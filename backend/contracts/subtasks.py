"""The JSON of the subtasks of one checkpoint in columns, for jobs whose checkpoint document names only some of them."""

from __future__ import annotations

from typing import Final

from backend.contracts.model import Model

COLUMNS_MAX: Final = 16_000
"""Subtasks in one answer of columns."""

ColumnValue = int | bool | str | None


class SubtaskColumnsOut(Model):
    """The subtasks ``first`` to ``first + count - 1`` of one vertex in one checkpoint."""

    vertex_id: str
    vertex: str
    subtask_count: int
    """Number of all subtasks of the vertex."""
    first: int
    count: int
    columns: dict[str, list[ColumnValue]]
    """The fields of ``SubtaskPhasesOut`` without ``subtask``, each with one value for each subtask, by index.

    A list with one value holds that value for every subtask.
    """


class CheckpointSubtasksOut(Model):
    """The subtasks of one checkpoint, or of some of its vertices, in topological order."""

    vertices: list[SubtaskColumnsOut]
