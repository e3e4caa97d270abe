"""The page of one job: verdict, timeline (V2), checkpoint in progress (V8) and backpressure."""

from __future__ import annotations

from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate

from dashboard import routes
from dashboard.callbacks import Changes, connect
from dashboard.client import ApiClient
from dashboard.components import brush, cards, micro_batch, progress
from dashboard.components.attributes import attrs
from dashboard.figures import timeline
from dashboard.pages import trend
from dashboard.pages.job import alerts, refresh
from dashboard.pages.job.parts import PRESSURE_NOW, timeline_legend


def layout(route: routes.Route) -> Component:
    """The page of one job before its first answer."""
    log_switch = html.Button(
        "Log scale",
        id="job-log",
        className="button",
        title="logarithmic duration axis",
        **attrs({"aria-pressed": "false"}),
    )
    return html.Div(
        [
            dcc.Store(id="job-route", data={"job": route.job}),
            dcc.Store(id="job-digest"),
            dcc.Store(id="job-title"),
            html.Div(id="job-message"),
            html.Div(id="job-head", className="page-head"),
            html.Div(id="job-alerts"),
            dcc.Store(id="job-alerts-digest"),
            html.Div(id="job-verdict"),
            html.Div(
                [
                    cards.chart(
                        "timeline",
                        "Checkpoints over time",
                        hint="click a mark to open its checkpoint; drag to choose a range",
                        tools=[log_switch],
                        before=html.Div(timeline_legend(None), id="timeline-legend", className="legend"),
                        after=brush.panel(route.selection.since_ms, route.selection.until_ms),
                        height_px=timeline.HEIGHT_PX,
                    ),
                    progress.panel("job"),
                ],
                className="columns",
                id="job-over-time",
            ),
            html.Div(
                [
                    html.Div(
                        cards.chart(
                            "pressure",
                            "Backpressure",
                            hint=html.Span(PRESSURE_NOW, id="job-pressure-hint"),
                        ),
                        id="job-pressure",
                    ),
                    html.Div(micro_batch.job_card(), id="job-micro-batches", style=micro_batch.HIDDEN),
                    cards.card("Settings and counts", html.Div(id="job-facts"), hint="as reported by the engine"),
                ],
                className="columns",
            ),
            trend.panel(),
            html.Div(id="job-recent"),
            html.Div(id="job-source"),
        ]
    )


def register(app: Dash, client: ApiClient) -> None:
    """Register the callbacks of the page."""
    refresh.register(app, client)
    alerts.register(app, client)
    connect(
        app,
        switch_log,
        output={"pressed": Output("job-log", "aria-pressed")},
        inputs={"clicks": Input("job-log", "n_clicks")},
        prevent_initial_call=True,
    )
    connect(
        app,
        open_checkpoint,
        output={"href": Output("url", "href")},
        inputs={"click": Input("timeline-graph", "clickData")},
        state={"route": State("job-route", "data")},
    )
    _register_range(app)


def switch_log(*, clicks: int | None) -> Changes:
    """The state of the button that makes the duration axis logarithmic."""
    return {"pressed": "true" if clicks and clicks % 2 else "false"}


def open_checkpoint(*, click: Any, route: dict[str, str]) -> Changes:
    """The address of the checkpoint whose mark was clicked."""
    try:
        run, number, *_ = click["points"][0]["customdata"]
    except (TypeError, KeyError, IndexError, ValueError):
        raise PreventUpdate from None
    return {"href": routes.checkpoint(route["job"], str(run), int(number))}


def _register_range(app: Dash) -> None:
    for function, trigger, rest in (
        ("brush", Input("timeline-graph", "selectedData"), (State("job-range", "data"),)),
        ("moveRange", Input("job-range-slider", "value"), (State("job-range", "data"), State("job-span", "data"))),
        ("clearRange", Input("job-range-clear", "n_clicks"), ()),
    ):
        app.clientside_callback(
            ClientsideFunction("bs", function),
            Output("job-range", "data", allow_duplicate=True),
            trigger,
            *rest,
            prevent_initial_call=True,
        )
    app.clientside_callback(
        ClientsideFunction("bs", "placeRange"),
        Output("job-range-clear", "hidden"),
        Input("job-range", "data"),
        Input("job-span", "data"),
    )
