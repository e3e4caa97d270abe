"""What a viewer opened, picked and pinned on the page of a checkpoint."""

from __future__ import annotations

import asyncio
from typing import Any

from dash import ALL, ClientsideFunction, Dash, Input, Output, State, ctx, no_update
from dash.exceptions import PreventUpdate

from backend.contracts.api import CheckpointDetailOut
from backend.domain.errors import ApiRefusedError, ApiUnavailableError
from backend.domain.verdict import VerdictKind
from dashboard.client import ApiClient
from dashboard.components import picked_subtask

# More rows than a screen holds are opened only when asked for.
_OPENED_MAX = 32


def register_selection(app: Dash, client: ApiClient) -> None:
    @app.callback(
        Output("cp-opened", "data"),
        Output("cp-picked", "data"),
        Input("gantt-graph", "clickData"),
        Input("front-graph", "clickData"),
        Input("gantt-open-all", "n_clicks"),
        Input({"type": "vertex-toggle", "vertex": ALL}, "n_clicks"),
        State("cp-opened", "data"),
        State("cp-route", "data"),
        prevent_initial_call=True,
    )
    async def select(
        in_gantt: Any, in_front: Any, _all: Any, toggles: list[int | None], chosen: Any, route: Any
    ) -> Any:
        by = ctx.triggered_id
        if isinstance(by, dict) and not any(toggles):
            # The buttons were drawn anew; nobody pressed one.
            raise PreventUpdate
        try:
            found = await client.checkpoint(route["job"], route["run"], route["checkpoint"])
        except (ApiRefusedError, ApiUnavailableError):
            raise PreventUpdate from None
        opened = opened_of(chosen, found)
        if by == "gantt-open-all":
            every = [v.vertex_id for v in found.vertices]
            return ([] if len(opened) == len(every) else every), no_update
        if isinstance(by, dict):
            return _toggled(opened, by["vertex"]), no_update
        try:
            vertex, subtask = (in_gantt if by == "gantt-graph" else in_front)["points"][0]["customdata"]
        except (TypeError, KeyError, IndexError, ValueError):
            raise PreventUpdate from None
        picked = no_update if subtask is None else f"{vertex}:{subtask}"
        return (no_update if subtask is not None and vertex in opened else _toggled(opened, vertex)), picked

    @app.callback(
        Output("cp-picked-panel", "children"),
        Input("cp-picked", "data"),
        Input("cp-digest", "data"),
        State("cp-route", "data"),
    )
    async def show_picked(picked: str | None, loaded: Any, route: Any) -> Any:
        if not loaded:
            raise PreventUpdate
        key = (route["job"], route["run"], route["checkpoint"])
        try:
            found, job = await asyncio.gather(client.checkpoint(*key), client.graph(key[0]))
        except (ApiRefusedError, ApiUnavailableError):
            raise PreventUpdate from None
        return picked_subtask.panel(found, job, picked)

    @app.callback(Output("gantt-path", "aria-pressed"), Input("gantt-path", "n_clicks"), prevent_initial_call=True)
    def pin(clicks: int | None) -> str:
        return "false" if clicks and clicks % 2 else "true"

    app.clientside_callback(
        ClientsideFunction("bs", "permalink"),
        Input("cp-opened", "data"),
        Input("gantt-sort", "value"),
        Input("front-at", "data"),
        Input("cp-picked", "data"),
        prevent_initial_call=True,
    )


def opened_of(chosen: list[str] | None, found: CheckpointDetailOut) -> list[str]:
    """The opened vertices: what the viewer chose, or else the one that the verdict names."""
    if chosen is not None:
        return chosen
    named = found.verdict.vertex_id if found.verdict.kind is not VerdictKind.NONE else None
    return [v.vertex_id for v in found.vertices if v.vertex_id == named and len(v.subtasks) <= _OPENED_MAX]


def is_pending(found: CheckpointDetailOut) -> bool:
    return not found.status.is_terminal and not found.is_lost


def _toggled(opened: list[str], vertex: str) -> list[str]:
    rest = [v for v in opened if v != vertex]
    return rest if len(rest) < len(opened) else [*rest, vertex]
