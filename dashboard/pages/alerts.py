"""V10, the alerts: what fires, by rule; silences; the rules' thresholds; where alerts are sent."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from dash import ALL, Dash, Input, Output, State, ctx, dcc, html, no_update
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate
from pydantic import ValidationError

from backend.contracts.alerts import AlertOut, SilenceIn, SilenceOut
from backend.domain.errors import ApiRefusedError, ApiUnavailableError
from dashboard import routes, text
from dashboard.client import ApiClient
from dashboard.components import alerts as words
from dashboard.components import cards, status
from dashboard.components.attributes import attrs
from dashboard.live import digest, guarded, look
from dashboard.pages import alert_receivers, alert_rules

_ABOUT = "What fires now, by rule. An alert that is silenced is evaluated and shown all the same."
_DURATIONS = {"30 minutes": 30, "2 hours": 120, "8 hours": 480, "1 day": 1440, "1 week": 10_080}
_RESOLVED_SHOWN = 12


def layout() -> Component:
    """The page before its first answer."""
    return html.Div(
        [
            html.Div(
                [
                    html.Div([html.H1("Alerts"), html.P(_ABOUT, className="hint")]),
                    html.Div(id="alerts-counts", className="chips", **attrs({"aria-live": "polite"})),
                ],
                className="page-head",
            ),
            html.Div(id="alerts-message"),
            dcc.Store(id="alerts-title", data="Alerts"),
            html.Div(id="alerts-open"),
            cards.card("Silence", _form(), hint="deliver nothing of some alerts for a while"),
            html.Div(id="alerts-silences"),
            alert_receivers.section(),
            html.Div(id="alerts-resolved"),
            alert_rules.section(),
            html.Div(id="alerts-source"),
            dcc.Store(id="alerts-digest"),
            dcc.Store(id="alerts-changed"),
        ]
    )


def _form() -> Component:
    options = [{"label": word, "value": minutes} for word, minutes in _DURATIONS.items()]
    return html.Div(
        [
            html.Form(
                [
                    _field(
                        "Labels that must fit, with commas",
                        dcc.Input(id="silence-matchers", type="text", placeholder="job=orders, severity=warning"),
                    ),
                    _field(
                        "For",
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
    """Keep the page live; silence and end silences; receivers and rules have modules of their own."""
    _register_lists(app, client)
    _register_silences(app, client)
    alert_receivers.register(app, client)
    alert_rules.register(app, client)


def _register_lists(app: Dash, client: ApiClient) -> None:
    @app.callback(
        Output("alerts-message", "children"),
        Output("alerts-counts", "children"),
        Output("alerts-open", "children"),
        Output("alerts-silences", "children"),
        Output("alerts-receivers", "children"),
        Output("alerts-resolved", "children"),
        Output("alerts-source", "children"),
        Output("alerts-digest", "data"),
        Input("tick", "n_intervals"),
        Input("look", "data"),
        Input("alerts-changed", "data"),
        State("alerts-digest", "data"),
    )
    @guarded(8)
    async def refresh(_tick: int | None, look_data: object, _changed: Any, before: str | None) -> Any:
        view = look(look_data)
        opened, ended, silences, receivers, service = await asyncio.gather(
            client.alerts(states=("firing", "pending")),
            client.alerts(states=("resolved",), limit=_RESOLVED_SHOWN),
            client.silences(),
            client.receivers(),
            client.status(),
        )
        newest = max((a.evaluated_at for a in opened.items), default=None)
        source = cards.source_line(["Source: this service's API", cards.age("evaluated", newest)])
        # Of what changes with every evaluation, only what is shown.
        shown = [(a.id, a.state, a.summary, a.silenced_by, a.is_unknown) for a in opened.items]
        role = service.roles.get("alert")
        now = digest(shown, *ended.items, *silences.items, *receivers.items, role, str(view.where))
        if now == before:
            return None, *((no_update,) * 5), source, no_update
        active = [s for s in silences.items if s.state != "expired"]
        return (
            _silent(role),
            _counts(opened.items),
            _open(opened.items),
            _silences(active, view.where),
            alert_receivers.table(receivers.items),
            _resolved(ended.items),
            source,
            now,
        )


def _register_silences(app: Dash, client: ApiClient) -> None:
    @app.callback(
        Output("silence-answer", "children"),
        Output("alerts-changed", "data"),
        Output("silence-reason", "value"),
        Input("silence-add", "n_clicks"),
        State("silence-matchers", "value"),
        State("silence-minutes", "value"),
        State("silence-reason", "value"),
        State("silence-author", "value"),
        running=[(Output("silence-add", "disabled"), True, False)],
        prevent_initial_call=True,
    )
    async def add(
        clicks: int | None, typed: str | None, minutes: int | None, reason: str | None, author: str | None
    ) -> Any:
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
            names = {"reason": "A reason is needed", "author": "Say who you are"}
            return (
                cards.answer(False, names.get(str(first["loc"][0]), f"{first['loc'][0]}: {first['msg']}")),
                no_update,
                no_update,
            )
        except (ApiRefusedError, ApiUnavailableError) as problem:
            return cards.answer(False, str(problem)), no_update, no_update
        hidden = f"{added.hidden_count} alert{'' if added.hidden_count == 1 else 's'}"
        return cards.answer(True, f"Silenced; it hides {hidden} now."), added.id, ""

    @app.callback(
        Output("silence-matchers", "value"),
        Input({"type": "silence-this", "matchers": ALL}, "n_clicks"),
        prevent_initial_call=True,
    )
    def fill(clicks: list[int | None]) -> Any:
        if not any(clicks) or not isinstance(ctx.triggered_id, dict):
            raise PreventUpdate
        return ctx.triggered_id["matchers"]

    @app.callback(
        Output("alerts-message", "children", allow_duplicate=True),
        Output("alerts-changed", "data", allow_duplicate=True),
        Input({"type": "silence-end", "silence": ALL}, "n_clicks"),
        prevent_initial_call=True,
    )
    @guarded(2)
    async def end(clicks: list[int | None]) -> Any:
        if not any(clicks) or not isinstance(ctx.triggered_id, dict):
            raise PreventUpdate
        await client.end_silence(ctx.triggered_id["silence"])
        return None, ["ended", ctx.triggered_id["silence"]]


# --- parts --------------------------------------------------------------------------------------------------------


def _silent(role: str | None) -> Component | None:
    if role == "ok":
        return None
    return html.Div(
        [
            status.icon("warning"),
            html.Div(
                [html.Strong("Nobody evaluates alerts"), html.P("The role alert does not run: this list is old.")]
            ),
        ],
        className="message tone-bad",
        role="alert",
    )


def _counts(opened: list[AlertOut]) -> list[Component]:
    shown = [a for a in opened if a.severity != "none"]
    found: list[Component] = []
    for state, icon, tone in (("firing", "bolt", "bad"), ("pending", "hourglass", "warn")):
        number = sum(a.state == state for a in shown)
        if number:
            found.append(status.badge(f"{number} {state}", icon, tone))
    hidden = sum(bool(a.silenced_by) for a in shown)
    if hidden:
        found.append(status.badge(f"{hidden} silenced", "pause", "quiet"))
    return found or [status.badge("nothing fires", "check", "good")]


def _open(opened: list[AlertOut]) -> Component:
    by_rule: dict[str, list[AlertOut]] = {}
    for alert in sorted(opened, key=lambda a: ({"critical": 0, "warning": 1}.get(a.severity, 2), a.rule)):
        by_rule.setdefault(alert.rule, []).append(alert)
    if not any(a.severity != "none" for a in opened):
        beside = " The watchdog fires, as it should." if by_rule else ""
        return cards.card("Open", html.P(f"Nothing is pending or firing.{beside}", className="empty-state"))
    groups = [_group(rule, alerts) for rule, alerts in by_rule.items()]
    return html.Div(groups, className="alert-groups")


def _group(rule: str, alerts: list[AlertOut]) -> Component:
    rows = [_row(a) for a in sorted(alerts, key=lambda a: (a.state, a.summary))]
    table = html.Table(html.Tbody(rows), className="plain-table alerts-table", **attrs({"aria-label": rule}))
    runbook = cards.link_button("Runbook", routes.runbook(rule), "right", hint="what to do", is_icon_last=True)
    return cards.card(rule, table, tools=[words.severity(alerts[0].severity), runbook])


def _row(alert: AlertOut) -> html.Tr:
    matchers = f"alertname={alert.rule}" + (f", job={alert.labels['job']}" if "job" in alert.labels else "")
    where = [f"{n} {v}" for n, v in (("vertex", alert.vertex), ("subtasks", alert.subtasks), ("on", alert.hosts)) if v]
    place = ", ".join(w for w in where if not w.endswith("not known"))
    silence = html.Button(
        [status.icon("pause"), html.Span("Silence …")],
        id={"type": "silence-this", "matchers": matchers},
        className="button",
        title="put its labels into the form below",
        **attrs({"aria-label": f"Silence {alert.summary}"}),
    )
    return html.Tr(
        [
            html.Td(html.Div([words.state(alert.state), *words.marks(alert)], className="chips")),
            html.Td(
                [
                    dcc.Link(alert.summary, href=routes.alert(alert.id), className="row-link"),
                    html.Div(place, className="hint") if place else None,
                ]
            ),
            html.Td(words.since(alert)),
            html.Td(html.Div([silence], className="actions") if alert.severity != "none" else None),
        ]
    )


def _silences(silences: list[SilenceOut], where: Any) -> Component | None:
    if not silences:
        return None
    heads = ("Silences", "State", "Until", "Reason", "By (as typed)", "")
    rows = [
        html.Tr(
            [
                html.Td(html.Code(words.matchers_text(s.matchers))),
                html.Td(
                    status.badge(f"hides {s.hidden_count} now", "pause", "info")
                    if s.state == "active"
                    else status.badge(s.state, "clock", "quiet")
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
    return cards.card("In force", _table(heads, rows))


def _resolved(ended: list[AlertOut]) -> Component | None:
    if not ended:
        return None
    rows = [
        html.Tr(
            [
                html.Td(words.state(a.state)),
                html.Td(dcc.Link(a.summary, href=routes.alert(a.id))),
                html.Td(html.Span(a.rule, className="chip")),
                html.Td(_lasted(a)),
                html.Td(words.since(a)),
            ]
        )
        for a in ended
    ]
    return cards.card("Resolved lately", _table(("State", "Alert", "Rule", "Fired for", "Ended"), rows))


def _lasted(alert: AlertOut) -> str:
    if alert.fired_at is None or alert.ended_at is None:
        return text.MISSING
    return text.duration((alert.ended_at - alert.fired_at).total_seconds() * 1000)


def _table(heads: tuple[str, ...], rows: list[html.Tr], class_name: str = "") -> Component:
    head = html.Thead(html.Tr([html.Th(h) if h else cards.unseen_head("Actions") for h in heads]))
    return html.Table([head, html.Tbody(rows)], className=f"plain-table {class_name}".strip())
