"""Updates the list of a job's open alerts on the job's page."""

from __future__ import annotations

from functools import partial

from dash import Dash, Input, Output, State
from dash.exceptions import PreventUpdate

from dashboard.callbacks import Changes, connect
from dashboard.client import ApiClient
from dashboard.components import alerts as words
from dashboard.live import digest, look_of


def register(app: Dash, client: ApiClient) -> None:
    """Register the callback that updates the list on every tick."""
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
    """Return the firing and pending alerts of the job. ``before`` is the ``digest`` output of the previous call."""
    view = look_of(look)
    opened = await client.open_alerts_or_none(route["job"])
    if opened is None:
        if before is None:
            # The part must not stay empty, because the page shows its other parts as soon as this part has content.
            return {"alerts": words.strip(None, view.where)}
        raise PreventUpdate
    now = digest([(a.id, a.state, a.summary, a.silenced_by, a.is_unknown) for a in opened], str(view.where))
    if now == before:
        raise PreventUpdate
    return {"alerts": words.strip(opened, view.where), "digest": now}
