"""The card with the heatmap of a job's subtasks over its checkpoints (V6), and the callbacks that update it."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate

from backend.contracts.subtask_matrix import MatrixGroup, SubtaskMatrixOut
from backend.domain.checkpoint import SubtaskMeasure
from dashboard import routes, text
from dashboard.callbacks import Changes, connect
from dashboard.checkpoint_address import CheckpointView
from dashboard.client import ApiClient
from dashboard.components import cards
from dashboard.components.attributes import attrs
from dashboard.figures import subtask_heatmap
from dashboard.job_address import JobView, measure_of
from dashboard.live import digest, look_of
from dashboard.span import epoch_ms, span_of

_ALL = ""
_ALL_WORDS = "all vertices"
_LEGEND = (
    ("outline-unaligned", "unaligned"),
    ("hatch", "not reported"),
    ("hatch hatch-failed", "✕ failed, not acknowledged"),
)


def panel(view: JobView) -> Component:
    """Build the card without data, which the first refresh adds."""
    vertex = view.heat_vertex or _ALL
    tools = [
        cards.choice(
            "Measure",
            "heatmap-measure",
            {m.value: subtask_heatmap.MEASURE_WORDS[m] for m in SubtaskMeasure},
            view.measure.value,
            width_px=190,
        ),
        # The first refresh adds the names of the vertices.
        cards.choice(
            "Vertex",
            "heatmap-vertex",
            {_ALL: _ALL_WORDS} | ({} if vertex == _ALL else {vertex: vertex}),
            vertex,
            width_px=190,
        ),
        cards.choice(
            "Rows by",
            "heatmap-group",
            {MatrixGroup.VERTEX.value: "vertex", MatrixGroup.HOST.value: "host"},
            view.heat_group.value,
            width_px=96,
        ),
        html.Button(
            "Log scale",
            id="heatmap-log",
            className="button",
            title="logarithmic colour scale",
            **attrs({"aria-pressed": "true" if view.is_heat_log else "false"}),
        ),
    ]
    return html.Div(
        [
            html.Div(id="heatmap-message"),
            dcc.Store(id="heatmap-keys"),
            cards.chart(
                "heatmap",
                "Subtasks over checkpoints",
                hint="click a cell to open its checkpoint with that subtask; drag to choose checkpoints or a vertex",
                tools=tools,
                before=html.Div(
                    [html.Span([html.Span(className=f"swatch {name}"), words]) for name, words in _LEGEND],
                    className="legend",
                ),
                height_px=subtask_heatmap.HEIGHT_PX,
            ),
        ],
        id="job-heatmap",
    )


def register(app: Dash, client: ApiClient) -> None:
    """Register the callbacks of the card."""
    connect(
        app,
        partial(refresh, client),
        output={
            "message": Output("heatmap-message", "children"),
            "style": Output("job-heatmap", "style"),
            "heatmap": cards.chart_outputs("heatmap"),
            "keys": Output("heatmap-keys", "data"),
            "vertices": Output("heatmap-vertex", "data"),
        },
        inputs={
            "tick": Input("status-tick", "n_intervals"),
            "look": Input("look", "data"),
            "measure": Input("heatmap-measure", "value"),
            "vertex": Input("heatmap-vertex", "value"),
            "group": Input("heatmap-group", "value"),
            "log": Input("heatmap-log", "aria-pressed"),
            "chosen_range": Input("job-range", "data"),
        },
        state={"route": State("job-route", "data"), "before": State("heatmap-keys", "data")},
    )
    connect(
        app,
        open_cell,
        output={"href": Output("url", "href", allow_duplicate=True)},
        inputs={"click": Input("heatmap-graph", "clickData")},
        state={"route": State("job-route", "data"), "keys": State("heatmap-keys", "data")},
        prevent_initial_call=True,
    )
    connect(
        app,
        choose,
        output={
            "chosen_range": Output("job-range", "data", allow_duplicate=True),
            "vertex": Output("heatmap-vertex", "value"),
        },
        inputs={"zoom": Input("heatmap-graph", "relayoutData")},
        state={
            "keys": State("heatmap-keys", "data"),
            "vertex": State("heatmap-vertex", "value"),
            "chosen_range": State("job-range", "data"),
        },
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("bs", "togglePressed"),
        Output("heatmap-log", "aria-pressed"),
        Input("heatmap-log", "n_clicks"),
        State("heatmap-log", "aria-pressed"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("bs", "placeHeatmap"),
        Input("heatmap-measure", "value"),
        Input("heatmap-vertex", "value"),
        Input("heatmap-group", "value"),
        Input("heatmap-log", "aria-pressed"),
        prevent_initial_call=True,
    )


async def refresh(
    client: ApiClient,
    *,
    tick: int | None,
    look: object,
    measure: str | None,
    vertex: str | None,
    group: str | None,
    log: str | None,
    chosen_range: object,
    route: dict[str, str],
    before: dict[str, Any] | None,
) -> Changes:
    """Return the heatmap of the job in ``route``. ``before`` is the ``keys`` output of the previous call."""
    view, span = look_of(look), span_of(chosen_range)
    job = await client.graph(route["job"])
    if not job.capabilities.has_barriers:
        return {"style": {"display": "none"}}
    by = MatrixGroup.HOST if group == MatrixGroup.HOST else MatrixGroup.VERTEX
    matrix = await client.subtask_matrix(
        route["job"], measure_of(measure), vertex or None, since=span.since, until=span.until, group=by
    )
    now = digest(matrix, view.theme.name, log)
    if before and before.get("digest") == now:
        return {"message": None}
    # Before the first checkpoint has ended, there is nothing to show. In a chosen range, the chart gives the reason.
    is_shown = bool(matrix.checkpoints) or not span.is_whole
    chart = subtask_heatmap.heatmap(matrix, theme=view.theme, is_log=log == "true", revision=route["job"])
    return {
        "message": None,
        "style": {} if is_shown else {"display": "none"},
        "heatmap": cards.chart_values("heatmap", chart),
        "keys": _keys(matrix) | {"digest": now},
        "vertices": _choices(matrix, vertex or _ALL),
    }


def _choices(matrix: SubtaskMatrixOut, chosen: str) -> list[dict[str, str]]:
    # The chosen vertex stays in the list even if it has no values in the range.
    words = {_ALL: _ALL_WORDS, chosen: chosen} | {v.vertex_id: text.short(v.vertex, 40) for v in matrix.vertices}
    words[_ALL] = _ALL_WORDS
    return [{"value": value, "label": label} for value, label in words.items()]


def _keys(matrix: SubtaskMatrixOut) -> dict[str, Any]:
    """Return what the names of columns and rows in the figure stand for."""
    checkpoints = ([c.run_id, c.checkpoint_id] for c in matrix.checkpoints)
    rows = ([r.vertex_id, r.subtask] for r in matrix.rows)
    return {
        "columns": dict(zip(subtask_heatmap.column_names(matrix), checkpoints, strict=True)),
        "rows": dict(zip(subtask_heatmap.row_names(matrix), rows, strict=True)),
        "times": [epoch_ms(c.triggered_at) for c in matrix.checkpoints],
    }


def choose(*, zoom: Any, keys: dict[str, Any] | None, vertex: str | None, chosen_range: object) -> Changes:
    """Return what the viewer chose by dragging over cells: the range of the page, a vertex, or both.

    All columns, as after a double click, choose no range. Rows of several vertices choose no vertex.
    """
    if not isinstance(zoom, dict) or not keys:
        raise PreventUpdate
    changes: Changes = {}
    times, rows = keys["times"], list(keys["rows"].values())
    columns = _dragged(zoom, "xaxis", len(times))
    if columns is not None and len(columns) < len(times):
        changes["chosen_range"] = {"since": times[columns[0]], "until": times[columns[-1]]}
    elif columns is not None and chosen_range is not None:
        changes["chosen_range"] = None
    dragged = _dragged(zoom, "yaxis", len(rows))
    found = {rows[i][0] for i in dragged or ()}
    if dragged is not None and len(dragged) < len(rows) and len(found) == 1 and None not in found and not vertex:
        changes["vertex"] = found.pop()
    if not changes:
        raise PreventUpdate
    return changes


def _dragged(zoom: dict[str, Any], axis: str, count: int) -> range | None:
    """Return the indices of the categories in the new range of an axis, or None if its range did not change."""
    ends = zoom.get(f"{axis}.range") or [zoom.get(f"{axis}.range[{i}]") for i in (0, 1)]
    if len(ends) != 2 or not all(isinstance(e, int | float) for e in ends):
        return None
    # A category is at its index, and its cell reaches half a step to both sides.
    first, last = max(0, math.floor(min(ends) + 0.5)), min(count - 1, math.ceil(max(ends) - 0.5))
    return range(first, last + 1) if first <= last else None


def open_cell(*, click: Any, route: dict[str, str], keys: dict[str, Any] | None) -> Changes:
    """Return the address of the checkpoint whose cell was clicked, with the subtask of the cell picked."""
    try:
        point = click["points"][0]
        run, number = (keys or {})["columns"][point["x"]]
    except (TypeError, KeyError, IndexError):
        raise PreventUpdate from None
    vertex, subtask = (keys or {})["rows"].get(point.get("y"), (None, None))
    view = CheckpointView(
        opened=None if vertex is None else (vertex,),
        picked=None if subtask is None else f"{vertex}:{subtask}",
    )
    return {"href": routes.checkpoint(route["job"], run, number, view)}
