"""V5: draws the barrier front on the job graph at one instant of a checkpoint.

``times.build`` computes the times from a checkpoint, its graph and its barrier events. ``draw`` shows the state at
one instant. A vertex is drawn as a ring of the states of its subtasks; a vertex that the viewer opened is drawn as a
column of its subtasks.

The state of an edge comes from its channels if the engine reports them. Flink does not report channels. For Flink, an
edge is dotted, its state is derived from sender and receiver, and its label shows an interval instead of an instant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dashboard.figures.base import Chart, Trace, empty, layout
from dashboard.figures.front.edges import edge_label, edge_lines
from dashboard.figures.front.senders import held_by
from dashboard.figures.front.times import Front
from dashboard.figures.front.vertices import DOT, RADIUS, columns, rings, shown_subtasks
from dashboard.figures.front.words import NAME_MAX, summary, table, vertex_labels
from dashboard.palette import Theme

_LAYER_MIN = 260.0

_LAYER_MAX = 400.0

_ROW = 190.0

# The room beside the first and the last layer. On a phone, a note of the last layer needs more of it.
_SIDE = 120.0

_SIDE_NARROW = 210.0

_HEIGHT_MIN_PX = 190

_HEIGHT_MAX_PX = 620

# The width of a card on a laptop's screen. The graph is scaled to this width, but at most by the factor _SCALE_MAX.
_WIDTH_PX = 1250

_SCALE_MAX = 1.25

# The width of a card on a phone, and that of a letter of a name.
_NARROW_PX = 330

_CHARACTER_PX = 7.5


def draw(
    front: Front,
    at_ms: float,
    *,
    theme: Theme,
    opened: Sequence[str] = (),
    queued_bytes: Mapping[str, int] | None = None,
    is_narrow: bool = False,
) -> Chart:
    """Draw the graph at ``at_ms`` since the trigger. A mark's ``customdata`` is ``[vertex id, subtask or null]``.

    ``queued_bytes`` maps receiving vertices to their queued bytes, if known at this instant. The bytes set the width
    of the edges into the vertex. If the window ``is_narrow``, edges have no labels and names are shorter, so that they
    do not overlap. The table has the same values.
    """
    if not front.vertices:
        return empty(theme, "The engine no longer had the subtasks of this checkpoint when Barrierscope read it.")
    gap = _layer_gap(front)
    places = {v.vertex_id: (v.layer * gap, -v.row * _ROW) for v in front.vertices}
    open_ids = {v.vertex_id for v in front.vertices if v.vertex_id in opened}
    by_id = {v.vertex_id: v for v in front.vertices}
    traces: list[Trace] = []
    notes: list[dict[str, object]] = []
    for edge in front.edges:
        traces += edge_lines(edge, by_id, places, open_ids, at_ms, theme, (queued_bytes or {}).get(edge.target))
        if not is_narrow:
            notes.append(edge_label(edge, by_id, places, at_ms, theme, open_ids))
    traces += rings([v for v in front.vertices if v.vertex_id not in open_ids], places, at_ms, theme)
    held = {v.vertex_id: held_by(v, front) for v in front.vertices if v.vertex_id in open_ids}
    traces += columns([v for v in front.vertices if v.vertex_id in open_ids], places, at_ms, theme, held)
    side = _SIDE_NARROW if is_narrow else _SIDE
    xs, ys = _extent(front, places, open_ids, side)
    # A name has the room between two layers, and that beside the first and the last one.
    room_px = _NARROW_PX * min(gap, 2 * side) / (xs[1] - xs[0])
    name_max = max(5, min(NAME_MAX, int(room_px / _CHARACTER_PX))) if is_narrow else NAME_MAX
    for v in front.vertices:
        notes += vertex_labels(v, places[v.vertex_id], at_ms, theme, is_open=v.vertex_id in open_ids, name_max=name_max)
    scale = min(_SCALE_MAX, _WIDTH_PX / (xs[1] - xs[0]))
    height_px = int(min(_HEIGHT_MAX_PX, max(_HEIGHT_MIN_PX, scale * (ys[1] - ys[0]))))
    hidden: dict[str, object] = {"visible": False, "fixedrange": True}
    figure = {
        "data": traces,
        "layout": layout(
            theme,
            height_px=height_px,
            revision="front",
            margin={"l": 8, "r": 8, "t": 8, "b": 8},
            xaxis={**hidden, "range": xs},
            yaxis={**hidden, "range": ys, "scaleanchor": "x", "scaleratio": 1},
            annotations=notes,
            hovermode="closest",
            dragmode=False,
        ),
    }
    return Chart(figure, table(front, at_ms), summary(front, at_ms), height_px)


def _layer_gap(front: Front) -> float:
    """Return the distance between layers. A graph with few layers gets longer edges, so that their labels fit."""
    layers = max(v.layer for v in front.vertices) - min(v.layer for v in front.vertices)
    return min(_LAYER_MAX, max(_LAYER_MIN, (_WIDTH_PX / _SCALE_MAX - 240) / max(1, layers)))


def _extent(
    front: Front, places: Mapping[str, tuple[float, float]], open_ids: set[str], side: float
) -> tuple[list[float], list[float]]:
    tops, bottoms = [], []
    for v in front.vertices:
        half = DOT * len(shown_subtasks(v)) / 2 if v.vertex_id in open_ids else RADIUS
        tops.append(places[v.vertex_id][1] + half + 44)
        bottoms.append(places[v.vertex_id][1] - half - 52)
    xs = [x for x, _ in places.values()]
    return [min(xs) - side, max(xs) + side], [min(bottoms), max(tops)]
