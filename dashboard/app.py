"""Builds the Dash application: the frame of all pages, the callback that selects a page, and each page's callbacks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html, set_props
from dash.development.base_component import Component

from backend.domain.errors import ApiRefusedError, ApiUnavailableError
from dashboard import routes, tour
from dashboard.callbacks import Changes, connect
from dashboard.client import ApiClient
from dashboard.components import cards, markup, shell, unread_sources, viewer_name
from dashboard.live import digest
from dashboard.pages import (
    advice,
    alert,
    alert_receivers,
    alert_rules,
    alert_silences,
    alerts,
    backtest,
    checkpoint,
    comparison,
    fleet,
    in_progress,
    incident,
    job,
    lab,
    pressure,
    runbook,
    space_time,
    subtask_heatmap,
    targets,
    trend,
    whatif,
    windows,
    zones,
)
from dashboard.routes import PageKind
from dashboard.scripts import LeanDash

_log = logging.getLogger(__name__)
_PATH = Input("url", "pathname")

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
    """Create the dashboard, which reads all data through ``client``.

    Its ASGI server is ``.server``. ``has_login`` adds a log-out button.
    """
    app = LeanDash(
        "dashboard",
        backend="fastapi",
        assets_folder=str(Path(__file__).parent / "assets"),
        # These files are loaded when a viewer needs them.
        assets_path_ignore=["lazy"],
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
    # The pages use no callbacks over WebSocket. With this capability, each page would try to connect, be refused, and
    # log an error.
    app.backend.websocket_capability = False
    app.layout = markup.lean(shell.shell(has_login=has_login))
    _register_shell(app, client)
    alerting = (alerts, alert_rules, alert_receivers, alert_silences, incident, alert, runbook)
    views = (in_progress, trend, subtask_heatmap, pressure, comparison, windows, space_time, lab, whatif, backtest)
    for page in (fleet, job, checkpoint, targets, *alerting, advice, *views):
        page.register(app, client)
    return app


def content_security_policy(app: Dash) -> str:
    """Return a policy that allows content only from this origin, and Dash's inline scripts by their hashes.

    Inline styles are allowed because Plotly, AG Grid and Mantine set them.
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


def _register_shell(app: Dash, client: ApiClient) -> None:
    _register_switches(app)
    viewer_name.register(app)
    zones.register(app, client)
    tour.register(app, client)
    browser = partial(_in_browser, app)
    browser("navigation", [Output(f"nav-{n}", "className") for n in ("fleet", "targets", "lab", "alerts")], _PATH)
    # One callback per page, because the store of a page's title exists only while that page is shown.
    alerting = ("alerts", "rules", "receivers", "silences", "incident", "alert", "runbook")
    for name in (
        "fleet",
        "job",
        "cp",
        "targets",
        *alerting,
        "advice",
        "pressure",
        "comparison",
        "windows",
        "st",
        "lab",
        "lab-guide",
        "whatif",
        "backtest",
    ):
        browser("title", [], Input(f"{name}-title", "data"))
    connect(
        app,
        show,
        output={"page": Output("page", "children")},
        inputs={"pathname": _PATH},
        state={"search": State("url", "search")},
    )
    connect(
        app,
        partial(refresh, client),
        output={
            "state": Output("service-state", "children"),
            "alerts": Output("nav-alerts-count", "children"),
            "sources": Output("unread-sources", "children"),
            "digest": Output("unread-sources-digest", "data"),
        },
        inputs={"tick": Input("status-tick", "n_intervals")},
        state={"before": State("unread-sources-digest", "data")},
    )


def show(*, pathname: str | None, search: str | None) -> Changes:
    """Return the page at an address, still without data from the API."""
    route = routes.parse(pathname, search)
    return {"page": _LAYOUTS[route.page](route)}


async def refresh(client: ApiClient, *, tick: int | None, before: str | None = None) -> Changes:
    """Return the state of the service for the footer, the number of firing alerts, and the wrong lists of targets.

    ``before`` is the ``digest`` of the previous call. The messages are replaced only if they change, so that a link in
    one keeps the focus.
    """
    try:
        value = await client.status()
    except (ApiRefusedError, ApiUnavailableError) as problem:
        # The number of alerts keeps its value: without a response it is unknown, not zero.
        return {"state": html.Span(str(problem), className="missing")}
    changes: Changes = {"state": shell.service_state(value), "alerts": shell.alert_count(value)}
    now = digest(*value.unread_sources)
    if value.store == "ok" and now != before:
        changes |= {"sources": unread_sources.banner(value.unread_sources), "digest": now}
    return changes


def _in_browser(
    app: Dash, function: str, outputs: Sequence[Output], *inputs: Input | State, is_first_skipped: bool = False
) -> None:
    """Register a function of the scripts in ``assets`` as a callback that runs in the browser."""
    app.clientside_callback(
        ClientsideFunction("bs", function), *outputs, *inputs, prevent_initial_call=is_first_skipped
    )


def _register_switches(app: Dash) -> None:
    browser = partial(_in_browser, app)
    for function, button, store in (
        ("toggleTheme", "theme-toggle", "theme"),
        ("toggleZone", "zone-toggle", "zone"),
        ("togglePause", "pause-toggle", "paused"),
    ):
        pressed = Input(button, "n_clicks")
        browser(function, [Output(store, "data")], pressed, State(store, "data"), is_first_skipped=True)
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
        Input("narrow", "data"),
        Input("zone-find", "value"),
        State("look", "data"),
    )
    browser(
        "paused",
        [
            Output("pause-toggle-icon", "className"),
            Output("pause-toggle-word", "children"),
            Output("live-word", "children"),
            Output("live-word", "className"),
        ],
        Input("paused", "data"),
    )
    browser("statusTick", [Output("status-tick", "n_intervals")], Input("tick", "n_intervals"), is_first_skipped=True)


def _unknown() -> Component:
    return html.Div(
        [
            html.H1("Page not found"),
            html.P("The service has no page at this address. Part of the address may be missing."),
            html.P(dcc.Link("Go to the fleet", href=routes.fleet(), className="button")),
        ],
        className="empty-state not-found",
    )


_LAYOUTS: dict[PageKind, Callable[[routes.Route], Component]] = {
    PageKind.FLEET: fleet.layout,
    PageKind.JOB: job.layout,
    PageKind.ADVICE: advice.layout,
    PageKind.WHAT_IF: whatif.layout,
    PageKind.BACKTEST: backtest.layout,
    PageKind.PRESSURE: pressure.layout,
    PageKind.CHECKPOINT: checkpoint.layout,
    PageKind.SPACE_TIME: space_time.layout,
    PageKind.COMPARISON: comparison.layout,
    PageKind.WINDOWS: windows.layout,
    PageKind.TARGETS: targets.layout,
    PageKind.LAB: lab.layout,
    PageKind.LAB_GUIDE: lab.guide_layout,
    PageKind.ALERTS: alerts.layout,
    PageKind.ALERT_RULES: lambda _: alert_rules.layout(),
    PageKind.ALERT_RECEIVERS: lambda _: alert_receivers.layout(),
    PageKind.ALERT_SILENCES: alert_silences.layout,
    PageKind.INCIDENT: incident.layout,
    PageKind.ALERT: alert.layout,
    PageKind.RUNBOOK: runbook.layout,
    PageKind.CAUSE: runbook.layout,
    PageKind.UNKNOWN: lambda _: _unknown(),
}


def _report(error: Exception) -> None:
    """Log an unexpected error of a callback and show a message on the page."""
    _log.exception("a callback of the dashboard failed", exc_info=error)
    set_props("unexpected", {"children": cards.unexpected(error)})
