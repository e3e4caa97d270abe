"""The open alerts of a job, on its page."""

from __future__ import annotations

from functools import partial

from dash import Dash, Input, Output, State, html
from dash.exceptions import PreventUpdate

from dashboard.callbacks import Changes, connect
from dashboard.client import ApiClient
from dashboard.components import alerts as words
from dashboard.components import cards
from dashboard.live import digest, look_of


def register(app: Dash, client: ApiClient) -> None:
    """Update the list on every tick."""
    connect(
        app,
        partial(refresh, client),
        output={"alerts": Output("job-alerts", "children"), "digest": Output("job-alerts-digest", "data")},
        inputs={"tick": Input("tick", "n_intervals"), "look": Input("look", "data")},
        state={"route": State("job-route", "data"), "before": State("job-alerts-digest", "data")},
    )


async def refresh(
    client: ApiClient, *, tick: int | None, look: object, route: dict[str, str], before: str | None
) -> Changes:
    """The firing and pending alerts of the job. ``before`` is the ``digest`` output of the previous call."""
    look_of(look)
    opened = await client.open_alerts_or_none(route["job"])
    if opened is None:
        raise PreventUpdate
    now = digest([(a.id, a.state, a.summary, a.silenced_by, a.is_unknown) for a in opened])
    if now == before:
        raise PreventUpdate
    lines = html.Ul([words.line(a) for a in opened], className="alert-lines")
    return {"alerts": cards.card("Alerts", lines) if opened else None, "digest": now}
