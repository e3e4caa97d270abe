"""The job graph as an engine reports it: vertices in topological order, and edges with their ship strategies."""

from __future__ import annotations

from dataclasses import dataclass

from backend.domain.ids import VertexId


@dataclass(frozen=True, slots=True)
class Vertex:
    """One vertex, with the engine's own ``name``. ``max_parallelism`` is None if it is not reported."""

    id: VertexId
    name: str
    parallelism: int
    max_parallelism: int | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """A directed edge. ``ship_strategy`` is the engine's upper-case word (HASH, REBALANCE, FORWARD, BROADCAST, ...)."""

    source: VertexId
    target: VertexId
    ship_strategy: str | None = None


@dataclass(frozen=True, slots=True)
class Topology:
    """A directed acyclic graph. ``vertices`` are in topological order, sources first."""

    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...] = ()

    def vertex(self, vertex_id: VertexId) -> Vertex | None:
        """Return the vertex with this id, or None."""
        return next((v for v in self.vertices if v.id == vertex_id), None)

    def upstream(self, vertex_id: VertexId) -> tuple[VertexId, ...]:
        """Return the ids of the direct predecessors, in the order of the edges."""
        return tuple(e.source for e in self.edges if e.target == vertex_id)

    def downstream(self, vertex_id: VertexId) -> tuple[VertexId, ...]:
        """Return the ids of the direct successors, in the order of the edges."""
        return tuple(e.target for e in self.edges if e.source == vertex_id)


@dataclass(frozen=True, slots=True)
class Placement:
    """The machines, attempts and states of the subtasks of one vertex. Tuples are indexed by subtask.

    None means *not reported*.
    """

    vertex_id: VertexId
    hosts: tuple[str | None, ...]
    task_managers: tuple[str | None, ...]
    attempts: tuple[int | None, ...]
    statuses: tuple[str | None, ...]
