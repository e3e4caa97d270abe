"""The page of one checkpoint: verdict, phases (V3), barrier front (V5) and evidence.

The page's address contains the opened vertices, the order of subtasks, the picked subtask and the position of the
scrubber.
"""

from __future__ import annotations

import dash_mantine_components as dmc
from dash import Dash, dcc, html
from dash.development.base_component import Component

from dashboard import routes
from dashboard.checkpoint_address import CheckpointView, SubtaskOrder
from dashboard.client import ApiClient
from dashboard.components import cards, legends, micro_batch, progress, scrubber
from dashboard.components.attributes import attrs
from dashboard.figures.front.heat import WORDS as HEAT_WORDS
from dashboard.pages.checkpoint import front, inspection, refresh, selection

_SORT_WORDS = {
    SubtaskOrder.INDEX: "index",
    SubtaskOrder.FINISH: "finish",
    SubtaskOrder.START_DELAY: "first barrier",
    SubtaskOrder.ALIGNMENT: "alignment",
    SubtaskOrder.ASYNC: "async",
    SubtaskOrder.HOST: "host",
}


def layout(route: routes.Route) -> Component:
    """Build the page without data, which the first refresh adds."""
    chosen = route.checkpoint_view
    return html.Div(
        [
            dcc.Store(id="cp-route", data={"job": route.job, "run": route.run, "checkpoint": route.checkpoint}),
            dcc.Store(id="cp-digest"),
            dcc.Store(id="cp-title"),
            dcc.Store(id="cp-opened", data=None if chosen.opened is None else list(chosen.opened)),
            dcc.Store(id="cp-picked", data=chosen.picked),
            dcc.Store(id="front-at", data=chosen.at_ms),
            dcc.Store(id="front-opens"),
            dcc.Store(id="front-steps"),
            dcc.Store(id="front-map-data"),
            dcc.Store(id="front-centre", data=chosen.centre),
            html.Div(id="cp-message"),
            html.Div(id="cp-stale"),
            html.Div(id="cp-head", className="page-head"),
            html.Div(id="cp-verdict", className="awaited"),
            inspection.panel(),
            html.Div(id="cp-facts"),
            html.Div(progress.panel("cp"), id="cp-progress", style={"display": "none"}),
            html.Div(micro_batch.card(), id="cp-batch-views", style=micro_batch.HIDDEN),
            html.Div(_barrier_views(chosen), id="cp-barrier-views"),
            html.Div(id="cp-evidence"),
            html.Div(id="cp-source"),
        ]
    )


def _barrier_views(chosen: CheckpointView) -> list[Component]:
    return [
        cards.chart(
            "gantt",
            "Phases",
            hint="times since the trigger; a closed vertex shows its slowest subtask",
            tools=_gantt_tools(chosen.sort),
            before=html.Div([legends.gantt(), html.Div(id="cp-vertices", className="vertices")]),
            after=html.Div(id="cp-picked-panel", className="picked", **attrs({"aria-live": "polite"})),
            is_scrolled=True,
        ),
        cards.chart(
            "front",
            "Barrier front",
            hint="position of the barrier at the time of the slider",
            tools=_front_tools(chosen),
            before=legends.front(html.Span(id="front-heat-scale"), html.Span(id="front-basis")),
            after=html.Div([_front_below(), scrubber.scrubber(chosen.at_ms)]),
        ),
    ]


def _gantt_tools(sort: SubtaskOrder) -> list[Component]:
    return [
        cards.choice(
            "Subtasks by",
            "gantt-sort",
            {order.value: word for order, word in _SORT_WORDS.items()},
            sort.value,
            width_px=124,
        ),
        html.Button(
            "Open all", id="gantt-open-all", className="button", title="show or hide the subtasks of all vertices"
        ),
        html.Button(
            "Critical path",
            id="gantt-path",
            className="button",
            title="pin the critical path",
            **attrs({"aria-pressed": "true"}),
        ),
    ]


def _front_tools(chosen: CheckpointView) -> list[Component]:
    words = {heat.value: word for heat, word in HEAT_WORDS.items()}
    find: list[Component] = [
        dmc.Select(
            id="front-find",
            data=[] if chosen.found is None else [{"value": chosen.found, "label": chosen.found}],
            value=chosen.found,
            placeholder="Find a vertex",
            searchable=True,
            clearable=True,
            nothingFoundMessage="No vertex has this name",
            size="xs",
            w=190,
            **attrs({"aria-label": "Find a vertex"}),
        ),
        html.Button(
            "Fold the rest",
            id="front-fold",
            className="button",
            title="show only what is near the vertex that was found",
            disabled=chosen.found is None,
            **attrs({"aria-pressed": "true" if chosen.is_folded else "false"}),
        ),
    ]
    return [
        html.Div(find, id="front-finder", className="finder"),
        cards.choice("Heat", "front-heat", words, chosen.heat.value, width_px=140),
    ]


def _front_below() -> Component:
    """Build the map of a large graph, and the five instants that viewers who prefer reduced motion see."""
    still = dcc.Graph(id="front-multiples", config={"staticPlot": True, "responsive": True}, style={"height": "100%"})
    return html.Div(
        [
            html.Div(id="front-map", className="graph-map", title="click or drag to move the visible part"),
            html.Figure(
                [
                    html.Div(still, id="front-multiples-box", **attrs({"aria-hidden": "true"})),
                    html.Figcaption(id="front-multiples-words", className="visually-hidden"),
                ],
                className="figure when-still",
            ),
        ]
    )


def register(app: Dash, client: ApiClient) -> None:
    """Register the callbacks of the page."""
    refresh.register(app, client)
    front.register(app, client)
    selection.register(app, client)
    inspection.register(app, client)
