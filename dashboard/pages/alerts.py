"""V10, the page of the alerts: open alerts by rule, silences, receivers and rules."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from dash import Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component

from backend.contracts.alerts import AlertOut
from dashboard import routes, text
from dashboard.callbacks import Changes, connect
from dashboard.client import ApiClient
from dashboard.components import alerts as words
from dashboard.components import cards, status
from dashboard.components.attributes import attrs
from dashboard.live import digest, look_of
from dashboard.pages import alert_receivers, alert_rules, alert_silences
from dashboard.palette import Tone

_ABOUT = "Open alerts by rule. A silenced alert is still evaluated and shown, but not delivered."
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
            cards.card("Silence", alert_silences.form(), hint="stop the delivery of some alerts for a while"),
            html.Div(id="alerts-silences"),
            alert_receivers.section(),
            html.Div(id="alerts-resolved"),
            alert_rules.section(),
            html.Div(id="alerts-source"),
            dcc.Store(id="alerts-digest"),
            dcc.Store(id="alerts-changed"),
        ]
    )


def register(app: Dash, client: ApiClient) -> None:
    """Register the callbacks of the page. Receivers and rules register their own."""
    _register_lists(app, client)
    alert_silences.register(app, client)
    alert_receivers.register(app, client)
    alert_rules.register(app, client)


def _register_lists(app: Dash, client: ApiClient) -> None:
    connect(
        app,
        partial(refresh, client),
        output={
            "message": Output("alerts-message", "children"),
            "counts": Output("alerts-counts", "children"),
            "open": Output("alerts-open", "children"),
            "silences": Output("alerts-silences", "children"),
            "receivers": Output("alerts-receivers", "children"),
            "resolved": Output("alerts-resolved", "children"),
            "source": Output("alerts-source", "children"),
            "digest": Output("alerts-digest", "data"),
        },
        inputs={
            "tick": Input("tick", "n_intervals"),
            "look": Input("look", "data"),
            "changed": Input("alerts-changed", "data"),
        },
        state={"before": State("alerts-digest", "data")},
    )


async def refresh(client: ApiClient, *, tick: int | None, look: object, changed: Any, before: str | None) -> Changes:
    """The lists of the page. ``before`` is the ``digest`` output of the previous call."""
    view = look_of(look)
    opened, ended, silences, receivers, service = await asyncio.gather(
        client.alerts(states=("firing", "pending")),
        client.alerts(states=("resolved",), limit=_RESOLVED_SHOWN),
        client.silences(),
        client.receivers(),
        client.status(),
    )
    role = service.roles.get("alert")
    newest = max((a.evaluated_at for a in opened.items), default=None)
    source = cards.source_line(["Source: this service's API", cards.age("evaluated", newest)])
    changes: Changes = {"message": _silent(role), "source": source}
    # Each evaluation changes an open alert. Digest only the displayed fields.
    shown = [(a.id, a.state, a.summary, a.silenced_by, a.is_unknown) for a in opened.items]
    now = digest(shown, *ended.items, *silences.items, *receivers.items, role, str(view.where))
    if now == before:
        return changes
    return changes | {
        "counts": _counts(opened.items),
        "open": _open(opened.items),
        "silences": alert_silences.table([s for s in silences.items if s.state != "expired"], view.where),
        "receivers": alert_receivers.table(receivers.items),
        "resolved": _resolved(ended.items),
        "digest": now,
    }


# --- parts --------------------------------------------------------------------------------------------------------


def _silent(role: str | None) -> Component | None:
    if role == "ok":
        return None
    return html.Div(
        [
            status.icon("warning"),
            html.Div(
                [
                    html.Strong("Alerts are not being evaluated"),
                    html.P("The alert role is not running, so this list is out of date."),
                ]
            ),
        ],
        className="message tone-bad",
        role="alert",
    )


def _counts(opened: list[AlertOut]) -> list[Component]:
    shown = [a for a in opened if a.severity != "none"]
    found: list[Component] = []
    for state, icon, tone in (("firing", "bolt", Tone.BAD), ("pending", "hourglass", Tone.WARN)):
        number = sum(a.state == state for a in shown)
        if number:
            found.append(status.badge(f"{number} {state}", icon, tone))
    hidden = sum(bool(a.silenced_by) for a in shown)
    if hidden:
        found.append(status.badge(f"{hidden} silenced", "pause", Tone.QUIET))
    return found or [status.badge("no open alerts", "check", Tone.GOOD)]


def _open(opened: list[AlertOut]) -> Component:
    by_rule: dict[str, list[AlertOut]] = {}
    for alert in sorted(opened, key=lambda a: ({"critical": 0, "warning": 1}.get(a.severity, 2), a.rule)):
        by_rule.setdefault(alert.rule, []).append(alert)
    if not any(a.severity != "none" for a in opened):
        beside = " The watchdog fires, as it should." if by_rule else ""
        return cards.card("Open", html.P(f"No alert is pending or firing.{beside}", className="empty-state"))
    groups = [_group(rule, alerts) for rule, alerts in by_rule.items()]
    return html.Div(groups, className="alert-groups")


def _group(rule: str, alerts: list[AlertOut]) -> Component:
    rows = [_row(a) for a in sorted(alerts, key=lambda a: (a.state, a.summary))]
    table = html.Table(html.Tbody(rows), className="plain-table alerts-table", **attrs({"aria-label": rule}))
    runbook = cards.link_button(
        "Runbook", routes.runbook(rule), "right", hint="what to do when this rule fires", is_icon_last=True
    )
    return cards.card(rule, table, tools=[words.severity(alerts[0].severity), runbook])


def _row(alert: AlertOut) -> html.Tr:
    matchers = f"alertname={alert.rule}" + (f", job={alert.labels['job']}" if "job" in alert.labels else "")
    where = [f"{n} {v}" for n, v in (("vertex", alert.vertex), ("subtasks", alert.subtasks), ("on", alert.hosts)) if v]
    place = ", ".join(w for w in where if not w.endswith("not known"))
    silence = html.Button(
        [status.icon("pause"), html.Span("Silence …")],
        id={"type": "silence-this", "matchers": matchers},
        className="button",
        title="copy its labels to the form below",
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
    return cards.card("Recently resolved", cards.table(("State", "Alert", "Rule", "Fired for", "Ended"), rows))


def _lasted(alert: AlertOut) -> str:
    if alert.fired_at is None or alert.ended_at is None:
        return text.MISSING
    return text.duration((alert.ended_at - alert.fired_at).total_seconds() * 1000)
