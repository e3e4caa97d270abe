"""The job graph as an engine reports it: vertices in topological order, and edges with their ship strategies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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
    is_batch: bool | None = None
    """True if the job runs in batch mode, which needs no checkpoints. None if it streams, or if this is not known."""
    # A verdict asks for vertices and inputs a hundred times.
    _by_id: Mapping[VertexId, Vertex] = field(init=False, repr=False, compare=False)
    _inputs: Mapping[VertexId, tuple[Edge, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Index the vertices and the edges."""
        inputs: dict[VertexId, list[Edge]] = {}
        for edge in self.edges:
            inputs.setdefault(edge.target, []).append(edge)
        # If two vertices had one id, the first would count.
        object.__setattr__(self, "_by_id", {v.id: v for v in reversed(self.vertices)})
        object.__setattr__(self, "_inputs", {v: tuple(edges) for v, edges in inputs.items()})

    def vertex(self, vertex_id: VertexId) -> Vertex | None:
        """Return the vertex with this id, or None."""
        return self._by_id.get(vertex_id)

    def inputs(self, vertex_id: VertexId) -> tuple[Edge, ...]:
        """Return the edges that end at the vertex, in their order."""
        return self._inputs.get(vertex_id, ())

    def upstream(self, vertex_id: VertexId) -> tuple[VertexId, ...]:
        """Return the ids of the direct predecessors, in the order of the edges."""
        return tuple(e.source for e in self.inputs(vertex_id))

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
