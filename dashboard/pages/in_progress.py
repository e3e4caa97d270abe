"""The callbacks that update the panel of the checkpoint in progress (V8), for each page that has the panel."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from dash import ALL, Dash, Input, Output, State, html
from dash.exceptions import PreventUpdate

from backend.contracts.checkpoint_actions import ActionIn
from backend.contracts.progress import ProgressOut
from backend.domain.checkpoint_action import CheckpointAction
from backend.domain.text import capitalised
from dashboard.callbacks import Changes, connect, pressed_id
from dashboard.client import ApiClient
from dashboard.components import cards, confirming, progress, viewer_name
from dashboard.figures import acks
from dashboard.live import digest, look_of

_PAGES = ("job", "cp")


def register(app: Dash, client: ApiClient) -> None:
    """Register one callback for each page that has the panel."""
    for page in _PAGES:
        _register(app, client, page)
        _register_actions(app, client, page)


def _register(app: Dash, client: ApiClient, page: str) -> None:
    connect(
        app,
        partial(refresh, client, page),
        output={
            "message": Output(f"{page}-progress-message", "children"),
            "head": Output(f"{page}-progress-head", "children"),
            "waiting": Output(f"{page}-progress-waiting", "children"),
            "actions": Output(f"{page}-progress-actions", "children"),
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
    before: dict[str, str] | None,
    trigger: object,
) -> Changes:
    """Return the contents of the panel for the checkpoint ``target``.

    ``before`` is the ``digest`` output of the previous call.
    """
    view = look_of(look)
    if not target:
        return {"message": None, "head": html.P("No checkpoint has been seen yet.", className="hint")}
    answer = await client.progress(target["job"], target["run"], target["checkpoint"])
    # The buttons are sent again only if they change, so that a button does not change while it is pressed.
    now = {
        "page": digest(_seen(answer), view.theme.name),
        "actions": digest(answer.checkpoint_id, answer.status, *answer.actions),
    }
    if now == before and trigger == "tick":
        raise PreventUpdate
    chart = acks.acknowledgements(answer, theme=view.theme)
    changes: Changes = {
        "message": None,
        "head": progress.head(answer, is_last=target.get("is_last", False), phases=target.get("phases", ())),
        "waiting": progress.waiting(answer),
        "acks": cards.chart_values(f"{page}-acks", chart),
        "digest": now,
    }
    if not before or before["actions"] != now["actions"]:
        changes["actions"] = progress.actions(page, answer)
    return changes


def _register_actions(app: Dash, client: ApiClient, page: str) -> None:
    name = f"{page}-action"
    message = Output(f"{name}-message", "children", allow_duplicate=True)
    connect(
        app,
        partial(ask, client),
        output=confirming.outputs(name) | {"message": message},
        inputs={"clicks": Input({"type": f"{page}-act", "action": ALL}, "n_clicks")},
        state={"target": State(f"{page}-progress-target", "data")},
        has_trigger=True,
        prevent_initial_call=True,
    )
    connect(
        app,
        partial(take, client),
        output={"message": message},
        inputs={"confirmed": confirming.confirmed(name)},
        state={"subject": State(f"{name}-subject", "data"), "author": viewer_name.typed(name)},
        running=[(Output(f"{page}-progress-actions", "disabled"), True, False)],
        prevent_initial_call=True,
    )
    confirming.register(app, name)


async def ask(
    client: ApiClient, *, clicks: list[int | None], target: dict[str, Any] | None, trigger: object
) -> Changes:
    """Ask for confirmation before an action is taken. Name the job, the checkpoint and each setting."""
    pressed = pressed_id(clicks, trigger)
    if pressed is None or not target:
        raise PreventUpdate
    answer = await client.progress(target["job"], target["run"], target["checkpoint"])
    action = next((a for a in answer.actions if a.action.value == pressed["action"]), None)
    if action is None or not action.is_possible:
        reason = f"checkpoint {answer.checkpoint_id} has ended" if action is None else progress.why(action)
        return {"message": cards.answer(False, f"This is not possible any more: {reason}.")}
    job = await client.graph(target["job"])
    settings = {c.key: c.proposed for c in action.changes}
    subject = {**target, "action": action.action.value, "settings": settings}
    return {"message": None} | confirming.opened(subject, progress.question(job.name, answer, action))


async def take(
    client: ApiClient, *, confirmed: int | None, subject: dict[str, Any] | None, author: str | None
) -> Changes:
    """Take an action once the viewer has confirmed it."""
    if not confirmed or not subject:
        raise PreventUpdate
    wanted = ActionIn(
        action=CheckpointAction(subject["action"]), settings=subject["settings"], author=viewer_name.given(author)
    )
    done = await client.take_action(subject["job"], subject["run"], subject["checkpoint"], wanted)
    return {"message": cards.answer(True, f"Sent. {capitalised(done.text)}.")}


def _seen(answer: ProgressOut) -> ProgressOut:
    """Return the progress without changes of time that are too small to see.

    The time since the trigger counts in steps of one percent. Without the steps, a checkpoint that is open for minutes
    and does not advance would be sent and drawn again with each tick.
    """
    grown = int(100 * math.log1p(answer.elapsed_ms))
    return answer.model_copy(update={"elapsed_ms": grown, "remaining_ms": None, "judgement_rule": ""})
