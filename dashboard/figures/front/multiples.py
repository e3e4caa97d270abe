"""Draws the barrier front at five instants side by side, for viewers who prefer reduced motion."""

from __future__ import annotations

from dashboard import text
from dashboard.figures.base import Chart, Table, Trace, empty, layout, note
from dashboard.figures.front.edges import Drawn, edge_traces
from dashboard.figures.front.folding import folded
from dashboard.figures.front.places import NARROW_PX, WIDTH_PX, arrange
from dashboard.figures.front.times import Front, SubtaskState
from dashboard.figures.front.vertices import rings
from dashboard.figures.front.view import FrontView

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)

_RADIUS = 52.0
_TITLE_PX = 26
_PANEL_MAX_PX = 220


def multiples(front: Front, view: FrontView) -> Chart:
    """Draw the whole graph at 0, 25, 50, 75 and 100 % of the checkpoint. The table counts the subtasks by state."""
    if not front.vertices:
        return empty(view.theme, "There are no subtasks to draw.")
    shown = folded(front, view.found) if view.is_folded else front
    places = arrange(shown, is_narrow=view.is_narrow)
    columns = 1 if view.is_narrow else len(SHARES)
    rows = len(SHARES) // columns
    width_px = (NARROW_PX if view.is_narrow else WIDTH_PX) / columns
    across, upwards = (high - low for low, high in places.extent)
    panel_px = min(_PANEL_MAX_PX, max(48.0, width_px * upwards / across))
    height_px = round(rows * (panel_px + _TITLE_PX))
    by_id = {v.vertex_id: v for v in shown.vertices}
    traces: list[Trace] = []
    axes: dict[str, object] = {}
    notes = []
    for i, share in enumerate(SHARES):
        at_ms = share * shown.opens_ms
        drawn = Drawn(by_id, places.by_vertex, (), at_ms, view.theme, {})
        found = [*edge_traces(shown.edges, drawn), *rings(shown.vertices, places.by_vertex, at_ms, view.theme, _RADIUS)]
        number = "" if i == 0 else str(i + 1)
        for trace in found:
            if trace["mode"] == "lines+markers":
                trace["mode"] = "lines"
        traces += [t | {"xaxis": f"x{number}", "yaxis": f"y{number}"} for t in found]
        column, row = i % columns, i // columns
        left, right = column / columns, (column + 0.96) / columns
        top = 1 - row / rows
        bottom = top - panel_px / height_px
        hidden: dict[str, object] = {"visible": False, "fixedrange": True}
        title_share = _TITLE_PX / height_px
        axes[f"xaxis{number}"] = {**hidden, "range": list(places.extent[0]), "domain": [left, right]}
        axes[f"yaxis{number}"] = {
            **hidden, "range": list(places.extent[1]), "domain": [max(0.0, bottom - title_share), top - title_share],
            "scaleanchor": f"x{number}", "scaleratio": 1, "anchor": f"x{number}",
        }  # fmt: skip
        words = f"<b>{text.percent(share)}</b>  {text.duration(round(at_ms))}"
        notes.append(note(view.theme, words, left, top, xref="paper", yref="paper", xanchor="left", yanchor="top"))
    figure = {
        "data": traces,
        "layout": layout(
            view.theme,
            height_px=height_px,
            revision="front-multiples",
            margin={"l": 4, "r": 4, "t": 4, "b": 4},
            annotations=notes,
            hovermode=False,
            dragmode=False,
            **axes,
        ),
    }
    return Chart(figure, Table((), ()), _words(shown), height_px)


def _words(front: Front) -> str:
    parts = []
    for share in SHARES:
        at_ms = share * front.opens_ms
        counts = [v.counts(at_ms) for v in front.vertices]
        total = sum(sum(c.values()) for c in counts)
        reached = total - sum(c[SubtaskState.NOT_REACHED] for c in counts)
        acked = sum(c[SubtaskState.ACKNOWLEDGED] for c in counts)
        at = text.duration(round(at_ms))
        parts.append(f"at {at} the barrier has reached {reached} of {total} subtasks, {acked} acknowledged")
    return "; ".join(parts) + "."
