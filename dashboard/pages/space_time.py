"""V4: the page with the space-time diagram of one checkpoint.

The page's address contains the opened vertices, the shown range and the marked instant.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from dash import ALL, ClientsideFunction, Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate

from backend.contracts.api import CheckpointDetailOut
from backend.contracts.space_time import CutOut, SpaceTimeOut
from backend.domain.cut import CutError, CutState
from backend.domain.verdict import Basis
from dashboard import routes, text
from dashboard.callbacks import Changes, connect, pressed_id
from dashboard.checkpoint_address import CheckpointView
from dashboard.client import ApiClient
from dashboard.components import cards, freshness, legends, status
from dashboard.components.attributes import attrs
from dashboard.figures import space_time
from dashboard.figures.space_time import words
from dashboard.live import digest, look_of
from dashboard.pages.checkpoint import parts
from dashboard.palette import Tone

_CUT_BADGES = {
    CutState.CONSISTENT: ("consistent cut", "check", Tone.GOOD),
    CutState.INCONSISTENT: ("inconsistent cut", "cross", Tone.BAD),
    CutState.INCOMPLETE: ("incomplete cut", "hourglass", Tone.QUIET),
    CutState.UNCHECKED: ("cut not checked", "question", Tone.QUIET),
}
_ERROR_WORDS = {
    CutError.BACKWARDS: "crosses the cut backwards",
    CutError.REPEATED: "would be processed twice",
    CutError.LOST: "would be lost",
}
_PROBLEMS_SHOWN = 5


def layout(route: routes.Route) -> Component:
    """Build the page without data, which the first refresh adds."""
    chosen = route.space_time
    return html.Div(
        [
            dcc.Store(id="st-route", data={"job": route.job, "run": route.run, "checkpoint": route.checkpoint}),
            dcc.Store(id="st-digest"),
            dcc.Store(id="st-title"),
            dcc.Store(id="st-opened", data=list(chosen.opened)),
            dcc.Store(id="st-ends", data=None if chosen.ends_ms is None else list(chosen.ends_ms)),
            dcc.Store(id="st-at", data=chosen.at_ms),
            html.Div(id="st-message"),
            html.Div(id="st-stale"),
            html.Div(id="st-head", className="page-head"),
            html.Div(id="st-cut", className="awaited"),
            cards.chart(
                "space-time",
                "Space-time diagram",
                hint="each lane is a subtask, time runs to the right; click a mark to mark its time, drag to zoom",
                tools=[
                    html.Button(
                        "Whole time",
                        id="st-whole",
                        className="button",
                        title="show the whole checkpoint, without a mark",
                    )
                ],
                before=html.Div(
                    [legends.space_time(html.Span(id="st-basis")), html.Div(id="st-vertices", className="vertices")]
                ),
                after=html.Div(id="st-notes", className="hint"),
                height_px=space_time.HEIGHT_PX,
            ),
            html.Div(id="st-source"),
        ]
    )


def register(app: Dash, client: ApiClient) -> None:
    """Register the callbacks of the page."""
    connect(
        app,
        partial(refresh, client),
        output={
            "message": Output("st-message", "children"),
            "stale": Output("st-stale", "children"),
            "head": Output("st-head", "children"),
            "cut": Output("st-cut", "children"),
            "basis": Output("st-basis", "children"),
            "vertices": Output("st-vertices", "children"),
            "chart": cards.chart_outputs("space-time"),
            "notes": Output("st-notes", "children"),
            "source": Output("st-source", "children"),
            "title": Output("st-title", "data"),
            "digest": Output("st-digest", "data"),
        },
        inputs={
            "tick": Input("status-tick", "n_intervals"),
            "look": Input("look", "data"),
            "opened": Input("st-opened", "data"),
            "ends_ms": Input("st-ends", "data"),
            "at_ms": Input("st-at", "data"),
        },
        state={"route": State("st-route", "data"), "before": State("st-digest", "data")},
    )
    connect(
        app,
        select,
        output={"opened": Output("st-opened", "data"), "at_ms": Output("st-at", "data")},
        inputs={
            "click": Input("space-time-graph", "clickData"),
            "toggles": Input({"type": "st-toggle", "vertex": ALL}, "n_clicks"),
        },
        state={"opened": State("st-opened", "data")},
        has_trigger=True,
        prevent_initial_call=True,
    )
    connect(
        app,
        zoom,
        output={"ends_ms": Output("st-ends", "data"), "at_ms": Output("st-at", "data", allow_duplicate=True)},
        inputs={"dragged": Input("space-time-graph", "relayoutData"), "whole": Input("st-whole", "n_clicks")},
        has_trigger=True,
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("bs", "placeSpaceTime"),
        Input("st-opened", "data"),
        Input("st-ends", "data"),
        Input("st-at", "data"),
        prevent_initial_call=True,
    )


async def refresh(
    client: ApiClient,
    *,
    tick: int | None,
    look: object,
    opened: list[str] | None,
    ends_ms: list[float] | None,
    at_ms: float | None,
    route: dict[str, Any],
    before: str | None,
) -> Changes:
    """Return the contents of the page. ``before`` is the ``digest`` output of the previous call."""
    view = look_of(look)
    key = route["job"], route["run"], route["checkpoint"]
    checkpoint = await client.checkpoint(*key)
    diagram = await client.space_time(*key, opened or (), is_over=checkpoint.status.is_terminal)
    now = digest(checkpoint, diagram, view, ends_ms, at_ms)
    if now == before:
        return {"message": None}
    how = space_time.View(
        view.theme,
        is_narrow=view.is_narrow,
        ends_ms=None if ends_ms is None else (ends_ms[0], ends_ms[1]),
        at_ms=at_ms,
    )
    # The range is part of the revision, so that the range in the figure replaces the one that the viewer dragged.
    shown = space_time.space_time(diagram, how, revision=f"{key}{ends_ms}{diagram.opened}")
    return {
        "message": None,
        "stale": freshness.note(checkpoint.freshness, "This checkpoint") or freshness.final(checkpoint.freshness),
        "head": _head(checkpoint),
        "cut": _cut(diagram.cut),
        "basis": [] if diagram.basis is Basis.MEASURED else status.basis(diagram.basis),
        "vertices": _vertices(diagram),
        "chart": cards.chart_values("space-time", shown),
        "notes": _notes(diagram, checkpoint, at_ms),
        "source": parts.source(checkpoint),
        "title": f"Space-time diagram of checkpoint {checkpoint.checkpoint_id} of {checkpoint.job}",
        "digest": now,
    }


def select(*, click: Any, toggles: list[int | None], opened: list[str] | None, trigger: object) -> Changes:
    """Open or close a vertex, or mark the instant of the mark that was clicked."""
    if isinstance(trigger, dict):
        if pressed_id(toggles, trigger) is None:
            raise PreventUpdate
        return {"opened": _toggled(opened or [], trigger["vertex"])}
    try:
        point = click["points"][0]
        vertex, subtask = point["customdata"]
        at_ms = max(0.0, round(float(point["x"]), 3))
    except (TypeError, KeyError, IndexError, ValueError):
        raise PreventUpdate from None
    return {"opened": _toggled(opened or [], vertex)} if subtask is None else {"at_ms": at_ms}


def zoom(*, dragged: Any, whole: int | None, trigger: object) -> Changes:
    """Show the range that the viewer dragged, or the whole checkpoint without a mark."""
    if trigger == "st-whole":
        return {"ends_ms": None, "at_ms": None}
    chosen = dragged if isinstance(dragged, dict) else {}
    if chosen.get("xaxis.autorange"):
        return {"ends_ms": None}
    try:
        begin, end = chosen.get("xaxis.range") or (chosen["xaxis.range[0]"], chosen["xaxis.range[1]"])
        ends_ms = [max(0.0, round(float(begin), 3)), round(float(end), 3)]
    except (KeyError, TypeError, ValueError):
        # The chart also reports other changes of its layout, such as its width.
        raise PreventUpdate from None
    if ends_ms[1] <= ends_ms[0]:
        raise PreventUpdate
    return {"ends_ms": ends_ms}


def _toggled(opened: list[str], vertex: str) -> list[str]:
    return [v for v in opened if v != vertex] if vertex in opened else [*opened, vertex]


def _head(detail: CheckpointDetailOut) -> list[Component]:
    here = routes.checkpoint(detail.job_id, detail.run_id, detail.checkpoint_id)
    crumbs: list[Component | str] = [
        dcc.Link("Fleet", href=routes.fleet()),
        " / ",
        dcc.Link(detail.job, href=routes.job(detail.job_id)),
        " / ",
        dcc.Link(f"{detail.kind.value.replace('-', ' ').capitalize()} {detail.checkpoint_id}", href=here),
    ]
    title = [html.H1("Space-time diagram"), status.checkpoint(detail), status.mode(detail.mode, detail.course)]

    def link(number: int | None) -> str | None:
        return None if number is None else routes.space_time(detail.job_id, detail.run_id, number)

    tools = [
        cards.link_button("Previous", link(detail.previous_id), "left", hint="previous checkpoint"),
        cards.link_button("Next", link(detail.next_id), "right", hint="next checkpoint", is_icon_last=True),
        cards.link_button("Phases", here, "straggler", hint="phases and barrier front of this checkpoint"),
    ]
    return [
        html.Div([html.Div(crumbs, className="crumbs"), html.Div(title, className="title-row")]),
        html.Div(tools, className="head-tools"),
    ]


def _cut(cut: CutOut) -> Component:
    """Build the card that says whether the cut is consistent, and on which channels it is not."""
    word, icon, tone = _CUT_BADGES[cut.state]
    rows = [
        html.Li(
            f"{text.short(p.source, 40)} {p.source_subtask} → {text.short(p.target, 40)} {p.target_subtask}:"
            f" {text.size(p.size_bytes)} {_ERROR_WORDS[p.error]}"
        )
        for p in cut.problems[:_PROBLEMS_SHOWN]
    ]
    more = cut.problem_count - len(rows)
    if rows and more:
        rows.append(html.Li(f"and {more} more"))
    said = html.P([status.badge(word, icon, tone), " ", cut.sentence], className="cut-line")
    return html.Section(
        [said, html.Ul(rows) if rows else None],
        className="card st-cut",
        **attrs({"aria-label": "Consistency of the cut"}),
    )


def _vertices(diagram: SpaceTimeOut) -> list[Component]:
    """Build the buttons that open and close vertices. A diagram that is not folded needs none."""
    if not diagram.is_folded:
        return []
    names: dict[str, tuple[str, int]] = {}
    for lane in diagram.lanes:
        name, count = names.get(lane.vertex_id, (lane.vertex, 0))
        names[lane.vertex_id] = name, count + lane.subtask_count
    return [
        html.Span("Subtasks of", className="hint"),
        *(
            html.Button(
                [html.Span(text.short(name, 24)), html.Span(str(count))],
                id={"type": "st-toggle", "vertex": vertex_id},
                className="button",
                title=f"{name}: show or hide its {count} subtasks",
                **attrs({"aria-pressed": "true" if vertex_id in diagram.opened else "false"}),
            )
            for vertex_id, (name, count) in names.items()
        ),
    ]


def _notes(diagram: SpaceTimeOut, checkpoint: CheckpointDetailOut, at_ms: float | None) -> list[Component | str]:
    """Return what the diagram leaves out, and the link to the barrier front at the marked instant."""
    said: list[Component | str] = []
    if diagram.note is not None:
        said.append(html.P(f"The diagram is {diagram.note}."))
    if diagram.is_folded:
        single = sum(lane.subtask is not None for lane in diagram.lanes)
        said.append(
            html.P(
                f"{diagram.subtask_count} subtasks in {len(diagram.lanes)} lanes. {single} have a lane of their own:"
                " those on the critical path and the slowest of opened vertices. The others are folded."
            )
        )
    if at_ms is not None:
        view = CheckpointView(at_ms=round(at_ms))
        href = routes.checkpoint(checkpoint.job_id, checkpoint.run_id, checkpoint.checkpoint_id, view)
        said.append(html.P(dcc.Link(f"Barrier front at {words.at(at_ms)}", href=href, className="strong-link")))
    return said
