"""Builds the Dash application: the shell, the address bar's callback, and each page's callbacks. No global app."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html, no_update, set_props
from dash.development.base_component import Component

from backend.domain.errors import ApiRefusedError, ApiUnavailableError
from dashboard import routes
from dashboard.client import ApiClient
from dashboard.components import cards, shell
from dashboard.pages import advice, alert, alerts, checkpoint, fleet, in_progress, job, targets, trend

_log = logging.getLogger(__name__)

_INDEX = """<!DOCTYPE html>
<html lang="en">
<head>
{%metas%}
<title>{%title%}</title>
<link rel="icon" type="image/svg+xml" href="/ui/assets/favicon.svg">
{%css%}
</head>
<body>
{%app_entry%}
{%config%}
{%scripts%}
{%renderer%}
</body>
</html>
"""


def create_dash(client: ApiClient, *, has_login: bool = False) -> Dash:
    """The application over one API client; its ASGI server is ``.server``. ``has_login``: show the way out."""
    app = Dash(
        "dashboard",
        backend="fastapi",
        assets_folder=str(Path(__file__).parent / "assets"),
        url_base_pathname=routes.BASE,
        serve_locally=True,
        suppress_callback_exceptions=True,
        title="Barrierscope",
        update_title="",
        index_string=_INDEX,
        on_error=_report,
        add_log_handler=False,
        meta_tags=[{"name": "viewport", "content": "width=device-width, initial-scale=1"}],
    )
    app.layout = shell.shell(has_login=has_login)
    _register_shell(app)
    _register_service(app, client)
    for page in (fleet, job, checkpoint, targets, alerts, alert, advice):
        page.register(app, client)
    in_progress.register(app, client)
    trend.register(app, client)
    return app


def content_security_policy(app: Dash) -> str:
    """Everything from here; the few inline scripts that Dash writes are named by their hashes.

    Inline styles stay allowed: Plotly, AG Grid and Mantine set them.
    """
    scripts = " ".join(app.csp_hashes())
    return "; ".join(
        (
            "default-src 'self'",
            f"script-src 'self' {scripts}",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "font-src 'self' data:",
            "connect-src 'self'",
            "worker-src 'self' blob:",
            "object-src 'none'",
            "base-uri 'self'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        )
    )


def _register_shell(app: Dash) -> None:
    def browser(function: str, outputs: Sequence[Output], *rest: Input | State, **more: Any) -> None:
        app.clientside_callback(ClientsideFunction("bs", function), *outputs, *rest, **more)

    browser(
        "toggleTheme",
        [Output("theme", "data")],
        Input("theme-toggle", "n_clicks"),
        State("theme", "data"),
        prevent_initial_call=True,
    )
    browser(
        "toggleZone",
        [Output("zone", "data")],
        Input("zone-toggle", "n_clicks"),
        State("zone", "data"),
        prevent_initial_call=True,
    )
    browser(
        "togglePause",
        [Output("paused", "data")],
        Input("pause-toggle", "n_clicks"),
        State("paused", "data"),
        prevent_initial_call=True,
    )
    browser(
        "look",
        [
            Output("look", "data"),
            Output("mantine", "forceColorScheme"),
            Output("theme-toggle-icon", "className"),
            Output("theme-toggle-word", "children"),
            Output("zone-toggle-word", "children"),
        ],
        Input("theme", "data"),
        Input("zone", "data"),
        State("look", "data"),
    )
    browser(
        "paused",
        [
            Output("tick", "disabled"),
            Output("status-tick", "disabled"),
            Output("pause-toggle-icon", "className"),
            Output("pause-toggle-word", "children"),
            Output("live-word", "children"),
            Output("live-word", "className"),
        ],
        Input("paused", "data"),
    )
    browser(
        "navigation",
        [Output(f"nav-{name}", "className") for name in ("fleet", "targets", "alerts")],
        Input("url", "pathname"),
    )
    # A store a page: a callback with an output on two pages would be asked for on both.
    for name in ("fleet", "job", "cp", "targets", "alerts", "alert", "runbook", "advice"):
        browser("title", [], Input(f"{name}-title", "data"))
    _register_twins(app)

    @app.callback(Output("page", "children"), Input("url", "pathname"), State("url", "search"))
    def show(pathname: str | None, search: str | None) -> Component:
        route = routes.parse(pathname, search)
        match route.page:
            case "fleet":
                return fleet.layout()
            case "job":
                return job.layout(route)
            case "checkpoint":
                return checkpoint.layout(route)
            case "targets":
                return targets.layout()
            case "alerts":
                return alerts.layout()
            case "alert":
                return alert.layout(route)
            case "runbook":
                return alert.runbook_layout(route)
            case "advice":
                return advice.layout(route)
            case _:
                return _unknown()  # fmt: skip


def _register_twins(app: Dash) -> None:
    # One by one, for Dash asks the server for callbacks of absent pages where an output's id is a pattern.
    for name in cards.CHARTS:
        app.clientside_callback(
            ClientsideFunction("bs", "twin"),
            Output(f"{name}-grid", "columnDefs"),
            Output(f"{name}-grid", "rowData"),
            Output(f"{name}-wrap", "style"),
            Output(f"{name}-figure", "style"),
            Output(f"{name}-toggle", "aria-pressed"),
            Input(f"{name}-toggle", "n_clicks"),
            Input(f"{name}-data", "data"),
        )
        app.clientside_callback(
            ClientsideFunction("bs", "csv"),
            Output(f"{name}-saved", "children"),
            Input(f"{name}-csv", "n_clicks"),
            State(f"{name}-data", "data"),
            prevent_initial_call=True,
        )


def _register_service(app: Dash, client: ApiClient) -> None:
    @app.callback(
        Output("service-state", "children"),
        Output("nav-alerts-count", "children"),
        Input("status-tick", "n_intervals"),
    )
    async def refresh(_tick: int | None) -> Any:
        try:
            value = await client.status()
        except (ApiRefusedError, ApiUnavailableError) as problem:
            # What was counted last stays: silence is no all-clear.
            return html.Span(str(problem), className="missing"), no_update
        return shell.service_state(value), shell.alert_count(value)


def _unknown() -> Component:
    return html.Div(
        [html.H1("There is no such page"), html.P(dcc.Link("To the fleet", href=routes.fleet()))],
        className="empty-state",
    )


def _report(error: Exception) -> None:
    """The top of every callback: what nobody expected is logged, and the page says that something went wrong."""
    _log.exception("a callback of the dashboard failed", exc_info=error)
    set_props("unexpected", {"children": cards.unexpected(error)})
