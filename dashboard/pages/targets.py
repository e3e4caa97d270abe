"""The targets: what is watched, how it fares, what watching costs it; add one, try it first, pause or remove it."""

from __future__ import annotations

from typing import Any

from dash import ALL, Dash, Input, Output, State, ctx, dcc, html, no_update
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate
from pydantic import ValidationError

from backend.contracts.api import TargetIn, TargetOut, TargetTestOut
from backend.domain.errors import ApiRefusedError, ApiUnavailableError
from dashboard import text
from dashboard.client import ApiClient
from dashboard.components import cards, status
from dashboard.components.attributes import attrs
from dashboard.live import digest, guarded, look

_ABOUT = "What is watched. Reading uses the monitoring REST only; nothing is installed there."
_ORIGINS = {"api": "added here", "configuration": "configuration", "built-in": "built in", "push": "its jobs push"}
# What another place lists comes back at once; what pushes comes back with its next push, and one that is gone does not.
_REMOVABLE = ("api", "push")


def layout() -> Component:
    """The page before its first answer."""
    return html.Div(
        [
            html.Div(
                html.Div(
                    [
                        html.H1("Targets"),
                        html.P(_ABOUT, className="hint"),
                    ]
                ),
                className="page-head",
            ),
            html.Div(id="targets-message"),
            dcc.Store(id="targets-title", data="Targets"),
            cards.card("Add a target", _form()),
            cards.card("Watched", html.Div(id="targets-list")),
            html.Div(id="targets-source"),
            dcc.Store(id="targets-digest"),
            dcc.Store(id="targets-changed"),
            dcc.ConfirmDialog(
                id="target-confirm",
                message="Stop watching this target? What was read of it is kept until its retention ends.",
            ),
            dcc.Store(id="target-to-remove"),
        ]
    )


def _form() -> Component:
    return html.Div(
        [
            html.Form(
                [
                    html.Label(
                        [
                            "Address of the REST root",
                            dcc.Input(
                                id="target-url",
                                type="url",
                                placeholder="http://my-flink:8081",
                                maxLength=2000,
                                autoComplete="off",
                                debounce=False,
                            ),
                        ],
                        className="field",
                    ),
                    html.Label(
                        [
                            "Name (optional)",
                            dcc.Input(id="target-name", type="text", maxLength=200, autoComplete="off"),
                        ],
                        className="field",
                    ),
                    html.Button(
                        [status.icon("plug"), html.Span("Test connection")],
                        id="target-test",
                        type="button",
                        className="button",
                    ),
                    html.Button(
                        [status.icon("plus"), html.Span("Add")],
                        id="target-add",
                        type="button",
                        className="button primary",
                    ),
                ],
                className="form-row",
                id="target-form",
            ),
            html.Div(id="target-answer", **attrs({"aria-live": "polite"})),
        ]
    )


def register(app: Dash, client: ApiClient) -> None:
    """Keep the list live; try, add, pause and remove."""
    _register_list(app, client)
    _register_form(app, client)
    _register_actions(app, client)


def _register_list(app: Dash, client: ApiClient) -> None:
    @app.callback(
        Output("targets-message", "children"),
        Output("targets-list", "children"),
        Output("targets-source", "children"),
        Output("targets-digest", "data"),
        Input("tick", "n_intervals"),
        Input("look", "data"),
        Input("targets-changed", "data"),
        State("targets-digest", "data"),
    )
    @guarded(4)
    async def refresh(_tick: int | None, look_data: object, _changed: Any, before: str | None) -> Any:
        look(look_data)
        page = await client.targets()
        source = cards.source_line(["Source: this service's API", cards.age("read", page.as_of)])
        now = digest(*page.items)
        if now == before:
            return None, no_update, source, no_update
        return None, _table(page.items), source, now


def _register_form(app: Dash, client: ApiClient) -> None:
    @app.callback(
        Output("target-answer", "children"),
        Output("targets-changed", "data"),
        Output("target-url", "value"),
        Output("target-name", "value"),
        Input("target-test", "n_clicks"),
        Input("target-add", "n_clicks"),
        State("target-url", "value"),
        State("target-name", "value"),
        running=[
            (Output("target-test", "disabled"), True, False),
            (Output("target-add", "disabled"), True, False),
        ],
        prevent_initial_call=True,
    )
    async def send(tests: int | None, adds: int | None, url: str | None, name: str | None) -> Any:
        if not (tests or adds):
            raise PreventUpdate
        if not (url or "").strip():
            return (
                cards.answer(False, "An address is needed, such as http://my-flink:8081."),
                no_update,
                no_update,
                no_update,
            )
        try:
            target = TargetIn(url=(url or "").strip(), name=(name or "").strip() or None)
            if ctx.triggered_id == "target-test":
                return _tested(await client.test_target(target)), no_update, no_update, no_update
            added = await client.add_target(target)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            return cards.answer(False, f"{first['loc'][0]}: {first['msg']}"), no_update, no_update, no_update
        except (ApiRefusedError, ApiUnavailableError) as problem:
            return cards.answer(False, str(problem)), no_update, no_update, no_update
        return cards.answer(True, f"{added.name} is watched from now on."), added.id, "", ""


