"""The card of a job's last seven days, an hour a point, from rollups; and its callback."""

from __future__ import annotations

from typing import Any

from dash import Dash, Input, Output, State, ctx, html
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate

from backend.contracts.api import Page
from backend.contracts.rollups import RollupHourOut
from dashboard.client import ApiClient
from dashboard.components import cards
from dashboard.figures import trend
from dashboard.live import digest, guarded, look

# Of the service's tick (10 s): an hour changes slowly.
_EVERY_TICKS = 6


def panel() -> Component:
    """The card before its first answer."""
    return html.Div(
        [
            html.Div(id="trend-message"),
            cards.chart(
                "trend",
                "The last 7 days",
                hint="hourly rollups: a point is one hour (UTC); exact percentiles of what completed in it, measured",
                after=html.P(id="trend-source", className="hint"),
                height_px=trend.HEIGHT_PX,
            ),
        ]
    )


def register(app: Dash, client: ApiClient) -> None:
    """Keep the card fresh."""
    outputs = (
        Output("trend-message", "children"),
        Output("trend-graph", "figure"),
        Output("trend-summary", "children"),
        Output("trend-data", "data"),
        Output("trend-source", "children"),
    )

    @app.callback(
        *outputs,
        Input("status-tick", "n_intervals"),
        Input("look", "data"),
        State("job-route", "data"),
        State("trend-data", "data"),
    )
    @guarded(len(outputs))
    async def refresh(tick: int | None, look_data: object, route: dict[str, str], before: Any) -> Any:
        view = look(look_data)
        if before and ctx.triggered_id == "status-tick" and (tick or 0) % _EVERY_TICKS:
            raise PreventUpdate
        page = await client.rollups(route["job"])
        now = digest(page, view.theme.name, str(view.where))
        if before and before.get("digest") == now:
            raise PreventUpdate
        chart = trend.trend(page.items, theme=view.theme, where=view.where, revision=route["job"])
        figure, summary, table = cards.chart_values("trend", chart)
        return None, figure, summary, table | {"digest": now}, _source(page)


def _source(page: Page[RollupHourOut]) -> str:
    live = sum(h.source == "checkpoints" for h in page.items)
    if live == 0:
        return "Every hour is from its rollup."
    of = "hour is" if live == 1 else "hours are"
    return (
        f"{live} of {len(page.items)} {of} worked out from the checkpoints themselves: not over, or not rolled up yet."
    )
