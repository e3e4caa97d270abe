"""Draws the barrier front of a checkpoint at the time that the scrubber shows."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from dash import Dash, Input, Output, State
from dash.exceptions import PreventUpdate

from backend.contracts.barriers import BarriersOut
from backend.domain.errors import ApiRefusedError
from dashboard import text
from dashboard.callbacks import Changes, connect
from dashboard.client import ApiClient
from dashboard.components import cards, scrubber
from dashboard.figures import front
from dashboard.figures.front import times
from dashboard.live import look_of
from dashboard.pages.checkpoint.parts import front_basis
from dashboard.pages.checkpoint.selection import is_pending, key_of, opened_of


def register(app: Dash, client: ApiClient) -> None:
    """Register the callback that draws the front when the scrubber, the opened vertices or the checkpoint changes."""
    connect(
        app,
        partial(redraw, client),
        output={
            "message": Output("cp-message", "children", allow_duplicate=True),
            "front": cards.chart_outputs("front"),
            "position": Output("front-position", "children"),
            "basis": Output("front-basis", "children"),
            "slider_max": Output("front-slider", "max"),
            "slider": Output("front-slider", "value", allow_duplicate=True),
            "steps": Output("front-steps", "data"),
        },
        inputs={
            "at_ms": Input("front-at", "data"),
            "look": Input("look", "data"),
            "chosen": Input("cp-opened", "data"),
            "loaded": Input("cp-digest", "data"),
        },
        state={
            "route": State("cp-route", "data"),
            "slider_max": State("front-slider", "max"),
            "slider": State("front-slider", "value"),
        },
        prevent_initial_call="initial_duplicate",
    )
    scrubber.register(app)


async def redraw(
    client: ApiClient,
    *,
    at_ms: float | None,
    look: object,
    chosen: list[str] | None,
    loaded: dict[str, Any] | None,
    route: dict[str, Any],
    slider_max: float | None,
    slider: float | None,
) -> Changes:
    """Return the barrier front at ``at_ms`` since the trigger.

    If ``at_ms`` is None, the front is that at the end of the checkpoint, or now if the checkpoint is in progress.
    """
    view = look_of(look)
    if not loaded:
        raise PreventUpdate
    key = key_of(route)
    found, job = await asyncio.gather(client.checkpoint(*key), client.graph(key[0]))
    if found.batch is not None:
        # A micro-batch has no barriers, so there is no front to draw.
        raise PreventUpdate
    is_open = is_pending(found)
    barriers = await read_barriers(client, key, is_over=not is_open)
    elapsed_ms = loaded["elapsed_ms"] if is_open else None
    model = times.build(found, job.vertices, job.edges, barriers, elapsed_ms=elapsed_ms)
    shown_ms = model.end_ms if at_ms is None else min(float(at_ms), model.end_ms)
    chart = front.draw(model, shown_ms, theme=view.theme, opened=opened_of(chosen, found), is_narrow=view.is_narrow)
    changes: Changes = {
        "message": None,
        "front": cards.chart_values("front", chart),
        "position": text.duration(round(shown_ms)),
        "basis": front_basis(model, barriers),
        "steps": list(model.steps_ms),
    }
    end = round(model.end_ms + 0.5)
    if end != slider_max:
        changes["slider_max"] = end
    if at_ms is None and slider != end:
        changes["slider"] = end
    return changes


async def read_barriers(client: ApiClient, key: tuple[str, str, int], *, is_over: bool) -> BarriersOut | None:
    """Return the barrier events of a checkpoint, or None if none are stored."""
    try:
        return await client.barriers(*key, is_over=is_over)
    except ApiRefusedError:
        return None
