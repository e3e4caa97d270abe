"""Draws the barrier front of a checkpoint at the time of the scrubber."""

from __future__ import annotations

import asyncio
from typing import Any

from dash import Dash, Input, Output, State, no_update
from dash.exceptions import PreventUpdate

from backend.contracts.barriers import BarriersOut
from backend.domain.errors import ApiRefusedError
from dashboard import text
from dashboard.client import ApiClient
from dashboard.components import cards, scrubber
from dashboard.figures import front
from dashboard.figures.front import times
from dashboard.live import guarded, look
from dashboard.pages.checkpoint.parts import front_basis
from dashboard.pages.checkpoint.selection import is_pending, opened_of


def register_front(app: Dash, client: ApiClient) -> None:
    outputs = (
        Output("cp-message", "children", allow_duplicate=True),
        Output("front-graph", "figure"),
        Output("front-summary", "children"),
        Output("front-data", "data"),
        Output("front-position", "children"),
        Output("front-basis", "children"),
        Output("front-slider", "max"),
        Output("front-slider", "value", allow_duplicate=True),
        Output("front-steps", "data"),
    )

    @app.callback(
        *outputs,
        Input("front-at", "data"),
        Input("look", "data"),
        Input("cp-opened", "data"),
        Input("cp-digest", "data"),
        State("cp-route", "data"),
        State("front-slider", "max"),
        State("front-slider", "value"),
        prevent_initial_call="initial_duplicate",
    )
    @guarded(len(outputs))
    async def redraw(
        at_ms: float | None, look_data: object, chosen: Any, loaded: Any, route: Any, slider_max: Any, slider: Any
    ) -> Any:
        view = look(look_data)
        if not loaded:
            raise PreventUpdate
        key = (route["job"], route["run"], route["checkpoint"])
        found, job = await asyncio.gather(client.checkpoint(*key), client.graph(key[0]))
        if found.batch is not None:
            # No barriers, no front.
            raise PreventUpdate
        barriers = await read_barriers(client, key, is_over=not is_pending(found))
        elapsed = loaded["elapsed_ms"] if is_pending(found) else None
        model = times.build(found, job.vertices, job.edges, barriers, elapsed_ms=elapsed)
        # Nobody has moved the scrubber: show how it ended, or how it stands.
        shown_ms = model.end_ms if at_ms is None else min(float(at_ms), model.end_ms)
        chart = front.draw(model, shown_ms, theme=view.theme, opened=opened_of(chosen, found))
        end = round(model.end_ms + 0.5)
        return (
            None,
            *cards.chart_values("front", chart),
            text.duration(round(shown_ms)),
            front_basis(model, barriers),
            no_update if end == slider_max else end,
            end if at_ms is None and slider != end else no_update,
            list(model.steps_ms),
        )

    scrubber.register(app)


async def read_barriers(client: ApiClient, key: tuple[str, str, int], *, is_over: bool) -> BarriersOut | None:
    try:
        return await client.barriers(*key, is_over=is_over)
    except ApiRefusedError:
        # No events were kept of this checkpoint; its phases still tell when each subtask was reached.
        return None
