"""Runs and cancels simulations, and follows the state of the one that the controls describe.

The store ``lab-shown`` names the completed simulation whose results the page shows. If the controls describe another
simulation, the results stay, dimmed, until there are new ones.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate

from backend.contracts.simulations import (
    SimulationCatalogOut,
    SimulationIn,
    SimulationOut,
    SimulationState,
    simulation_id_of,
)
from backend.domain.errors import ApiNotFoundError, ApiRefusedError, ApiUnavailableError
from dashboard import lab_address
from dashboard.callbacks import Changes, connect
from dashboard.client import ApiClient
from dashboard.components import cards, simulations
from dashboard.live import Look, digest, look_of
from dashboard.pages.lab.details import (
    KINDS,
    SIDES,
    default_id,
    end_ms_of,
    half_ms_of,
    head,
    heights,
    ids_of,
    options,
    shown_of,
)

# Until the first answer, the results take their place without being seen. So nothing moves when they come.
AWAITED, EMPTY, STALE = "lab-results is-awaited", "lab-results is-empty", "lab-results is-stale"


def register(app: Dash, client: ApiClient) -> None:
    """Register the callbacks that run, cancel and follow a simulation, and choose a checkpoint."""
    _register_buttons(app, client)
    connect(
        app,
        partial(refresh, client),
        output={
            "message": Output("lab-message", "children", allow_duplicate=True),
            "state": Output("lab-status", "children"),
            "cancel": Output("lab-cancel", "disabled"),
            "still": Output("lab-tick", "disabled"),
            "problems": Output("lab-problems", "data"),
            "differences": Output("lab-differences", "children"),
            "shown": Output("lab-shown", "data"),
            "digest": Output("lab-digest", "data"),
            "details": _detail_outputs(is_first=True),
            # The browser applies outputs in their order, on a slow machine over several frames. The results are seen
            # last, when their boxes have their sizes.
            "class": Output("lab-results", "className"),
        },
        inputs={
            "tick": Input("lab-tick", "n_intervals"),
            "wanted": Input("lab-wanted", "data"),
            "pressed": Input("lab-pressed", "data"),
            "look": Input("look", "data"),
        },
        state={
            "before": State("lab-digest", "data"),
            "shown": State("lab-shown", "data"),
            "checkpoint": State("lab-checkpoint", "data"),
            "at_ms": State("lab-at", "value"),
            "given_ms": State("lab-given-at", "data"),
        },
        prevent_initial_call="initial_duplicate",
    )
    connect(
        app,
        pick,
        output={"checkpoint": Output("lab-checkpoint", "data")},
        inputs={
            "chosen": Input("lab-pick", "value"),
            "back": Input("lab-back", "n_clicks"),
            "forth": Input("lab-forth", "n_clicks"),
            "in_a": Input("lab-timeline-a-graph", "clickData"),
            "in_b": Input("lab-timeline-b-graph", "clickData"),
        },
        state={"shown": State("lab-shown", "data"), "before": State("lab-checkpoint", "data")},
        has_trigger=True,
        prevent_initial_call=True,
    )
    connect(
        app,
        partial(detail, client),
        output={"details": _detail_outputs(is_first=False)},
        inputs={"checkpoint": Input("lab-checkpoint", "data")},
        state={"shown": State("lab-shown", "data"), "look": State("look", "data")},
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("lab", "place"),
        Input("lab-wanted", "data"),
        Input("lab-checkpoint", "data"),
        Input("lab-at", "value"),
        Input("lab-curve-caps", "value"),
        prevent_initial_call=True,
    )


def _register_buttons(app: Dash, client: ApiClient) -> None:
    buttons = (("lab-run", run), ("lab-cancel", cancel))
    for button, function in buttons:
        connect(
            app,
            partial(function, client),
            output={
                "message": Output("lab-message", "children", allow_duplicate=True),
                "pressed": Output("lab-pressed", "data", allow_duplicate=True),
                "problems": Output("lab-problems", "data", allow_duplicate=True),
            },
            inputs={"clicks": Input(button, "n_clicks")},
            state={"wanted": State("lab-wanted", "data"), "pressed": State("lab-pressed", "data")},
            prevent_initial_call=True,
        )


def _detail_outputs(*, is_first: bool) -> dict[str, Any]:
    def output(id_: str, name: str) -> Output:
        return Output(id_, name, allow_duplicate=not is_first)

    return {
        "options": output("lab-pick", "data"),
        "picked": output("lab-pick", "value"),
        "end_ms": output("lab-at", "max"),
        "at_ms": output("lab-at", "value"),
        "heads": {side: output(f"lab-head-{side}", "children") for side in SIDES},
        "boxes": {
            f"lab-{kind}-{side}": Output(f"lab-{kind}-{side}-box", "style", allow_duplicate=True)
            for kind in KINDS
            for side in SIDES
        },
    }


async def run(client: ApiClient, *, clicks: int | None, wanted: dict[str, Any], pressed: int) -> Changes:
    """Queue the simulation that the controls describe."""
    if not clicks:
        raise PreventUpdate
    request = lab_address.request_of(wanted)
    if isinstance(request, str):
        return {"message": cards.answer(False, request)}
    try:
        await client.run_simulation(request)
    except ApiRefusedError as problem:
        # The message of the API names the limit, or the place in the queue.
        return {"message": cards.answer(False, str(problem)), "problems": problem.fields}
    return {"message": None, "pressed": pressed + 1}


async def cancel(client: ApiClient, *, clicks: int | None, wanted: dict[str, Any], pressed: int) -> Changes:
    """Cancel the simulation that the controls describe."""
    if not clicks:
        raise PreventUpdate
    request = lab_address.request_of(wanted)
    if isinstance(request, str):
        raise PreventUpdate
    try:
        await client.cancel_simulation(simulation_id_of(request))
    except ApiNotFoundError:
        return {"message": cards.answer(False, "This simulation is no longer known."), "pressed": pressed + 1}
    return {"message": None, "pressed": pressed + 1}


async def refresh(
    client: ApiClient,
    *,
    tick: int | None,
    wanted: dict[str, Any],
    pressed: int,
    look: object,
    before: str | None,
    shown: dict[str, Any] | None,
    checkpoint: int | None,
    at_ms: float | None,
    given_ms: float | None,
) -> Changes:
    """Return the state of the simulation that the controls describe and, if it is completed, its results."""
    view = look_of(look)
    off: Changes = {"message": None, "cancel": True, "still": True, "problems": {}, "class": STALE if shown else EMPTY}
    request = lab_address.request_of(wanted)
    if isinstance(request, str):
        return off | {"state": simulations.unusable(request), "digest": None}
    try:
        simulation = await client.simulation(simulation_id_of(request))
    except ApiNotFoundError:
        return off | {"digest": None} | await _checked(client, request)
    except ApiUnavailableError as problem:
        # The next tick asks again.
        return {"message": cards.message(problem), "still": False, "digest": None}
    titles = titles_of(await client.simulation_catalog(), simulation)
    if simulation.state is not SimulationState.COMPLETED:
        is_over = simulation.state.is_terminal
        changes = {
            "cancel": is_over,
            "still": is_over,
            "digest": None,
            "state": simulations.state_of(simulation, titles),
        }
        return off | changes
    now = digest(simulation.id, view, titles)
    if now == before:
        return {"message": None, "cancel": True, "still": True, "class": _class(simulation)}
    # What is kept was accepted, so no value of it is wrong.
    is_same = shown is not None and shown["id"] == simulation.id
    number = checkpoint if checkpoint in ids_of(simulation.runs) else None
    return {
        "message": None,
        "state": simulations.state_of(simulation, titles),
        "cancel": True,
        "still": True,
        "class": _class(simulation),
        "problems": {},
        "differences": simulations.card(simulations.differences(simulation.runs, titles)),
        "shown": {
            "id": simulation.id,
            "ids": ids_of(simulation.runs),
            "default": default_id(simulation.runs),
            "at_ms": given_ms,
        },
        "digest": now,
        "details": await _details(client, simulation, titles, view, number, at_ms if is_same else given_ms),
    }


async def _checked(client: ApiClient, request: SimulationIn) -> Changes:
    """Return the state of a request without a result: it can be run, or some of its values cannot be used."""
    try:
        await client.check_simulation(request)
    except ApiRefusedError as problem:
        if problem.fields:
            first = next(iter(problem.fields.items()))
            return {"state": simulations.unusable(f"{first[0]}: {first[1]}."), "problems": problem.fields}
    except ApiUnavailableError:
        # Only a hint is missing. Running it says what is wrong.
        pass
    return {"state": simulations.not_kept()}


def _class(simulation: SimulationOut) -> str:
    return "lab-results has-two" if len(simulation.runs) == 2 else "lab-results has-one"


def titles_of(catalog: SimulationCatalogOut, simulation: SimulationOut) -> list[str]:
    """Return the titles of the protocols of a simulation."""
    known = {p.name: p.title for p in catalog.protocols}
    asked = (simulation.request.protocol, simulation.request.second_protocol)
    return [known.get(name, name) for name in asked if name is not None]


async def _details(
    client: ApiClient, simulation: SimulationOut, titles: list[str], view: Look, number: int | None, at_ms: float | None
) -> Changes:
    shown = await shown_of(client, simulation, number)
    end_ms = end_ms_of(shown)
    at = half_ms_of(shown) if at_ms is None else min(at_ms, end_ms)
    chosen = default_id(simulation.runs) if number is None else number
    heads: dict[str, list[Component]] = {side: [] for side in SIDES}
    heads |= {side: head(s, side.upper(), t) for side, s, t in zip(SIDES, shown, titles, strict=False)}
    return {
        "options": options(simulation.runs),
        "picked": None if chosen is None else str(chosen),
        "end_ms": end_ms,
        "at_ms": at,
        "heads": heads,
        "boxes": dict(heights(shown, view, at)),
    }


def pick(
    *,
    chosen: str | None,
    back: int | None,
    forth: int | None,
    in_a: Any,
    in_b: Any,
    shown: dict[str, Any] | None,
    before: int | None,
    trigger: object,
) -> Changes:
    """Return the checkpoint that the viewer chose in the list, with a button, or on a timeline."""
    if not shown:
        raise PreventUpdate
    ids, now = shown["ids"], shown["default"] if before is None else before
    if trigger in ("lab-back", "lab-forth"):
        place = ids.index(now) + (1 if trigger == "lab-forth" else -1) if now in ids else -1
        if not 0 <= place < len(ids):
            raise PreventUpdate
        return {"checkpoint": ids[place]}
    if trigger == "lab-pick":
        number = int(chosen) if chosen and chosen.isdecimal() else None
    else:
        try:
            number = (in_a if trigger == "lab-timeline-a-graph" else in_b)["points"][0]["customdata"][1]
        except (TypeError, KeyError, IndexError):
            raise PreventUpdate from None
    if number == now or number not in ids:
        raise PreventUpdate
    return {"checkpoint": number}


async def detail(client: ApiClient, *, checkpoint: int | None, shown: dict[str, Any] | None, look: object) -> Changes:
    """Return the heads and the sizes of the charts after the viewer chose another checkpoint."""
    view = look_of(look)
    if not shown or checkpoint not in shown["ids"]:
        raise PreventUpdate
    try:
        simulated = await client.simulated(shown["id"])
    except ApiNotFoundError:
        # The simulation has expired. The next refresh shows that.
        raise PreventUpdate from None
    titles = titles_of(await client.simulation_catalog(), simulated)
    return {"details": await _details(client, simulated, titles, view, checkpoint, None)}
