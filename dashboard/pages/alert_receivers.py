"""The page with the receivers of alerts. A receiver can be added, tested and removed.

A new receiver gets a test message at once, so that a wrong address is noticed immediately. For its credential, a
receiver stores only a reference. The page neither asks for the credential itself nor shows it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from dash import ALL, Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate
from pydantic import ValidationError

from backend.contracts.alerts import ReceiverIn, ReceiverOut, ReceiverTestOut
from backend.domain.errors import ApiRefusedError, ApiUnavailableError
from backend.domain.receivers import TRAITS, ReceiverKind
from dashboard import text
from dashboard.callbacks import Changes, connect, pressed_id
from dashboard.client import ApiClient
from dashboard.components import cards, confirming, incidents, status
from dashboard.components.attributes import attrs
from dashboard.live import digest
from dashboard.palette import Tone

_CHOSEN = ReceiverKind.WEBHOOK
_ADDRESS_HINT = "the address or, if it is secret, a reference to it: env:BARRIERSCOPE_SECRET_NAME or file:NAME"
_CREDENTIAL_HINT = (
    "a reference to the bearer token, not the token itself: env:BARRIERSCOPE_SECRET_NAME,"
    " or file:NAME in the folder of secrets"
)
_NEEDED = {"url": "Enter an address, such as https://pager.example/hook", "name": "Enter a name"}


def layout() -> Component:
    """Build the page without data, which the first refresh adds."""
    parts = [
        html.Fieldset(id="alerts-receivers", className="bare awaited", **attrs({"aria-label": "Receivers"})),
        html.Div(id="receiver-answer", **attrs({"aria-live": "polite"})),
        _form(),
        confirming.dialog("receiver", "Remove a receiver", "Remove", icon="trash", is_dangerous=True),
    ]
    return html.Div(
        [
            html.Div(html.H1("Alerts"), className="page-head"),
            incidents.tabs("Receivers"),
            dcc.Store(id="receivers-title", data="Receivers of alerts"),
            html.Div(id="receivers-message"),
            cards.card("Receivers", parts, hint="a new receiver gets a test message and the alerts that are firing"),
            dcc.Store(id="receivers-digest"),
            dcc.Store(id="receivers-changed"),
        ]
    )


def _form() -> Component:
    kinds = sorted(TRAITS, key=lambda kind: kind is not _CHOSEN)
    options = [{"label": TRAITS[kind].title, "value": kind.value} for kind in kinds]
    kind = dcc.Dropdown(id="receiver-kind", options=options, value=_CHOSEN.value, clearable=False, searchable=False)
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
                "Token reference (optional)",
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
    """Register the callbacks of the list, the form and the buttons."""
    connect(
        app,
        partial(refresh, client),
        output={
            "message": Output("receivers-message", "children"),
            "receivers": Output("alerts-receivers", "children"),
            "digest": Output("receivers-digest", "data"),
        },
        inputs={"tick": Input("tick", "n_intervals"), "changed": Input("receivers-changed", "data")},
        state={"before": State("receivers-digest", "data")},
    )
    _register_add(app, client)
    _register_test(app, client)
    _register_remove(app, client)


async def refresh(client: ApiClient, *, tick: int | None, changed: Any, before: str | None) -> Changes:
    """Return the list of receivers. ``before`` is the ``digest`` output of the previous call."""
    receivers = (await client.receivers()).items
    now = digest(*receivers)
    if now == before:
        return {"message": None}
    return {"message": None, "receivers": table(receivers), "digest": now}


def _register_add(app: Dash, client: ApiClient) -> None:
    connect(
        app,
        partial(add, client),
        output={
            "answer": Output("receiver-answer", "children"),
            "changed": Output("receivers-changed", "data"),
            "url": Output("receiver-url", "value"),
            "name": Output("receiver-name", "value"),
            "credential": Output("receiver-credential", "value"),
        },
        inputs={"clicks": Input("receiver-add", "n_clicks")},
        state={
            "url": State("receiver-url", "value"),
            "kind": State("receiver-kind", "value"),
            "name": State("receiver-name", "value"),
            "credential": State("receiver-credential", "value"),
        },
        running=[(Output("receiver-add", "disabled"), True, False)],
        prevent_initial_call=True,
    )


async def add(
    client: ApiClient, *, clicks: int | None, url: str | None, kind: Any, name: str | None, credential: str | None
) -> Changes:
    """Add the receiver described in the form, and send it a test message."""
    if not clicks:
        raise PreventUpdate
    typed = {"url": (url or "").strip(), "name": (name or "").strip()}
    missing = next((field for field in _NEEDED if not typed[field]), None)
    if missing is not None:
        return {"answer": cards.answer(False, f"{_NEEDED[missing]}.")}
    try:
        added = await client.add_receiver(ReceiverIn(**typed, kind=kind, credential=(credential or "").strip() or None))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return {"answer": cards.answer(False, f"{first['loc'][0]}: {first['msg']}")}
    except (ApiRefusedError, ApiUnavailableError) as problem:
        return {"answer": cards.answer(False, str(problem))}
    answer = await _first_answer(client, added)
    return {"answer": answer, "changed": added.id, "url": "", "name": "", "credential": ""}


async def _first_answer(client: ApiClient, added: ReceiverOut) -> Component:
    try:
        answer = await client.test_receiver(added.id)
    except (ApiRefusedError, ApiUnavailableError) as problem:
        return cards.answer(False, f"{added.name} was added. The test message could not be sent: {problem}")
    if answer.is_ok:
        return cards.answer(True, f"{added.name} was added. {_said(answer)}")
    more = "Alerts are still sent to it and retried. If the address is wrong, remove the receiver."
    return cards.answer(False, f"{added.name} was added. {_said(answer)} {more}")


def _register_test(app: Dash, client: ApiClient) -> None:
    connect(
        app,
        partial(send_test, client),
        output={"answer": Output("receiver-answer", "children", allow_duplicate=True)},
        inputs={"clicks": Input({"type": "receiver-test", "receiver": ALL}, "n_clicks")},
        running=[(Output("alerts-receivers", "disabled"), True, False)],
        has_trigger=True,
        prevent_initial_call=True,
    )


async def send_test(client: ApiClient, *, clicks: list[int | None], trigger: object) -> Changes:
    """Send a test message to the receiver whose button was pressed."""
    pressed = pressed_id(clicks, trigger)
    if pressed is None:
        raise PreventUpdate
    try:
        answer = await client.test_receiver(pressed["receiver"])
    except (ApiRefusedError, ApiUnavailableError) as problem:
        return {"answer": cards.answer(False, str(problem))}
    return {"answer": cards.answer(answer.is_ok, _said(answer))}


def _register_remove(app: Dash, client: ApiClient) -> None:
    connect(
        app,
        partial(ask_to_remove, client),
        output=confirming.outputs("receiver"),
        inputs={"clicks": Input({"type": "receiver-remove", "receiver": ALL}, "n_clicks")},
        has_trigger=True,
        prevent_initial_call=True,
    )
    connect(
        app,
        partial(remove, client),
        output={
            "message": Output("receivers-message", "children", allow_duplicate=True),
            "changed": Output("receivers-changed", "data", allow_duplicate=True),
            "answer": Output("receiver-answer", "children", allow_duplicate=True),
        },
        inputs={"confirmed": confirming.confirmed("receiver")},
        state={"receiver": State("receiver-subject", "data")},
        prevent_initial_call=True,
    )
    confirming.register(app, "receiver")


async def ask_to_remove(client: ApiClient, *, clicks: list[int | None], trigger: object) -> Changes:
    """Ask for confirmation before a receiver is removed."""
    pressed = pressed_id(clicks, trigger)
    if pressed is None:
        raise PreventUpdate
    receiver = next((r for r in (await client.receivers()).items if r.id == pressed["receiver"]), None)
    if receiver is None:
        raise PreventUpdate
    question = [
        html.P(["Send no more alerts to ", html.B(receiver.name), "?"]),
        html.P(receiver.url, className="url"),
        html.P("Past deliveries stay in the log of each alert.", className="hint"),
    ]
    return confirming.opened(receiver.id, question)


async def remove(client: ApiClient, *, confirmed: int | None, receiver: str | None) -> Changes:
    """Remove the receiver once the viewer has confirmed it."""
    if not confirmed or not receiver:
        raise PreventUpdate
    await client.remove_receiver(receiver)
    return {"message": None, "changed": ["removed", receiver], "answer": None}


# --- parts --------------------------------------------------------------------------------------------------------


def table(receivers: list[ReceiverOut]) -> Component:
    """Build the table of receivers. It states how many deliveries to each receiver are waiting."""
    if not receivers:
        return html.P("No receivers yet. Alerts are only shown here.", className="empty-state")
    heads = ("Receiver", "Kind", "Delivery", "Token reference")
    head = html.Thead(html.Tr([*(html.Th(h) for h in heads), cards.unseen_head("Actions")]))
    return html.Table([head, html.Tbody([_row(r) for r in receivers])], className="plain-table targets-table")


def _row(receiver: ReceiverOut) -> html.Tr:
    due = receiver.due_count
    delivery = (
        status.badge(f"{due} waiting", "hourglass", Tone.WARN)
        if due
        else status.badge("nothing waiting", "check", Tone.GOOD)
    )
    return html.Tr(
        [
            html.Td([html.B(receiver.name), html.Div(receiver.url, className="url")]),
            html.Td(TRAITS[ReceiverKind(receiver.kind)].title),
            html.Td(delivery),
            html.Td(receiver.credential or text.MISSING, title="reference to the bearer token"),
            html.Td(html.Div(_buttons(receiver), className="actions")),
        ]
    )


def _buttons(receiver: ReceiverOut) -> list[Component]:
    buttons: list[Component] = [
        html.Button(
            [status.icon("plug"), html.Span("Test")],
            id={"type": "receiver-test", "receiver": receiver.id},
            className="button",
            title="send a test alert that is already resolved",
            **attrs({"aria-label": f"Test {receiver.name}"}),
        )
    ]
    if receiver.origin == "api":
        buttons.append(
            html.Button(
                [status.icon("cross"), html.Span("Remove")],
                id={"type": "receiver-remove", "receiver": receiver.id},
                className="button danger",
                **attrs({"aria-label": f"Remove {receiver.name}"}),
            )
        )
    return buttons


def _said(answer: ReceiverTestOut) -> str:
    took = f"{answer.result} (after {text.duration(answer.duration_ms)})"
    return f"Test message {'accepted' if answer.is_ok else 'not accepted'}: {took}."
