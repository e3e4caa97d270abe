"""The page of the targets: their health and the cost of polling them.

Targets can be added, tested, changed, paused and removed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from dash import Dash, Input, Output, State, dcc, html, set_props
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate
from pydantic import ValidationError

from backend.contracts.api import TargetIn, TargetOut, TargetShedOut
from backend.domain.errors import ApiRefusedError, ApiUnavailableError
from dashboard import routes, targets_address, text
from dashboard.callbacks import Changes, connect
from dashboard.client import ApiClient
from dashboard.components import cards, confirming, presses, status, target_tests, unread_sources
from dashboard.components.attributes import attrs
from dashboard.components.markup import Markup, nodes_of
from dashboard.live import digest, look_of
from dashboard.pages import target_editing, target_links, target_options
from dashboard.targets_address import TargetList

_ABOUT = "The systems that Barrierscope reads. It uses the monitoring REST API only; nothing is installed there."
_ORIGINS = {
    "api": "added here",
    "configuration": "configuration",
    "built-in": "built in",
    "discovery": "discovery",
    "push": "its jobs push",
}
_PAUSE, _REMOVE = "target-pause", "target-remove"
# Only targets of these origins can be removed. A declared target is removed where it is declared; a target that pushes
# would come back only with its next push.
_REMOVABLE = ("api", "push")


def layout(route: routes.Route) -> Component:
    """Build the page without data, which the first refresh adds."""
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
            cards.card(
                "All targets",
                html.Div([_search(route.targets), html.Div(Markup([], id="targets-rows"), id="targets-list")]),
            ),
            html.Div(id="targets-pages", className="chips"),
            html.Div(id="targets-gaps"),
            html.Div(id="targets-source"),
            dcc.Store(id="targets-digest"),
            dcc.Store(id="targets-changed"),
            target_links.dialog(),
            target_editing.dialog(),
            presses.receiver(_PAUSE),
            presses.receiver(_REMOVE),
            confirming.dialog("target", "Remove a target", "Remove", icon="trash", is_dangerous=True),
        ]
    )


def _search(view: TargetList) -> Component:
    box = dcc.Input(
        id="targets-search",
        type="search",
        value=view.search,
        placeholder="part of the name or the address",
        debounce=True,
        maxLength=200,
        autoComplete="off",
    )
    return html.Div(html.Label(["Find", box], className="field"), className="target-search", role="search")


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
            target_options.fields(),
            html.Div(id="target-answer", **attrs({"aria-live": "polite"})),
        ]
    )


def register(app: Dash, client: ApiClient) -> None:
    """Register the callbacks of the page."""
    _register_list(app, client)
    _register_form(app, client)
    _register_actions(app, client)
    target_links.register(app, client)
    target_editing.register(app, client)


def _register_list(app: Dash, client: ApiClient) -> None:
    connect(
        app,
        partial(refresh, client),
        output={
            "message": Output("targets-message", "children"),
            "rows": Output("targets-rows", "nodes"),
            "source": Output("targets-source", "children"),
            "digest": Output("targets-digest", "data"),
            "gaps": Output("targets-gaps", "children"),
            "pages": Output("targets-pages", "children"),
        },
        inputs={
            "tick": Input("tick", "n_intervals"),
            "look": Input("look", "data"),
            "changed": Input("targets-changed", "data"),
            "search": Input("url", "search"),
        },
        state={"before": State("targets-digest", "data"), "words": State("targets-search", "value")},
        has_trigger=True,
    )
    connect(
        app,
        find,
        output={"search": Output("url", "search", allow_duplicate=True)},
        inputs={"words": Input("targets-search", "value")},
        state={"search": State("url", "search")},
        prevent_initial_call=True,
    )


def find(*, words: str | None, search: str | None) -> Changes:
    """Write what is searched for to the address of the page. The list then begins with its first page."""
    view, wanted = targets_address.parse(search), (words or "").strip()
    if wanted == view.search:
        raise PreventUpdate
    return {"search": targets_address.query_of(TargetList(search=wanted))}


async def refresh(
    client: ApiClient,
    *,
    tick: int | None,
    look: object,
    changed: Any,
    search: str | None,
    before: str | None,
    words: str | None,
    trigger: object,
) -> Changes:
    """Return a page of the list of targets. ``before`` is the ``digest`` output of the previous call.

    Each poll changes what a row shows. The browser then changes only the texts that differ, because a button that is
    replaced while it is pressed would lose the press.
    """
    look_of(look)
    view = targets_address.parse(search)
    if trigger == "url" and (words or "").strip() != view.search:
        # A link or the browser's way back has changed what is searched for.
        set_props("targets-search", {"value": view.search})
    page = await client.targets(view)
    service = await client.status()
    partial_sources, is_part = service.partial_sources, bool(view.cursor or page.next)
    count = f"{text.count(len(page.items))} of {text.count(service.targets_total)} targets"
    more = [f"{count} on this page"] if is_part and not view.search else []
    source = cards.source_line(["Source: this service's API", cards.age("read", page.as_of), *more])
    changes: Changes = {"message": None, "source": source}
    now = digest(*page.items, *partial_sources, view, page.next)
    if now == before:
        return changes
    return changes | {
        "rows": nodes_of(_table(page.items, view)),
        "pages": _pages(view, page.next),
        "gaps": unread_sources.gaps(partial_sources),
        "digest": now,
    }


def _register_form(app: Dash, client: ApiClient) -> None:
    connect(
        app,
        partial(send, client),
        output={
            "answer": Output("target-answer", "children"),
            "changed": Output("targets-changed", "data"),
            "url": Output("target-url", "value"),
            "name": Output("target-name", "value"),
        },
        inputs={"tests": Input("target-test", "n_clicks"), "adds": Input("target-add", "n_clicks")},
        state={"url": State("target-url", "value"), "name": State("target-name", "value"), **target_options.states()},
        has_trigger=True,
        running=[
            (Output("target-test", "disabled"), True, False),
            (Output("target-add", "disabled"), True, False),
        ],
        prevent_initial_call=True,
    )


async def send(
    client: ApiClient,
    *,
    tests: int | None,
    adds: int | None,
    url: str | None,
    name: str | None,
    trigger: object,
    options: list[str | None] | None = None,
    names: list[dict[str, str]] | None = None,
) -> Changes:
    """Test the target described in the form, or add it, depending on which button was pressed."""
    if not (tests or adds):
        raise PreventUpdate
    if not (url or "").strip():
        return {"answer": cards.answer(False, "Enter an address, such as http://my-flink:8081.")}
    try:
        more = target_options.read(options, names)
        target = TargetIn(url=(url or "").strip(), name=(name or "").strip() or None, **more)
        if trigger == "target-test":
            result = await client.test_target(target)
            return {"answer": target_tests.answer(result)} | ({"url": result.root} if result.root else {})
        added = await client.add_target(target)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return {"answer": cards.answer(False, f"{where}: {first['msg']}")}
    except target_options.WrongOptionError as problem:
        return {"answer": cards.answer(False, str(problem))}
    except (ApiRefusedError, ApiUnavailableError) as problem:
        return {"answer": cards.answer(False, str(problem))}
    found = dcc.Link("Show it.", href=routes.targets(TargetList(search=added.name)))
    answer = cards.answer(True, f"{added.name} was added.{_silence_of(added)}", link=found)
    return {"answer": answer, "changed": added.id, "url": "", "name": ""}


def _register_actions(app: Dash, client: ApiClient) -> None:
    output = {
        "message": Output("targets-message", "children", allow_duplicate=True),
        "changed": Output("targets-changed", "data", allow_duplicate=True),
    }
    connect(
        app,
        partial(pause, client),
        output=output,
        inputs=presses.inputs(_PAUSE),
        state=presses.state(_PAUSE),
        prevent_initial_call=True,
    )
    connect(
        app,
        partial(ask_to_remove, client),
        output=confirming.outputs("target"),
        inputs=presses.inputs(_REMOVE),
        state=presses.state(_REMOVE),
        prevent_initial_call=True,
    )
    connect(
        app,
        partial(remove, client),
        output=output,
        inputs={"confirmed": confirming.confirmed("target")},
        state={"subject": State("target-subject", "data")},
        prevent_initial_call=True,
    )
    confirming.register(app, "target")


async def pause(client: ApiClient, *, clicks: int | None, pressed: dict[str, str] | None) -> Changes:
    """Pause or resume the target whose button was pressed."""
    if not clicks or pressed is None:
        raise PreventUpdate
    await client.enable_target(pressed["of"], is_enabled=pressed["to"] == "on")
    return {"message": None, "changed": [pressed["of"], clicks, pressed["to"]]}


async def ask_to_remove(client: ApiClient, *, clicks: int | None, pressed: dict[str, str] | None) -> Changes:
    """Ask for confirmation before a target is removed."""
    if not clicks or pressed is None:
        raise PreventUpdate
    target = await client.target(pressed["of"])
    if target is None:
        raise PreventUpdate
    question = [
        html.P(["Stop reading ", html.B(target.name), "?"]),
        html.P(target.url, className="url"),
        html.P("Data that was read is kept until its retention ends.", className="hint"),
    ]
    return confirming.opened({"target": target.id, "version": target.version}, question)


async def remove(client: ApiClient, *, confirmed: int | None, subject: dict[str, str] | None) -> Changes:
    """Remove the target once the viewer has confirmed it. The API refuses it if it was changed since the question."""
    if not confirmed or not subject:
        raise PreventUpdate
    await client.remove_target(subject["target"], version=subject["version"] or None)
    return {"message": None, "changed": ["removed", subject["target"]]}


def _silence_of(added: TargetOut) -> str:
    reason = added.health.reason
    return f" It does not answer now ({reason}), and is read as soon as it does." if reason else ""


def _pages(view: TargetList, following: str | None) -> list[Component]:
    return cards.page_links(
        view.cursor,
        following,
        lambda cursor: routes.targets(replace(view, cursor=cursor)),
        first_hint="the oldest targets",
        following_hint="newer targets",
    )


def _table(targets: list[TargetOut], view: TargetList) -> Component:
    if not targets:
        found = "No target has this in its name or address." if view.search else "No more targets."
        return html.P("No targets yet." if view == TargetList() else found, className="empty-state")
    heads = ("Target", "Engine", "Health", "Last read", "Cost of a poll (measured)", "Origin")
    head = html.Thead(html.Tr([*(html.Th(h) for h in heads), cards.unseen_head("Actions")]))
    return html.Table([head, html.Tbody([_row(t) for t in targets])], className="plain-table targets-table")


def _row(target: TargetOut) -> html.Tr:
    return html.Tr(
        [
            html.Td([html.B(target.name), html.Div(target.url, className="url"), *_connected(target)]),
            *(html.Td(shown) for shown in _parts(target)),
            html.Td(_where_from(target)),
            html.Td(_actions(target)),
        ],
        key=target.id,
    )


def _where_from(target: TargetOut) -> str:
    if target.declared_by is None:
        return _ORIGINS[target.origin]
    return f"{'discovery' if target.origin == 'discovery' else 'file'} {target.declared_by}"


def _connected(target: TargetOut) -> list[Component]:
    told = target_options.told(target)
    return [] if told is None else [html.Div(text.short(told, 120), className="hint", title=told)]


def _parts(target: TargetOut) -> list[list[Component]]:
    """Build the contents of the cells for the engine, the health, the last reading and the cost."""
    state = target.health.state
    health: list[Component] = [status.badge(state, status.TARGET_ICONS[state], status.TARGET_TONES[state])]
    if target.health.reason:
        health.append(html.Div(text.short(target.health.reason, 160), className="hint", title=target.health.reason))
    if target.shed is not None:
        health.append(_shed(target.shed))
    if target.missing_since is not None:
        health.append(html.Div("no longer declared: it ends within minutes", className="hint"))
    engine = " ".join(p for p in (target.engine, target.engine_version) if p)
    return [
        [html.Span(engine or text.MISSING, title=None if engine else "not read yet")],
        health,
        [cards.age("", target.health.last_success_at)],
        [_cost(target)],
    ]


def _shed(shed: TargetShedOut) -> Component:
    lost, less = text.count(shed.shed_checkpoint_count), text.count(shed.shed_detail_count)
    return html.Div(
        [
            f"not read in time: {lost} checkpoints, details of {less} more",
            cards.age(" (last", shed.last_shed_at, is_alarming=False),
            ")",
        ],
        className="hint",
        title="since the target was added; details of old checkpoints are given up first",
    )


# A mean interval above this multiple of the set one is named: the collector does not poll in time.
_LATE_MEAN = 1.5


def _cost(target: TargetOut) -> Component:
    cost = target.cost
    if cost is None:
        return html.Span(text.MISSING, title="not polled yet", className="missing")
    every = f"every {text.duration(cost.poll_interval_s * 1000)}"
    if target.origin == "push":
        return html.Span(
            f"none: pushes {every}", title="Barrierscope does not poll it; mean over the last pushes, measured"
        )
    if cost.set_interval_s is not None and cost.poll_interval_s > _LATE_MEAN * cost.set_interval_s:
        every += f" (set to {text.duration(cost.set_interval_s * 1000)})"
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
            target_editing.button(target),
            target_links.button(target.id, target.name, len(target.links)),
            html.Button(
                [status.icon(icon), html.Span(word)],
                # Its key makes the other word another button, so a second press does not take back the first.
                key=to,
                className="button",
                disabled=target.declared_by is not None,
                title=None if target.declared_by is None else f"declared by {target.declared_by}: change it there",
                **presses.marks(_PAUSE, target.id, label=f"{word} {target.name}", to=to),
            ),
            html.Button(
                [status.icon("trash"), html.Span("Remove")],
                className="button danger",
                disabled=target.origin not in _REMOVABLE,
                title=_why_not_removable(target),
                **presses.marks(_REMOVE, target.id, label=f"Remove {target.name}"),
            ),
        ],
        className="actions",
    )


def _why_not_removable(target: TargetOut) -> str | None:
    if target.declared_by is not None:
        return f"declared by {target.declared_by}: remove it there"
    return None if target.origin in _REMOVABLE else f"{_ORIGINS[target.origin]}: pause it instead"
