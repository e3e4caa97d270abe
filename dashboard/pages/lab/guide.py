"""The page that explains every setting of a simulation, with an anchor for each. It is built from the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import groupby
from typing import Final

from dash import ClientsideFunction, Dash, Input, Output, dcc, html
from dash.development.base_component import Component

from backend.contracts.simulations import SimulationCatalogOut, SimulationSettingOut
from dashboard import routes
from dashboard.callbacks import Changes, connect
from dashboard.client import ApiClient
from dashboard.components import cards, freshness

_RETRY: Final = "lab-guide-retry"
_LIST: Final = "lab-guide-list"


def layout(_: routes.Route) -> Component:
    """Build the page without its settings, which the callback adds."""
    return html.Div(
        [
            dcc.Store(id="lab-guide-title", data="Settings of the Lab"),
            cards.retry(_RETRY),
            html.Div([dcc.Link("Lab", href=routes.lab()), " / ", html.Span("Settings")], className="crumbs hint"),
            html.Div(id="lab-guide-message"),
            freshness.undated(),
            html.Div(html.H1("Settings of the Lab"), className="page-head"),
            html.Div(id=_LIST, className="lab-guide"),
        ]
    )


def register(app: Dash, client: ApiClient) -> None:
    """Register the callback that lists the settings, and the script that scrolls to the one in the address."""
    connect(
        app,
        partial(show, client),
        output={"message": Output("lab-guide-message", "children"), "list": Output(_LIST, "children")},
        inputs={"title": Input("lab-guide-title", "data")},
        retry=_RETRY,
    )
    app.clientside_callback(ClientsideFunction("lab", "arrive"), Input(_LIST, "children"))


async def show(client: ApiClient, *, title: str) -> Changes:
    """List the settings by group."""
    return {"message": None, "list": listed(await client.simulation_catalog())}


def listed(catalog: SimulationCatalogOut) -> list[Component]:
    """Build a card for each group, and one for the settings that the protocols decide."""
    titles = {p.name: p.title for p in catalog.protocols}
    # Common settings come first in the catalog. Here each is with its group.
    order = list(dict.fromkeys(s.group for s in catalog.settings))
    settings = sorted(catalog.settings, key=lambda s: order.index(s.group))
    decided = [
        html.Li([f"{p.title}: ", *_codes(p.settings)] if p.settings else f"{p.title}: the defaults")
        for p in catalog.protocols
    ]
    return [
        *(
            cards.card(group, [_entry(s, titles) for s in members])
            for group, members in groupby(settings, key=lambda s: s.group)
        ),
        cards.card("Settings that a protocol decides", [html.Ul(decided)]),
    ]


def _codes(settings: Mapping[str, str]) -> list[Component]:
    return [html.Code(f"{key} = {value}", className="lab-decided") for key, value in settings.items()]


def _entry(setting: SimulationSettingOut, titles: Mapping[str, str]) -> Component:
    users = "all protocols" if setting.protocols is None else ", ".join(titles.get(p, p) for p in setting.protocols)
    return html.Div(
        [
            html.H3(setting.title),
            html.Code(setting.key),
            html.P(setting.sentence),
            html.P(f"Values: {setting.allowed}. Default: {setting.default}.", className="hint"),
            html.P(f"Used by: {users}.", className="hint"),
        ],
        id=routes.setting_anchor(setting.key),
    )
