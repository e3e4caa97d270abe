"""V9, advice on a job: what to change, what that would bring and cost, and what came of it.

Here are the page and what its buttons do; how a card looks is in ``dashboard.components.advice_cards``.
"""

from __future__ import annotations

from typing import Any

from dash import ALL, Dash, Input, Output, State, ctx, dcc, html, no_update
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate

from backend.contracts.advice import JobAdviceOut
from dashboard import routes
from dashboard.client import ApiClient
from dashboard.components import advice_cards, cards
from dashboard.components.attributes import attrs
from dashboard.live import digest, guarded, look


def layout(route: routes.Route) -> Component:
    """The page before its first answer."""
    return html.Div(
        [
            dcc.Store(id="advice-route", data={"job": route.job}),
            dcc.Store(id="advice-digest"),
            dcc.Store(id="advice-title"),
            dcc.Store(id="advice-changed"),
            dcc.Store(id="advice-to-apply"),
            dcc.ConfirmDialog(
                id="advice-confirm",
                message="Change these settings of the running job now? The way back is shown on the card.",
            ),
            html.Div(id="advice-head", className="page-head"),
            html.Div(id="advice-message", **attrs({"aria-live": "polite"})),
            html.Div(id="advice-cards"),
            html.Div(id="advice-history"),
            html.Div(id="advice-source"),
        ]
    )


def register(app: Dash, client: ApiClient) -> None:
    """Keep the page live; dismiss, accept and apply."""
    _register_list(app, client)
    _register_decisions(app, client)
    _register_apply(app, client)


def _register_list(app: Dash, client: ApiClient) -> None:
    outputs = (
        Output("advice-message", "children"),
        Output("advice-head", "children"),
        Output("advice-cards", "children"),
        Output("advice-history", "children"),
        Output("advice-source", "children"),
        Output("advice-title", "data"),
        Output("advice-digest", "data"),
    )

    @app.callback(
        *outputs,
        Input("tick", "n_intervals"),
        Input("look", "data"),
        Input("advice-changed", "data"),
        State("advice-route", "data"),
        State("advice-digest", "data"),
    )
    @guarded(len(outputs))
    async def refresh(
        _tick: int | None, look_data: object, _changed: Any, route: dict[str, str], before: str | None
    ) -> Any:
        view = look(look_data)
        found = await client.advice(route["job"])
        past = await client.recommendations(route["job"])
        source = cards.source_line(["Source: this service's rules and store", cards.age("worked out", found.as_of)])
        now = digest(*found.cards, *found.silences, *past.items, found.considered_count, str(view.where))
        # A message is left to who wrote it: a refresh that went well has nothing to say.
        if now == before:
            return (no_update, no_update, no_update, no_update, source, no_update, no_update)
        shown = {c.id for c in found.cards}
        return (
            no_update,
            _head(found),
            advice_cards.all_of(found, view.where),
            advice_cards.history([c for c in past.items if c.id not in shown], view.where),
            source,
            f"Advice on {found.job}",
            now,
        )


def _register_decisions(app: Dash, client: ApiClient) -> None:
    @app.callback(
        Output("advice-message", "children", allow_duplicate=True),
        Output("advice-changed", "data", allow_duplicate=True),
        Input({"type": "advice-dismiss", "card": ALL}, "n_clicks"),
        Input({"type": "advice-accept", "card": ALL}, "n_clicks"),
        State({"type": "advice-reason", "card": ALL}, "value"),
        State({"type": "advice-reason", "card": ALL}, "id"),
        State("advice-route", "data"),
        prevent_initial_call=True,
    )
    @guarded(2)
    async def decide(
        dismissed: list[int | None],
        accepted: list[int | None],
        reasons: list[str | None],
        ids: list[dict[str, str]],
        route: dict[str, str],
    ) -> Any:
        if not (any(dismissed) or any(accepted)) or not isinstance(ctx.triggered_id, dict):
            raise PreventUpdate
        card = str(ctx.triggered_id["card"])
        if ctx.triggered_id["type"] == "advice-accept":
            await client.accept_advice(route["job"], card)
            return cards.answer(True, "Accepted. It counts as applied once the engine reports the new settings."), [
                card,
                "yes",
            ]
        reason = next((r for r, i in zip(reasons, ids, strict=True) if i["card"] == card), None)
        if not (reason or "").strip():
            return cards.answer(False, "Say why it is not wanted: the next one who looks will ask."), no_update
        await client.dismiss_advice(route["job"], card, (reason or "").strip())
        return cards.answer(True, "Dismissed. It is not given again for 30 days, unless the settings change."), [
            card,
            "no",
        ]


def _register_apply(app: Dash, client: ApiClient) -> None:
    @app.callback(
        Output("advice-confirm", "displayed"),
        Output("advice-to-apply", "data"),
        Input({"type": "advice-apply", "card": ALL}, "n_clicks"),
        prevent_initial_call=True,
    )
    def ask(clicks: list[int | None]) -> Any:
        if not any(clicks) or not isinstance(ctx.triggered_id, dict):
            raise PreventUpdate
        return True, ctx.triggered_id["card"]

    @app.callback(
        Output("advice-message", "children", allow_duplicate=True),
        Output("advice-changed", "data", allow_duplicate=True),
        Input("advice-confirm", "submit_n_clicks"),
        State("advice-to-apply", "data"),
        State("advice-route", "data"),
        prevent_initial_call=True,
    )
    @guarded(2)
    async def apply(confirmed: int | None, card: str | None, route: dict[str, str]) -> Any:
        if not confirmed or not card:
            raise PreventUpdate
        await client.apply_advice(route["job"], card)
        return cards.answer(True, "Sent. It counts as applied once the engine reports the new settings."), [
            card,
            "applied",
        ]


# --- parts --------------------------------------------------------------------------------------------------------


def _head(found: JobAdviceOut) -> list[Component]:
    crumbs: list[Component | str] = [
        dcc.Link("Fleet", href=routes.fleet()),
        " / ",
        dcc.Link(found.job, href=routes.job(found.job_id)),
    ]
    about = f"From the last {found.considered_count} checkpoints under the settings in force, by replay of each."
    return [
        html.Div(
            [
                html.Div(crumbs, className="crumbs"),
                html.H1("Advice"),
                html.P(about, className="hint"),
            ]
        )
    ]
