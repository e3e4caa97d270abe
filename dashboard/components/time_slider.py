"""Builds the slider, with a play button, for the time that the charts of simulated checkpoints show."""

from __future__ import annotations

from collections.abc import Sequence

import dash_mantine_components as dmc
from dash import ClientsideFunction, Dash, Input, Output, State, html
from dash.development.base_component import Component

from dashboard.components import scrubber
from dashboard.components.attributes import attrs

_LEAST_END_MS = 1_000


def time_slider(page: str, at_ms: int | None = None) -> Component:
    """Build the slider ``{page}-at`` at ``at_ms`` since the trigger. Its end is set when a checkpoint has been read."""
    play, playing = scrubber.play_button(page, "play the barrier front and the space-time diagram from here, in 6 s")
    return html.Section(
        [
            html.Strong("Time since the trigger"),
            play,
            playing,
            dmc.Slider(
                id=f"{page}-at",
                min=0,
                max=max(_LEAST_END_MS, at_ms or 0),
                step=1,
                value=at_ms or 0,
                label=None,
                thumbLabel="time since the trigger in milliseconds, for barrier front and space-time diagram",
                updatemode="mouseup",
                size="sm",
                color="blue",
                thumbSize=24,
            ),
            html.Span(id=f"{page}-at-words", className="at"),
        ],
        className="card lab-time",
        **attrs({"aria-label": "Time of the barrier front"}),
    )


def register(app: Dash, page: str, drawn: Sequence[Input]) -> None:
    """Register the callbacks of the slider. A change of ``drawn`` tells that the charts show the slider's time."""
    at = f"{page}-at"
    app.clientside_callback(ClientsideFunction("lab", "words"), Output(f"{at}-words", "children"), Input(at, "value"))
    scrubber.register_play(app, page, at, drawn)
    app.clientside_callback(
        ClientsideFunction("bs", "moved"), Input(at, "value"), State(at, "id"), prevent_initial_call=True
    )
