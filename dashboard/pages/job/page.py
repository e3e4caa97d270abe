"""The page of one job: verdict, timeline (V2), checkpoint in progress (V8), backpressure and heatmap (V6)."""

from __future__ import annotations

from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate

from dashboard import routes
from dashboard.callbacks import Changes, connect
from dashboard.client import ApiClient
from dashboard.components import cards, micro_batch, progress
from dashboard.components.attributes import attrs
from dashboard.figures import timeline
from dashboard.pages import subtask_heatmap, trend
from dashboard.pages.job import alerts, range_picker, refresh
from dashboard.pages.job.parts import PRESSURE_NOW, timeline_legend


def layout(route: routes.Route) -> Component:
    """Build the page without data, which the first refresh adds."""
    return html.Div(
        [
            dcc.Store(id="job-route", data={"job": route.job}),
            dcc.Store(id="job-digest"),
            dcc.Store(id="job-title"),
            html.Div(id="job-message"),
            html.Div(id="job-stale"),
            html.Div(id="job-head", className="page-head"),
            html.Div(id="job-alerts", className="awaited"),
            dcc.Store(id="job-alerts-digest"),
            html.Div(id="job-verdict", className="awaited"),
            html.Div(
                [
                    html.Div([_timeline(route), html.Div(id="job-facts")], className="stack"),
                    progress.panel("job"),
                ],
                className="columns",
                id="job-over-time",
            ),
            html.Div(_pressure(), id="job-pressure"),
            html.Div(micro_batch.job_card(), id="job-micro-batches", style=micro_batch.HIDDEN),
            subtask_heatmap.panel(route.job_view),
            html.Div(trend.panel(), id="job-trend"),
            html.Div(id="job-recent"),
            html.Div(id="job-source"),
        ]
    )


def _timeline(route: routes.Route) -> Component:
    log_switch = html.Button(
        "Log scale",
        id="job-log",
        className="button",
        title="logarithmic duration axis",
        **attrs({"aria-pressed": "true" if route.job_view.is_log else "false"}),
    )
    changes = html.Div(id="job-changes", className="job-changes hint")
    return cards.chart(
        "timeline",
        "Checkpoints over time",
        hint="click a mark to open its checkpoint; drag to zoom in",
        tools=[log_switch],
        before=html.Div(timeline_legend(None), id="timeline-legend", className="legend"),
        after=html.Div([range_picker.panel(route.job_view), changes]),
        height_px=timeline.HEIGHT_PX,
    )


def _pressure() -> Component:
    legend = [html.Span([html.Span(className=f"swatch share-{s}"), s]) for s in ("busy", "backpressured", "idle")]
    return cards.chart(
        "pressure",
        "Backpressure",
        hint=html.Span(PRESSURE_NOW, id="job-pressure-hint"),
        before=html.Div(legend, className="legend"),
    )


def register(app: Dash, client: ApiClient) -> None:
    """Register the callbacks of the page."""
    refresh.register(app, client)
    alerts.register(app, client)
    app.clientside_callback(
        ClientsideFunction("bs", "togglePressed"),
        Output("job-log", "aria-pressed"),
        Input("job-log", "n_clicks"),
        State("job-log", "aria-pressed"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("bs", "linkLog"), Input("job-log", "aria-pressed"), prevent_initial_call=True
    )
    connect(
        app,
        open_checkpoint,
        output={"href": Output("url", "href")},
        inputs={"click": Input("timeline-graph", "clickData")},
        state={"route": State("job-route", "data")},
    )
    range_picker.register(app)


def open_checkpoint(*, click: Any, route: dict[str, str]) -> Changes:
    """Return the address of the checkpoint whose mark was clicked."""
    try:
        run, number, *_ = click["points"][0]["customdata"]
    except (TypeError, KeyError, IndexError, ValueError):
        raise PreventUpdate from None
    if run is None:
        # A step has no page, because it stands for several checkpoints.
        raise PreventUpdate
    return {"href": routes.checkpoint(route["job"], str(run), int(number))}
