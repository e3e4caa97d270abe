"""The callbacks of the checkpoint in progress (V8), on each page that has its panel."""

from __future__ import annotations

from typing import Any

from dash import Dash, Input, Output, State, ctx, html, no_update
from dash.exceptions import PreventUpdate

from dashboard.client import ApiClient
from dashboard.components import cards, progress
from dashboard.figures import acks
from dashboard.live import digest, guarded, look

_PAGES = ("job", "cp")


def register(app: Dash, client: ApiClient) -> None:
    """Keep the panels live."""
    for page in _PAGES:
        _register(app, client, page)


def _register(app: Dash, client: ApiClient, page: str) -> None:
    outputs = (
        Output(f"{page}-progress-head", "children"),
        Output(f"{page}-progress-waiting", "children"),
        Output(f"{page}-acks-graph", "figure"),
        Output(f"{page}-acks-summary", "children"),
        Output(f"{page}-acks-data", "data"),
        Output(f"{page}-progress-digest", "data"),
    )

    @app.callback(
        *outputs,
        Input("tick", "n_intervals"),
        Input("look", "data"),
        Input(f"{page}-progress-target", "data"),
        State(f"{page}-progress-digest", "data"),
    )
    @guarded(len(outputs))
    async def refresh(_tick: int | None, look_data: object, target: Any, before: str | None) -> Any:
        view = look(look_data)
        if not target:
            return (html.P("No checkpoint has been seen yet.", className="hint"), *((no_update,) * 5))
        found = await client.progress(target["job"], target["run"], target["checkpoint"])
        now = digest(found, view.theme.name)
        if now == before and ctx.triggered_id == "tick":
            raise PreventUpdate
        chart = acks.acknowledgements(found, theme=view.theme)
        return progress.head(found), progress.waiting(found), *cards.chart_values(f"{page}-acks", chart), now
