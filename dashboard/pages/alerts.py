"""V10: the page *Alerts*, with the incidents: open ones first, then past ones. The address contains the filters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import tzinfo
from functools import partial
from itertools import groupby

from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html, set_props
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate

from backend.contracts.incidents import IncidentOut
from dashboard import incidents_address, routes
from dashboard.callbacks import Changes, connect
from dashboard.client import ApiClient
from dashboard.components import cards, freshness, incidents, status
from dashboard.components.attributes import attrs
from dashboard.incidents_address import IncidentList
from dashboard.live import digest, look_of

_ABOUT = "One card per cause at one job. A silenced alert is still evaluated and shown, but not delivered."
_STATES = (("", "open and past"), ("open", "open"), ("past", "past"), ("never", "never fired"))
_SEVERITIES = (("", "all"), ("critical", "critical"), ("warning", "warning"))
_GROUPS = (("", "nothing"), ("cause", "cause"), ("job", "job"), ("target", "target"))


def layout(route: routes.Route) -> Component:
    """Build the page without data, which the first refresh adds."""
    view = route.incidents
    return html.Div(
        [
            html.Div(
                [html.Div([html.H1("Alerts"), html.P(_ABOUT, className="hint")])],
                className="page-head",
            ),
            incidents.tabs("Incidents"),
            html.Div(id="alerts-message"),
            html.Div(id="alerts-stale"),
            dcc.Store(id="alerts-title", data="Alerts"),
            # On a phone, the filters would fill the window, so they are folded and the first incident is in sight.
            html.Button(
                _filters_word(view),
                id="alerts-filters-fold",
                className="button phone-fold",
                title="show or hide the filters",
                **attrs({"aria-expanded": "false", "aria-controls": "alerts-filters"}),
            ),
            html.Div(
                [
                    html.Div(_choices(view), id="alerts-choices", className="choices"),
                    _typed("alerts-search", "Job or target", view.search, "part of the name"),
                    _typed("alerts-label", "Label", view.label, "environment=prod"),
                ],
                id="alerts-filters",
                className="incident-filters card",
                role="search",
                **attrs({"aria-label": "Filter incidents"}),
            ),
            html.Div(id="alerts-open", className="awaited"),
            html.Div(id="alerts-pages", className="chips"),
            html.Div(id="alerts-source"),
            dcc.Store(id="alerts-digest"),
        ]
    )


def _typed(id_: str, label: str, value: str, placeholder: str) -> Component:
    control = dcc.Input(id=id_, type="text", value=value, placeholder=placeholder, debounce=True, maxLength=200)
    return html.Label([label, control], className="field")


def register(app: Dash, client: ApiClient) -> None:
    """Register the callbacks of the page."""
    connect(
        app,
        partial(refresh, client),
        output={
            "message": Output("alerts-message", "children"),
            "stale": Output("alerts-stale", "children"),
            "open": Output("alerts-open", "children"),
            "pages": Output("alerts-pages", "children"),
            "source": Output("alerts-source", "children"),
            "digest": Output("alerts-digest", "data"),
        },
        inputs={
            "tick": Input("tick", "n_intervals"),
            "look": Input("look", "data"),
            "search": Input("url", "search"),
        },
        state={"before": State("alerts-digest", "data")},
    )
    connect(
        app,
        show_filters,
        output={
            "choices": Output("alerts-choices", "children"),
            "filters": Output("alerts-filters-fold", "children"),
        },
        inputs={"search": Input("url", "search")},
        state={"name": State("alerts-search", "value"), "label": State("alerts-label", "value")},
        prevent_initial_call=True,
    )
    connect(
        app,
        choose,
        output={"search": Output("url", "search")},
        inputs={"name": Input("alerts-search", "value"), "label": Input("alerts-label", "value")},
        state={"search": State("url", "search")},
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("bs", "togglePressed"),
        Output("alerts-filters-fold", "aria-expanded"),
        Input("alerts-filters-fold", "n_clicks"),
        State("alerts-filters-fold", "aria-expanded"),
        prevent_initial_call=True,
    )


def show_filters(*, search: str | None, name: str | None, label: str | None) -> Changes:
    """Show the filters of a changed address.

    Each link keeps the filters that are set, so the links follow the address at once and do not wait for the list.
    """
    view = incidents_address.parse(search)
    for id_, shown, value in (("alerts-search", name, view.search), ("alerts-label", label, view.label)):
        # Text in a box that is no filter would be misleading: a link may have removed the filter.
        if (shown or "").strip() != value:
            set_props(id_, {"value": value})
    return {"choices": _choices(view), "filters": _filters_word(view)}


def choose(*, name: str | None, label: str | None, search: str | None) -> Changes:
    """Write the typed filters to the address of the page. The list then begins with its first page."""
    view = incidents_address.parse(search)
    wanted = replace(view, search=(name or "").strip(), label=(label or "").strip())
    if wanted == view:
        raise PreventUpdate
    return {"search": incidents_address.query_of(replace(wanted, cursor=""))}


async def refresh(
    client: ApiClient, *, tick: int | None, look: object, search: str | None, before: str | None
) -> Changes:
    """Return the list of incidents. ``before`` is the ``digest`` output of the previous call."""
    seen, view = look_of(look), incidents_address.parse(search)
    page = await client.incidents(view)
    service = await client.status()
    role = service.roles.get("alert")
    source = cards.source_line(["Source: this service's API", cards.age("read", page.as_of)])
    changes: Changes = {"message": _silent(role), "source": source}
    now = digest(*page.items, page.next, role, str(seen.where), view)
    if now == before:
        return changes
    return changes | {
        "stale": freshness.incidents_note([i.freshness for i in page.items]),
        "open": _listed(page.items, view, seen.where),
        "pages": _pages(view, page.next),
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


def _filters_word(view: IncidentList) -> str:
    """Return the word of the button that folds the filters, with the number of those that are set."""
    count = sum(bool(v) for v in (view.state, view.severity, view.group, view.search, view.label))
    return f"Filters: {count} set" if count else "Filters"


def _choices(view: IncidentList) -> list[Component]:
    return [
        _choice("State", "state", _STATES, view),
        _choice("Severity", "severity", _SEVERITIES, view),
        _choice("Group by", "group", _GROUPS, view),
    ]


def _choice(word: str, field: str, options: Sequence[tuple[str, str]], view: IncidentList) -> Component:
    """Build links that each set one filter in the address. The link of the current value is marked."""
    links = []
    for value, label in options:
        is_here = getattr(view, field) == value
        href = routes.alerts(replace(view, **{field: value, "cursor": ""}))
        mark = incidents.chosen_mark() if is_here else None
        links.append(dcc.Link([label, mark], href=href, className="option is-here" if is_here else "option"))
    return html.Div(
        [html.Span(word, className="hint"), html.Div(links, className="options")],
        className="choice",
        role="group",
        **attrs({"aria-label": word}),
    )


def _listed(page: Sequence[IncidentOut], view: IncidentList, where: tzinfo) -> Component:
    if not page:
        is_filtered = view != IncidentList()
        words = "No incident fits these filters." if is_filtered else "No incident yet: no alert has fired."
        more = html.P(dcc.Link("Remove the filters", href=routes.alerts())) if is_filtered else None
        return html.Div([html.P(words), more], className="card empty-state")
    parts: list[Component] = []
    for title, own in groupby(page, lambda i: _group_of(i, view.group) if view.group else _section_of(i)):
        parts.append(html.H2(title, className="incident-group"))
        parts += [incidents.card(incident, where) for incident in own]
    return html.Div(parts)


def _section_of(incident: IncidentOut) -> str:
    return "Open" if incident.ended_at is None else "Past"


def _group_of(incident: IncidentOut, group: str) -> str:
    if group == "cause":
        return incidents.cause_word(incident.cause)
    return incident.group or f"no {group}"


def _pages(view: IncidentList, following: str | None) -> list[Component]:
    return cards.page_links(
        view.cursor,
        following,
        lambda cursor: routes.alerts(replace(view, cursor=cursor)),
        first_hint="the most urgent incidents",
        following_hint="older incidents",
    )
