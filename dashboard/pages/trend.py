"""The card with the last 7 days of a job, one point for each hour, and its callback."""

from __future__ import annotations

from functools import partial
from typing import Any

from dash import Dash, Input, Output, State, html
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate

from backend.contracts.api import Page
from backend.contracts.rollups import RollupHourOut
from dashboard.callbacks import Changes, connect
from dashboard.client import ApiClient
from dashboard.components import cards
from dashboard.figures import trend
from dashboard.live import digest, look_of

# In ticks of 10 s. Hourly values change slowly.
_EVERY_TICKS = 6


def panel() -> Component:
    """The card before its first answer."""
    return html.Div(
        [
            html.Div(id="trend-message"),
            cards.chart(
                "trend",
                "The last 7 days",
                hint="each point is one hour (UTC); exact percentiles of checkpoints completed in it, measured",
                after=html.P(id="trend-source", className="hint"),
                height_px=trend.HEIGHT_PX,
            ),
        ]
    )


def register(app: Dash, client: ApiClient) -> None:
    """Register the callback of the card."""
    connect(
        app,
        partial(refresh, client),
        output={
            "message": Output("trend-message", "children"),
            "trend": cards.chart_outputs("trend"),
            "source": Output("trend-source", "children"),
        },
        inputs={"tick": Input("status-tick", "n_intervals"), "look": Input("look", "data")},
        state={"route": State("job-route", "data"), "before": State("trend-data", "data")},
        has_trigger=True,
    )


async def refresh(
    client: ApiClient,
    *,
    tick: int | None,
    look: object,
    route: dict[str, str],
    before: dict[str, Any] | None,
    trigger: object,
) -> Changes:
    """The week of the job in ``route``. ``before`` is the chart's table, which also holds the digest."""
    view = look_of(look)
    if before and trigger == "status-tick" and (tick or 0) % _EVERY_TICKS:
        raise PreventUpdate
    page = await client.rollups(route["job"])
    now = digest(page, view.theme.name, str(view.where))
    if before and before.get("digest") == now:
        raise PreventUpdate
    chart = trend.trend(page.items, theme=view.theme, where=view.where, revision=route["job"])
    table = cards.table_data("trend", chart.table) | {"digest": now}
    return {
        "message": None,
        "trend": cards.chart_values("trend", chart) | {"table": table},
        "source": _source(page),
    }


def _source(page: Page[RollupHourOut]) -> str:
    live = sum(h.source == "checkpoints" for h in page.items)
    if live == 0:
        return "All hours come from rollups."
    of = "hour is" if live == 1 else "hours are"
    return f"{live} of {len(page.items)} {of} computed from the checkpoints, because there is no rollup yet."
