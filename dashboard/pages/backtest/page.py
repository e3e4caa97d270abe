"""The layout of the page of a job's backtest. It has its final structure before any data arrives."""

from __future__ import annotations

from typing import Final

import dash_mantine_components as dmc
from dash import Dash, dcc, html
from dash.development.base_component import Component

from backend.domain.backtest import Part
from dashboard import routes
from dashboard.client import ApiClient
from dashboard.components import cards, freshness, status
from dashboard.components.attributes import attrs
from dashboard.figures import backtest as figures
from dashboard.pages.backtest import following

_POLL_MS: Final = 700
_PARTS: Final = {Part.VERDICT: "Verdicts", Part.ADVICE: "Advice", Part.WARNING: "Warnings of timeouts"}


def layout(route: routes.Route) -> Component:
    """Build the page without data, which the first answer adds."""
    return html.Div(
        [
            dcc.Store(id="backtest-route", data={"job": route.job}),
            dcc.Store(id="backtest-id", data=route.backtest),
            dcc.Store(id="backtest-pressed", data=0),
            dcc.Store(id="backtest-title"),
            # The backtest whose request the controls show.
            dcc.Store(id="backtest-filled"),
            dcc.Interval(id="backtest-tick", interval=_POLL_MS, disabled=True),
            html.Div(id="backtest-head", className="page-head awaited"),
            freshness.undated(),
            html.Div(id="backtest-message", **attrs({"aria-live": "polite"})),
            html.Section(_controls(), className="card backtest-controls", **attrs({"aria-label": "Request"})),
            # With a result to come, the page has its height from the beginning, so that its end does not move.
            html.Div(
                _results(), id="backtest-results", className=following.SHOWN if route.backtest else following.EMPTY
            ),
            cards.source_line(
                [
                    "Source: the stored checkpoints of this job",
                    "everything is computed from what was known at that time",
                ]
            ),
        ]
    )


def _controls() -> list[Component]:
    parts = dmc.CheckboxGroup(
        id="backtest-parts",
        label="What to replay",
        value=[part.value for part in _PARTS],
        children=html.Div(
            [dmc.Checkbox(label=word, value=part.value, size="md") for part, word in _PARTS.items()],
            className="backtest-parts",
        ),
    )
    count = html.Div(
        [
            html.Span("Newest checkpoints", className="hint", **attrs({"aria-hidden": "true"})),
            dmc.SegmentedControl(
                id="backtest-count",
                data=following.choices(following.FIRST_COUNT),
                value=str(following.FIRST_COUNT),
                size="sm",
                **attrs({"aria-label": "Number of the newest checkpoints"}),
            ),
        ],
        className="lab-field",
    )
    buttons = [
        html.Button(
            [status.icon("play"), html.Span("Run the backtest")], id="backtest-run", className="button primary"
        ),
        html.Button(
            [status.icon("cross"), html.Span("Cancel")], id="backtest-cancel", className="button", disabled=True
        ),
    ]
    return [
        html.Div([parts, count], className="backtest-choices"),
        html.Div(buttons, className="whatif-buttons"),
        html.Div(id="backtest-state", className="lab-status awaited", **attrs({"aria-live": "polite"})),
    ]


def _results() -> list[Component]:
    def words(name: str, title: str, hint: str) -> Component:
        return cards.card(title, html.Div(id=f"backtest-{name}"), hint=hint)

    return [
        words("verdict", "Verdicts", "the verdict at the end of each checkpoint, from what was known then"),
        cards.chart(
            "backtest-said",
            "What was said, and when",
            hint="a line is the time in which a cause was named",
            height_px=figures.SAID_HEIGHT_PX,
            after=html.Div(id="backtest-episodes"),
        ),
        words("advice", "Advice", "the cards that would have been opened; a replay accepts none of them"),
        cards.chart(
            "backtest-effects",
            "Predicted and measured durations",
            hint="a line is the predicted interval; the measured duration is drawn if the change was made",
            height_px=figures.EFFECTS_HEIGHT_PX,
            after=html.Div(id="backtest-cards"),
        ),
        words("warning", "Warnings of timeouts", "each checkpoint is looked at 40 times until its timeout"),
        cards.chart(
            "backtest-warnings",
            "When each warning would have come",
            hint="as a share of the timeout; lower is earlier",
            height_px=figures.WARNINGS_HEIGHT_PX,
        ),
    ]


def register(app: Dash, client: ApiClient) -> None:
    """Register the callbacks of the page."""
    following.register(app, client)
