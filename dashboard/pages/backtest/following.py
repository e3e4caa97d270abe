"""Starts a backtest, follows and cancels it, and shows its result."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate

from backend.contracts.backtests import BacktestIn, BacktestResultOut
from backend.domain.backtest import Part
from backend.domain.errors import ApiNotFoundError, ApiRefusedError, ApiUnavailableError
from dashboard import routes, text
from dashboard.callbacks import Changes, connect
from dashboard.client import ApiClient
from dashboard.components import backtests, cards, simulations, status
from dashboard.figures import backtest as figures
from dashboard.live import Look, look_of

EMPTY: Final = "backtest-results is-empty"
SHOWN: Final = "backtest-results"
COUNTS: Final = (100, 500, 2_000)
FIRST_COUNT: Final = 500
_CHARTS: Final = ("said", "effects", "warnings")


def register(app: Dash, client: ApiClient) -> None:
    """Register the callbacks of the page."""
    connect(
        app,
        partial(head, client),
        output={
            "head": Output("backtest-head", "children"),
            "title": Output("backtest-title", "data"),
            "message": Output("backtest-message", "children", allow_duplicate=True),
        },
        inputs={"route": Input("backtest-route", "data"), "tick": Input("status-tick", "n_intervals")},
        state={"title": State("backtest-title", "data")},
        prevent_initial_call="initial_duplicate",
    )
    connect(
        app,
        partial(press, client),
        output={
            "message": Output("backtest-message", "children"),
            "id": Output("backtest-id", "data"),
            "pressed": Output("backtest-pressed", "data"),
        },
        inputs={"run": Input("backtest-run", "n_clicks"), "cancel": Input("backtest-cancel", "n_clicks")},
        state={
            "parts": State("backtest-parts", "value"),
            "count": State("backtest-count", "value"),
            "current": State("backtest-id", "data"),
            "pressed": State("backtest-pressed", "data"),
            "route": State("backtest-route", "data"),
        },
        has_trigger=True,
        running=[(Output("backtest-run", "disabled"), True, False)],
        prevent_initial_call=True,
    )
    connect(
        app,
        partial(follow, client),
        output={
            "state": Output("backtest-state", "children"),
            "still": Output("backtest-tick", "disabled"),
            "cancel": Output("backtest-cancel", "disabled"),
            "class": Output("backtest-results", "className"),
            **{name: Output(f"backtest-{name}", "children") for name in ("verdict", "advice", "warning")},
            "episodes": Output("backtest-episodes", "children"),
            "cards": Output("backtest-cards", "children"),
            **{name: cards.chart_outputs(f"backtest-{name}") for name in _CHARTS},
            "parts": Output("backtest-parts", "value"),
            "counts": Output("backtest-count", "data"),
            "count": Output("backtest-count", "value"),
            "filled": Output("backtest-filled", "data"),
        },
        inputs={
            "tick": Input("backtest-tick", "n_intervals"),
            "current": Input("backtest-id", "data"),
            "pressed": Input("backtest-pressed", "data"),
            "look": Input("look", "data"),
        },
        state={"route": State("backtest-route", "data"), "filled": State("backtest-filled", "data")},
    )
    app.clientside_callback(
        ClientsideFunction("bs", "placeBacktest"), Input("backtest-id", "data"), prevent_initial_call=True
    )


async def head(client: ApiClient, *, route: dict[str, str], tick: int | None, title: str | None) -> Changes:
    """Return the head of the page, with the name of the job. If it could not be read, a later tick asks again."""
    if title is not None:
        raise PreventUpdate
    job = await client.job(route["job"])
    crumbs: list[Component | str] = [
        dcc.Link("Fleet", href=routes.fleet()),
        " / ",
        dcc.Link(job.name, href=routes.job(job.id)),
    ]
    about = "What the verdict, the advice and the warnings would have said of the past, and how they would have fared."
    parts = [
        html.Div([html.Div(crumbs, className="crumbs"), html.H1("Backtest"), html.P(about, className="hint")]),
        html.Div(
            cards.link_button("Advice", routes.advice(job.id), "bolt", hint="what it says now"), className="head-tools"
        ),
    ]
    return {"head": parts, "title": f"Backtest: {job.name}", "message": None}


async def press(
    client: ApiClient,
    *,
    run: int | None,
    cancel: int | None,
    parts: list[str],
    count: str,
    current: str | None,
    pressed: int,
    route: dict[str, str],
    trigger: object,
) -> Changes:
    """Start a backtest, or cancel the one that runs."""
    if trigger == "backtest-cancel":
        if not cancel or current is None:
            raise PreventUpdate
        try:
            await client.cancel_backtest(route["job"], current)
        except ApiNotFoundError:
            return {"message": cards.answer(False, "This backtest is no longer known."), "pressed": pressed + 1}
        return {"message": None, "pressed": pressed + 1}
    if not run:
        raise PreventUpdate
    if not parts:
        return {"message": cards.answer(False, "Choose at least one part to replay: verdicts, advice or warnings.")}
    wanted = BacktestIn(parts=[Part(p) for p in parts], checkpoint_count=int(count))
    backtest = await client.run_backtest(route["job"], wanted)
    return {"message": None, "id": backtest.id, "pressed": pressed + 1}


async def follow(
    client: ApiClient,
    *,
    tick: int | None,
    current: str | None,
    pressed: int,
    look: object,
    route: dict[str, str],
    filled: str | None,
) -> Changes:
    """Return the state of the backtest and, when it is completed, its result.

    The controls show the request of the backtest. Once they do, they belong to the viewer.
    """
    off: Changes = {"still": True, "cancel": True, "class": EMPTY}
    if current is None:
        return off | {"state": backtests.not_run()}
    try:
        backtest = await client.backtest(route["job"], current)
    except ApiNotFoundError:
        return off | {"state": backtests.not_kept()}
    except ApiRefusedError as problem:
        return off | {"state": simulations.refused(problem)}
    except ApiUnavailableError as problem:
        # The next tick asks again. What the page shows stays.
        return {"state": simulations.unanswered(problem), "still": False}
    is_over = backtest.state.is_terminal
    changes: Changes = {"state": backtests.state_of(backtest), "still": is_over, "cancel": is_over, "class": EMPTY}
    if filled != backtest.id:
        changes |= requested(backtest.request) | {"filled": backtest.id}
    if backtest.result is None:
        return changes
    # The state and the result come together, so that nothing moves when the page is loaded.
    return changes | {"class": SHOWN} | shown(route["job"], backtest.result, look_of(look))


def choices(count: int) -> list[dict[str, str]]:
    """Return the choices of a number of checkpoints. ``count`` is among them, as scripts may ask for any number."""
    return [{"value": str(n), "label": text.count(n)} for n in sorted({*COUNTS, count})]


def requested(request: BacktestIn) -> Changes:
    """Return the controls with what a backtest was asked for."""
    count = request.checkpoint_count
    return {"parts": [part.value for part in request.parts], "counts": choices(count), "count": str(count)}


def shown(job: str, result: BacktestResultOut, view: Look) -> Changes:
    """Return the parts of the page with the result of a completed backtest."""
    verdict, advice, warning = result.verdict, result.advice, result.warning
    words = {kind.value: word for kind, word in status.KIND_WORDS.items()}
    how: dict[str, Any] = {"theme": view.theme, "where": view.where, "is_narrow": view.is_narrow}
    charts = {
        "said": figures.said(verdict.episodes if verdict and verdict.checkpoint_count else None, words, **how),
        "effects": figures.effects(advice.cards if advice and advice.checkpoint_count else None, **how),
        "warnings": figures.warnings(warning.warnings if warning and warning.checkpoint_count else None, **how),
    }
    return {
        "verdict": backtests.verdict_words(verdict),
        "advice": backtests.advice_words(advice),
        "warning": backtests.warning_words(warning),
        "episodes": backtests.episodes(job, verdict, view.where),
        "cards": backtests.replayed_cards(job, advice, view.where),
        **{name: cards.chart_values(f"backtest-{name}", chart) for name, chart in charts.items()},
    }
