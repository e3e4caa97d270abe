"""The card with the curve over the cap: runs, stops and follows the simulation, and draws its points.

The curve has the job, the settings and the seed of the controls above. The field for the caps may stay empty: the
server then chooses them from what the unaligned checkpoints of the job persist.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate
from pydantic import ValidationError

from backend.contracts.cap_curves import CAPS_MAX, CapCurveIn, CapCurveOut, cap_curve_id_of
from backend.contracts.simulations import SimulationCatalogOut, SimulationState
from backend.domain.errors import ApiNotFoundError, ApiRefusedError, ApiUnavailableError
from dashboard import lab_address, text
from dashboard.callbacks import Changes, connect
from dashboard.client import ApiClient
from dashboard.components import cards, simulations, status
from dashboard.components.attributes import attrs
from dashboard.figures import cap_curve
from dashboard.live import digest, look_of
from dashboard.pages.lab import controls, more
from dashboard.palette import Tone

NAME: Final = "lab-curve"
EMPTY, STALE, SHOWN = "lab-curve-result is-empty", "lab-curve-result is-stale", "lab-curve-result"
_CAPPED: Final = {"protocol": "capped", "second_protocol": None}
_CAP: Final = "runtime.inflight-cap.bytes"
_POLL_MS: Final = 500
_NOT_KEPT: Final = "duration and persisted data, from aligned through caps on in-flight data to unaligned"
_KEPT: Final = "a result for these controls is kept"


def block(caps: str) -> Component:
    """Build the card without data, open if the address names caps. Its chart has its final size from the start."""
    return html.Details(
        [
            dcc.Store(id=f"{NAME}-pressed", data=0),
            dcc.Store(id=f"{NAME}-digest"),
            dcc.Interval(id=f"{NAME}-tick", interval=_POLL_MS, disabled=True),
            html.Summary(
                [html.Strong("Curve over the cap"), html.Span(_NOT_KEPT, id=f"{NAME}-kept", className="hint")]
            ),
            _controls(caps),
            _state(),
            html.Div(
                cards.chart(
                    NAME,
                    "Duration and persisted data over the cap",
                    hint=html.Span(["medians of the completed checkpoints · ", simulations.simulated()]),
                    before=html.P(id=f"{NAME}-sentence", className="lab-curve-sentence"),
                    height_px=cap_curve.HEIGHT_PX,
                ),
                id=f"{NAME}-result",
                className=EMPTY,
            ),
        ],
        id=NAME,
        className="card lab-curve",
        open=bool(caps),
    )


def _controls(caps: str) -> Component:
    return html.Div(
        [
            html.Div(
                [
                    html.Span("Caps of one subtask, optional", className="hint", **attrs({"aria-hidden": "true"})),
                    dmc.TextInput(
                        id=f"{NAME}-caps",
                        value=caps,
                        placeholder="chosen from what the job persists; or 0, 64 kb, 1 mb",
                        debounce=600,
                        size="sm",
                        **attrs({"aria-label": "Caps of one subtask, optional"}),
                    ),
                ],
                className="lab-field",
            ),
            html.Div(
                [
                    html.Button(
                        [status.icon("play"), html.Span("Draw the curve")],
                        id=f"{NAME}-run",
                        className="button",
                        title="run the job of the controls above once for each cap, or show the result if it is kept",
                    ),
                    html.Button(
                        [status.icon("cross"), html.Span("Stop")],
                        id=f"{NAME}-cancel",
                        className="button",
                        title="cancel the runs that are queued or running",
                        disabled=True,
                    ),
                ],
                className="lab-buttons",
            ),
        ],
        className="lab-curve-choices",
    )


def _state() -> Component:
    return html.Div(
        html.P("reading", className="hint"),
        id=f"{NAME}-status",
        className="lab-status",
        **attrs({"aria-label": "State of the curve", "aria-live": "polite", "role": "group"}),
    )


def register(app: Dash, client: ApiClient) -> None:
    """Register the callbacks that run, cancel and follow a curve."""
    request = {"wanted": State("lab-wanted", "data"), "caps": State(f"{NAME}-caps", "value")}
    for button, function in ((f"{NAME}-run", run), (f"{NAME}-cancel", cancel)):
        connect(
            app,
            partial(function, client),
            output={
                "message": Output("lab-message", "children", allow_duplicate=True),
                "pressed": Output(f"{NAME}-pressed", "data", allow_duplicate=True),
            },
            inputs={"clicks": Input(button, "n_clicks")},
            state={**request, "pressed": State(f"{NAME}-pressed", "data")},
            prevent_initial_call=True,
        )
    connect(
        app,
        partial(refresh, client),
        output={
            "message": Output("lab-message", "children", allow_duplicate=True),
            "state": Output(f"{NAME}-status", "children"),
            "cancel": Output(f"{NAME}-cancel", "disabled"),
            "still": Output(f"{NAME}-tick", "disabled"),
            "class": Output(f"{NAME}-result", "className"),
            "kept": Output(f"{NAME}-kept", "children"),
            "sentence": Output(f"{NAME}-sentence", "children"),
            "chart": cards.chart_outputs(NAME),
            "digest": Output(f"{NAME}-digest", "data"),
        },
        inputs={
            "tick": Input(f"{NAME}-tick", "n_intervals"),
            "wanted": Input("lab-wanted", "data"),
            "caps": Input(f"{NAME}-caps", "value"),
            "pressed": Input(f"{NAME}-pressed", "data"),
            "look": Input("look", "data"),
        },
        state={"before": State(f"{NAME}-digest", "data")},
        prevent_initial_call="initial_duplicate",
    )


def request_of(wanted: Mapping[str, Any], caps: str | None, catalog: SimulationCatalogOut) -> CapCurveIn | str:
    """Return the request for the curve of the controls, or a sentence that says what is wrong with it.

    A setting that no run of the curve uses is left out, and so is the cap of the controls.
    """
    request = lab_address.request_of(wanted)
    if isinstance(request, str):
        return request
    values = caps_of(caps)
    if isinstance(values, str):
        return values
    used = {s.key for s in catalog.settings if s.key != _CAP and more.is_used_by(s, _CAPPED)}
    try:
        return CapCurveIn(
            shape=request.shape,
            caps_bytes=values,
            settings={k: v for k, v in request.settings.items() if k in used},
            parallelism=request.parallelism,
            duration_s=request.duration_s,
            seed=request.seed,
        )
    except ValidationError as error:
        return f"The caps cannot be used: {error.errors(include_url=False)[0]['msg']}."


def caps_of(words: str | None) -> list[int] | str | None:
    """Return the caps in bytes that a text lists, None if it is empty, or a sentence that says what is wrong."""
    given = [w.strip() for w in (words or "").split(",") if w.strip()]
    if not given:
        return None
    if len(given) > CAPS_MAX:
        return f"{len(given)} caps are more than {CAPS_MAX}; leave some out."
    values = []
    for word in given:
        number = controls.number_of(word)
        if number is None or not word.lower().rstrip().endswith(("b", *"0123456789")):
            return f"The cap {word[:40]!r} is not a size, such as 64 kb or 1 mb."
        values.append(round(number))
    return sorted(set(values))


async def run(client: ApiClient, *, clicks: int | None, wanted: dict[str, Any], caps: str, pressed: int) -> Changes:
    """Queue the curve of the controls."""
    if not clicks:
        raise PreventUpdate
    request = request_of(wanted, caps, await client.simulation_catalog())
    if isinstance(request, str):
        return {"message": cards.answer(False, request)}
    try:
        await client.run_cap_curve(request)
    except ApiRefusedError as problem:
        return {"message": cards.answer(False, str(problem))}
    return {"message": None, "pressed": pressed + 1}


async def cancel(client: ApiClient, *, clicks: int | None, wanted: dict[str, Any], caps: str, pressed: int) -> Changes:
    """Cancel the curve of the controls."""
    if not clicks:
        raise PreventUpdate
    request = request_of(wanted, caps, await client.simulation_catalog())
    if isinstance(request, str):
        raise PreventUpdate
    try:
        await client.cancel_cap_curve(cap_curve_id_of(request))
    except ApiNotFoundError:
        return {"message": cards.answer(False, "This curve is no longer known."), "pressed": pressed + 1}
    return {"message": None, "pressed": pressed + 1}


async def refresh(
    client: ApiClient,
    *,
    tick: int | None,
    wanted: dict[str, Any],
    caps: str | None,
    pressed: int,
    look: object,
    before: str | None,
) -> Changes:
    """Return the state of the curve of the controls and, if it is completed, its chart."""
    view = look_of(look)
    off: Changes = {"cancel": True, "still": True, "class": STALE if before else EMPTY, "kept": _NOT_KEPT}
    try:
        request = request_of(wanted, caps, await client.simulation_catalog())
    except ApiUnavailableError as problem:
        return {"state": simulations.unanswered(problem), "still": False}
    if isinstance(request, str):
        return off | {"state": simulations.unusable(request)}
    try:
        answer = await client.cap_curve(cap_curve_id_of(request))
    except ApiNotFoundError:
        return off | {"state": not_drawn(request)}
    except ApiUnavailableError as problem:
        # The next tick asks again.
        return {"state": simulations.unanswered(problem), "still": False}
    if answer.state is not SimulationState.COMPLETED:
        is_over = answer.state.is_terminal
        return off | {"cancel": is_over, "still": is_over, "state": state_of(answer)}
    now = digest(answer.id, view)
    changes = off | {"state": state_of(answer), "class": SHOWN, "digest": now, "kept": _KEPT}
    if now == before:
        return changes
    chart = cap_curve.cap_curve(answer.points, theme=view.theme, revision=answer.id, is_narrow=view.is_narrow)
    return changes | {"sentence": chart.summary, "chart": cards.chart_values(NAME, chart)}


def not_drawn(request: CapCurveIn) -> list[Component]:
    """Build the state if no result is kept for the request."""
    caps = "caps chosen from what it persists" if request.caps_bytes is None else _counted(request.caps_bytes)
    words = f"Runs the job above aligned, unaligned, and with {caps}, with the same settings and seed."
    return simulations.state("not drawn yet", "play", Tone.QUIET, words)


def _counted(caps: list[int]) -> str:
    return text.counted(len(caps), "cap")


def state_of(curve: CapCurveOut) -> list[Component]:
    """Build the state of a curve."""
    match curve.state:
        case SimulationState.QUEUED:
            return simulations.queued(curve)
        case SimulationState.RUNNING:
            return simulations.running(curve, f"{text.percent(curve.progress_ratio)} of the runs is simulated.")
        case SimulationState.FAILED:
            why = curve.reason or "no reason is known"
            return simulations.state("failed", "cross", Tone.BAD, f"The simulation failed: {why}.")
        case SimulationState.CANCELLED:
            words = "The curve was stopped. Draw it again for a result."
            return simulations.state("stopped", "cross", Tone.QUIET, words)
        case SimulationState.COMPLETED:
            return simulations.state("completed", "check", Tone.GOOD, _completed(curve))


def _completed(curve: CapCurveOut) -> str:
    words = f"{text.counted(len(curve.points), 'run')} of {text.duration(1_000 * curve.request.duration_s)} simulated."
    return words if curve.expires_at is None else (
        f"{words} The result is kept until {text.instant_utc(curve.expires_at)[:16]} UTC."
    )  # fmt: skip
