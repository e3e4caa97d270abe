"""Folds the vertices of a large graph that are far from the one that the viewer searched for.

What is folded depends on the graph and on the searched vertex only, so that nothing moves between checkpoints.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from dashboard.figures.front.times import Front, FrontEdge, FrontVertex

HOPS = 2
"""Vertices up to this many edges up or down the stream from the searched one are not folded."""
FOLD = "+"
"""The first character of the id of a fold."""


def folded(front: Front, found: str | None) -> Front:
    """Return the graph around ``found``. The vertices upstream, downstream and beside it become one vertex each."""
    by_id = {v.vertex_id: v for v in front.vertices}
    if found not in by_id:
        return front
    down: dict[str, list[str]] = {}
    up: dict[str, list[str]] = {}
    for e in front.edges:
        down.setdefault(e.source, []).append(e.target)
        up.setdefault(e.target, []).append(e.source)
    after, before = _hops(found, down), _hops(found, up)
    kept = {v for v in by_id if min(after.get(v, HOPS + 1), before.get(v, HOPS + 1)) <= HOPS}
    layers = {layer: i + 1 for i, layer in enumerate(sorted({by_id[v].layer for v in kept}))}
    vertices: list[FrontVertex] = []
    for layer in layers:
        row = sorted((by_id[v] for v in kept if by_id[v].layer == layer), key=lambda v: v.row)
        vertices += [replace(v, layer=layers[layer], row=i) for i, v in enumerate(row)]
    rest = [v for v in by_id if v not in kept]
    groups = {
        "upstream": [v for v in rest if v in before],
        "downstream": [v for v in rest if v in after and v not in before],
        "others": [v for v in rest if v not in after and v not in before],
    }
    own_layer = layers[by_id[found].layer]
    beside = 1 + max(v.row for v in vertices if v.layer == own_layer)
    places = {"upstream": (0, 0), "downstream": (len(layers) + 1, 0), "others": (own_layer, beside)}
    folds = {name: _fold(name, [by_id[v] for v in ids], places[name]) for name, ids in groups.items() if ids}
    vertices += folds.values()
    names = {v: folds[name].vertex_id for name, ids in groups.items() for v in ids}
    return replace(front, vertices=tuple(vertices), edges=_edges(front.edges, names))


def _hops(start: str, following: Mapping[str, Sequence[str]]) -> dict[str, int]:
    hops, reached = {start: 0}, [start]
    for vertex in reached:
        for other in following.get(vertex, ()):
            if other not in hops:
                hops[other] = hops[vertex] + 1
                reached.append(other)
    return hops


def _fold(name: str, members: Collection[FrontVertex], place: tuple[int, int]) -> FrontVertex:
    subtasks = tuple(s for v in members for s in v.subtasks)
    ids = tuple(v.vertex_id for v in members)
    words = f"{len(ids)} {'beside' if name == 'others' else name}"
    return FrontVertex(FOLD + name, words, *place, subtasks, any(v.is_guilty for v in members), folded=ids)


def _edges(edges: Sequence[FrontEdge], names: Mapping[str, str]) -> tuple[FrontEdge, ...]:
    front_edges: dict[tuple[str, str], FrontEdge] = {}
    for e in edges:
        ends = names.get(e.source, e.source), names.get(e.target, e.target)
        if ends[0] == ends[1]:
            continue
        before = front_edges.get(ends)
        channels = (before.channels if before else ()) + e.channels
        front_edges[ends] = FrontEdge(*ends, channels, e.is_measured)
    return tuple(front_edges.values())
