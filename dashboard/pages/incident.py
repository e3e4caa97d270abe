"""V10: the page of one incident.

It answers in this order: what is wrong and who causes it, when the alerts fired and what the checkpoints did then, what
changed before, who was notified with what result, what people did, and what the runbooks say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta, tzinfo
from functools import partial
from typing import Any

from dash import Dash, Input, Output, State, dcc, html, set_props
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate
from pydantic import ValidationError

from backend.contracts.incidents import (
    IncidentAlertOut,
    IncidentChangeOut,
    IncidentDeliveryOut,
    IncidentDetailOut,
    IncidentNoteOut,
)
from backend.contracts.links import LinksOut
from backend.domain.errors import ApiRefusedError, ApiUnavailableError
from dashboard import routes, text
from dashboard.callbacks import Changes, connect
from dashboard.client import ApiClient
from dashboard.components import alerts as words
from dashboard.components import cards, freshness, incidents, links, status, viewer_name
from dashboard.components.attributes import attrs
from dashboard.figures import incident as figure
from dashboard.figures.base import Chart
from dashboard.live import Look, digest, look_of
from dashboard.pages import alert_silences
from dashboard.palette import Tone

_HEIGHT_PX = figure.height_px(3, has_signal=True)
# The chart begins this long before the first alert, or a fifth of the incident earlier if that is longer.
_BEFORE_MIN = timedelta(minutes=5)
_SENT = {"due": ("waiting", "hourglass", Tone.WARN), "delivered": ("delivered", "check", Tone.GOOD)}
_ABANDONED = ("given up", "cross", Tone.QUIET)
_DEBT_HINT = "the input that a failure would have read again when the alert was last evaluated"
_NOTES = {
    "comment": "",
    "acknowledged": "acknowledged the incident",
    "claimed": "took the incident",
    "released": "released the incident",
}
_CHANGES = {
    "run-started": ("play", "run started"),
    "run-ended": ("cross", "run ended"),
    "restarted": ("sync", "restart"),
    "configuration-changed": ("gauge", "settings"),
    "rescaled": ("straggler", "rescale"),
    "exception": ("warning", "exception"),
    "rows-lost": ("warning", "rows lost"),
    "pod-ended": ("warning", "pod ended"),
    "restored": ("warning", "what a restore changed"),
    "advice": ("bolt", "advice"),
    "annotation": ("plus", "annotation"),
}
_DELIVERIES_SHOWN = 12
_NAME_MAX = 40
_CHECKPOINTS_SHOWN = 20


def layout(route: routes.Route) -> Component:
    """Build the page without data, which the first refresh adds."""
    people = [
        html.Div(id="incident-thread"),
        viewer_name.field("incident", "Your name (as typed)"),
        html.Label(
            ["Comment", dcc.Textarea(id="incident-comment", maxLength=4000, rows=3, className="comment")],
            className="field",
        ),
        html.Div(
            [
                _button("incident-say", "plus", "Comment", "primary"),
                _button("incident-acknowledge", "check", "Acknowledge"),
                _button("incident-claim", "progress", "Take"),
                _button("incident-release", "left", "Release"),
            ],
            className="actions incident-actions",
        ),
        html.Div(id="incident-answer", **attrs({"aria-live": "polite"})),
    ]
    return html.Div(
        [
            dcc.Store(id="incident-route", data={"incident": route.incident}),
            dcc.Store(id="incident-digest"),
            dcc.Store(id="incident-title"),
            dcc.Store(id="incident-changed"),
            dcc.Store(id="incident-claimant"),
            html.Div(id="incident-message"),
            html.Div(id="incident-stale"),
            html.Div(id="incident-head", className="page-head"),
            html.Div(id="incident-words", className="awaited"),
            cards.chart(
                "incident-strip",
                "Alerts and checkpoints over time",
                hint="states of the alerts above the durations of the checkpoints",
                height_px=_HEIGHT_PX,
            ),
            html.Div([html.Div(id="incident-deliveries"), html.Div(id="incident-before")], className="columns"),
            html.Div(
                [
                    cards.card("People", people),
                    html.Div(
                        [html.Div(id="incident-checkpoints"), html.Div(id="incident-runbooks")], className="stack"
                    ),
                ],
                className="columns",
            ),
            cards.card("Silence", alert_silences.form(), hint="stop the delivery of matching alerts for a while"),
            html.Div(id="incident-source"),
        ]
    )


def _button(id_: str, icon: str, word: str, tone: str = "") -> html.Button:
    return html.Button(
        [status.icon(icon), html.Span(word, id=f"{id_}-word")], id=id_, type="button", className=f"button {tone}"
    )


def register(app: Dash, client: ApiClient) -> None:
    """Register the callbacks of the page. The module of silences registers those of its form."""
    connect(
        app,
        partial(refresh, client),
        output={
            "message": Output("incident-message", "children"),
            "stale": Output("incident-stale", "children"),
            "head": Output("incident-head", "children"),
            "words": Output("incident-words", "children"),
            "strip": cards.chart_outputs("incident-strip"),
            "deliveries": Output("incident-deliveries", "children"),
            "before": Output("incident-before", "children"),
            "thread": Output("incident-thread", "children"),
            "checkpoints": Output("incident-checkpoints", "children"),
            "runbooks": Output("incident-runbooks", "children"),
            "title": Output("incident-title", "data"),
            "claimant": Output("incident-claimant", "data"),
            "claim_word": Output("incident-claim-word", "children"),
            "acknowledge_off": Output("incident-acknowledge", "disabled"),
            "claim_off": Output("incident-claim", "disabled"),
            "release_off": Output("incident-release", "disabled"),
            "digest": Output("incident-digest", "data"),
            "source": Output("incident-source", "children"),
        },
        inputs={
            "tick": Input("tick", "n_intervals"),
            "look": Input("look", "data"),
            "changed": Input("incident-changed", "data"),
            "silenced": Input("silences-changed", "data"),
        },
        state={
            "route": State("incident-route", "data"),
            "before": State("incident-digest", "data"),
            "matchers": State("silence-matchers", "value"),
        },
    )
    for name, action in (("acknowledge", acknowledge), ("claim", claim), ("release", release), ("say", say)):
        _register_action(app, client, name, action)


def _register_action(
    app: Dash, client: ApiClient, name: str, action: Callable[..., Coroutine[Any, Any, Changes]]
) -> None:
    is_first = name == "acknowledge"
    state = {
        "route": State("incident-route", "data"),
        "author": viewer_name.typed("incident"),
        "said": State("incident-comment", "value"),
    }
    output = {
        "answer": Output("incident-answer", "children", allow_duplicate=not is_first),
        "changed": Output("incident-changed", "data", allow_duplicate=not is_first),
        "said": Output("incident-comment", "value", allow_duplicate=not is_first),
    }
    if name == "claim":
        state["claimant"] = State("incident-claimant", "data")
    connect(
        app,
        partial(action, client),
        output=output,
        inputs={"clicks": Input(f"incident-{name}", "n_clicks")},
        state=state,
        prevent_initial_call=True,
    )


# --- actions ------------------------------------------------------------------------------------------------------


async def acknowledge(
    client: ApiClient, *, clicks: int | None, route: dict[str, str], author: str | None, said: str | None
) -> Changes:
    """Record that the viewer has seen the incident, and add the typed comment."""
    return await _with_comment(
        *(client, clicks, route, author, said),
        lambda name: client.acknowledge_incident(route["incident"], name),
        "The incident is acknowledged.",
    )


async def claim(
    client: ApiClient,
    *,
    clicks: int | None,
    route: dict[str, str],
    author: str | None,
    said: str | None,
    claimant: str | None,
) -> Changes:
    """Record that the viewer works on the incident, and add the typed comment.

    The incident is taken over only from the person whom the button names.
    """

    async def take(name: str) -> object:
        return await client.claim_incident(route["incident"], name, claimed_by=claimant)

    return await _with_comment(client, clicks, route, author, said, take, "You have taken the incident.")


async def release(
    client: ApiClient, *, clicks: int | None, route: dict[str, str], author: str | None, said: str | None
) -> Changes:
    """Record that nobody works on the incident any longer, and add the typed comment."""
    return await _with_comment(
        *(client, clicks, route, author, said),
        lambda name: client.release_incident(route["incident"], name),
        "The incident is released.",
    )


async def _with_comment(
    client: ApiClient,
    clicks: int | None,
    route: dict[str, str],
    author: str | None,
    said: str | None,
    act: Callable[[str], Coroutine[Any, Any, object]],
    words_: str,
) -> Changes:
    """Do the action, and then add the comment that was typed beside it. If only this fails, the text stays typed."""
    done = await _done(clicks, author, act, words_)
    typed = (said or "").strip()
    if "changed" not in done or not typed:
        return done
    added = await _done(
        *(clicks, author),
        lambda name: client.comment_incident(route["incident"], name, typed),
        f"{words_} The comment was added.",
    )
    if "changed" in added:
        return added | {"said": ""}
    return done | {"answer": [done["answer"], html.P("The comment was not added:"), added["answer"]]}


async def say(
    client: ApiClient, *, clicks: int | None, route: dict[str, str], author: str | None, said: str | None
) -> Changes:
    """Add the typed comment."""
    typed = (said or "").strip()
    if clicks and not typed:
        return {"answer": cards.answer(False, "Enter a comment.")}
    done = await _done(
        clicks, author, lambda name: client.comment_incident(route["incident"], name, typed), "The comment was added."
    )
    return done | ({"said": ""} if "changed" in done else {})


async def _done(
    clicks: int | None, author: str | None, act: Callable[[str], Coroutine[Any, Any, object]], words_: str
) -> Changes:
    if not clicks:
        raise PreventUpdate
    name = viewer_name.given(author)
    if name is None:
        return {"answer": cards.answer(False, "Enter your name.")}
    try:
        await act(name)
    except ValidationError as error:
        return {"answer": cards.answer(False, error.errors(include_url=False)[0]["msg"])}
    except (ApiRefusedError, ApiUnavailableError) as problem:
        return {"answer": cards.answer(False, str(problem))}
    return {"answer": cards.answer(True, words_), "changed": clicks}


# --- the contents -------------------------------------------------------------------------------------------------


async def refresh(
    client: ApiClient,
    *,
    tick: int | None,
    look: object,
    changed: Any,
    silenced: Any,
    route: dict[str, str],
    before: str | None,
    matchers: str | None,
) -> Changes:
    """Return the contents of the page for the incident in ``route``.

    ``before`` is the ``digest`` output of the previous call. ``matchers`` are those in the form for a silence; they are
    filled only while the form is empty.
    """
    view = look_of(look)
    incident = await client.incident(route["incident"])
    source = cards.source_line(["Source: this service's API", cards.age("read", incident.as_of)])
    shown: Changes = {"message": None, "source": source}
    now = _digest(incident, view)
    if now == before:
        return shown
    chart, signal = await _chart(client, incident, view)
    is_over, claimant = incident.ended_at is not None, incident.claimed_by
    if before is None and not matchers:
        # The field is not an output of this callback, because the page of silences has the same form but no incident.
        set_props("silence-matchers", {"value": _matchers(incident)})
    return shown | {
        "stale": freshness.note(incident.freshness, "The job of this incident", evaluated="This incident")
        or freshness.final(incident.freshness),
        "head": _head(incident),
        "words": _words(incident, view.where, links.row(await _links(client, incident))),
        "strip": cards.chart_values("incident-strip", chart),
        "deliveries": _deliveries(incident, view.where),
        "before": changes(incident.changes, view.where),
        "thread": _thread(incident.notes, view.where),
        "checkpoints": checkpoints(incident, signal),
        "runbooks": _runbooks(incident),
        "title": incident.headline,
        "claimant": claimant,
        "claim_word": "Take" if claimant is None else f"Take over from {text.short(claimant, _NAME_MAX)}",
        "acknowledge_off": is_over or incident.acknowledged_by is not None,
        "claim_off": is_over,
        "release_off": claimant is None,
        "digest": now,
    }


def _digest(detail: IncidentDetailOut, view: Look) -> str:
    """Return a digest that changes when the page must change.

    A new evaluation alone does not change it. While the incident is open it changes every 10 s, because the bars in the
    chart grow.
    """
    alerts = [(a.id, a.state, a.summary, a.is_unknown, a.checkpoints) for a in detail.alerts]
    shown = detail.model_copy(update={"alerts": []})
    grown = detail.ended_at is None and int(detail.as_of.timestamp()) // 10
    return digest(shown, alerts, grown, view.theme.name, str(view.where), view.is_narrow)


def _matchers(detail: IncidentDetailOut) -> str:
    """Return the matchers for a silence of this job or target, as a viewer would type them."""
    name = next((n for n in ("job_name", "target") if n in detail.labels), None)
    return f"{name}={detail.labels[name]}" if name is not None else f"alertname={detail.rules[0]}"


async def _chart(client: ApiClient, detail: IncidentDetailOut, view: Look) -> tuple[Chart, figure.Signal]:
    until = detail.ended_at or detail.as_of
    before = max(_BEFORE_MIN, (until - detail.began_at) / 5)
    since, until = detail.began_at - before, until + (before if detail.ended_at is not None else timedelta())
    until = min(until, detail.as_of)
    signal = await _signal(client, detail.job_id, since, until)
    chart = figure.incident(
        detail.alerts,
        signal,
        since=since,
        until=until,
        theme=view.theme,
        where=view.where,
        is_narrow=view.is_narrow,
    )
    return chart, signal


async def _signal(client: ApiClient, job_id: str | None, since: datetime, until: datetime) -> figure.Signal:
    """Return the checkpoints around the incident, or no checkpoints if the job is not stored any longer."""
    if job_id is None:
        return figure.Signal()
    try:
        job = await client.graph(job_id)
        offset = timedelta(milliseconds=job.clock_offset_ms or 0)
        listed, is_cut = await client.checkpoints_between(job_id, since + offset, until + offset)
    except ApiRefusedError:
        return figure.Signal()
    return figure.Signal(listed, job.config.timeout_ms if job.config is not None else None, offset, is_cut=is_cut)


def _head(detail: IncidentDetailOut) -> list[Component]:
    title = html.Div(
        [
            html.H1(detail.headline),
            words.state(detail.state, is_quiet=incidents.is_quiet(detail) and detail.ended_at is None),
            words.severity(detail.severity, is_quiet=incidents.is_quiet(detail)),
            *incidents.marks(detail.model_copy(update={"comment_count": 0})),
        ],
        className="title-row",
    )
    crumbs = html.Div([dcc.Link("Incidents", href=routes.alerts()), " / ", html.Span(detail.id)], className="crumbs")
    tools: list[Component] = []
    if detail.job_id is not None:
        advice = routes.advice(detail.job_id)
        tools.append(cards.link_button("Cure: advice", advice, "bolt", hint="recommendations for the job"))
        tools.append(cards.link_button("What if", routes.what_if(detail.job_id), "gauge", hint="try other settings"))
        tools.append(
            cards.link_button(
                "To the job", routes.job(detail.job_id), "right", hint="the job's page", is_icon_last=True
            )
        )
    return [html.Div([crumbs, title]), html.Div(tools, className="head-tools")]


async def _links(client: ApiClient, detail: IncidentDetailOut) -> LinksOut | None:
    """Return the links out of Barrierscope for the vertex and the first subtask that the incident names."""
    if detail.job_id is None:
        return None
    try:
        job = await client.graph(detail.job_id)
    except ApiRefusedError:
        return None
    vertex = next((v.id for v in job.vertices if v.name == detail.vertex), None)
    first = re.search(r"\d+", detail.subtasks or "")
    subtask = int(first[0]) if vertex is not None and first is not None else None
    return await links.read(client, detail.job_id, vertex=vertex, subtask=subtask)


def _words(detail: IncidentDetailOut, where: tzinfo, out: Component | None) -> Component:
    shown = (
        [
            cards.fact("Cause", incidents.cause_word(detail.cause) if detail.cause else text.MISSING, basis=None),
            cards.fact("Vertex", detail.vertex or text.MISSING, basis=None),
            cards.fact("Subtasks", detail.subtasks or text.MISSING, basis=None),
            cards.fact("Hosts", detail.hosts or text.MISSING, basis=None),
            cards.fact("Phase", detail.phase or text.MISSING, basis=None),
            cards.fact("A failure replays", detail.replay_debt or text.MISSING, hint=_DEBT_HINT),
        ]
        if detail.job_id is not None
        else []
    )
    lasted = None
    if detail.ended_at is not None:
        lasted = text.duration((detail.ended_at - detail.began_at).total_seconds() * 1000)
    times = [
        cards.fact("Began", text.instant(detail.began_at, where), basis=None),
        cards.fact("Ended", text.instant(detail.ended_at, where), basis=None, hint="still open"),
        *([cards.fact("Lasted", lasted, basis=None)] if lasted is not None else []),
    ]
    lines = [html.P(detail.description.rpartition(" http")[0] or detail.description)]
    if detail.action is not None and detail.job_id is not None:
        lines.append(html.P([html.B("Do first: "), dcc.Link(detail.action, href=routes.advice(detail.job_id))]))
    alerts = [words.line(a, where) for a in _newest_of_each_rule(detail.alerts)]
    left_off = detail.alert_count - len(alerts)
    earlier = f"and {text.counted(left_off, 'earlier episode')} of these rules" if left_off else None
    more = html.P(f"{incidents.counts(detail)}{f': these {earlier}' if earlier else ''}", className="hint")
    return cards.card(
        "What is wrong",
        [
            *lines,
            cards.facts([*shown, *times]),
            out,
            html.Ul(alerts, className="alert-lines incident-alerts"),
            more,
        ],
    )


def _newest_of_each_rule(alerts: list[IncidentAlertOut]) -> list[IncidentAlertOut]:
    newest: dict[str, IncidentAlertOut] = {}
    for alert in alerts:
        newest.setdefault(alert.rule, alert)
    return list(newest.values())


def _deliveries(detail: IncidentDetailOut, where: tzinfo) -> Component:
    if not detail.deliveries:
        why = "Silenced." if detail.silenced_count else "None was sent: there is no receiver, or no alert has fired."
        return cards.card("Notifications", html.P(why, className="hint"))
    rows = [_delivery(d, where) for d in detail.deliveries[:_DELIVERIES_SHOWN]]
    left_off = len(detail.deliveries) - len(rows)
    more = html.P(f"and {left_off} earlier messages", className="hint") if left_off else None
    heads = ("Receiver", "Message", "Result", "When", "Attempts")
    return cards.card("Notifications", [cards.table(heads, rows), more])


def _delivery(delivery: IncidentDeliveryOut, where: tzinfo) -> html.Tr:
    word, icon, tone = _SENT.get(delivery.state, _ABANDONED)
    at = delivery.delivered_at or (delivery.attempts[-1].at if delivery.attempts else delivery.added_at)
    retry = None
    if delivery.next_attempt_at is not None:
        retry = html.Div(
            f"next attempt {text.instant(delivery.next_attempt_at, where, with_date=False)}", className="hint"
        )
    return html.Tr(
        [
            html.Td(text.short(delivery.receiver, _NAME_MAX), title=delivery.receiver),
            html.Td([delivery.kind, html.Div(text.short(delivery.rule, _NAME_MAX), className="hint")]),
            html.Td([status.badge(word, icon, tone), html.Div(delivery.result or "", className="hint")]),
            html.Td([text.instant(at, where), retry]),
            html.Td(str(delivery.attempt_count)),
        ]
    )


def changes(incident_changes: list[IncidentChangeOut], where: tzinfo) -> Component:
    """Build the list of what changed: first before the incident, then during it."""
    before = [_change(c, where) for c in incident_changes if c.is_before]
    during = [_change(c, where) for c in incident_changes if not c.is_before]
    parts: list[Component] = [
        html.Ul(before, className="alert-lines")
        if before
        else html.P("No change was read in the 24 hours before.", className="hint")
    ]
    if during:
        parts += [html.H3("During the incident"), html.Ul(during, className="alert-lines")]
    return cards.card("What changed before", parts)


def _change(change: IncidentChangeOut, where: tzinfo) -> html.Li:
    icon, word = _CHANGES.get(change.kind, ("question", change.kind))
    return html.Li(
        [
            status.badge(word, icon, Tone.INFO if change.is_before else Tone.QUIET),
            html.Span(change.text),
            html.Span(text.instant(change.at, where), className="hint"),
        ],
        className="alert-line",
    )


def _thread(notes: list[IncidentNoteOut], where: tzinfo) -> Component:
    if not notes:
        return html.P("No acknowledgement, claim or comment yet.", className="hint")
    items = []
    for note in notes:
        did = _NOTES[note.kind]
        head = [
            html.B(note.author),
            f" {did}" if did else None,
            html.Span(text.instant(note.at, where), className="hint"),
        ]
        items.append(html.Li([html.Div(head, className="chips"), html.P(note.text) if note.text else None]))
    return html.Ol(items, className="thread")


def checkpoints(detail: IncidentDetailOut, signal: figure.Signal) -> Component | None:
    """Build the list of the checkpoints that the alerts name, newest first, or None if they name none."""
    linked = [(c.run_id, c.checkpoint_id) for a in detail.alerts for c in reversed(a.checkpoints)]
    if detail.job_id is None or not linked:
        return None
    # A new run may use the same numbers, so sort by run first. The order of the alerts gives the order of the runs.
    runs = list(dict.fromkeys(run for run, _ in linked))
    known = {(c.run_id, c.checkpoint_id): c for c in signal.checkpoints}
    rows = []
    for run, number in sorted(set(linked), key=lambda key: (runs.index(key[0]), -key[1]))[:_CHECKPOINTS_SHOWN]:
        one = known.get((run, number))
        rows.append(
            html.Li(
                [
                    dcc.Link(f"Checkpoint {number}", href=routes.checkpoint(detail.job_id, run, number)),
                    status.checkpoint(one) if one is not None else None,
                    html.Span(text.duration(one.end_to_end_duration_ms), className="hint") if one is not None else None,
                ],
                className="alert-line",
            )
        )
    hint = "evidence of what held the barrier"
    return cards.card("Checkpoints of these alerts", html.Ul(rows, className="alert-lines"), hint=hint)


def _runbooks(detail: IncidentDetailOut) -> Component:
    links = [html.Li(dcc.Link(rule, href=routes.runbook(rule))) for rule in detail.rules]
    return cards.card(
        "Runbooks", html.Ul(links, className="chips alert-links"), hint="what to do when these rules fire"
    )
