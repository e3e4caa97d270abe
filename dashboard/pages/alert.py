"""The page of one alert: its text, its states over time, its checkpoints, its deliveries and its runbook."""

from __future__ import annotations

from datetime import tzinfo
from functools import partial

from dash import Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component

from backend.contracts.alerts import AlertDetailOut, DeliveryOut
from dashboard import routes, text
from dashboard.callbacks import Changes, connect
from dashboard.client import ApiClient
from dashboard.components import alerts as words
from dashboard.components import cards, freshness, status
from dashboard.figures import alert_strip
from dashboard.live import Look, digest, look_of
from dashboard.pages.runbook import runbook_text
from dashboard.palette import Tone

_DELIVERIES = {"due": ("waiting", "hourglass", Tone.WARN), "delivered": ("delivered", "check", Tone.GOOD)}
_ABANDONED = ("given up", "cross", Tone.QUIET)
_NAME_MAX = 40


def layout(route: routes.Route) -> Component:
    """Build the page without data, which the first refresh adds."""
    return html.Div(
        [
            dcc.Store(id="alert-route", data={"alert": route.alert}),
            dcc.Store(id="alert-digest"),
            dcc.Store(id="alert-title"),
            html.Div(id="alert-message"),
            html.Div(id="alert-stale"),
            html.Div(id="alert-head", className="page-head"),
            html.Div(id="alert-words", className="awaited"),
            cards.chart(
                "alert-strip", "States over time", hint="the newest 30 episodes", height_px=alert_strip.HEIGHT_PX
            ),
            html.Div(
                [html.Div(id="alert-deliveries"), html.Div(id="alert-checkpoints")],
                className="columns",
            ),
            html.Div(id="alert-runbook"),
            html.Div(id="alert-source"),
        ]
    )


def register(app: Dash, client: ApiClient) -> None:
    """Register the callback of the page."""
    connect(
        app,
        partial(refresh, client),
        output={
            "message": Output("alert-message", "children"),
            "stale": Output("alert-stale", "children"),
            "head": Output("alert-head", "children"),
            "words": Output("alert-words", "children"),
            "strip": cards.chart_outputs("alert-strip"),
            "deliveries": Output("alert-deliveries", "children"),
            "checkpoints": Output("alert-checkpoints", "children"),
            "runbook": Output("alert-runbook", "children"),
            "title": Output("alert-title", "data"),
            "digest": Output("alert-digest", "data"),
            "source": Output("alert-source", "children"),
        },
        inputs={"tick": Input("tick", "n_intervals"), "look": Input("look", "data")},
        state={"route": State("alert-route", "data"), "before": State("alert-digest", "data")},
    )


async def refresh(
    client: ApiClient, *, tick: int | None, look: object, route: dict[str, str], before: str | None
) -> Changes:
    """Return the contents of the page for the alert in ``route``.

    ``before`` is the ``digest`` output of the previous call.
    """
    view = look_of(look)
    alert = await client.alert(route["alert"])
    source = cards.source_line(["Source: this service's API", cards.age("evaluated", alert.evaluated_at)])
    changes: Changes = {"message": None, "source": source}
    now = _digest(alert, view)
    if now == before:
        return changes
    runbook = await client.runbook(alert.rule)
    chart = alert_strip.strip(alert.episodes, theme=view.theme, where=view.where, now=alert.ended_at or alert.as_of)
    return changes | {
        "stale": freshness.note(alert.freshness, "The job of this alert", evaluated="This alert")
        or freshness.final(alert.freshness),
        "head": _head(alert),
        "words": _words(alert, view.where),
        "strip": cards.chart_values("alert-strip", chart),
        "deliveries": _deliveries(alert, view.where),
        "checkpoints": _checkpoints(alert, view.where),
        "runbook": cards.card("Runbook", runbook_text(_body(runbook.markdown))),
        "title": alert.summary,
        "digest": now,
    }


def _digest(alert: AlertDetailOut, view: Look) -> str:
    """Return a digest that changes when the page must change.

    A new evaluation alone does not change the digest. For an open alert the digest changes every 10 s, because the
    alert's bar in the chart grows.
    """
    shown = alert.model_copy(update={"evaluated_at": alert.began_at, "value": None})
    grown = alert.ended_at is None and int(alert.as_of.timestamp()) // 10
    return digest(shown, grown, view.theme.name, str(view.where))


def _body(markdown: str) -> str:
    """Return the text without its title, because the card has its own title."""
    return markdown.partition("\n")[2] if markdown.startswith("# ") else markdown


