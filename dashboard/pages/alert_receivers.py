"""Where alerts are sent, on the page of the alerts: add a receiver and see what it answers, try it, remove it.

A receiver that was added is sent a test message at once: an address that takes nothing is found out now and not at
night. A credential is only ever referred to; the page neither asks for one nor shows one.
"""

from __future__ import annotations

from typing import Any

from dash import ALL, Dash, Input, Output, State, ctx, dcc, html, no_update
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate
from pydantic import ValidationError

from backend.contracts.alerts import ReceiverIn, ReceiverOut, ReceiverTestOut
from backend.domain.errors import ApiRefusedError, ApiUnavailableError
from dashboard import text
from dashboard.client import ApiClient
from dashboard.components import cards, status
from dashboard.components.attributes import attrs
from dashboard.live import guarded

_KINDS = {"webhook": "Webhook", "alertmanager": "Alertmanager"}
_ADDRESS_HINT = (
    "the address; of a webhook whose address is a secret, where it is found: env:BARRIERSCOPE_SECRET_NAME or file:NAME"
)
_CREDENTIAL_HINT = (
    "where the bearer token is found, never the token: env:BARRIERSCOPE_SECRET_NAME,"
    " or file:NAME in the folder of secrets"
)
_NEEDED = {"url": "An address is needed, such as https://pager.example/hook", "name": "It needs a name"}


def section() -> Component:
    """The card before its first answer."""
    return cards.card(
        "Where alerts are sent",
        [
            html.Div(id="alerts-receivers"),
            html.Div(id="receiver-answer", **attrs({"aria-live": "polite"})),
            _form(),
            dcc.ConfirmDialog(
                id="receiver-confirm",
                message="Send this receiver nothing any more? What it was sent stays in the log of each alert.",
            ),
            dcc.Store(id="receiver-to-remove"),
        ],
        hint="a new one gets what fires already, and a test message at once",
    )


def _form() -> Component:
    options = [{"label": word, "value": kind} for kind, word in _KINDS.items()]
    kind = dcc.Dropdown(id="receiver-kind", options=options, value="webhook", clearable=False, searchable=False)
    return html.Form(
        [
            _field(
                "Address",
                dcc.Input(
                    id="receiver-url",
                    type="text",
                    placeholder="https://pager.example/hook",
                    maxLength=2000,
                    autoComplete="off",
                ),
                hint=_ADDRESS_HINT,
            ),
            _field("Kind", kind),
            _field("Name", dcc.Input(id="receiver-name", type="text", maxLength=100, autoComplete="off")),
            _field(
                "Token is in (optional)",
                dcc.Input(
                    id="receiver-credential",
                    type="text",
                    placeholder="env:BARRIERSCOPE_SECRET_…",
                    maxLength=200,
                    autoComplete="off",
                ),
                hint=_CREDENTIAL_HINT,
            ),
            html.Button(
                [status.icon("plus"), html.Span("Add and test")],
                id="receiver-add",
                type="button",
                className="button primary",
            ),
        ],
        className="form-row receiver-form",
    )


def _field(label: str, control: Component, *, hint: str = "") -> Component:
    return html.Label([label, control], className="field", title=hint)


def register(app: Dash, client: ApiClient) -> None:
    """Add, try and remove; the list itself is drawn with the alerts."""
    _register_add(app, client)
    _register_test(app, client)
    _register_remove(app, client)


def _register_add(app: Dash, client: ApiClient) -> None:
    @app.callback(
        Output("receiver-answer", "children"),
        Output("alerts-changed", "data", allow_duplicate=True),
        Output("receiver-url", "value"),
        Output("receiver-name", "value"),
        Output("receiver-credential", "value"),
        Input("receiver-add", "n_clicks"),
        State("receiver-url", "value"),
        State("receiver-kind", "value"),
        State("receiver-name", "value"),
        State("receiver-credential", "value"),
        running=[(Output("receiver-add", "disabled"), True, False)],
        prevent_initial_call=True,
    )
    async def add(clicks: int | None, url: str | None, kind: Any, name: str | None, credential: str | None) -> Any:
        if not clicks:
            raise PreventUpdate
        typed = {"url": (url or "").strip(), "name": (name or "").strip()}
        missing = next((field for field in _NEEDED if not typed[field]), None)
        if missing is not None:
            return cards.answer(False, f"{_NEEDED[missing]}."), *((no_update,) * 4)
        try:
            added = await client.add_receiver(
                ReceiverIn(**typed, kind=kind, credential=(credential or "").strip() or None)
            )
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            return cards.answer(False, f"{first['loc'][0]}: {first['msg']}"), *((no_update,) * 4)
        except (ApiRefusedError, ApiUnavailableError) as problem:
            return cards.answer(False, str(problem)), *((no_update,) * 4)
        return await _first_answer(client, added), added.id, "", "", ""


