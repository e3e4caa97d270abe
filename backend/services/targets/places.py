"""Finds where a subtask of a run is: its vertex in the job graph, and the host and process that run it."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection

from backend.domain.errors import UnknownEntityError
from backend.domain.topology import Placement, Vertex
from backend.store.jobs.reader import RunRecord, newest_shapes


@dataclass(frozen=True, slots=True)
class Place:
    """A vertex of a run and, if one was chosen, one of its subtasks. ``None`` means *not reported*.

    Host, TaskManager and attempt are those of the last poll. After a restart of the subtask they may differ from those
    of an earlier checkpoint.
    """

    vertex: Vertex
    subtask: int | None = None
    host: str | None = None
    task_manager: str | None = None
    attempt: int | None = None


async def place_of(connection: AsyncConnection, run: RunRecord, vertex_id: str, subtask: int | None) -> Place:
    """Return the place of a vertex or a subtask.

    Raises:
        UnknownEntityError: the run has no such vertex or subtask.
    """
    topology = (await newest_shapes(connection, [run.id]))[run.id].topology
    vertex = next((v for v in topology.vertices if v.id == vertex_id), None)
    if vertex is None:
        raise UnknownEntityError(kind="vertex", id=vertex_id)
    if subtask is None:
        return Place(vertex)
    if subtask >= vertex.parallelism:
        raise UnknownEntityError(kind="subtask", id=subtask)
    placed = next((p for p in run.placements if p.vertex_id == vertex_id), None)
    return Place(vertex, subtask) if placed is None else _placed(vertex, subtask, placed)


def _placed(vertex: Vertex, subtask: int, placed: Placement) -> Place:
    if subtask >= len(placed.hosts):
        return Place(vertex, subtask)
    return Place(vertex, subtask, placed.hosts[subtask], placed.task_managers[subtask], placed.attempts[subtask])
