"""The card with the last 7 days of a job, one point for each hour, and the callback that updates it."""

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

# The card is updated at every sixth tick of 10 s, because hourly values change slowly.
_EVERY_TICKS = 6


def panel() -> Component:
    """Build the card without data, which the first refresh adds."""
    return html.Div(
        [
            html.Div(id="trend-message"),
            cards.chart(
                "trend",
                "The last 7 days",
                hint="each point is one hour (UTC); exact percentiles of checkpoints completed in it",
                after=html.P(id="trend-source", className="hint"),
                height_px=trend.HEIGHT_PX,
            ),
        ],
        id="trend-panel",
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
            "style": Output("trend-panel", "style"),
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
    """Return the last 7 days of the job in ``route``.

    ``before`` is the data of the chart's table, with the last digest.
    """
    view = look_of(look)
    if before and trigger == "status-tick" and (tick or 0) % _EVERY_TICKS:
        raise PreventUpdate
    page = await client.rollups(route["job"])
    now = digest(page, view.theme.name, str(view.where))
    if before and before.get("digest") == now:
        return {"message": None}
    chart = trend.trend(page.items, theme=view.theme, where=view.where, revision=route["job"])
    table = cards.table_data("trend", chart.table) | {"digest": now}
    return {
        "message": None,
        "trend": cards.chart_values("trend", chart) | {"table": table},
        "source": _source(page),
        # A job without checkpoints has no trend.
        "style": {} if page.items else {"display": "none"},
    }


def _source(page: Page[RollupHourOut]) -> str:
    live = sum(h.source == "checkpoints" for h in page.items)
    if live == 0:
        return "All hours come from rollups."
    of = "hour is" if live == 1 else "hours are"
    return f"{live} of {len(page.items)} {of} computed from the checkpoints, because there is no rollup yet."
