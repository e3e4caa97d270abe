"""The callbacks that update the panel of the checkpoint in progress (V8), for each page that has the panel."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from dash import Dash, Input, Output, State, html
from dash.exceptions import PreventUpdate

from backend.contracts.progress import ProgressOut
from dashboard.callbacks import Changes, connect
from dashboard.client import ApiClient
from dashboard.components import cards, progress
from dashboard.figures import acks
from dashboard.live import digest, look_of

_PAGES = ("job", "cp")


def register(app: Dash, client: ApiClient) -> None:
    """Register one callback for each page that has the panel."""
    for page in _PAGES:
        _register(app, client, page)


def _register(app: Dash, client: ApiClient, page: str) -> None:
    connect(
        app,
        partial(refresh, client, page),
        output={
            "message": Output(f"{page}-progress-message", "children"),
            "head": Output(f"{page}-progress-head", "children"),
            "waiting": Output(f"{page}-progress-waiting", "children"),
            "acks": cards.chart_outputs(f"{page}-acks"),
            "digest": Output(f"{page}-progress-digest", "data"),
        },
        inputs={
            "tick": Input("tick", "n_intervals"),
            "look": Input("look", "data"),
            "target": Input(f"{page}-progress-target", "data"),
        },
        state={"before": State(f"{page}-progress-digest", "data")},
        has_trigger=True,
    )


async def refresh(
    client: ApiClient,
    page: str,
    *,
    tick: int | None,
    look: object,
    target: dict[str, Any] | None,
    before: str | None,
    trigger: object,
) -> Changes:
    """Return the contents of the panel for the checkpoint ``target``.

    ``before`` is the ``digest`` output of the previous call.
    """
    view = look_of(look)
    if not target:
        return {"message": None, "head": html.P("No checkpoint has been seen yet.", className="hint")}
    found = await client.progress(target["job"], target["run"], target["checkpoint"])
    now = digest(_seen(found), view.theme.name)
    if now == before and trigger == "tick":
        raise PreventUpdate
    chart = acks.acknowledgements(found, theme=view.theme)
    return {
        "message": None,
        "head": progress.head(found),
        "waiting": progress.waiting(found),
        "acks": cards.chart_values(f"{page}-acks", chart),
        "digest": now,
    }


def _seen(found: ProgressOut) -> ProgressOut:
    """Return the progress without the passing of time that a viewer cannot see.

    The time since the trigger counts in steps of one percent. Without the steps, a checkpoint that is open for minutes
    and does not advance would be sent and drawn again with each tick.
    """
    grown = int(100 * math.log1p(found.elapsed_ms))
    return found.model_copy(update={"elapsed_ms": grown, "remaining_ms": None, "judgement_rule": ""})
