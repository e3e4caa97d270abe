"""V5: draws the barrier front on the job graph at one instant of a checkpoint.

``times.build`` computes the times from a checkpoint, its graph and its barrier events. ``draw`` shows the state at
one instant. A vertex is drawn as a ring of the states of its subtasks; a vertex that the viewer opened is drawn as a
block of its subtasks. All vertices keep their places when one is opened, when time passes, and in other checkpoints.

The state of an edge comes from its channels if the engine reports them. Flink does not report channels. For Flink, an
edge is dotted, its state is derived from sender and receiver, and its label shows an interval instead of an instant.
The width of an edge shows the bytes that are queued in front of its receiver.
"""

from __future__ import annotations

from dashboard import text
from dashboard.figures.base import Chart, Table, Trace, empty, layout
from dashboard.figures.front.edges import Drawn, edge_hovers, edge_labels, edge_traces
from dashboard.figures.front.folding import folded
from dashboard.figures.front.heat import heat_map
from dashboard.figures.front.places import NARROW_PX, RADIUS, Places, arrange
from dashboard.figures.front.senders import held_by
from dashboard.figures.front.times import Front
from dashboard.figures.front.vertices import blocks, centres, circles, colors, discs, rings
from dashboard.figures.front.view import FrontView
from dashboard.figures.front.words import NAME_MAX, summary, table, table_of_times, vertex_labels

_LABELLED_EDGES_MAX = 14
"""With more edges than this, their labels would overlap. Then they are shown on hover only."""

TABLE_STATES_MAX = 2_000
"""The table of a job with more subtasks has no state, because it would be sent again for each instant."""

_CHARACTER_PX = 7.5


def draw(front: Front, at_ms: float, view: FrontView, *, has_table: bool = True) -> Chart:
    """Draw the graph at ``at_ms`` since the trigger. A mark's ``customdata`` is ``[vertex id, subtask or null]``.

    Without ``has_table``, the table is empty. On a phone, edges have no labels and names are shorter, so that they do
    not overlap; the table has the same values.
    """
    if not front.vertices:
        return empty(view.theme, "The engine no longer had the subtasks of this checkpoint when Barrierscope read it.")
    shown = folded(front, view.found) if view.is_folded else front
    places = arrange(shown, is_narrow=view.is_narrow, centre=_centre(shown, view))
    # By default, Plotly widens the range of an axis when its chart gets another size, and never narrows it again. A
    # graph that was drawn before its card had its height would then stay small.
    constrain = "range" if places.is_large else "domain"
    hidden: dict[str, object] = {"visible": False, "fixedrange": not places.is_large, "constrain": constrain}
    figure = {
        "data": _traces(shown, at_ms, view, places),
        "layout": layout(
            view.theme,
            height_px=places.height_px,
            revision="front",
            margin={"l": 8, "r": 8, "t": 8, "b": 8},
            xaxis={**hidden, "range": list(places.visible[0])},
            yaxis={**hidden, "range": list(places.visible[1]), "scaleanchor": "x", "scaleratio": 1},
            annotations=_notes(shown, at_ms, view, places),
            hovermode="closest",
            dragmode="pan" if places.is_large else False,
        ),
    }
    rows = Table((), ())
    if has_table:
        rows = table_of_times(front) if is_large(front) else table(front, at_ms)
    return Chart(figure, rows, summary(front, at_ms), places.height_px)


def is_large(front: Front) -> bool:
    """Return whether the graph has so many subtasks that its table has no state."""
    return sum(len(v.subtasks) for v in front.vertices) > TABLE_STATES_MAX


def overview(front: Front, at_ms: float, view: FrontView) -> dict[str, object] | None:
    """Return the small map of a large graph: the extent, and the place, colour and name of each vertex.

    Return None if the whole graph is visible.
    """
    if not front.vertices:
        return None
    shown = folded(front, view.found) if view.is_folded else front
    places = arrange(shown, is_narrow=view.is_narrow, centre=_centre(shown, view))
    if not places.is_large:
        return None
    shades = colors(view.theme)
    marks = []
    for v in shown.vertices:
        counts = v.counts(at_ms)
        # A vertex has the colour of the earliest state in which one of its subtasks is.
        state = next(s for s, n in counts.items() if n or s == list(counts)[-1])
        marks.append([*places.by_vertex[v.vertex_id], shades[state], v.is_guilty or v.vertex_id == view.found])
    edges = [[*places.by_vertex[e.source], *places.by_vertex[e.target]] for e in shown.edges]
    return {"extent": places.extent, "marks": marks, "edges": edges}