def _register_actions(app: Dash, client: ApiClient) -> None:
    @app.callback(
        Output("targets-message", "children", allow_duplicate=True),
        Output("targets-changed", "data", allow_duplicate=True),
        Input({"type": "target-pause", "target": ALL, "to": ALL}, "n_clicks"),
        prevent_initial_call=True,
    )
    @guarded(2)
    async def pause(clicks: list[int | None]) -> Any:
        if not any(clicks) or not isinstance(ctx.triggered_id, dict):
            raise PreventUpdate
        await client.enable_target(ctx.triggered_id["target"], is_enabled=ctx.triggered_id["to"] == "on")
        return None, [ctx.triggered_id["target"], sum(c or 0 for c in clicks), ctx.triggered_id["to"]]

    @app.callback(
        Output("target-confirm", "displayed"),
        Output("target-to-remove", "data"),
        Input({"type": "target-remove", "target": ALL}, "n_clicks"),
        prevent_initial_call=True,
    )
    def ask(clicks: list[int | None]) -> Any:
        if not any(clicks) or not isinstance(ctx.triggered_id, dict):
            raise PreventUpdate
        return True, ctx.triggered_id["target"]

    @app.callback(
        Output("targets-message", "children", allow_duplicate=True),
        Output("targets-changed", "data", allow_duplicate=True),
        Input("target-confirm", "submit_n_clicks"),
        State("target-to-remove", "data"),
        prevent_initial_call=True,
    )
    @guarded(2)
    async def remove(confirmed: int | None, target: str | None) -> Any:
        if not confirmed or not target:
            raise PreventUpdate
        await client.remove_target(target)
        return None, ["removed", target]


def _tested(result: TargetTestOut) -> Component:
    if not result.is_ok:
        return cards.answer(
            False, f"{result.problem or 'It does not answer.'} (after {text.duration(result.duration_ms)})"
        )
    engine = " ".join(p for p in (result.engine.value if result.engine else "engine", result.engine_version) if p)
    names = ", ".join(text.short(j, 40) for j in result.running_jobs[:6])
    more = f" and {len(result.running_jobs) - 6} more" if len(result.running_jobs) > 6 else ""
    jobs = f"running: {names}{more}" if result.running_jobs else "no running job"
    return cards.answer(True, f"It answers: {engine}, {jobs} ({text.duration(result.duration_ms)}).")


def _table(targets: list[TargetOut]) -> Component:
    if not targets:
        return html.P("Nothing is watched yet.", className="empty-state")
    heads = ("Target", "Engine", "Health", "Last read", "Cost of a poll (measured)", "Origin")
    head = html.Thead(html.Tr([*(html.Th(h) for h in heads), cards.unseen_head("Actions")]))
    return html.Table([head, html.Tbody([_row(t) for t in targets])], className="plain-table targets-table")


def _row(target: TargetOut) -> html.Tr:
    state = target.health.state
    health: list[Component] = [status.badge(state, status.TARGET_ICONS[state], status.TARGET_TONES[state])]
    if target.health.reason:
        health.append(html.Div(text.short(target.health.reason, 160), className="hint", title=target.health.reason))
    engine = " ".join(p for p in (target.engine.value if target.engine else None, target.engine_version) if p)
    return html.Tr(
        [
            html.Td([html.B(target.name), html.Div(target.url, className="url")]),
            html.Td(engine or text.MISSING, title=None if engine else "not read yet"),
            html.Td(health),
            html.Td(cards.age("", target.health.last_success_at)),
            html.Td(_cost(target)),
            html.Td(_ORIGINS[target.origin]),
            html.Td(_actions(target)),
        ]
    )


def _cost(target: TargetOut) -> Component:
    cost = target.cost
    if cost is None:
        return html.Span(text.MISSING, title="not polled yet", className="missing")
    every = f"every {text.duration(cost.poll_interval_s * 1000)}"
    if target.origin == "push":
        return html.Span(f"none: it pushes {every}", title="nobody reads it; mean over the last pushes, measured")
    took = text.duration(round(cost.poll_duration_ms))
    return html.Span(
        [
            f"{cost.requests_per_poll:.3g} requests, {text.size(cost.bytes_per_poll)}, {took} ",
            html.Span(every, className="hint"),
        ],
        title="mean over the last polls, measured",
    )


def _actions(target: TargetOut) -> Component:
    to = "off" if target.is_enabled else "on"
    icon, word = ("pause", "Pause") if target.is_enabled else ("play", "Resume")
    return html.Div(
        [
            html.Button(
                [status.icon(icon), html.Span(word)],
                id={"type": "target-pause", "target": target.id, "to": to},
                className="button",
                **attrs({"aria-label": f"{word} {target.name}"}),
            ),
            html.Button(
                [status.icon("trash"), html.Span("Remove")],
                id={"type": "target-remove", "target": target.id},
                className="button danger",
                disabled=target.origin not in _REMOVABLE,
                title=None if target.origin in _REMOVABLE else f"{_ORIGINS[target.origin]}: pause it instead",
                **attrs({"aria-label": f"Remove {target.name}"}),
            ),
        ],
        className="actions",
    )
