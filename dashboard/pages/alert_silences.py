"""The page with the silences, and the form that adds one, which the page of an incident contains too.

While the viewer types matchers, the form shows how many alerts a silence with them would hide.
"""

from __future__ import annotations

from datetime import timedelta, tzinfo
from functools import partial
from typing import Any

from dash import ALL, Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate
from pydantic import ValidationError

from backend.contracts.alerts import SilenceIn, SilenceOut
from backend.domain.errors import ApiRefusedError, ApiUnavailableError
from dashboard import routes, text
from dashboard.callbacks import Changes, connect, pressed_id
from dashboard.client import ApiClient
from dashboard.components import alerts as words
from dashboard.components import cards, incidents, status, viewer_name
from dashboard.components.attributes import attrs
from dashboard.live import digest, look_of
from dashboard.palette import Tone

_DURATIONS = {"30 minutes": 30, "2 hours": 120, "8 hours": 480, "1 day": 1440, "1 week": 10_080}
_REFUSALS = {"reason": "Enter a reason.", "author": "Enter your name."}


def layout(route: routes.Route) -> Component:
    """Build the page without data, which the first refresh adds."""
    return html.Div(
        [
            html.Div(html.H1("Alerts"), className="page-head"),
            incidents.tabs("Silences"),
            dcc.Store(id="silences-title", data="Silences"),
            html.Div(id="silences-message"),
            cards.card("Silence", form(route.matchers), hint="stop the delivery of some alerts for a while"),
            html.Div(id="alerts-silences"),
            dcc.Store(id="silences-digest"),
        ]
    )


def form(matchers: str = "") -> Component:
    """Build the form that adds a silence. ``matchers`` are the first ones, as a viewer would type them."""
    options = [{"label": word, "value": minutes} for word, minutes in _DURATIONS.items()]
    return html.Div(
        [
            html.Form(
                [
                    _field(
                        "Labels to match, separated by commas",
                        dcc.Input(
                            id="silence-matchers",
                            type="text",
                            value=matchers,
                            placeholder="job_name=orders, severity=warning",
                            maxLength=2000,
                        ),
                    ),
                    _field(
                        "Duration",
                        dcc.Dropdown(
                            id="silence-minutes", options=options, value=120, clearable=False, searchable=False
                        ),
                    ),
                    _field("Reason", dcc.Input(id="silence-reason", type="text", maxLength=1000)),
                    viewer_name.field("silence", "By (as typed)"),
                    html.Button(
                        [status.icon("pause"), html.Span("Silence")],
                        id="silence-add",
                        type="button",
                        className="button primary",
                    ),
                ],
                className="form-row silence-form",
            ),
            html.P(id="silence-preview", className="silence-preview", role="status"),
            html.Div(id="silence-answer", **attrs({"aria-live": "polite"})),
            dcc.Store(id="silences-changed"),
        ]
    )


def _field(label: str, control: Component) -> Component:
    return html.Label([label, control], className="field")


def register(app: Dash, client: ApiClient) -> None:
    """Register the callbacks of the form and of the list, for both pages that contain the form."""
    connect(
        app,
        partial(add, client),
        output={
            "answer": Output("silence-answer", "children"),
            "changed": Output("silences-changed", "data"),
            "reason": Output("silence-reason", "value"),
        },
        inputs={"clicks": Input("silence-add", "n_clicks")},
        state={
            "typed": State("silence-matchers", "value"),
            "minutes": State("silence-minutes", "value"),
            "reason": State("silence-reason", "value"),
            "author": viewer_name.typed("silence"),
        },
        running=[(Output("silence-add", "disabled"), True, False)],
        prevent_initial_call=True,
    )
    _register_buttons(app, client)


def _register_buttons(app: Dash, client: ApiClient) -> None:
    connect(
        app,
        partial(refresh, client),
        output={
            "message": Output("silences-message", "children"),
            "silences": Output("alerts-silences", "children"),
            "digest": Output("silences-digest", "data"),
        },
        inputs={
            "tick": Input("tick", "n_intervals"),
            "look": Input("look", "data"),
            "changed": Input("silences-changed", "data"),
        },
        state={"before": State("silences-digest", "data")},
    )
    connect(
        app,
        partial(preview, client),
        output={"preview": Output("silence-preview", "children")},
        inputs={
            "typed": Input("silence-matchers", "value"),
            "tick": Input("status-tick", "n_intervals"),
            "changed": Input("silences-changed", "data"),
        },
    )
    connect(
        app,
        partial(end, client),
        output={
            "message": Output("silences-message", "children", allow_duplicate=True),
            "changed": Output("silences-changed", "data", allow_duplicate=True),
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
    """Add the silence described in the form."""
    if not clicks:
        raise PreventUpdate
    try:
        as_of = (await client.status()).as_of
        wanted = SilenceIn(
            matchers=words.matchers_of(typed or ""),
            ends_at=as_of + timedelta(minutes=minutes or 120),
            reason=(reason or "").strip(),
            author=viewer_name.given(author) or "",
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


async def refresh(client: ApiClient, *, tick: int | None, look: object, changed: Any, before: str | None) -> Changes:
    """Return the list of silences. ``before`` is the ``digest`` output of the previous call."""
    view = look_of(look)
    silences = [s for s in (await client.silences()).items if s.state != "expired"]
    now = digest(*silences, str(view.where))
    if now == before:
        return {"message": None}
    return {"message": None, "silences": table(silences, view.where), "digest": now}


async def preview(client: ApiClient, *, typed: str | None, tick: int | None, changed: Any) -> Changes:
    """Return how many alerts a silence with the typed matchers would hide now."""
    matchers = words.matchers_of(typed or "")
    if not matchers:
        return {"preview": "Enter labels to see what the silence would hide."}
    try:
        found = await client.preview_silence(matchers)
    except (ApiRefusedError, ApiUnavailableError) as problem:
        return {"preview": str(problem)}
    if not found.alert_count:
        return {"preview": "Would hide no open alert now, only later ones."}
    jobs = f" of {text.counted(found.job_count, 'job')}" if found.job_count else ""
    named = html.Span("; ".join(found.summaries), className="hint")
    return {"preview": [html.B(f"Would hide {text.counted(found.alert_count, 'open alert')}{jobs}. "), named]}


async def end(client: ApiClient, *, clicks: list[int | None], trigger: object) -> Changes:
    """End the silence whose button was pressed."""
    pressed = pressed_id(clicks, trigger)
    if pressed is None:
        raise PreventUpdate
    await client.end_silence(pressed["silence"])
    return {"message": None, "changed": ["ended", pressed["silence"]]}


def table(silences: list[SilenceOut], where: tzinfo) -> Component | None:
    """Build the table of silences that are in force or begin later; return None if there are none."""
    if not silences:
        return None
    heads = ("Labels", "State", "Until", "Reason", "By (as typed)", "")
    rows = [
        html.Tr(
            [
                html.Td(html.Code(words.matchers_text(s.matchers))),
                html.Td(
                    status.badge(f"currently hiding {s.hidden_count}", "pause", Tone.INFO)
                    if s.state == "active"
                    else status.badge(s.state, "clock", Tone.QUIET)
                ),
                html.Td(
                    [
                        text.instant(s.ends_at, where),
                        html.Div(
                            ["in ", html.Span(className="countdown", **attrs({"data-deadline": s.ends_at.isoformat()}))]
                            if s.state == "active"
                            else None,
                            className="hint",
                        ),
                    ]
                ),
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
