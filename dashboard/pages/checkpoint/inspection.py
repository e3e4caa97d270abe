"""Reads the threads and the flame graph of a subtask when the viewer asks for them, and shows them below the verdict.

Both show the subtask as it is now, not as it was at the time of the checkpoint. While the API does not answer, both are
requested again. If it answers that the engine does not, the viewer decides.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from dash import ALL, Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate

from backend.contracts.inspection import FlameGraphOut
from backend.domain.errors import ApiRefusedError, ApiUnavailableError
from backend.domain.inspection import StackType
from backend.domain.text import capitalised
from dashboard import text
from dashboard.callbacks import Changes, connect, pressed_id
from dashboard.client import ApiClient
from dashboard.components import cards, inspection
from dashboard.components.attributes import attrs
from dashboard.figures import flame
from dashboard.live import look_of

_HIDDEN = {"display": "none"}
_THREADS_RETRY = "cp-threads-retry"
_UPSTREAM = "upstream"
"""The kind of the problem if the engine does not answer the API."""
_EVERY_MS = 1000
_ASKED_MAX = 40
"""The flame graph is requested at most this many times, once a second. Flink's sampling takes about five seconds."""


def panel() -> Component:
    """Build the place of both, which is empty until the viewer asks."""
    return html.Div(
        [
            dcc.Store(id="cp-threads-subject"),
            dcc.Store(id="cp-flame-subject"),
            dcc.Store(id="cp-flame-drawn"),
            cards.retry(_THREADS_RETRY),
            dcc.Interval(id="cp-flame-tick", interval=_EVERY_MS, disabled=True, max_intervals=_ASKED_MAX),
            html.Div(id="cp-inspect-message", **attrs({"aria-live": "polite"})),
            html.Div(id="cp-threads"),
            html.Div(
                cards.chart(
                    "flame",
                    "Flame graph",
                    hint=html.Span(id="flame-hint"),
                    tools=[
                        cards.choice(
                            "Samples",
                            "flame-type",
                            {kind.value: word for kind, word in flame.WORDS.items()},
                            StackType.FULL.value,
                            width_px=124,
                        )
                    ],
                    before=html.P(id="flame-words", className="flame-words"),
                ),
                id="cp-flame",
                style=_HIDDEN,
            ),
        ]
    )


def register(app: Dash, client: ApiClient) -> None:
    """Register the callbacks that read threads and stacks."""
    connect(
        app,
        choose,
        output={
            "threads": Output("cp-threads-subject", "data"),
            "flame": Output("cp-flame-subject", "data"),
            "asked": Output("cp-flame-tick", "n_intervals"),
        },
        inputs={
            "clicks": Input({"type": "inspect", "what": ALL, "vertex": ALL, "subtask": ALL, "place": ALL}, "n_clicks"),
            "all_clicks": Input("cp-threads-all", "n_clicks", allow_optional=True),
        },
        state={"before": State("cp-threads-subject", "data")},
        has_trigger=True,
        prevent_initial_call=True,
    )
    connect(
        app,
        partial(show_threads, client),
        output={
            "threads": Output("cp-threads", "children"),
            "message": Output("cp-inspect-message", "children"),
        },
        inputs={"subject": Input("cp-threads-subject", "data")},
        state={"route": State("cp-route", "data")},
        prevent_initial_call=True,
        retry=_THREADS_RETRY,
    )
    connect(
        app,
        partial(show_flame_graph, client),
        output={
            "chart": cards.chart_outputs("flame"),
            "style": Output("cp-flame", "style"),
            "hint": Output("flame-hint", "children"),
            "words": Output("flame-words", "children"),
            "is_done": Output("cp-flame-tick", "disabled"),
            "drawn": Output("cp-flame-drawn", "data"),
            "message": Output("cp-inspect-message", "children", allow_duplicate=True),
        },
        inputs={
            "subject": Input("cp-flame-subject", "data"),
            "kind": Input("flame-type", "value"),
            "look": Input("look", "data"),
            "asked": Input("cp-flame-tick", "n_intervals"),
        },
        state={"route": State("cp-route", "data"), "drawn": State("cp-flame-drawn", "data")},
        has_trigger=True,
        prevent_initial_call=True,
    )


