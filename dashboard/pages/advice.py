"""V9: the page of the recommendations for a job: each change, its predicted effect and cost, and its measured effect.

This module contains the page and its buttons. ``dashboard.components.advice_cards`` builds the cards.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from dash import ALL, Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate

from backend.contracts.advice import CardOut, JobAdviceOut
from backend.domain.advice import AdviceState
from dashboard import routes
from dashboard.callbacks import Changes, connect, pressed_id
from dashboard.client import ApiClient
from dashboard.components import advice_cards, cards, confirming, dry_run, freshness, viewer_name
from dashboard.components.attributes import attrs
from dashboard.figures import advice as figures
from dashboard.live import Look, digest, look_of

# The buttons and fields of the cards are inactive while a decision is sent, so that it is not sent twice.
_INACTIVE_WHILE_SENT = [(Output("advice-cards", "disabled"), True, False)]
_HIDDEN = {"display": "none"}
# Only advice on the mode has candidates. At most so many of its cards are shown: an open one, an applied one, and the
# newest verified or rolled-back one.
_CANDIDATES = ("candidates", "candidates-2", "candidates-3", "candidates-4")


def layout(route: routes.Route) -> Component:
    """Build the page without data, which the first refresh adds."""
    return html.Div(
        [
            dcc.Store(id="advice-route", data={"job": route.job}),
            dcc.Store(id="advice-digest"),
            dcc.Store(id="advice-title"),
            dcc.Store(id="advice-changed"),
            confirming.dialog("advice", "Change the running job", "Apply now", icon="bolt", has_guard=True),
            confirming.dialog("undo", "Roll back the change", "Roll back now", icon="sync"),
            html.Div(id="advice-stale"),
            html.Div(id="advice-head", className="page-head"),
            html.Div(id="advice-message", **attrs({"aria-live": "polite"})),
            html.Div(
                viewer_name.field("advice"),
                style={"maxWidth": "24rem", "margin": "0 0 12px"},
            ),
            html.Fieldset(id="advice-cards", className="bare", **attrs({"aria-label": "Recommendations"})),
            html.Div(_outcome(), id="advice-outcome", style=_HIDDEN),
            *(html.Div(_candidates(name), id=f"advice-{name}", style=_HIDDEN) for name in _CANDIDATES),
            html.Div(id="advice-history"),
            html.Div(id="advice-source"),
        ]
    )


def _outcome() -> Component:
    hint = html.Span(id="outcome-hint")
    return cards.chart("outcome", "Before and after", hint=hint, height_px=figures.outcome_height_px([]))


def _candidates(name: str) -> Component:
    return cards.chart(
        name,
        "Duration against persisted data",
        hint=html.Span(id=f"{name}-hint"),
        height_px=figures.CANDIDATES_HEIGHT_PX,
    )


def register(app: Dash, client: ApiClient) -> None:
    """Register the callbacks of the page."""
    _register_list(app, client)
    _register_decisions(app, client)
    _register_changes(app, client)


def _register_list(app: Dash, client: ApiClient) -> None:
    connect(
        app,
        partial(refresh, client),
        output={
            "message": Output("advice-message", "children"),
            "stale": Output("advice-stale", "children"),
            "head": Output("advice-head", "children"),
            "cards": Output("advice-cards", "children"),
            "history": Output("advice-history", "children"),
            "outcome": cards.chart_outputs("outcome"),
            "outcome_style": Output("advice-outcome", "style"),
            "outcome_hint": Output("outcome-hint", "children"),
            **{name: cards.chart_outputs(name) for name in _CANDIDATES},
            **{f"{name}_style": Output(f"advice-{name}", "style") for name in _CANDIDATES},
            **{f"{name}_hint": Output(f"{name}-hint", "children") for name in _CANDIDATES},
            "source": Output("advice-source", "children"),
            "title": Output("advice-title", "data"),
            "digest": Output("advice-digest", "data"),
        },
        inputs={
            "tick": Input("tick", "n_intervals"),
            "look": Input("look", "data"),
            "changed": Input("advice-changed", "data"),
        },
        state={"route": State("advice-route", "data"), "before": State("advice-digest", "data")},
    )


async def refresh(
    client: ApiClient, *, tick: int | None, look: object, changed: Any, route: dict[str, str], before: str | None
) -> Changes:
    """Return the recommendations for the job in ``route``. ``before`` is the ``digest`` output of the previous call."""
    view = look_of(look)
    advice = await client.advice(route["job"])
    past = await client.recommendations(route["job"])
    source = _source(advice)
    changes: Changes = {"source": source}
    behind = [advice_cards.is_behind(c, advice.as_of) for c in advice.cards]
    drawn_for = (str(view.where), view.theme.name, view.is_narrow)
    now = digest(
        advice.freshness and advice.freshness.reason,
        *advice.cards,
        *behind,
        *advice.silences,
        *advice.lints,
        *past.items,
        advice.considered_count,
        advice.chosen_by,
        *drawn_for,
    )
    if now == before:
        return changes
    shown = {c.id for c in advice.cards}
    if before is None:
        # A later refresh keeps the message, because it may show the result of a button.
        changes["message"] = None
    return (
        changes
        | _charts(advice.cards, view)
        | {
            "stale": freshness.note(advice.freshness, "This job"),
            "head": _head(advice),
            "cards": advice_cards.all_of(advice, view.where),
            "history": [
                advice_cards.lints(advice.lints),
                advice_cards.silences(advice.silences),
                advice_cards.history([c for c in past.items if c.id not in shown], view.where),
            ],
            "title": f"Advice for {advice.job}",
            "digest": now,
        }
    )


def _charts(advice: list[CardOut], view: Look) -> Changes:
    """Draw the charts for which there is something to draw. Hide the others."""
    measured = [c for c in advice if figures.has_outcome(c)]
    replayed = [c for c in advice if c.recommendation.candidates]
    changes: Changes = {"outcome_style": {} if measured else _HIDDEN}
    changes |= {f"{name}_style": {} if i < len(replayed) else _HIDDEN for i, name in enumerate(_CANDIDATES)}
    if measured:
        drawn = figures.outcome(measured, theme=view.theme, is_narrow=view.is_narrow)
        changes["outcome"] = cards.chart_values("outcome", drawn)
        told = "; ".join(f"{figures.topic_of(c)}: {c.recommendation.headline}" for c in measured)
        changes["outcome_hint"] = (
            f"{told}. Each point is a checkpoint; the band is the predicted interval of their median"
        )
    for name, card in zip(_CANDIDATES, replayed, strict=False):
        drawn = figures.candidates(card, theme=view.theme, is_narrow=view.is_narrow)
        changes[name] = cards.chart_values(name, drawn)
        changes[f"{name}_hint"] = (
            f"{card.recommendation.headline}: each candidate, {_how(card)}; down and to the left is better"
        )
    return changes


def _answer_outputs() -> dict[str, Output]:
    return {
        "message": Output("advice-message", "children", allow_duplicate=True),
        "changed": Output("advice-changed", "data", allow_duplicate=True),
    }


def _register_decisions(app: Dash, client: ApiClient) -> None:
    connect(
        app,
        partial(decide, client),
        output=_answer_outputs(),
        inputs={
            "dismissed": Input({"type": "advice-dismiss", "card": ALL}, "n_clicks"),
            "accepted": Input({"type": "advice-accept", "card": ALL}, "n_clicks"),
        },
        state={
            "reasons": State({"type": "advice-reason", "card": ALL}, "value"),
            "ids": State({"type": "advice-reason", "card": ALL}, "id"),
            "author": viewer_name.typed("advice"),
            "route": State("advice-route", "data"),
        },
        running=_INACTIVE_WHILE_SENT,
        has_trigger=True,
        prevent_initial_call=True,
    )


async def decide(
    client: ApiClient,
    *,
    dismissed: list[int | None],
    accepted: list[int | None],
    reasons: list[str | None],
    ids: list[dict[str, str]],
    author: str | None,
    route: dict[str, str],
    trigger: object,
) -> Changes:
    """Accept or dismiss the card whose button was pressed. A dismissal needs a reason."""
    pressed = pressed_id([*dismissed, *accepted], trigger)
    if pressed is None:
        raise PreventUpdate
    card = str(pressed["card"])
    if pressed["type"] == "advice-accept":
        await client.accept_advice(route["job"], card, viewer_name.given(author))
        words = "Accepted. The state changes to applied when the engine reports the new settings."
        return {"message": cards.answer(True, words), "changed": [card, "yes"]}
    reason = next((r for r, i in zip(reasons, ids, strict=True) if i["card"] == card), None)
    if not (reason or "").strip():
        return {"message": cards.answer(False, "Enter a reason for the dismissal.")}
    await client.dismiss_advice(route["job"], card, (reason or "").strip(), viewer_name.given(author))
    words = "Dismissed. It is not recommended again for 30 days, unless the settings change."
    return {"message": cards.answer(True, words), "changed": [card, "no"]}


def _register_changes(app: Dash, client: ApiClient) -> None:
    """Register the two changes of a running job. Each is sent after the viewer has confirmed it in its dialog."""
    sent = {"card": State("advice-subject", "data"), "guard": confirming.guard("advice")}
    undone = {"card": State("undo-subject", "data")}
    for name, button, ask, change, subject in (
        ("advice", "advice-apply", ask_to_apply, apply, sent),
        ("undo", "advice-undo", ask_to_roll_back, roll_back, undone),
    ):
        connect(
            app,
            partial(ask, client),
            output=confirming.outputs(name) | {"message": Output("advice-message", "children", allow_duplicate=True)},
            inputs={"clicks": Input({"type": button, "card": ALL}, "n_clicks")},
            state={"route": State("advice-route", "data")},
            running=[confirming.busy(name, "Asking the target what it would do ...")],
            has_trigger=True,
            prevent_initial_call=True,
        )
        connect(
            app,
            partial(change, client),
            output=_answer_outputs(),
            inputs={"confirmed": confirming.confirmed(name)},
            state={"route": State("advice-route", "data"), "author": viewer_name.typed("advice")} | subject,
            running=[*_INACTIVE_WHILE_SENT, confirming.busy(name, "Sending it to the target ...")],
            prevent_initial_call=True,
        )
        confirming.register(app, name)


async def ask_to_apply(
    client: ApiClient, *, clicks: list[int | None], route: dict[str, str], trigger: object
) -> Changes:
    """Ask for confirmation before settings of a running job are changed. Name the job and each setting."""
    return await _asked(client, clicks, route, trigger, is_undone=False)


async def ask_to_roll_back(
    client: ApiClient, *, clicks: list[int | None], route: dict[str, str], trigger: object
) -> Changes:
    """Ask for confirmation before settings of a running job are changed back."""
    return await _asked(client, clicks, route, trigger, is_undone=True)


async def _asked(
    client: ApiClient, clicks: list[int | None], route: dict[str, str], trigger: object, *, is_undone: bool
) -> Changes:
    pressed = pressed_id(clicks, trigger)
    if pressed is None:
        raise PreventUpdate
    advice = await client.advice(route["job"])
    card = next((c for c in advice.cards if c.id == pressed["card"]), None)
    if card is None or not (card.can_roll_back if is_undone else card.can_apply):
        gone = "This change is not in force any more." if is_undone else "This recommendation is not open any more."
        if is_undone and card is not None and card.is_rolling_back:
            gone = "A roll back was sent already. The engine has not reported the earlier settings yet."
        return {"message": cards.answer(False, gone)}
    verb = "Set these settings of" if is_undone else "Change these settings of"
    tail = " back now?" if is_undone else " now?"
    next_ = "The next checkpoints show the effect." if is_undone else "The card shows how to undo it."
    question = [
        html.P([f"{verb} ", html.B(advice.job), tail]),
        advice_cards.diff(card.recommendation, is_undone=is_undone),
        dry_run.tried(await client.try_advice(route["job"], card.id, is_roll_back=is_undone)),
        html.P(f"The change {advice_cards.when(card.recommendation)}. {next_}", className="hint"),
    ]
    return {"message": None} | confirming.opened(card.id, question)


async def apply(
    client: ApiClient,
    *,
    confirmed: int | None,
    card: str | None,
    guard: bool | None,
    author: str | None,
    route: dict[str, str],
) -> Changes:
    """Apply a recommendation once the viewer has confirmed it."""
    if not confirmed or not card:
        raise PreventUpdate
    await client.apply_advice(route["job"], card, is_guarded=bool(guard), author=viewer_name.given(author))
    words = "Sent. The state changes to applied when the engine reports the new settings."
    if guard:
        words += " If the checkpoints are worse after it, it is rolled back by itself."
    return {"message": cards.answer(True, words), "changed": [card, "applied"]}


async def roll_back(
    client: ApiClient, *, confirmed: int | None, card: str | None, author: str | None, route: dict[str, str]
) -> Changes:
    """Undo an applied recommendation once the viewer has confirmed it."""
    if not confirmed or not card:
        raise PreventUpdate
    await client.roll_back_advice(route["job"], card, viewer_name.given(author))
    words = "Sent. The state changes to rolled back when the engine reports the earlier settings."
    return {"message": cards.answer(True, words), "changed": [card, "rolled back"]}


def _source(advice: JobAdviceOut) -> Component:
    """Build the line with the age of the rules' result, and the age of the numbers of the new recommendations."""
    parts: list[Component | str] = ["Source: this service's rules and store", cards.age("evaluated", advice.as_of)]
    computed = [c.computed_at for c in advice.cards if c.state is AdviceState.NEW and c.computed_at is not None]
    if computed:
        parts.append(cards.age("numbers computed", min(computed), is_alarming=False))
    return cards.source_line(parts)


# --- parts --------------------------------------------------------------------------------------------------------


def _how(card: CardOut) -> str:
    """Return how the candidates of a card were predicted."""
    recommendation = card.recommendation
    is_replayed = recommendation.chosen_by is None and recommendation.predicted_by is None
    return "replayed on the recorded checkpoints" if is_replayed else "simulated with a model of the job"


def _head(advice: JobAdviceOut) -> list[Component]:
    crumbs: list[Component | str] = [
        dcc.Link("Fleet", href=routes.fleet()),
        " / ",
        dcc.Link(advice.job, href=routes.job(advice.job_id)),
    ]
    about = f"Based on the last {advice.considered_count} checkpoints with the current settings."
    if advice.chosen_by is not None:
        about += f" {advice.chosen_by.text}"
    return [
        html.Div(
            [
                html.Div(crumbs, className="crumbs"),
                html.H1("Advice"),
                html.P(about, className="hint"),
            ]
        ),
        html.Div(
            [
                cards.link_button("What if", routes.what_if(advice.job_id), "gauge", hint="try other settings"),
                cards.link_button(
                    "Backtest", routes.backtest(advice.job_id), "clock", hint="what it would have said of the past"
                ),
            ],
            className="head-tools",
        ),
    ]
