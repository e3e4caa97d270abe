"""The confirmation of a what-if on the reference runtime: its buttons, its progress, and its barriers."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from dash import Dash, Input, Output, State
from dash.exceptions import PreventUpdate

from backend.contracts.simulations import SimulationState
from backend.contracts.whatif import ConfirmationOut, WhatIfIn
from backend.domain.errors import ApiNotFoundError, ApiRefusedError, ApiUnavailableError
from dashboard.callbacks import Changes, connect
from dashboard.client import ApiClient
from dashboard.components import cards, simulations, time_slider, whatif
from dashboard.figures import whatif as figures
from dashboard.live import look_of
from dashboard.pages.lab.details import Shown, chart_of, end_ms_of, half_ms_of
from dashboard.pages.whatif.answers import settings_in

KINDS: Final = ("front", "space-time")
SIDES: Final = ("a", "b")
EMPTY, SHOWN, STALE = "whatif-runs is-empty", "whatif-runs", "whatif-runs is-stale"


def register(app: Dash, client: ApiClient) -> None:
    """Register the callbacks that confirm, cancel and follow."""
    connect(
        app,
        partial(confirm, client),
        output={
            "message": Output("whatif-message", "children", allow_duplicate=True),
            "confirmation": Output("whatif-confirmation", "data"),
            "pressed": Output("whatif-pressed", "data"),
        },
        inputs={"confirm": Input("whatif-confirm", "n_clicks"), "cancel": Input("whatif-cancel", "n_clicks")},
        state={
            "answered": State("whatif-answered", "data"),
            "confirmation": State("whatif-confirmation", "data"),
            "pressed": State("whatif-pressed", "data"),
            "route": State("whatif-route", "data"),
        },
        has_trigger=True,
        prevent_initial_call=True,
    )
    connect(
        app,
        partial(follow, client),
        output={
            "state": Output("whatif-state", "children"),
            "still": Output("whatif-tick", "disabled"),
            "cancel": Output("whatif-cancel", "disabled"),
            "confirm": Output("whatif-confirm", "disabled"),
            "class": Output("whatif-runs", "className"),
            "table": Output("whatif-confirmed", "children"),
            "shown": Output("whatif-shown", "data"),
            "end_ms": Output("whatif-at", "max"),
            "at_ms": Output("whatif-at", "value"),
        },
        inputs={
            "tick": Input("whatif-tick", "n_intervals"),
            "pressed": Input("whatif-pressed", "data"),
            "answered": Input("whatif-answered", "data"),
        },
        state={
            "confirmation": State("whatif-confirmation", "data"),
            "shown": State("whatif-shown", "data"),
            "route": State("whatif-route", "data"),
        },
    )
    connect(
        app,
        partial(draw, client),
        output={
            **{f"{k}-{s}": cards.chart_outputs(f"whatif-{k}-{s}") for k in KINDS for s in SIDES},
            "drawn": Output("whatif-drawn", "data"),
        },
        inputs={
            "shown": Input("whatif-shown", "data"),
            "at_ms": Input("whatif-at", "value"),
            "look": Input("look", "data"),
        },
        state={"route": State("whatif-route", "data")},
        prevent_initial_call=True,
    )
    time_slider.register(app, "whatif", [Input("whatif-drawn", "data")])


async def confirm(
    client: ApiClient,
    *,
    confirm: int | None,
    cancel: int | None,
    answered: dict[str, Any] | None,
    confirmation: str | None,
    pressed: int,
    route: dict[str, str],
    trigger: object,
) -> Changes:
    """Queue the confirmation of the shown answer, or cancel the one that runs."""
    if trigger == "whatif-cancel":
        if not cancel or confirmation is None:
            raise PreventUpdate
        try:
            await client.cancel_confirmation(route["job"], confirmation)
        except ApiNotFoundError:
            return {"message": cards.answer(False, "This confirmation is no longer known."), "pressed": pressed + 1}
        return {"message": None, "pressed": pressed + 1}
    if not confirm or not answered:
        raise PreventUpdate
    try:
        what_if = await client.what_if(route["job"], WhatIfIn(settings=settings_in(answered), confirm=True))
    except ApiRefusedError as problem:
        return {"message": cards.answer(False, str(problem))}
    assert what_if.confirmation is not None
    return {"message": None, "confirmation": what_if.confirmation.id, "pressed": pressed + 1}


async def follow(
    client: ApiClient,
    *,
    tick: int | None,
    pressed: int,
    answered: dict[str, Any] | None,
    confirmation: str | None,
    shown: dict[str, Any] | None,
    route: dict[str, str],
) -> Changes:
    """Return the state of the confirmation and, when it is completed, its result."""
    is_changed = bool(settings_in(answered))
    off: Changes = {"still": True, "cancel": True, "confirm": not is_changed, "class": EMPTY}
    if confirmation is None:
        return off | {"state": whatif.not_confirmed()}
    try:
        answer = await client.confirmation(route["job"], confirmation)
    except ApiNotFoundError:
        return off | {"state": whatif.not_confirmed()}
    except ApiRefusedError as problem:
        return off | {"state": simulations.refused(problem)}
    except ApiUnavailableError as problem:
        # The next tick asks again. What the page shows stays.
        return {"state": simulations.unanswered(problem), "still": False}
    if answer.state is not SimulationState.COMPLETED:
        is_over = answer.state.is_terminal
        return {
            "state": whatif.state_of(answer),
            "still": is_over,
            "cancel": is_over,
            "confirm": not (is_over and is_changed),
            "class": EMPTY,
        }
    is_stale = answered is not None and settings_in(answered) != answer.settings
    changes: Changes = {
        "state": whatif.state_of(answer),
        "still": True,
        "cancel": True,
        "confirm": not is_changed,
        "class": STALE if is_stale else SHOWN,
    }
    if shown is not None and shown["id"] == answer.id:
        return changes
    try:
        sides = await _sides(client, route["job"], answer)
    except ApiUnavailableError as problem:
        return {"state": simulations.unanswered(problem), "still": False}
    return changes | {
        "table": [whatif.confirmed_words(answer, figures.name_of(answer.settings)), whatif.confirmed(answer)],
        "shown": {"id": answer.id},
        "end_ms": end_ms_of(sides),
        "at_ms": half_ms_of(sides),
    }


async def draw(
    client: ApiClient, *, shown: dict[str, Any] | None, at_ms: float | None, look: object, route: dict[str, str]
) -> Changes:
    """Draw the barrier fronts and the space-time diagrams of the two typical checkpoints."""
    view = look_of(look)
    if not shown:
        raise PreventUpdate
    try:
        confirmed = await client.confirmed(route["job"], shown["id"])
    except ApiNotFoundError:
        raise PreventUpdate from None
    changes: Changes = {"drawn": at_ms}
    sides = await _sides(client, route["job"], confirmed)
    for side, one in zip(SIDES, sides, strict=True):
        for kind in KINDS:
            name = f"whatif-{kind}-{side}"
            changes[f"{kind}-{side}"] = cards.chart_values(name, chart_of(kind, one, view, at_ms=at_ms, beside=sides))
    return changes


async def _sides(client: ApiClient, job: str, confirmation: ConfirmationOut) -> list[Shown]:
    shown = []
    for number, (run, checkpoint) in enumerate(zip(confirmation.runs, confirmation.typical_ids, strict=True)):
        detail = None
        if checkpoint is not None:
            detail = await client.confirmed_checkpoint(job, confirmation.id, number, checkpoint)
        shown.append(Shown(run, detail, is_beside=True))
    return shown
