"""Selects the rows of the phase chart: which vertices and subtasks are shown, in which order, with which labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backend.contracts.api import CheckpointDetailOut, SubtaskPhasesOut, VertexPhasesOut
from dashboard import text
from dashboard.checkpoint_address import SubtaskOrder

_ROWS_MAX = 600


@dataclass(frozen=True, slots=True)
class GanttRow:
    """One row of the chart. ``subtask`` is None if no subtask of the vertex reported anything."""

    vertex: VertexPhasesOut
    subtask: SubtaskPhasesOut | None
    label: str
    is_vertex: bool
    is_critical: bool


def rows_of(
    checkpoint: CheckpointDetailOut, opened: Sequence[str], sort: SubtaskOrder, *, is_path_pinned: bool
) -> list[GanttRow]:
    critical = _critical(checkpoint)
    rows: list[GanttRow] = []
    for vertex in checkpoint.vertices:
        on_path = critical.get(vertex.vertex_id, frozenset())
        shown = _representative(vertex, on_path if is_path_pinned else frozenset())
        is_open = vertex.vertex_id in opened
        rows.append(GanttRow(vertex, shown, _vertex_label(vertex, is_open), True, bool(on_path)))
        if is_open:
            for subtask in _sorted(vertex.subtasks, sort):
                is_on_path = subtask.subtask in on_path
                rows.append(GanttRow(vertex, subtask, _subtask_label(subtask, is_on_path), False, is_on_path))
    return rows[:_ROWS_MAX]


def _critical(checkpoint: CheckpointDetailOut) -> dict[str, frozenset[int]]:
    critical: dict[str, set[int]] = {}
    for step in checkpoint.critical_path.steps if checkpoint.critical_path else []:
        critical.setdefault(step.vertex_id, set()).add(step.subtask)
    return {vertex: frozenset(indices) for vertex, indices in critical.items()}


def _representative(vertex: VertexPhasesOut, on_path: frozenset[int]) -> SubtaskPhasesOut | None:
    wanted = max(on_path) if on_path else vertex.slowest_subtask
    subtask = next((s for s in vertex.subtasks if s.subtask == wanted), None)
    return subtask or (vertex.subtasks[0] if vertex.subtasks else None)


def _sorted(subtasks: Sequence[SubtaskPhasesOut], sort: SubtaskOrder) -> list[SubtaskPhasesOut]:
    def last(value: int | None) -> float:
        # A missing time counts as the latest, because the checkpoint still waits for that subtask.
        return float("inf") if value is None else float(value)

    match sort:
        case SubtaskOrder.FINISH:
            return sorted(subtasks, key=lambda s: (-last(s.ack_ms), -last(s.first_barrier_ms), s.subtask))
        case SubtaskOrder.START_DELAY:
            return sorted(subtasks, key=lambda s: (-last(s.first_barrier_ms), s.subtask))
        case SubtaskOrder.ALIGNMENT:
            return sorted(subtasks, key=lambda s: (-last(s.alignment_duration_ms), s.subtask))
        case SubtaskOrder.ASYNC:
            return sorted(subtasks, key=lambda s: (-last(s.async_duration_ms), s.subtask))
        case SubtaskOrder.HOST:
            return sorted(subtasks, key=lambda s: (s.host or "\uffff", s.subtask))
        case _:
            return sorted(subtasks, key=lambda s: s.subtask)


def _vertex_label(vertex: VertexPhasesOut, is_open: bool) -> str:
    mark = "▾" if is_open else "▸"
    name = text.plain(text.short(vertex.vertex, 26))
    return f"{mark} <b>{name}</b>  {counted(vertex)}"


def counted(vertex: VertexPhasesOut) -> str:
    """Return how many subtasks of a vertex acknowledged, such as ``3/4`` or, if one had finished, ``3/3 +1 ended``."""
    finished = vertex.finished_count
    if finished == vertex.subtask_count > 0:
        return "ended"
    part = f"{vertex.acknowledged_count - finished}/{vertex.subtask_count - finished}"
    return f"{part} +{finished} ended" if finished else part


def _subtask_label(subtask: SubtaskPhasesOut, is_on_path: bool) -> str:
    host = f" · {text.plain(text.short(subtask.host, 16))}" if subtask.host else ""
    return f"{'● ' if is_on_path else ''}{subtask.subtask}{host}{' · ended' if subtask.has_finished else ''}"
