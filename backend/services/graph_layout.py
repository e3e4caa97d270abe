"""Computes where the vertices of a job graph are drawn: layers from source to sink, and rows within a layer.

A vertex is in the layer after that of its deepest predecessor (longest path), so every edge points forward. Within a
layer, vertices are ordered by the mean row of their predecessors, then by that of their successors. This is done twice,
and then once more by predecessors, which removes most crossings (the barycentre heuristic, Sugiyama, Tagawa & Toda
1981).

Invariants: the same graph always gets the same layout, and no two vertices have the same layer and row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from backend.domain.ids import VertexId
from backend.domain.topology import Topology

_SWEEPS = 2


def layout(topology: Topology) -> Mapping[VertexId, tuple[int, int]]:
    """Return the (layer, row) of every vertex. Layer 0 contains the sources. Edges that close a cycle are ignored."""
    layers = _layers(topology)
    columns: dict[int, list[VertexId]] = {}
    for vertex in topology.vertices:
        columns.setdefault(layers[vertex.id], []).append(vertex.id)
    rows = {v: row for column in columns.values() for row, v in enumerate(column)}
    for _ in range(_SWEEPS):
        for layer in sorted(columns):
            _order(columns[layer], rows, topology.upstream)
        for layer in sorted(columns, reverse=True):
            _order(columns[layer], rows, topology.downstream)
    for layer in sorted(columns):
        _order(columns[layer], rows, topology.upstream)
    return {v: (layers[v], rows[v]) for v in layers}


def _layers(topology: Topology) -> dict[VertexId, int]:
    layers: dict[VertexId, int] = {}
    # The vertices are in topological order, so the layers of a vertex's predecessors are already known.
    for vertex in topology.vertices:
        above = [layers[u] for u in topology.upstream(vertex.id) if u in layers]
        layers[vertex.id] = 1 + max(above, default=-1)
    return layers


def _order(
    column: list[VertexId], rows: dict[VertexId, int], neighbours: Callable[[VertexId], tuple[VertexId, ...]]
) -> None:
    def weight(vertex: VertexId) -> tuple[float, int]:
        near = [rows[n] for n in neighbours(vertex) if n in rows]
        return (sum(near) / len(near) if near else rows[vertex], rows[vertex])

    column.sort(key=weight)
    rows.update((vertex, row) for row, vertex in enumerate(column))
