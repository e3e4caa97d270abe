"""Builds the time scrubber under the barrier front: slider, step buttons and play button.

For viewers who prefer reduced motion there is no play button. The page shows five instants side by side instead.

``barrierscope.js`` moves the slider.
"""

from __future__ import annotations

import dash_mantine_components as dmc
from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component

from dashboard.components import cards, status
from dashboard.components.attributes import attrs

# The choices for the play speed, as multiples of real time. ``0`` plays the whole checkpoint in 6 s.
_SPEEDS = {"0": "in 6 s", "0.1": "0.1×", "1": "1×", "5": "5×", "10": "10×", "50": "50×"}

# The right end of the slider until the checkpoint has been read.
_UNKNOWN_END_MS = 1000


def scrubber(at_ms: int | None) -> Component:
    """Build the scrubber with its slider at ``at_ms`` since the trigger; None puts it at the end."""
    return html.Div(
        [
            html.Div(
                [
                    html.Button(
                        status.icon("left"), id="front-back", className="button", title="previous event (left arrow)",
                        **attrs({"aria-label": "step to the previous event"}),
                    ),
                    html.Button(
                        status.icon("right"), id="front-next", className="button", title="next event (right arrow)",
                        **attrs({"aria-label": "step to the next event"}),
                    ),
                    *_play_tools(),
                ],
                className="buttons",
            ),
            dmc.Slider(
                id="front-slider",
                min=0,
                max=_UNKNOWN_END_MS,
                step=1,
                # The slider has a value even before the data arrives, because screen readers need one.
                value=_UNKNOWN_END_MS if at_ms is None else at_ms,
                label=None,
                thumbLabel="time since the trigger in milliseconds",
                updatemode="drag",
                size="sm",
                color="blue",
                thumbSize=24,
            ),
            html.Div(id="front-position", className="at", **attrs({"aria-live": "polite"})),
        ],
        id="front-scrubber",
        className="scrubber",
    )  # fmt: skip


def _play_tools() -> list[Component]:
    return [
        html.Button(
            [html.Span(id="front-play-icon", className="icon icon-play"), html.Span("Play", id="front-play-word")],
            id="front-play", className="button plays", title="play from here (space)",
            **attrs({"aria-pressed": "false"}),
        ),
        html.Div(cards.choice("Speed", "front-speed", _SPEEDS, "0", width_px=82), className="plays"),
        dcc.Store(id="front-playing", data=False),
    ]  # fmt: skip


def register(app: Dash) -> None:
    """Register the callbacks that run in the browser. They copy the slider's position to the store ``front-at``."""
    app.clientside_callback(
        ClientsideFunction("bs", "scrub"),
        Input("front-slider", "value"),
        State("front-slider", "max"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("bs", "step"),
        Output("front-slider", "value"),
        Input("front-back", "n_clicks"),
        Input("front-next", "n_clicks"),
        State("front-steps", "data"),
        State("front-slider", "value"),
        prevent_initial_call=True,
    )
    _register_play(app)


def _register_play(app: Dash) -> None:
    app.clientside_callback(
        ClientsideFunction("bs", "pressPlay"),
        Output("front-playing", "data"),
        Input("front-play", "n_clicks"),
        State("front-playing", "data"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("bs", "play"),
        Output("front-play-icon", "className"),
        Output("front-play-word", "children"),
        Output("front-play", "aria-pressed"),
        Input("front-playing", "data"),
        Input("front-speed", "value"),
        State("front-slider", "value"),
        State("front-slider", "max"),
    )
    app.clientside_callback(
        ClientsideFunction("bs", "played"), Input("front-position", "children"), prevent_initial_call=True
    )