def choose(
    *, clicks: list[int | None], all_clicks: int | None, before: dict[str, Any] | None, trigger: object
) -> Changes:
    """Return the subtask whose button was pressed. Each press reads again."""
    if trigger == "cp-threads-all":
        if not all_clicks or before is None:
            raise PreventUpdate
        return {"threads": {**before, "all": not before["all"]}}
    pressed = pressed_id(clicks, trigger)
    if pressed is None or not pressed["vertex"]:
        raise PreventUpdate
    subject = {"vertex": pressed["vertex"], "subtask": pressed["subtask"], "press": sum(c or 0 for c in clicks)}
    if pressed["what"] == inspection.THREADS:
        return {"threads": {**subject, "all": False}}
    return {"flame": subject, "asked": 0}


async def show_threads(client: ApiClient, *, subject: dict[str, Any] | None, route: dict[str, Any]) -> Changes:
    """Read the threads of the chosen subtask, and show them.

    Raises:
        ApiUnavailableError: the API does not answer.
    """
    if subject is None:
        raise PreventUpdate
    try:
        threads = await client.threads(route["job"], subject["vertex"], subject["subtask"], has_all=subject["all"])
    except (ApiRefusedError, ApiUnavailableError) as problem:
        if _is_away(problem):
            raise
        return {"threads": None, "message": cards.answer(False, _sentence(problem))}
    return {"threads": inspection.threads_card(threads, has_all=subject["all"]), "message": None}


async def show_flame_graph(
    client: ApiClient,
    *,
    subject: dict[str, Any] | None,
    kind: str | None,
    look: object,
    asked: int | None,
    route: dict[str, Any],
    drawn: Any,
    trigger: object,
) -> Changes:
    """Read the flame graph of the chosen subtask, and draw it. While the engine is sampling, ask again."""
    if subject is None:
        raise PreventUpdate
    view, chosen = look_of(look), StackType(kind or StackType.FULL)
    key = [subject, chosen.value]
    if trigger == "cp-flame-tick" and (not asked or drawn == key):
        raise PreventUpdate
    try:
        flame_graph = await client.flame_graph(route["job"], subject["vertex"], subject["subtask"], chosen)
    except (ApiRefusedError, ApiUnavailableError) as problem:
        if _is_away(problem) and (asked or 0) < _ASKED_MAX - 1:
            # The next tick asks again.
            return {"is_done": False, "message": cards.message(problem)}
        return {"style": _HIDDEN, "is_done": True, "message": cards.answer(False, _sentence(problem))}
    chart = flame.flame_graph(flame_graph, theme=view.theme)
    is_late = flame_graph.is_sampling and (asked or 0) >= _ASKED_MAX - 1
    late = cards.answer(False, "The engine is still sampling. Press the button again later.") if is_late else None
    return {
        "chart": cards.chart_values("flame", chart),
        "style": {},
        "hint": _hint(flame_graph, chart.hints),
        "words": None if flame_graph.is_sampling else f"{flame.summary(flame_graph)}.",
        "is_done": not flame_graph.is_sampling or is_late,
        "drawn": None if flame_graph.is_sampling else key,
        "message": late,
    }


def _is_away(problem: Exception) -> bool:
    """Return whether the API does not answer. If only the engine does not, the API says so."""
    return isinstance(problem, ApiUnavailableError) and problem.kind != _UPSTREAM


def _hint(flame_graph: FlameGraphOut, hints: tuple[str, ...]) -> list[Component | str]:
    told: list[Component | str] = [f"{text.short(flame_graph.vertex, 40)} subtask {flame_graph.subtask}, now"]
    if flame_graph.sampled_at is not None:
        told.append(cards.age(", sampled", flame_graph.sampled_at, is_alarming=False))
    told += [f"; {hint}" for hint in hints]
    return told


def _sentence(problem: Exception) -> str:
    said = str(problem)
    return f"{capitalised(said)}."
