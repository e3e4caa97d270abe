"""Handles what the viewer opens, picks and pins on the page of a checkpoint."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from dash import ALL, ClientsideFunction, Dash, Input, Output, State
from dash.exceptions import PreventUpdate

from backend.contracts.api import CheckpointDetailOut
from backend.domain.errors import ApiRefusedError, ApiUnavailableError
from backend.domain.verdict import VerdictKind
from dashboard.callbacks import Changes, connect, pressed_id
from dashboard.client import ApiClient
from dashboard.components import picked_subtask
from dashboard.figures.front.folding import FOLD

_OPENED_MAX = 32
"""A vertex with more subtasks would fill a screen, so it is not opened by default, only by the viewer."""


def register(app: Dash, client: ApiClient) -> None:
    """Register the callbacks that follow clicks on charts and buttons and update the page's address."""
    connect(
        app,
        partial(select, client),
        output={
            "opened": Output("cp-opened", "data"),
            "picked": Output("cp-picked", "data"),
            "fold": Output("front-fold", "aria-pressed", allow_duplicate=True),
        },
        inputs={
            "in_gantt": Input("gantt-graph", "clickData"),
            "in_front": Input("front-graph", "clickData"),
            "open_all": Input("gantt-open-all", "n_clicks"),
            "toggles": Input({"type": "vertex-toggle", "vertex": ALL}, "n_clicks"),
        },
        state={"chosen": State("cp-opened", "data"), "route": State("cp-route", "data")},
        has_trigger=True,
        prevent_initial_call=True,
    )
    connect(
        app,
        partial(show_picked, client),
        output={"panel": Output("cp-picked-panel", "children")},
        inputs={"picked": Input("cp-picked", "data"), "loaded": Input("cp-digest", "data")},
        state={"route": State("cp-route", "data")},
    )
    connect(
        app,
        pin_path,
        output={"pressed": Output("gantt-path", "aria-pressed")},
        inputs={"clicks": Input("gantt-path", "n_clicks")},
        prevent_initial_call=True,
    )
    _register_permalink(app)


def _register_permalink(app: Dash) -> None:
    app.clientside_callback(
        ClientsideFunction("bs", "permalink"),
        Input("cp-opened", "data"),
        Input("gantt-sort", "value"),
        Input("front-at", "data"),
        Input("cp-picked", "data"),
        Input("front-heat", "value"),
        Input("front-find", "value"),
        Input("front-fold", "aria-pressed"),
        prevent_initial_call=True,
    )


async def select(
    client: ApiClient,
    *,
    in_gantt: Any,
    in_front: Any,
    open_all: int | None,
    toggles: list[int | None],
    chosen: list[str] | None,
    route: dict[str, Any],
    trigger: object,
) -> Changes:
    """Return the opened vertices and the picked subtask after a click on a chart or a button."""
    if isinstance(trigger, dict) and pressed_id(toggles, trigger) is None:
        raise PreventUpdate
    try:
        checkpoint = await client.checkpoint(*key_of(route))
    except (ApiRefusedError, ApiUnavailableError):
        raise PreventUpdate from None
    opened = opened_of(chosen, checkpoint)
    if trigger == "gantt-open-all":
        every = [v.vertex_id for v in checkpoint.vertices]
        return {"opened": [] if len(opened) == len(every) else every}
    if isinstance(trigger, dict):
        return {"opened": _toggled(opened, trigger["vertex"])}
    try:
        vertex, subtask = (in_gantt if trigger == "gantt-graph" else in_front)["points"][0]["customdata"]
    except (TypeError, KeyError, IndexError, ValueError):
        raise PreventUpdate from None
    if vertex.startswith(FOLD):
        return {"fold": "false"}
    if subtask is None:
        return {"opened": _toggled(opened, vertex)}
    picked = {"picked": f"{vertex}:{subtask}"}
    return picked if vertex in opened else picked | {"opened": _toggled(opened, vertex)}


async def show_picked(client: ApiClient, *, picked: str | None, loaded: object, route: dict[str, Any]) -> Changes:
    """Return the panel of the picked subtask."""
    if not loaded:
        raise PreventUpdate
    key = key_of(route)
    try:
        found, job = await asyncio.gather(client.checkpoint(*key), client.graph(key[0]))
    except (ApiRefusedError, ApiUnavailableError):
        raise PreventUpdate from None
    return {"panel": picked_subtask.panel(found, job, picked)}


def pin_path(*, clicks: int | None) -> Changes:
    """Return whether the button that pins the critical path is pressed. At first the path is pinned."""
    return {"pressed": "false" if clicks and clicks % 2 else "true"}


def key_of(route: dict[str, Any]) -> tuple[str, str, int]:
    """Return the job id, run id and checkpoint id of the page."""
    return route["job"], route["run"], route["checkpoint"]


def opened_of(chosen: list[str] | None, detail: CheckpointDetailOut) -> list[str]:
    """Return the opened vertices: those that the viewer chose or, by default, the vertex that the verdict names."""
    if chosen is not None:
        return chosen
    named = detail.verdict.vertex_id if detail.verdict.kind is not VerdictKind.NONE else None
    return [v.vertex_id for v in detail.vertices if v.vertex_id == named and len(v.subtasks) <= _OPENED_MAX]


def is_pending(detail: CheckpointDetailOut) -> bool:
    """Return whether the checkpoint is in progress and its run has not ended."""
    return not detail.status.is_terminal and not detail.is_lost


def _toggled(opened: list[str], vertex: str) -> list[str]:
    rest = [v for v in opened if v != vertex]
    return rest if len(rest) < len(opened) else [*rest, vertex]
