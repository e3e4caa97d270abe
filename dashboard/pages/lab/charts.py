"""Draws the charts of the Lab page. The script ``lab.js`` says which of them are in view; only those are drawn."""

from __future__ import annotations

from functools import partial
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State
from dash.exceptions import PreventUpdate

from backend.domain.errors import ApiNotFoundError
from dashboard.callbacks import Changes, connect
from dashboard.client import ApiClient
from dashboard.components import cards, time_slider
from dashboard.live import digest, look_of
from dashboard.pages.lab.details import AXES, AXES_WORDS, KINDS, SIDES, Axes, chart_of, default_id, shown_of

_MOVING = ("front", "space-time")
"""The charts that show the instant of the slider."""


def register(app: Dash, client: ApiClient) -> None:
    """Register a callback for each chart."""
    for kind in KINDS:
        for index, side in enumerate(SIDES):
            name = f"lab-{kind}-{side}"
            moving = {"at_ms": Input("lab-at", "value")} if kind in _MOVING else {}
            connect(
                app,
                partial(redraw, client, kind, index),
                output={
                    "message": Output("lab-message", "children", allow_duplicate=True),
                    "chart": cards.chart_outputs(name),
                    "digest": Output(f"{name}-digest", "data"),
                },
                inputs={
                    "is_visible": Input(f"{name}-visible", "data"),
                    "shown": Input("lab-shown", "data"),
                    "checkpoint": Input("lab-checkpoint", "data"),
                    "look": Input("look", "data"),
                    "axes": Input(AXES, "value"),
                    **moving,
                },
                state={"before": State(f"{name}-digest", "data")},
                prevent_initial_call=True,
            )
    connect(
        app,
        say_axes,
        output={"words": Output(f"{AXES}-words", "children")},
        inputs={"axes": Input(AXES, "value")},
        prevent_initial_call=True,
    )
    app.clientside_callback(ClientsideFunction("lab", "watch"), Input("lab-results", "className"))
    drawn = [Input(f"lab-{kind}-{side}-digest", "data") for kind in _MOVING for side in SIDES]
    time_slider.register(app, "lab", drawn)


async def redraw(
    client: ApiClient,
    kind: str,
    index: int,
    *,
    is_visible: bool | None,
    shown: dict[str, Any] | None,
    checkpoint: int | None,
    look: object,
    axes: str,
    before: str | None,
    at_ms: float | None = None,
) -> Changes:
    """Draw one chart of one run, if it is in view and what it shows has changed."""
    if not is_visible or not shown:
        raise PreventUpdate
    view = look_of(look)
    try:
        simulated = await client.simulated(shown["id"])
    except ApiNotFoundError:
        words = "The result of this simulation has expired, so charts that come into view stay empty. Run it again."
        return {"message": cards.answer(False, words)}
    if index >= len(simulated.runs):
        raise PreventUpdate
    number = checkpoint if checkpoint in shown["ids"] else default_id(simulated.runs)
    now = digest(shown["id"], None if kind == "timeline" else number, view, at_ms if kind in _MOVING else None, axes)
    if now == before:
        raise PreventUpdate
    sides = await shown_of(client, simulated, number)
    chart = chart_of(kind, sides[index], view, at_ms=at_ms, beside=sides if axes == Axes.SAME else ())
    return {"message": None, "chart": cards.chart_values(f"lab-{kind}-{'ab'[index]}", chart), "digest": now}


def say_axes(*, axes: str) -> Changes:
    """Say which axes the charts have."""
    return {"words": AXES_WORDS[Axes(axes)]}
