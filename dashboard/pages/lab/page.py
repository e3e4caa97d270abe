"""The layout of the Lab page. It has its final size before any data arrives."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import Dash, dcc, html
from dash.development.base_component import Component

from dashboard import routes
from dashboard.client import ApiClient
from dashboard.components import cards, freshness, legends, status, time_slider
from dashboard.components.attributes import attrs
from dashboard.components.simulations import simulated
from dashboard.figures import timeline
from dashboard.pages.lab import charts, controls, curve, guide, refresh
from dashboard.pages.lab.details import AXES, AXES_WORDS, KINDS, SIDES, Axes

_POLL_MS = 500
_TITLES = {
    "timeline": ("checkpoints over virtual time", "click a checkpoint to see it below"),
    "gantt": ("phases by subtask", "times since the trigger"),
    "front": ("barrier front", "position of the barrier at the time of the slider"),
    "space-time": ("space-time diagram", "the line is the time of the slider"),
}


def layout(route: routes.Route) -> Component:
    """Build the page without data, which the first refresh adds."""
    wanted, chosen = dict(route.lab.wanted), route.lab
    return html.Div(
        [
            dcc.Store(id="lab-wanted", data=wanted),
            dcc.Store(id="lab-pressed", data=0),
            dcc.Store(id="lab-shown"),
            dcc.Store(id="lab-digest"),
            dcc.Store(id="lab-problems"),
            dcc.Store(id="lab-checkpoint", data=chosen.checkpoint),
            dcc.Store(id="lab-given-at", data=chosen.at_ms),
            dcc.Store(id="lab-title", data="Lab"),
            *(dcc.Store(id=f"lab-{k}-{s}-{what}") for k in KINDS for s in SIDES for what in ("visible", "digest")),
            dcc.Interval(id="lab-tick", interval=_POLL_MS, disabled=True),
            cards.retry(controls.FILL_RETRY),
            html.Div(id="lab-message"),
            freshness.undated(),
            html.Div(
                html.Div(
                    [
                        html.H1("Lab"),
                        html.P(
                            "Run a job on the reference runtime with one or two checkpoint protocols, and see what they"
                            " do. The same settings and seed always give the same result.",
                            className="hint",
                        ),
                    ]
                ),
                className="page-head",
            ),
            html.Section(controls.controls(wanted), className="card lab-controls", **attrs({"aria-label": "Request"})),
            curve.block(chosen.caps),
            html.Section(
                html.P("reading", className="hint"),
                id="lab-status",
                className="card lab-status",
                **attrs({"aria-label": "State of the simulation", "aria-live": "polite"}),
            ),
            html.Div(_results(chosen.at_ms), id="lab-results", className=refresh.AWAITED),
        ]
    )


def _results(at_ms: int | None) -> list[Component]:
    return [
        html.Div(id="lab-differences"),
        _pair("timeline"),
        _picker(),
        html.Div([html.Section(id=f"lab-head-{s}", className=f"card lab-side-{s}", **_side(s)) for s in SIDES],
                 className="lab-pair"),
        _pair("gantt"),
        time_slider.time_slider("lab", at_ms),
        _pair("front"),
        _pair("space-time"),
        cards.source_line(
            [
                "Source: simulations of the reference runtime, in the role lab",
                "times are virtual",
                html.Span(
                    [simulated(), " numbers: measured in a simulation, so a prediction for a job that really runs"]
                ),
            ]
        ),
    ]  # fmt: skip


def _side(side: str) -> dict[str, Any]:
    return attrs({"aria-label": f"Checkpoint of protocol {side.upper()}"})


def _pair(kind: str) -> Component:
    title, hint = _TITLES[kind]
    before = {"gantt": legends.gantt, "front": legends.front, "space-time": legends.space_time}.get(kind)
    return html.Div(
        [
            html.Div(
                cards.chart(
                    f"lab-{kind}-{side}",
                    f"{side.upper()}: {title}",
                    hint=html.Span([hint, " · simulated"]),
                    before=None if before is None else before(),
                    height_px=timeline.HEIGHT_PX,
                ),
                className=f"lab-side-{side}",
            )
            for side in SIDES
        ],
        className="lab-pair",
    )


def _picker() -> Component:
    return html.Section(
        [
            html.Strong("Checkpoint"),
            html.Button(
                status.icon("left"), id="lab-back", className="button", title="previous checkpoint",
                **attrs({"aria-label": "previous checkpoint"}),
            ),
            dmc.Select(
                id="lab-pick", data=[], value=None, allowDeselect=False, size="xs", w=170,
                **attrs({"aria-label": "Checkpoint"}),
            ),
            html.Button(
                status.icon("right"), id="lab-forth", className="button", title="next checkpoint",
                **attrs({"aria-label": "next checkpoint"}),
            ),
            html.Span("its number, and how it ended in A / in B", className="hint"),
            html.Div(
                [
                    cards.choice("Axes", AXES, {Axes.SAME: "same axes", Axes.OWN: "own axes"}, Axes.SAME, width_px=112),
                    html.Span(AXES_WORDS[Axes.SAME], id=f"{AXES}-words", className="hint", role="status"),
                ],
                className="lab-axes",
            ),
        ],
        className="card lab-picker",
        **attrs({"aria-label": "Choice of a checkpoint"}),
    )  # fmt: skip


def register(app: Dash, client: ApiClient) -> None:
    """Register the callbacks of the page."""
    controls.register(app, client)
    refresh.register(app, client)
    charts.register(app, client)
    curve.register(app, client)
    guide.register(app, client)