def _centre(front: Front, view: FrontView) -> tuple[float, float] | None:
    if view.centre is not None or view.found is None:
        return view.centre
    return arrange(front, is_narrow=view.is_narrow).by_vertex.get(view.found)


def _traces(front: Front, at_ms: float, view: FrontView, places: Places) -> list[Trace]:
    readings = view.readings.at(at_ms)
    heat = heat_map(front, view.heat, readings)
    opened = [v for v in front.vertices if v.vertex_id in view.opened and v.subtasks]
    closed = [v for v in front.vertices if v not in opened]
    drawn = _drawn(front, at_ms, view, places)
    held = {v.vertex_id: held_by(v, front) for v in opened}
    traces = edge_traces(front.edges, drawn)
    if front.edges:
        traces.append(edge_hovers(front.edges, drawn))
    traces += rings(closed, places.by_vertex, at_ms, view.theme)
    if heat is not None:
        traces += discs(closed, places.by_vertex, heat, view.theme)
    found = [v for v in closed if v.vertex_id == view.found]
    traces += circles(found, places.by_vertex, RADIUS + 5, {"color": view.theme.text, "width": 2.5})
    if closed:
        traces.append(centres(closed, places.by_vertex, at_ms, view.theme, heat, places.scale))
    if places.is_large:
        traces.append(_names(front, view, places))
    return [*traces, *blocks(opened, places.by_vertex, at_ms, view.theme, held, heat, places.scale)]


def _drawn(front: Front, at_ms: float, view: FrontView, places: Places) -> Drawn:
    by_id = {v.vertex_id: v for v in front.vertices}
    open_ids = {v for v in view.opened if v in by_id and by_id[v].subtasks}
    return Drawn(by_id, places.by_vertex, open_ids, at_ms, view.theme, view.readings.at(at_ms))


def _names(front: Front, view: FrontView, places: Places) -> Trace:
    """Return the names of closed vertices as one trace, because many separate notes would be slow to draw."""
    closed = [v for v in front.vertices if v.vertex_id not in view.opened]
    return {
        "type": "scatter",
        "mode": "text",
        "x": [places.by_vertex[v.vertex_id][0] for v in closed],
        "y": [places.by_vertex[v.vertex_id][1] + RADIUS + 6 for v in closed],
        "text": [text.plain(text.short(v.name, _name_max(view, places))) for v in closed],
        "textposition": "top center",
        "textfont": {"size": 11, "color": view.theme.text},
        "hoverinfo": "skip",
    }


def _notes(front: Front, at_ms: float, view: FrontView, places: Places) -> list[dict[str, object]]:
    drawn = _drawn(front, at_ms, view, places)
    is_crowded = places.is_large or len(front.edges) > _LABELLED_EDGES_MAX
    notes = []
    if not view.is_narrow and not is_crowded:
        notes += edge_labels(front.edges, drawn, places.scale)
    for v in front.vertices:
        is_open = v.vertex_id in drawn.open_ids
        notes += vertex_labels(
            v, places.by_vertex[v.vertex_id], at_ms, view.theme, is_open=is_open,
            has_name=is_open or not places.is_large, name_max=_name_max(view, places),
        )  # fmt: skip
    return notes


def _name_max(view: FrontView, places: Places) -> int:
    """Return how many characters of a name fit between two layers."""
    room_px = places.gap * places.scale
    if view.is_narrow and not places.is_large:
        across = places.extent[0][1] - places.extent[0][0]
        # The names of the first and the last layer may also use the room beside these layers.
        side = min(x for x, _ in places.by_vertex.values()) - places.extent[0][0]
        # Bold capitals are wider than other letters, and two names need a gap between them.
        room_px = NARROW_PX * min(places.gap, 2 * side) / across - 2 * _CHARACTER_PX
    return max(5, min(NAME_MAX, int(room_px / _CHARACTER_PX)))
