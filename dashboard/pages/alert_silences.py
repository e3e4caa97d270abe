"""Silences, on the page of the alerts: add one, list those in force, end one."""

from __future__ import annotations

from datetime import timedelta, tzinfo
from functools import partial

from dash import ALL, Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate
from pydantic import ValidationError

from backend.contracts.alerts import SilenceIn, SilenceOut
from backend.domain.errors import ApiRefusedError, ApiUnavailableError
from dashboard import text
from dashboard.callbacks import Changes, connect, pressed_id
from dashboard.client import ApiClient
from dashboard.components import alerts as words
from dashboard.components import cards, status
from dashboard.components.attributes import attrs
from dashboard.palette import Tone

_DURATIONS = {"30 minutes": 30, "2 hours": 120, "8 hours": 480, "1 day": 1440, "1 week": 10_080}
_REFUSALS = {"reason": "Enter a reason.", "author": "Enter your name."}


def form() -> Component:
    """The form that adds a silence."""
    options = [{"label": word, "value": minutes} for word, minutes in _DURATIONS.items()]
    return html.Div(
        [
            html.Form(
                [
                    _field(
                        "Labels to match, separated by commas",
                        dcc.Input(id="silence-matchers", type="text", placeholder="job=orders, severity=warning"),
                    ),
                    _field(
                        "Duration",
                        dcc.Dropdown(
                            id="silence-minutes", options=options, value=120, clearable=False, searchable=False
                        ),
                    ),
                    _field("Reason", dcc.Input(id="silence-reason", type="text", maxLength=1000)),
                    _field(
                        "By (as typed)",
                        dcc.Input(id="silence-author", type="text", maxLength=200, autoComplete="username"),
                    ),
                    html.Button(
                        [status.icon("pause"), html.Span("Silence")],
                        id="silence-add",
                        type="button",
                        className="button primary",
                    ),
                ],
                className="form-row silence-form",
            ),
            html.Div(id="silence-answer", **attrs({"aria-live": "polite"})),
        ]
    )


def _field(label: str, control: Component) -> Component:
    return html.Label([label, control], className="field")


def register(app: Dash, client: ApiClient) -> None:
    """Register the callbacks of the form and of the list."""
    connect(
        app,
        partial(add, client),
        output={
            "answer": Output("silence-answer", "children"),
            "changed": Output("alerts-changed", "data"),
            "reason": Output("silence-reason", "value"),
        },
        inputs={"clicks": Input("silence-add", "n_clicks")},
        state={
            "typed": State("silence-matchers", "value"),
            "minutes": State("silence-minutes", "value"),
            "reason": State("silence-reason", "value"),
            "author": State("silence-author", "value"),
        },
        running=[(Output("silence-add", "disabled"), True, False)],
        prevent_initial_call=True,
    )
    _register_buttons(app, client)


def _register_buttons(app: Dash, client: ApiClient) -> None:
    connect(
        app,
        fill_form,
        output={"matchers": Output("silence-matchers", "value")},
        inputs={"clicks": Input({"type": "silence-this", "matchers": ALL}, "n_clicks")},
        has_trigger=True,
        prevent_initial_call=True,
    )
    connect(
        app,
        partial(end, client),
        output={
            "message": Output("alerts-message", "children", allow_duplicate=True),
            "changed": Output("alerts-changed", "data", allow_duplicate=True),
        },
        inputs={"clicks": Input({"type": "silence-end", "silence": ALL}, "n_clicks")},
        has_trigger=True,
        prevent_initial_call=True,
    )


async def add(
    client: ApiClient,
    *,
    clicks: int | None,
    typed: str | None,
    minutes: int | None,
    reason: str | None,
    author: str | None,
) -> Changes:
    """Add the silence in the form."""
    if not clicks:
        raise PreventUpdate
    try:
        as_of = (await client.status()).as_of
        wanted = SilenceIn(
            matchers=words.matchers_of(typed or ""),
            ends_at=as_of + timedelta(minutes=minutes or 120),
            reason=(reason or "").strip(),
            author=(author or "").strip(),
        )
        added = await client.add_silence(wanted)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = str(first["loc"][0])
        return {"answer": cards.answer(False, _REFUSALS.get(field, f"{field}: {first['msg']}"))}
    except (ApiRefusedError, ApiUnavailableError) as problem:
        return {"answer": cards.answer(False, str(problem))}
    hidden = f"{added.hidden_count} alert{'' if added.hidden_count == 1 else 's'}"
    return {"answer": cards.answer(True, f"Silence added. It hides {hidden} now."), "changed": added.id, "reason": ""}


def fill_form(*, clicks: list[int | None], trigger: object) -> Changes:
    """Put the labels of the alert whose button was pressed into the form."""
    pressed = pressed_id(clicks, trigger)
    if pressed is None:
        raise PreventUpdate
    return {"matchers": pressed["matchers"]}


async def end(client: ApiClient, *, clicks: list[int | None], trigger: object) -> Changes:
    """End the silence whose button was pressed."""
    pressed = pressed_id(clicks, trigger)
    if pressed is None:
        raise PreventUpdate
    await client.end_silence(pressed["silence"])
    return {"message": None, "changed": ["ended", pressed["silence"]]}


def table(silences: list[SilenceOut], where: tzinfo) -> Component | None:
    """The silences that are in force or begin later."""
    if not silences:
        return None
    heads = ("Labels", "State", "Until", "Reason", "By (as typed)", "")
    rows = [
        html.Tr(
            [
                html.Td(html.Code(words.matchers_text(s.matchers))),
                html.Td(
                    status.badge(f"hides {s.hidden_count} now", "pause", Tone.INFO)
                    if s.state == "active"
                    else status.badge(s.state, "clock", Tone.QUIET)
                ),
                html.Td(text.instant(s.ends_at, where)),
                html.Td(s.reason),
                html.Td(s.author),
                html.Td(
                    html.Div(
                        html.Button(
                            [status.icon("cross"), html.Span("End now")],
                            id={"type": "silence-end", "silence": s.id},
                            className="button danger",
                            **attrs({"aria-label": f"End the silence of {words.matchers_text(s.matchers)}"}),
                        ),
                        className="actions",
                    )
                ),
            ]
        )
        for s in silences
    ]
    return cards.card("Silences in force", cards.table(heads, rows))
