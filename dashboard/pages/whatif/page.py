"""The layout of the page of what-ifs on a job. It has its final structure before any data arrives."""

from __future__ import annotations

from dash import Dash, dcc, html
from dash.development.base_component import Component

from dashboard import routes
from dashboard.client import ApiClient
from dashboard.components import cards, confirming, freshness, legends, status, time_slider, viewer_name
from dashboard.components.attributes import attrs
from dashboard.components.simulations import simulated
from dashboard.figures import whatif as figures
from dashboard.pages.whatif import answers, applying, controls
from dashboard.pages.whatif import confirming as confirmation

_POLL_MS = 700
_BETTER_MS = 4_000
"""While a better tier is being prepared, the page asks for its answer this often."""
_TITLES = {"a": "as it is", "b": "changed"}
_STORES = (
    *("proposed", "answered", "digest", "shown", "drawn", "sent", "then-digest", "ranges", "title", "ready"),
    *("followed", "settled", "again"),
)


def layout(route: routes.Route) -> Component:
    """Build the page without data, which the first answer adds."""
    chosen = route.what_if
    return html.Div(
        [
            dcc.Store(id="whatif-route", data={"job": route.job}),
            dcc.Store(id="whatif-wanted", data={"settings": dict(chosen.settings)}),
            dcc.Store(id="whatif-confirmation", data=chosen.confirmation),
            dcc.Store(id="whatif-pressed", data=0),
            dcc.Store(id="whatif-refill", data=0),
            *(dcc.Store(id=f"whatif-{name}") for name in _STORES),
            dcc.Interval(id="whatif-tick", interval=_POLL_MS, disabled=True),
            dcc.Interval(id="whatif-better", interval=_BETTER_MS, disabled=True),
            cards.retry(answers.ANSWER_RETRY),
            cards.retry(answers.FILL_RETRY),
            confirming.dialog("whatif-change", "Change the running job", "Apply now", icon="bolt", has_guard=True),
            html.Div(html.Div(html.H1("What if")), id="whatif-head", className="page-head"),
            html.Div(id="whatif-message", **attrs({"aria-live": "polite"})),
            html.Div(freshness.undated(), id="whatif-job-stale"),
            html.Section(
                [
                    html.Div(id="whatif-sliders", className="awaited"),
                    html.Div(controls.buttons(has_proposal=False), className="whatif-buttons"),
                ],
                id="whatif-controls",
                className="card whatif-controls",
                **attrs({"aria-label": "Changed settings"}),
            ),
            html.Div(id="whatif-stale", **attrs({"aria-live": "polite"})),
            html.Div(_results(), id="whatif-results", className="whatif-results"),
            _confirmation(),
            cards.card(
                "What then happened",
                [html.Div(id="whatif-then-message"), html.Div(id="whatif-then")],
                hint="kept predictions, and what was measured",
            ),
            cards.source_line(
                ["Source: a model of this job, built from what was collected", "every prediction has an interval"]
            ),
        ]
    )


def _results() -> list[Component]:
    return [
        html.Section(
            [html.Div(id="whatif-said", className="awaited"), html.Div(id="whatif-table")],
            className="card",
            **attrs({"aria-label": "Prediction", "aria-live": "polite"}),
        ),
        html.Div(
            [
                cards.chart(
                    "whatif-durations",
                    "Durations before and after",
                    hint="each point is a checkpoint; a band holds 90 %",
                    height_px=figures.DURATIONS_HEIGHT_PX,
                ),
                cards.chart(
                    "whatif-pareto",
                    "Duration against persisted data",
                    hint="down and to the left is better",
                    height_px=figures.PARETO_HEIGHT_PX,
                ),
            ],
            className="whatif-charts",
        ),
        cards.card(
            "What a failure would cost",
            html.Div(id="whatif-failures"),
            hint="for each kind of failure: the restart, the input read again, and the catch-up",
        ),
        html.Div(
            [
                cards.card(
                    "Change",
                    [
                        html.Div(id="whatif-change"),
                        html.Div(viewer_name.field("whatif"), className="whatif-name"),
                    ],
                    hint="in the engine's own keys",
                ),
                cards.card(
                    "How far to trust it", html.Div(id="whatif-trust"), hint="the model's error, and assumptions"
                ),
            ],
            className="whatif-charts",
        ),
    ]


def _confirmation() -> Component:
    buttons = [
        html.Button(
            [status.icon("play"), html.Span("Confirm on the runtime")],
            id="whatif-confirm",
            className="button primary",
            disabled=True,
        ),
        html.Button([status.icon("cross"), html.Span("Cancel")], id="whatif-cancel", className="button", disabled=True),
    ]
    return html.Div(
        [
            cards.card(
                "Confirmation",
                [
                    html.Div(id="whatif-state", className="lab-status", **attrs({"aria-live": "polite"})),
                    html.Div(buttons, className="whatif-buttons"),
                    html.Div(id="whatif-confirmed"),
                ],
                hint=html.Span(["the reference runtime ", simulated()]),
            ),
            html.Div(
                [time_slider.time_slider("whatif"), *(_pair(kind) for kind in confirmation.KINDS)],
                id="whatif-runs",
                className=confirmation.EMPTY,
            ),
        ]
    )


def _pair(kind: str) -> Component:
    title = {"front": "Barrier front", "space-time": "Space-time diagram"}[kind]
    before = {"front": legends.front, "space-time": legends.space_time}[kind]
    return html.Div(
        [
            cards.chart(
                f"whatif-{kind}-{side}", f"{title}, {_TITLES[side]}", hint="simulated", before=before(), height_px=320
            )
            for side in confirmation.SIDES
        ],
        className="whatif-charts",
    )


def register(app: Dash, client: ApiClient) -> None:
    """Register the callbacks of the page."""
    answers.register(app, client)
    confirmation.register(app, client)
    applying.register(app, client)
