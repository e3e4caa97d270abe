"""The page with the runbook of an alert rule, which states what to do when the rule fires."""

from __future__ import annotations

import re
from functools import partial

from dash import Dash, Input, Output, dcc, html
from dash.development.base_component import Component

from dashboard import routes
from dashboard.callbacks import Changes, connect
from dashboard.client import ApiClient
from dashboard.components import cards, freshness

_RETRY = "runbook-retry"
_LINK_TO_RUNBOOK = re.compile(r"\]\((\w+)\.md\)")


def layout(route: routes.Route) -> Component:
    """Build the page without its text, which the callback adds."""
    return html.Div(
        [
            dcc.Store(id="runbook-route", data={"rule": route.rule}),
            dcc.Store(id="runbook-title", data=f"Runbook: {route.rule}"),
            cards.retry(_RETRY),
            html.Div(
                [dcc.Link("Alerts", href=routes.alerts()), " / ", html.Span("Runbook")],
                className="crumbs hint runbook-crumbs",
            ),
            html.Div(id="runbook-message"),
            freshness.undated(),
            html.Div(id="runbook-text"),
        ]
    )


def register(app: Dash, client: ApiClient) -> None:
    """Register the callback of the page."""
    connect(
        app,
        partial(show, client),
        output={"message": Output("runbook-message", "children"), "text": Output("runbook-text", "children")},
        inputs={"route": Input("runbook-route", "data")},
        retry=_RETRY,
    )


async def show(client: ApiClient, *, route: dict[str, str]) -> Changes:
    """Return the text of the runbook for the rule in ``route``."""
    runbook = await client.runbook(route["rule"])
    return {"message": None, "text": html.Section(runbook_text(runbook.markdown), className="card")}


def runbook_text(markdown: str) -> Component:
    """Build the text of a runbook. Links to the files of other runbooks become links to the pages of these runbooks."""
    linked = _LINK_TO_RUNBOOK.sub(lambda found: f"]({routes.runbook(found[1])})", markdown)
    return dcc.Markdown(linked, className="runbook")
