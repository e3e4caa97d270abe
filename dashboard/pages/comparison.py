"""The page that compares two checkpoints: settings, what differs most, both phase charts on one axis, load.

The store ``comparison-chosen`` contains what the viewer chose: ``a`` and ``b`` as ``run:checkpoint``, the job of ``b``
if it is another one, the opened vertex, and the order of the vertices. The address of the page contains the same.
Without ``b``, the API chooses the last healthy checkpoint before ``a``. Until the viewer chooses ``a``, the address has
the one that the page shows. Of another job, it also has ``b``, because what is the last one there changes.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from dash import ALL, ClientsideFunction, Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate

from backend.contracts.api import CheckpointOut
from backend.contracts.comparing import CheckpointComparisonOut
from backend.contracts.freshness import FreshnessOut
from backend.domain.errors import ApiRefusedError
from backend.domain.verdict import Phase
from dashboard import routes
from dashboard.callbacks import Changes, connect, pressed_id
from dashboard.client import ApiClient
from dashboard.compare_address import Compared
from dashboard.components import cards, comparing, freshness, job_picker, status
from dashboard.components.attributes import attrs
from dashboard.figures import comparison
from dashboard.live import Look, digest, look_of
from dashboard.pages import job_search
from dashboard.palette import PHASE_WORDS

_TOPOLOGY, _DIFFERENCE = "topology", "difference"


def layout(route: routes.Route) -> Component:
    """Build the page without data, which the first refresh adds."""
    chosen = route.compared
    data = {"a": chosen.a, "b": chosen.b, "with": chosen.other, "vertex": chosen.vertex, "order": _order(chosen)}
    return html.Div(
        [
            dcc.Store(id="comparison-route", data={"job": route.job}),
            dcc.Store(id="comparison-chosen", data=data),
            dcc.Store(id="comparison-digest"),
            dcc.Store(id="comparison-title"),
            html.Div(id="comparison-message"),
            html.Div(id="comparison-stale"),
            html.Div(
                [
                    html.Div([html.Div(id="comparison-crumbs", className="crumbs"), html.H1("Compare checkpoints")]),
                    html.Div(
                        html.Button(
                            [status.icon("swap"), html.Span("Swap A and B")], id="comparison-swap", className="button"
                        ),
                        className="head-tools",
                    ),
                ],
                className="page-head",
            ),
            html.Div(id="comparison-settings"),
            html.Div(id="comparison-headline", className="awaited"),
            html.Div([_side(side) for side in comparing.SIDES], className="comparison-sides"),
            html.Div(
                cards.chart(
                    "comparison",
                    "Phases",
                    hint="upper row A, lower row B; right: the difference of each phase at the slowest subtask. "
                    "Start delay includes the delay that arose upstream",
                    is_scrolled=True,
                    tools=[
                        cards.choice(
                            "Vertices by",
                            "comparison-order",
                            {_TOPOLOGY: "topology", _DIFFERENCE: "difference"},
                            _order(chosen),
                            width_px=112,
                        )
                    ],
                    before=html.Div([_legend(), html.Div(id="comparison-vertices", className="vertices")]),
                    height_px=320,
                ),
                id="comparison-views",
            ),
            html.Div(id="comparison-load"),
            html.Div(id="comparison-source"),
        ]
    )


def _order(chosen: Compared) -> str:
    return _DIFFERENCE if chosen.is_by_difference else _TOPOLOGY


def _side(side: str) -> Component:
    letter = side.upper()
    return html.Section(
        [html.Div(id=f"comparison-{side}"), comparing.controls(side)],
        className=f"card comparison-side comparison-side-{side}",
        **attrs({"aria-label": f"Side {letter}"}),
    )


def _legend() -> Component:
    phases = [html.Span([html.Span(className=f"swatch phase-{p.value}"), PHASE_WORDS[p]]) for p in Phase]
    pending = html.Span([html.Span(className="swatch state-pending"), "not acknowledged"])
    return html.Div([*phases, pending], className="legend", id="comparison-legend")


def register(app: Dash, client: ApiClient) -> None:
    """Register the callbacks of the page."""
    connect(
        app,
        partial(refresh, client),
        output={
            "message": Output("comparison-message", "children"),
            "stale": Output("comparison-stale", "children"),
            "crumbs": Output("comparison-crumbs", "children"),
            "headline": Output("comparison-headline", "children"),
            "a": Output("comparison-a", "children"),
            "b": Output("comparison-b", "children"),
            "a_options": Output("comparison-a-recent", "data"),
            "b_options": Output("comparison-b-recent", "data"),
            "a_value": Output("comparison-a-recent", "value"),
            "b_value": Output("comparison-b-recent", "value"),
            "jobs": Output(comparing.OTHER_JOB, "data"),
            "job": Output(comparing.OTHER_JOB, "value"),
            "legend_style": Output("comparison-legend", "style"),
            "views_style": Output("comparison-views", "style"),
            "vertices": Output("comparison-vertices", "children"),
            "chart": cards.chart_outputs("comparison"),
            "load": Output("comparison-load", "children"),
            "settings": Output("comparison-settings", "children"),
            "source": Output("comparison-source", "children"),
            "title": Output("comparison-title", "data"),
            "digest": Output("comparison-digest", "data"),
        },
        inputs={
            "tick": Input("status-tick", "n_intervals"),
            "look": Input("look", "data"),
            "chosen": Input("comparison-chosen", "data"),
        },
        state={"route": State("comparison-route", "data"), "before": State("comparison-digest", "data")},
    )
    connect(
        app,
        choose,
        output={
            "chosen": Output("comparison-chosen", "data", allow_duplicate=True),
            "href": Output("url", "href", allow_duplicate=True),
        },
        inputs={
            "other": Input(comparing.OTHER_JOB, "value"),
            "swaps": Input("comparison-swap", "n_clicks"),
            "a_previous": Input("comparison-a-previous", "n_clicks"),
            "a_next": Input("comparison-a-next", "n_clicks"),
            "b_previous": Input("comparison-b-previous", "n_clicks"),
            "b_next": Input("comparison-b-next", "n_clicks"),
            "a_recent": Input("comparison-a-recent", "value"),
            "b_recent": Input("comparison-b-recent", "value"),
            "a_id": Input("comparison-a-id", "value"),
            "b_id": Input("comparison-b-id", "value"),
            "order": Input("comparison-order", "value"),
            "click": Input("comparison-graph", "clickData"),
            "toggles": Input({"type": "comparison-vertex", "vertex": ALL}, "n_clicks"),
        },
        state={"before": State("comparison-chosen", "data"), "shown": State("comparison-digest", "data")},
        has_trigger=True,
        prevent_initial_call=True,
    )
    job_search.register(app, client, comparing.OTHER_JOB)
    app.clientside_callback(
        ClientsideFunction("bs", "placeComparison"),
        Input("comparison-chosen", "data"),
        Input("comparison-digest", "data"),
        prevent_initial_call=True,
    )


async def refresh(
    client: ApiClient,
    *,
    tick: int | None,
    look: object,
    chosen: dict[str, Any],
    route: dict[str, str],
    before: dict[str, Any] | None,
) -> Changes:
    """Return the contents of the page. ``before`` is the ``digest`` output of the previous call."""
    view, job = look_of(look), route["job"]
    other = chosen["with"]
    recent = (await client.checkpoints(job)).items
    beside = recent if other is None else (await client.checkpoints(other)).items
    a = (
        chosen["a"]
        or (before and before["a"]["key"])
        or next((comparing.value_of(c) for c in recent if c.status.is_terminal), None)
    )
    if a is None:
        answer = await client.job(job)
        return {
            "crumbs": _crumbs(job, answer.name),
            "headline": cards.card("Nothing to compare", html.P("No checkpoint of this job has ended yet.")),
            "title": f"Compare checkpoints of {answer.name}",
        }
    try:
        compared = await client.comparison(job, a, chosen["b"], chosen["vertex"], other=other)
    except ApiRefusedError as problem:
        if before is None:
            raise
        # The viewer typed an id that does not exist. The page keeps what it shows, so that another can be chosen.
        return {"message": cards.answer(False, f"{problem}. The page still shows the checkpoints from before.")}
    now = digest(compared, view, chosen, [(c.checkpoint_id, c.status, c.is_lost) for c in [*recent, *beside]])
    if before and before["drawn"] == now:
        return {"message": None}
    contents = _contents(compared, (recent, beside), view, chosen)
    own = compared.a.job if compared.b is None else compared.b.job
    if compared.b is None and other is not None:
        named = await client.job(other)
        own = own.model_copy(update={"id": named.id, "name": named.name, "target_name": named.target_name})
    if before is None or before["picked"] != own.id:
        # Otherwise the viewer may be searching, and the answers stay.
        contents["jobs"], contents["job"] = job_picker.chosen(own)
    return contents | {"digest": _shown(compared) | {"drawn": now, "with": other, "picked": own.id}}


def _contents(
    checkpoint_comparison: CheckpointComparisonOut,
    recent: tuple[list[CheckpointOut], list[CheckpointOut]],
    view: Look,
    chosen: dict[str, Any],
) -> Changes:
    chart = comparison.comparison(
        checkpoint_comparison,
        theme=view.theme,
        is_by_difference=chosen["order"] == _DIFFERENCE,
        is_narrow=view.is_narrow,
    )
    changes: Changes = {
        "message": None,
        "stale": freshness.of_sides(_dated(checkpoint_comparison)),
        "crumbs": _crumbs(checkpoint_comparison.job_id, checkpoint_comparison.job),
        "headline": comparing.headline(checkpoint_comparison),
        "legend_style": {"display": "none"} if checkpoint_comparison.batch_parts else {},
        "views_style": {"display": "none"} if checkpoint_comparison.b is None else {"display": "block"},
        "vertices": comparing.vertex_buttons(checkpoint_comparison),
        "chart": cards.chart_values("comparison", chart),
        "load": comparing.load(checkpoint_comparison),
        "settings": comparing.settings(checkpoint_comparison),
        "source": comparing.source(checkpoint_comparison),
        "title": f"{' and '.join(comparison.names(checkpoint_comparison))} of {checkpoint_comparison.job}",
    }
    is_named = chosen["with"] is not None
    for side, one, listed in (("a", checkpoint_comparison.a, recent[0]), ("b", checkpoint_comparison.b, recent[1])):
        changes[side] = comparing.side(one, side.upper(), view.where, is_named=is_named)
        changes[f"{side}_options"], changes[f"{side}_value"] = comparing.options(listed, one, view.where)
    return changes


def _dated(checkpoint_comparison: CheckpointComparisonOut) -> list[tuple[str, FreshnessOut | None]]:
    """Return the freshness of both checkpoints with their names. A second one that is not there yet may come."""
    sides = zip(
        comparison.names(checkpoint_comparison), (checkpoint_comparison.a, checkpoint_comparison.b), strict=True
    )
    return [(f"Checkpoint {name}", None if side is None else side.freshness) for name, side in sides]


def _crumbs(job: str, name: str) -> list[Component | str]:
    return [dcc.Link("Fleet", href=routes.fleet()), " / ", dcc.Link(name, href=routes.job(job))]


def _shown(checkpoint_comparison: CheckpointComparisonOut) -> dict[str, Any]:
    """Return what the callback ``choose`` needs to know: both checkpoints and their neighbours."""
    return {
        side: None
        if one is None
        else {
            "key": comparing.value_of(one.checkpoint),
            "job": one.job.id,
            "run": one.checkpoint.run_id,
            "previous": one.previous_id,
            "next": one.next_id,
        }
        for side, one in (("a", checkpoint_comparison.a), ("b", checkpoint_comparison.b))
    }


def choose(
    *,
    other: str | None,
    swaps: int | None,
    a_previous: int | None,
    a_next: int | None,
    b_previous: int | None,
    b_next: int | None,
    a_recent: str | None,
    b_recent: str | None,
    a_id: str | None,
    b_id: str | None,
    order: str | None,
    click: Any,
    toggles: list[int | None],
    before: dict[str, Any],
    shown: dict[str, Any] | None,
    trigger: object,
) -> Changes:
    """Return what is compared after the viewer used one of the controls."""
    if shown is None:
        raise PreventUpdate
    now = dict(before)
    if isinstance(trigger, dict):
        pressed = pressed_id(toggles, trigger)
        if pressed is None:
            raise PreventUpdate
        now["vertex"] = _toggled(before["vertex"], pressed["vertex"])
    elif trigger == "comparison-graph":
        now["vertex"] = _toggled(before["vertex"], _clicked(click))
    elif trigger == "comparison-order":
        now["order"] = order
    elif trigger == comparing.OTHER_JOB:
        own = shown["a"]["job"]
        now["with"] = None if other in (None, own) else other
        if now["with"] != before["with"]:
            now["a"], now["b"], now["vertex"] = shown["a"]["key"], None, None
    elif trigger == "comparison-swap":
        if shown["b"] is None or not swaps:
            raise PreventUpdate
        if before["with"] is not None:
            # The job of A is part of the path.
            a, b = (_pair(shown[side]) for side in ("b", "a"))
            return {"href": routes.comparison(shown["b"]["job"], a, b, other=shown["a"]["job"])}
        now["a"], now["b"] = shown["b"]["key"], shown["a"]["key"]
    else:
        _, side, control = str(trigger).split("-")
        values = {"recent": (a_recent, b_recent), "id": (a_id, b_id)}.get(control, (None, None))
        # Without a checkpoint of another job, its run is not known.
        beside = shown["a"] if before["with"] is None else {"run": "", "previous": None, "next": None}
        key = _key(shown[side] or beside, control, values[side == "b"])
        if key is None or (shown[side] is not None and key == shown[side]["key"]):
            # This is no choice of the viewer: the page has set the list to the checkpoint that it shows.
            raise PreventUpdate
        now[side] = key
        if before["with"] is not None:
            # The checkpoints of two jobs cannot be the same one.
            now["b" if side == "a" else "a"] = before["b"] if side == "a" else shown["a"]["key"]
        elif side == "a" and shown["b"] is not None and (before["b"] is not None or key == shown["b"]["key"]):
            # The viewer's choice of B stays. If the viewer chooses the same checkpoint as A, the two sides are swapped.
            now["b"] = shown["a"]["key"] if key == shown["b"]["key"] else before["b"]
        elif side == "b" and key == shown["a"]["key"] and shown["b"] is not None:
            now["a"] = shown["b"]["key"]
        elif side == "b":
            now["a"] = shown["a"]["key"]
    if now == before:
        raise PreventUpdate
    return {"chosen": now}


def _key(one: dict[str, Any], control: str, value: str | None) -> str | None:
    """Return the checkpoint that a control of one side names, as ``run:checkpoint``."""
    if control in ("previous", "next"):
        return None if one[control] is None else f"{one['run']}:{one[control]}"
    words = (value or "").strip().removeprefix("#")
    # A number alone is a checkpoint of the run that this side shows.
    if words.isdecimal():
        return f"{one['run']}:{words}" if one["run"] else None
    return words or None


def _pair(one: dict[str, Any]) -> tuple[str, int]:
    run, _, number = str(one["key"]).rpartition(":")
    return run, int(number)


def _clicked(click: Any) -> str:
    try:
        vertex = click["points"][0]["customdata"][0]
    except (TypeError, KeyError, IndexError):
        raise PreventUpdate from None
    if vertex is None:
        raise PreventUpdate
    return str(vertex)


def _toggled(opened: str | None, vertex: str) -> str | None:
    return None if opened == vertex else vertex
