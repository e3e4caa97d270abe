"""Decides which vertex of one job graph is compared with which vertex of another graph.

Two jobs, or two versions of one job, need not have the same ids of vertices, but they have names. Vertices with equal
names belong together; of several vertices with one name, the first belongs to the first, in topological order. An id
alone shows that two vertices are the same only within one job, where an operator may have been renamed.

Invariant: each vertex of the first graph is matched with at most one vertex of the second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from backend.domain.ids import VertexId
from backend.domain.topology import Topology, Vertex


@dataclass(frozen=True, slots=True)
class Matched:
    """The match of two graphs. ``ids`` has an id for each vertex of the second graph.

    It is the id of its vertex in the first graph or, if it has none, an id that the first graph does not have.
    """

    ids: Mapping[VertexId, VertexId]
    only_first: Sequence[Vertex]
    """The vertices that only the first graph has. Empty if one of the graphs is not known."""
    only_second: Sequence[Vertex]


def matched(first: Topology, second: Topology, *, is_same_job: bool) -> Matched:
    """Match the vertices of two graphs. A graph without vertices is not known."""
    if not first.vertices or not second.vertices:
        return Matched({v.id: v.id for v in second.vertices}, (), ())
    ids: dict[VertexId, VertexId] = {}
    _pair(first, second, ids, lambda v: (v.name, v.id))
    _pair(first, second, ids, lambda v: v.name)
    if is_same_job:
        _pair(first, second, ids, lambda v: v.id)
    taken = {v.id for v in first.vertices}
    only_second = tuple(v for v in second.vertices if v.id not in ids)
    only_first = tuple(v for v in first.vertices if v.id not in set(ids.values()))
    for v in only_second:
        ids[v.id] = VertexId(f"{v.id} of b") if v.id in taken else v.id
    return Matched(ids, only_first, only_second)


def _pair(first: Topology, second: Topology, ids: dict[VertexId, VertexId], key: Callable[[Vertex], object]) -> None:
    """Add the pairs of vertices with equal keys, in their order, of the vertices that have no pair yet."""
    used, waiting = set(ids.values()), dict[object, list[VertexId]]()
    for v in first.vertices:
        if v.id not in used:
            waiting.setdefault(key(v), []).append(v.id)
    for v in second.vertices:
        if v.id not in ids and (own := waiting.get(key(v))):
            ids[v.id] = own.pop(0)
