"""Which parts of a job had finished when a checkpoint was taken (FN-9 to FN-12, FN-15, FN-18, GR-3).

A checkpoint stores for each operator how much of it had finished. It does not store this for each vertex, because a
later version of the job may put its operators into other vertices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum

from backend.domain.errors import PlanError
from backend.runtime.job.graph import Graph
from backend.runtime.measure.measures import ChannelState, Finished, SubtaskSnapshot, TaskKey
from backend.runtime.operators.state import NO_STATE, StateMode

_NEVER_AGAIN = (Finished.TASK, Finished.RESTORED)


class VertexEnd(StrEnum):
    """How many subtasks of a vertex had finished (FN-9 to FN-11)."""

    NONE = "none"
    PART = "part"
    ALL = "all"


def nothing_left(operators: int) -> SubtaskSnapshot:
    """Return the snapshot of a subtask that had ended before the checkpoint was triggered. It has no state."""
    return SubtaskSnapshot((NO_STATE,) * operators, ChannelState(), -1, 0, 0, finished=Finished.TASK)


def end_of(snapshots: Collection[SubtaskSnapshot]) -> VertexEnd:
    """Return how many of a vertex's subtasks had ended. Subtasks that were restored as finished count as ended."""
    ended = sum(snapshot.finished in _NEVER_AGAIN for snapshot in snapshots)
    if not ended:
        return VertexEnd.NONE
    return VertexEnd.ALL if ended == len(snapshots) else VertexEnd.PART


def partly_finished_union(graph: Graph, snapshots: Mapping[TaskKey, SubtaskSnapshot]) -> str | None:
    """Return the id of a vertex with union state of which only a part has finished, or None if there is none (FN-15).

    The union would lack the entries of the finished part, so the checkpoint must fail. A subtask whose operators have
    finished counts as finished here, unless the operators of all subtasks of the vertex have finished.
    """
    if all(snapshot.finished is Finished.NO for snapshot in snapshots.values()):
        return None
    for index, vertex in enumerate(graph.vertices):
        own = [snapshots[index, subtask] for subtask in range(vertex.parallelism)]
        if not any(s.mode is StateMode.UNION for each in own for o in each.operators for s in o.states):
            continue
        finished = sum(snapshot.finished is not Finished.NO for snapshot in own)
        if end_of(own) is VertexEnd.PART or 0 < finished < len(own):
            return vertex.id
    return None


def end_of_vertex(vertex_id: str, operators: Iterable[str], ends: Mapping[str, VertexEnd]) -> VertexEnd:
    """Return how much of a vertex had finished, as its operators show. An operator without an entry in ``ends`` is new.

    Raises:
        PlanError: the vertex combines operators that had finished with others (FN-18).
    """
    ends_of_operators = {ends.get(operator, VertexEnd.NONE) for operator in operators}
    if len(ends_of_operators) > 1:
        raise PlanError(
            "it combines operators that had finished with others that had not",
            rule="FN-18",
            vertex=vertex_id,
            fix="leave its operators as they were, or start without the checkpoint",
        )
    return ends_of_operators.pop()


def check_predecessors(graph: Graph, ends: Mapping[str, VertexEnd]) -> None:
    """Refuse a graph in which a vertex that runs sends to a vertex that had finished (FN-18).

    Raises:
        PlanError: the error names the vertex that had finished and its predecessor.
    """
    for edge in graph.edges:
        before, end = ends[edge.source], ends[edge.target]
        if end is VertexEnd.NONE or before is VertexEnd.ALL:
            continue
        if end is VertexEnd.PART and edge.partitioner.is_pointwise and before is VertexEnd.PART:
            continue
        what = "had finished" if end is VertexEnd.ALL else "had partly finished"
        raise PlanError(
            f"it {what}, but its input {edge.source!r} had not",
            rule="FN-18",
            vertex=edge.target,
            fix=f"leave {edge.source!r} as it was, or give {edge.target!r} a new id so that it starts empty",
        )