def _head(alert: AlertDetailOut) -> list[Component]:
    is_quiet = bool(alert.silenced_by)
    badges = [words.state(alert.state, is_quiet=is_quiet), words.severity(alert.severity, is_quiet=is_quiet)]
    title = html.Div(
        [html.H1(alert.summary), *badges, *words.marks(alert)],
        className="title-row",
    )
    crumbs = html.Div([dcc.Link("Alerts", href=routes.alerts()), " / ", html.Span(alert.rule)], className="crumbs")
    tools: list[Component] = []
    if alert.incident_id is not None:
        where_to = routes.incident(alert.incident_id)
        tools.append(
            cards.link_button("To the incident", where_to, "right", hint="all alerts of this cause", is_icon_last=True)
        )
    if alert.job_id is not None:
        tools.append(
            cards.link_button("Advice", routes.advice(alert.job_id), "bolt", hint="recommendations for the job")
        )
        tools.append(cards.link_button("What if", routes.what_if(alert.job_id), "gauge", hint="try other settings"))
        tools.append(
            cards.link_button("To the job", routes.job(alert.job_id), "right", hint="the job's page", is_icon_last=True)
        )
    if alert.checkpoints and alert.job_id is not None:
        newest = alert.checkpoints[-1]
        where = routes.checkpoint(alert.job_id, newest.run_id, newest.checkpoint_id)
        word = f"Checkpoint {newest.checkpoint_id}"
        tools.append(
            cards.link_button(word, where, "right", hint="the newest checkpoint of this alert", is_icon_last=True)
        )
    return [html.Div([crumbs, title]), html.Div(tools, className="head-tools")]


def _words(alert: AlertDetailOut, where: tzinfo) -> Component:
    facts = [
        cards.fact("Vertex", _known(alert.vertex), basis=None),
        cards.fact("Subtasks", _known(alert.subtasks), basis=None),
        cards.fact("Hosts", _known(alert.hosts), basis=None),
        cards.fact("Phase", _known(alert.phase), basis=None),
        cards.fact("A failure replays", _known(alert.replay_debt), basis=None),
    ]
    times = [
        cards.fact("Active since", text.instant(alert.began_at, where), basis=None),
        cards.fact("Fired", text.instant(alert.fired_at, where), basis=None, hint="has not fired"),
        cards.fact("Ended", text.instant(alert.ended_at, where), basis=None, hint="still open"),
    ]
    lines: list[Component | None] = [html.P(alert.description.rpartition(" http")[0] or alert.description)]
    if alert.action is not None and alert.job_id is not None:
        lines.append(html.P([html.B("Do first: "), dcc.Link(alert.action, href=routes.advice(alert.job_id))]))
    if alert.is_unknown:
        lines.append(
            html.P(f"The newest reading neither confirms nor ends the alert: {alert.reason}.", className="hint")
        )
    if alert.ended_reason:
        lines.append(html.P(f"Ended: {alert.ended_reason}.", className="hint"))
    shown = facts if alert.job_id is not None else []
    return cards.card("What is wrong", [*lines, cards.facts([*shown, *times])], hint=alert.rule_meaning)


def _known(value: str | None) -> str:
    return text.MISSING if value in (None, "not known") else str(value)


def _deliveries(alert: AlertDetailOut, where: tzinfo) -> Component:
    if not alert.deliveries:
        why = (
            "Silenced." if alert.silenced_by else "Nothing was sent: there is no receiver, or the alert has not fired."
        )
        return cards.card("Deliveries", html.P(why, className="hint"))
    heads = ("Receiver", "Kind", "Delivery", "Attempts", "Last result")
    head = html.Thead(html.Tr([html.Th(h) for h in heads]))
    rows = [_delivery(d, where) for d in alert.deliveries]
    return cards.card("Deliveries", html.Table([head, html.Tbody(rows)], className="plain-table"))


def _delivery(delivery: DeliveryOut, where: tzinfo) -> html.Tr:
    word, icon, tone = _DELIVERIES.get(delivery.state, _ABANDONED)
    next_at = delivery.next_attempt_at
    hint = f"next attempt {text.instant(next_at, where, with_date=False)}" if next_at is not None else None
    sent = f", sent {delivery.sent_count} times" if delivery.sent_count > 1 else ""
    attempts = [
        html.Li(
            f"{text.instant(a.at, where, with_date=False)}: {a.result} ({text.duration(a.duration_ms)})",
        )
        for a in delivery.attempts
    ]
    return html.Tr(
        [
            html.Td(text.short(delivery.receiver, _NAME_MAX), title=delivery.receiver),
            html.Td(delivery.kind),
            html.Td(status.badge(word, icon, tone, hint=hint)),
            html.Td(
                html.Details([html.Summary(f"{delivery.attempt_count}{sent}"), html.Ul(attempts)], className="events")
            ),
            html.Td(delivery.result or text.MISSING),
        ]
    )


def _checkpoints(alert: AlertDetailOut, where: tzinfo) -> Component:
    links = [
        html.Li(
            dcc.Link(f"Checkpoint {c.checkpoint_id}", href=routes.checkpoint(alert.job_id, c.run_id, c.checkpoint_id))
        )
        for c in reversed(alert.checkpoints)
        if alert.job_id is not None
    ]
    events = [
        html.Li(f"{text.instant(e.at, where)}: {e.before} → {e.after}. {e.reason}") for e in reversed(alert.events)
    ]
    parts: list[Component] = [html.Ul(events, className="alert-lines")]
    if links:
        parts += [html.H2("Affected checkpoints"), html.Ul(links, className="chips alert-links")]
    return cards.card("History", parts)
