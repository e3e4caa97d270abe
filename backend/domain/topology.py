"""The job graph as an engine reports it: vertices in topological order, edges with their ship strategy."""

from __future__ import annotations

from dataclasses import dataclass

from backend.domain.ids import VertexId


@dataclass(frozen=True, slots=True)
class Vertex:
    """One vertex. ``name`` is the engine's. ``max_parallelism`` is None if it is not reported."""

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
    """A directed acyclic graph; ``vertices`` are in a topological order, sources first."""

    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...] = ()

    def vertex(self, vertex_id: VertexId) -> Vertex | None:
        """The vertex of that id, or None."""
        return next((v for v in self.vertices if v.id == vertex_id), None)

    def upstream(self, vertex_id: VertexId) -> tuple[VertexId, ...]:
        """Ids of the direct predecessors, in edge order."""
        return tuple(e.source for e in self.edges if e.target == vertex_id)

    def downstream(self, vertex_id: VertexId) -> tuple[VertexId, ...]:
        """Ids of the direct successors, in edge order."""
        return tuple(e.target for e in self.edges if e.source == vertex_id)


@dataclass(frozen=True, slots=True)
class Placement:
    """The places of the subtasks of one vertex. Tuples are by subtask index; None means *not reported*."""

    vertex_id: VertexId
    hosts: tuple[str | None, ...]
    task_managers: tuple[str | None, ...]
    attempts: tuple[int | None, ...]
    statuses: tuple[str | None, ...]
