"""Applying a what-if, and what then happened: the kept prediction beside what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate

from backend.contracts.advice import CardOut
from backend.contracts.whatif import PREDICTION_GONE, WhatIfIn
from backend.domain.advice import AdviceState, Topic
from backend.domain.errors import ApiRefusedError
from backend.domain.text import capitalised
from dashboard import routes, text
from dashboard.callbacks import Changes, connect
from dashboard.client import ApiClient
from dashboard.components import advice_cards, cards, confirming, dry_run, status, viewer_name
from dashboard.live import digest, look_of
from dashboard.pages.whatif.answers import settings_in

THEN = "whatif-then"
_SHOWN_MAX = 3
_OPEN = (AdviceState.ACCEPTED, AdviceState.APPLIED)
"""The states of a card whose effect is not measured yet."""


def register(app: Dash, client: ApiClient) -> None:
    """Register the callbacks that apply a what-if and follow its effect."""
    connect(
        app,
        partial(ask, client),
        output=confirming.outputs("whatif-change")
        | {"message": Output("whatif-message", "children", allow_duplicate=True)},
        inputs={"clicks": Input("whatif-apply", "n_clicks")},
        state={"answered": State("whatif-answered", "data"), "route": State("whatif-route", "data")},
        running=[confirming.busy("whatif-change", "Asking the target what it would do ...")],
        prevent_initial_call=True,
    )
    connect(
        app,
        partial(try_out, client),
        output={"tried": Output("whatif-tried", "children")},
        inputs={"clicks": Input("whatif-try", "n_clicks")},
        state={"answered": State("whatif-answered", "data"), "route": State("whatif-route", "data")},
        running=[(Output("whatif-try", "disabled"), True, False)],
        prevent_initial_call=True,
    )
    connect(
        app,
        partial(apply, client),
        output=_sent_outputs(),
        inputs={"confirmed": confirming.confirmed("whatif-change")},
        state={
            "subject": State("whatif-change-subject", "data"),
            "guard": confirming.guard("whatif-change"),
            "author": viewer_name.typed("whatif"),
            "route": State("whatif-route", "data"),
        },
        running=[confirming.busy("whatif-change", "Sending it to the target ...")],
        prevent_initial_call=True,
    )
    connect(
        app,
        partial(accept, client),
        output=_sent_outputs(),
        inputs={"clicks": Input("whatif-accept", "n_clicks")},
        state={
            "answered": State("whatif-answered", "data"),
            "author": viewer_name.typed("whatif"),
            "route": State("whatif-route", "data"),
        },
        prevent_initial_call=True,
    )
    confirming.register(app, "whatif-change")
    app.clientside_callback(
        ClientsideFunction("bs", "showAnswer"),
        Input("whatif-tried", "children"),
        State("whatif-tried", "id"),
        prevent_initial_call=True,
    )
    connect(
        app,
        ask_again,
        output={"again": Output("whatif-again", "data")},
        inputs={"clicks": Input("whatif-ask-again", "n_clicks")},
        state={"again": State("whatif-again", "data")},
        prevent_initial_call=True,
    )
    connect(
        app,
        partial(follow, client),
        output={
            # Not that of the page, which may have the answer to what the viewer did.
            "message": Output("whatif-then-message", "children"),
            "then": Output("whatif-then", "children"),
            "stale": Output("whatif-stale", "children"),
            "followed": Output("whatif-followed", "data"),
            "settled": Output("whatif-settled", "data"),
            "digest": Output("whatif-then-digest", "data"),
        },
        inputs={
            "tick": Input("tick", "n_intervals"),
            "sent": Input("whatif-sent", "data"),
            "answered": Input("whatif-answered", "data"),
            "look": Input("look", "data"),
        },
        state={
            "route": State("whatif-route", "data"),
            "before": State("whatif-then-digest", "data"),
            "followed": State("whatif-followed", "data"),
        },
    )


def _sent_outputs() -> dict[str, Output]:
    return {
        "message": Output("whatif-message", "children", allow_duplicate=True),
        "sent": Output("whatif-sent", "data", allow_duplicate=True),
        # Below the buttons, so that it is in view.
        "tried": Output("whatif-tried", "children", allow_duplicate=True),
    }


async def ask(
    client: ApiClient, *, clicks: int | None, answered: dict[str, Any] | None, route: dict[str, str]
) -> Changes:
    """Ask for confirmation before settings of the running job are changed. Name the job and each setting."""
    if not clicks or not answered:
        raise PreventUpdate
    what_if = await client.what_if(route["job"], WhatIfIn(settings=settings_in(answered)))
    if not what_if.can_apply:
        return {"message": cards.answer(False, f"It cannot be applied: {what_if.why_not_apply}.")}
    question = [
        html.P(["Change these settings of ", html.B(what_if.job), " now?"]),
        advice_cards.changes_diff(what_if.changes),
        dry_run.tried(await client.try_what_if(route["job"], settings_in(answered))),
        html.P("The change takes effect while the job runs. This page then shows what happened.", className="hint"),
    ]
    # What the page shows is kept, not what a newer model would predict.
    subject = {"settings": settings_in(answered), "model_id": answered.get("model_id")}
    return {"message": None} | confirming.opened(subject, question)


async def try_out(
    client: ApiClient, *, clicks: int | None, answered: dict[str, Any] | None, route: dict[str, str]
) -> Changes:
    """Say what applying the shown answer would send where, and what would refuse it."""
    if not clicks or not answered:
        raise PreventUpdate
    return {"tried": dry_run.tried(await client.try_what_if(route["job"], settings_in(answered)))}


async def apply(
    client: ApiClient,
    *,
    confirmed: int | None,
    subject: dict[str, Any] | None,
    guard: bool | None,
    author: str | None,
    route: dict[str, str],
) -> Changes:
    """Apply the what-if once the viewer has confirmed it."""
    if not confirmed or not subject:
        raise PreventUpdate
    try:
        card = await client.apply_what_if(
            *(route["job"], subject["settings"], subject.get("model_id")),
            is_guarded=bool(guard),
            author=viewer_name.given(author),
        )
    except ApiRefusedError as problem:
        return {"tried": _gone(problem)}
    words = "Sent. The prediction is kept, and compared with the next checkpoints."
    return {"message": _kept_below(words), "sent": card.id}


async def accept(
    client: ApiClient,
    *,
    clicks: int | None,
    answered: dict[str, Any] | None,
    author: str | None,
    route: dict[str, str],
) -> Changes:
    """Keep the prediction of a change that the viewer makes."""
    if not clicks or not answered:
        raise PreventUpdate
    try:
        card = await client.accept_what_if(
            *(route["job"], settings_in(answered), answered.get("model_id")), author=viewer_name.given(author)
        )
    except ApiRefusedError as problem:
        return {"tried": _gone(problem)}
    words = "Kept. The prediction is compared with the checkpoints after the engine reports the new settings."
    return {"message": _kept_below(words), "sent": card.id}


def _gone(problem: ApiRefusedError) -> Component:
    """Build the message that the shown prediction is no longer kept, with a button that asks again.

    Raises:
        ApiRefusedError: the change was refused for another reason.
    """
    if problem.kind != PREDICTION_GONE:
        raise problem
    said = str(problem)
    button = html.Button([status.icon("question"), html.Span("Ask again")], id="whatif-ask-again", className="button")
    return cards.answer(False, f"Nothing was changed. {capitalised(said)}.", link=button)


def ask_again(*, clicks: int | None, again: int | None) -> Changes:
    """Let the page ask again for the settings that it shows."""
    if not clicks:
        raise PreventUpdate
    return {"again": (again or 0) + 1}


def _kept_below(words: str) -> Component:
    """Build the message that a prediction is kept, with a link to its place at the end of the page."""
    return cards.answer(True, words, link=html.A("Follow the effect", href=f"#{THEN}"))


async def follow(
    client: ApiClient,
    *,
    tick: int | None,
    sent: str | None,
    answered: dict[str, Any] | None,
    look: object,
    route: dict[str, str],
    before: str | None,
    followed: str | None,
) -> Changes:
    """Return the kept what-ifs of the job, each with what was measured after it.

    ``followed`` is the card whose effect was not measured yet. When it is, the page asks for its answer again.
    """
    view = look_of(look)
    page = await client.recommendations(route["job"])
    kept = [c for c in page.items if c.recommendation.topic is Topic.WHAT_IF][:_SHOWN_MAX]
    stale = _stale(kept[0], answered, view.where) if kept else None
    now = digest(*kept, str(view.where), str(stale is None))
    if now == before:
        raise PreventUpdate
    open_id = kept[0].id if kept and kept[0].state in _OPEN else None
    changes: Changes = {
        "message": None,
        "digest": now,
        "then": [_kept(c, view.where) for c in kept] or _nothing(),
        "stale": stale,
        "followed": open_id,
    }
    if followed is not None and followed != open_id:
        changes["settled"] = followed
    return changes


def _stale(newest: CardOut, answered: Mapping[str, Any] | None, where: Any) -> Component | None:
    """Say that the shown answer is from before the newest change; None if it is not."""
    before = newest.recommendation.checkpoint_ids
    first = answered.get("first_id") if answered else None
    if newest.state not in _OPEN or not before or first is None or first > before[-1]:
        return None
    said = _change_words(newest, where)
    after = "The values below are from checkpoints before it, and are replaced when its effect is measured."
    return html.P([status.icon("clock"), html.Span(f"{said} {after}")], className="whatif-stale")


def _change_words(card: CardOut, where: Any) -> str:
    """Say since when a change is awaited or in force, and whether Barrierscope sent it."""
    sent = next((e for e in card.history if e.kind.is_apply), None)
    if sent is not None:
        return f"A change was sent at {text.instant(sent.at, where)}."
    if card.applied_at is None:
        return f"A change by a person is awaited since {text.instant(card.created_at, where)}."
    return f"A change by a person is in force since {text.instant(card.applied_at, where)}."


def _nothing() -> list[Component]:
    return [html.P("No what-if on this job was applied yet.", className="hint")]


def _kept(card: CardOut, where: Any) -> Component:
    advice = card.recommendation
    said = f"{text.instant(card.created_at, where)}: {card.state_reason}"
    parts: list[Component] = [
        html.H3([advice.headline, " ", advice_cards.state_badge(card)]),
        html.P(said, className="hint", title=text.instant_utc(card.created_at)),
    ]
    if card.measured:
        parts.append(advice_cards.result(card))
    elif card.state in _OPEN:
        parts.append(advice_cards.expected(card))
    parts.append(html.P(dcc.Link("Details and roll back", href=routes.advice(card.job_id))))
    return html.Div(parts, className="whatif-kept")
