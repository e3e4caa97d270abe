"""Builds the time scrubber under the barrier front: slider, step buttons and play button.

For viewers who prefer reduced motion there is no play button. The page shows five instants side by side instead.

The script ``scrubber.js`` moves the slider.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    """Build the scrubber with its slider at ``at_ms`` since the trigger; None puts it where the page opens."""
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
    button, playing = play_button("front", "play from here (space)")
    return [
        button,
        html.Div(cards.choice("Speed", "front-speed", _SPEEDS, "0", width_px=82), className="plays"),
        playing,
    ]


def play_button(name: str, hint: str) -> tuple[Component, Component]:
    """Build a button that moves a slider to its end, and the store that says whether it does so now."""
    words = [html.Span(id=f"{name}-play-icon", className="icon icon-play"), html.Span("Play", id=f"{name}-play-word")]
    button = html.Button(
        words, id=f"{name}-play", className="button plays", title=hint, **attrs({"aria-pressed": "false"})
    )
    return button, dcc.Store(id=f"{name}-playing", data=False)


def register(app: Dash) -> None:
    """Register the callbacks that run in the browser. They copy the slider's position to the store ``front-at``."""
    app.clientside_callback(
        ClientsideFunction("bs", "scrub"),
        Input("front-slider", "value"),
        State("front-slider", "max"),
        State("front-opens", "data"),
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
    register_play(app, "front", "front-slider", [Input("front-position", "children")], [Input("front-speed", "value")])


def register_play(app: Dash, name: str, slider: str, drawn: Sequence[Input], speed: Sequence[Input] = ()) -> None:
    """Register the callbacks of ``play_button``. A change of ``drawn`` tells that the charts show the slider's time.

    Without ``speed``, the whole range of the slider takes 6 s.
    """
    playing = f"{name}-playing"
    app.clientside_callback(
        ClientsideFunction("bs", "pressPlay"),
        Output(playing, "data"),
        Input(f"{name}-play", "n_clicks"),
        State(playing, "data"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("bs", "play"),
        Output(f"{name}-play-icon", "className"),
        Output(f"{name}-play-word", "children"),
        Output(f"{name}-play", "aria-pressed"),
        Input(playing, "data"),
        *speed,
        State(slider, "value"),
        State(slider, "max"),
        State(slider, "id"),
        State(playing, "id"),
    )
    app.clientside_callback(ClientsideFunction("bs", "played"), *drawn, prevent_initial_call=True)
