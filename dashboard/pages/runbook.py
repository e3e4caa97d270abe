"""The page with the runbook of an alert rule, which states what to do when it fires, or with the page of a cause."""

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
_LINK = re.compile(r"\]\((?:\.\./(runbooks|causes)/)?([\w-]+)\.md\)")


def layout(route: routes.Route) -> Component:
    """Build the page without its text, which the callback adds."""
    title, above = f"Runbook: {route.rule}", dcc.Link("Alerts", href=routes.alerts())
    if route.cause is not None:
        title, above = f"Cause: {route.cause}", dcc.Link("Fleet", href=routes.fleet())
    here = html.Span("Runbook" if route.cause is None else "Cause")
    return html.Div(
        [
            dcc.Store(id="runbook-route", data={"rule": route.rule, "cause": route.cause}),
            dcc.Store(id="runbook-title", data=title),
            cards.retry(_RETRY),
            html.Div([above, " / ", here], className="crumbs hint runbook-crumbs"),
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


async def show(client: ApiClient, *, route: dict[str, str | None]) -> Changes:
    """Return the text of the runbook for the rule in ``route``, or of the page of the cause."""
    cause = route.get("cause")
    if cause is not None:
        shown = runbook_text((await client.cause(cause)).markdown, is_cause=True)
    else:
        shown = runbook_text((await client.runbook(route["rule"] or "")).markdown)
    return {"message": None, "text": html.Section(shown, className="card")}


def runbook_text(markdown: str, *, is_cause: bool = False) -> Component:
    """Build the text of a runbook, or of the page of a cause.

    Links to the files of runbooks and causes become links to the pages that show them.
    """

    def linked(match: re.Match[str]) -> str:
        to_cause = is_cause if match[1] is None else match[1] == "causes"
        return f"]({routes.cause(match[2]) if to_cause else routes.runbook(match[2])})"

    return dcc.Markdown(_LINK.sub(linked, markdown), className="runbook")