async def _first_answer(client: ApiClient, added: ReceiverOut) -> Component:
    try:
        answer = await client.test_receiver(added.id)
    except (ApiRefusedError, ApiUnavailableError) as problem:
        return cards.answer(False, f"{added.name} is added, but could not be tried: {problem}")
    if answer.is_ok:
        return cards.answer(True, f"{added.name} is added. {_said(answer)}")
    more = "Alerts are sent there all the same, again and again; remove it where the address is wrong."
    return cards.answer(False, f"{added.name} is added. {_said(answer)} {more}")


def _register_test(app: Dash, client: ApiClient) -> None:
    @app.callback(
        Output("receiver-answer", "children", allow_duplicate=True),
        Input({"type": "receiver-test", "receiver": ALL}, "n_clicks"),
        prevent_initial_call=True,
    )
    async def try_receiver(clicks: list[int | None]) -> Any:
        if not any(clicks) or not isinstance(ctx.triggered_id, dict):
            raise PreventUpdate
        try:
            answer = await client.test_receiver(ctx.triggered_id["receiver"])
        except (ApiRefusedError, ApiUnavailableError) as problem:
            return cards.answer(False, str(problem))
        return cards.answer(answer.is_ok, _said(answer))


def _register_remove(app: Dash, client: ApiClient) -> None:
    @app.callback(
        Output("receiver-confirm", "displayed"),
        Output("receiver-to-remove", "data"),
        Input({"type": "receiver-remove", "receiver": ALL}, "n_clicks"),
        prevent_initial_call=True,
    )
    def ask(clicks: list[int | None]) -> Any:
        if not any(clicks) or not isinstance(ctx.triggered_id, dict):
            raise PreventUpdate
        return True, ctx.triggered_id["receiver"]

    @app.callback(
        Output("alerts-message", "children", allow_duplicate=True),
        Output("alerts-changed", "data", allow_duplicate=True),
        Output("receiver-answer", "children", allow_duplicate=True),
        Input("receiver-confirm", "submit_n_clicks"),
        State("receiver-to-remove", "data"),
        prevent_initial_call=True,
    )
    @guarded(3)
    async def remove(confirmed: int | None, receiver: str | None) -> Any:
        if not confirmed or not receiver:
            raise PreventUpdate
        await client.remove_receiver(receiver)
        return None, ["removed", receiver], None


# --- parts --------------------------------------------------------------------------------------------------------


def table(receivers: list[ReceiverOut]) -> Component:
    """The receivers with what is due to them."""
    if not receivers:
        return html.P("Nowhere yet: alerts are shown here and sent to nobody.", className="empty-state")
    heads = ("Receiver", "Kind", "Delivery", "Token is in")
    head = html.Thead(html.Tr([*(html.Th(h) for h in heads), cards.unseen_head("Actions")]))
    return html.Table([head, html.Tbody([_row(r) for r in receivers])], className="plain-table targets-table")


def _row(receiver: ReceiverOut) -> html.Tr:
    due = receiver.due_count
    delivery = (
        status.badge(f"{due} waiting", "hourglass", "warn") if due else status.badge("nothing due", "check", "good")
    )
    return html.Tr(
        [
            html.Td([html.B(receiver.name), html.Div(receiver.url, className="url")]),
            html.Td(_KINDS[receiver.kind]),
            html.Td(delivery),
            html.Td(receiver.credential or text.MISSING, title="where the bearer token is found"),
            html.Td(html.Div(_buttons(receiver), className="actions")),
        ]
    )


def _buttons(receiver: ReceiverOut) -> list[Component]:
    found: list[Component] = [
        html.Button(
            [status.icon("plug"), html.Span("Test")],
            id={"type": "receiver-test", "receiver": receiver.id},
            className="button",
            title="send a test message that is resolved as it arrives",
            **attrs({"aria-label": f"Test {receiver.name}"}),
        )
    ]
    if receiver.origin == "api":
        found.append(
            html.Button(
                [status.icon("cross"), html.Span("Remove")],
                id={"type": "receiver-remove", "receiver": receiver.id},
                className="button danger",
                **attrs({"aria-label": f"Remove {receiver.name}"}),
            )
        )
    return found


def _said(answer: ReceiverTestOut) -> str:
    took = f"{answer.result} (after {text.duration(answer.duration_ms)})"
    return f"It took a test message: {took}." if answer.is_ok else f"It did not take a test message: {took}."
