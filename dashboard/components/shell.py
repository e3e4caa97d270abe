"""The frame of every page: skip link, header with navigation and switches, footer with the state of the service."""

from __future__ import annotations

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from backend.contracts.api import PipelineOut, SparkDemoOut, StatusOut
from dashboard import routes, text
from dashboard.components import cards, status
from dashboard.components.attributes import attrs
from dashboard.palette import Tone

TICK_MS = 2_000
_STATUS_TICK_MS = 10_000


def shell(*, has_login: bool = False) -> dmc.MantineProvider:
    """The layout of the application. The address decides what ``page`` holds."""
    return dmc.MantineProvider(
        [
            dcc.Location(id="url", refresh="callback-nav"),
            dcc.Store(id="theme", storage_type="local"),
            dcc.Store(id="zone", storage_type="local"),
            dcc.Store(id="paused", storage_type="session"),
            dcc.Store(id="look"),
            dcc.Interval(id="tick", interval=TICK_MS),
            dcc.Interval(id="status-tick", interval=_STATUS_TICK_MS),
            html.A("Skip to content", href="#main", className="skip-link"),
            _header(has_login=has_login),
            html.Main([html.Div(id="unexpected"), html.Div(id="page")], id="main", tabIndex="-1"),
            _footer(),
        ],
        id="mantine",
        forceColorScheme="light",
        theme={"primaryColor": "blue", "defaultRadius": "sm", "fontFamily": "var(--bs-font)"},
    )


def _header(*, has_login: bool) -> html.Header:
    nav = html.Nav(
        [
            dcc.Link("Fleet", href=routes.fleet(), id="nav-fleet", className="nav-link"),
            dcc.Link(
                [html.Span("Alerts"), html.Span(id="nav-alerts-count")],
                href=routes.alerts(),
                id="nav-alerts",
                className="nav-link",
            ),
            dcc.Link("Targets", href=routes.targets(), id="nav-targets", className="nav-link"),
        ],
        **attrs({"aria-label": "Main"}),
    )
    switches = html.Div(
        [
            html.Span(id="live-word", className="live-word", role="status"),
            _switch("pause-toggle", "pause", "Pause", "stop refreshing"),
            _switch("zone-toggle", "clock", "Local time", "show times in local time or in UTC"),
            _switch("theme-toggle", "moon", "Dark", "switch between light and dark"),
            *([_log_out()] if has_login else []),
        ],
        className="switches",
    )
    brand = dcc.Link(
        [html.Span(className="brand-mark", **attrs({"aria-hidden": "true"})), html.Span("Barrierscope")],
        href=routes.fleet(),
        className="brand",
    )
    return html.Header([brand, nav, switches], className="top")


def _log_out() -> html.Form:
    # A form, because a request that changes something must not be a GET.
    return html.Form(html.Button("Log out", className="button quiet", type="submit"), action="/logout", method="post")


def _switch(id_: str, icon_name: str, word: str, hint: str) -> html.Button:
    return html.Button(
        [html.Span(id=f"{id_}-icon", className=f"icon icon-{icon_name}"), html.Span(word, id=f"{id_}-word")],
        id=id_,
        className="button quiet",
        title=hint,
    )


def _footer() -> html.Footer:
    return html.Footer(
        [
            html.Div(id="service-state"),
            html.Div(
                [
                    html.Span("measured", className="basis basis-measured"),
                    html.Span(": reported by the engine · "),
                    html.Span("reconstructed", className="basis basis-reconstructed"),
                    html.Span(": computed from reported values · "),
                    html.Span("predicted", className="basis basis-predicted"),
                    html.Span(": an estimate · –: not reported, never zero"),
                ],
                className="legend-line",
            ),
        ],
        className="bottom",
    )


def alert_count(value: StatusOut) -> Component | None:
    """The number of firing alerts, next to the link to them; None if there are none."""
    if not value.alerts_firing_count:
        return None
    tone = Tone.BAD if value.alerts_severity == "critical" else Tone.WARN
    return status.badge(
        str(value.alerts_firing_count), "bolt", tone, hint=f"firing alerts: {value.alerts_firing_count}"
    )


def pipeline_state(value: PipelineOut) -> html.Span:
    """The state of the pipeline: what it is doing, its last and next run, and why it cannot run."""
    ran = "never ran" if value.last_run_at is None else f"last run {text.instant_utc(value.last_run_at)}"
    due = "" if value.next_run_at is None else f", next {text.instant_utc(value.next_run_at)}"
    match value.state:
        case "unavailable":
            words = "rollups off: no Spark"
        case "running" if value.hours_total is not None:
            words = f"rolling up, {value.hours_done or 0} of {value.hours_total} hours"
        case "running":
            words = "rolling up"
        case _ if value.last_run == "failed":
            words = "the last rollup failed"
        case _ if value.rolled_up_until is not None:
            words = f"rolled up until {text.instant_utc(value.rolled_up_until)}"
        case _:
            words = "nothing rolled up yet"
    why = value.reason or value.last_run_reason
    title = f"Hourly rollups: {ran}{due}." + (f" {why}" if why else "") + " All pages work without them."
    return html.Span(words, id="pipeline-state", title=title)


def spark_demo_state(value: SparkDemoOut | None) -> html.Span | None:
    """The reason why the Spark demo does not run; None if it runs."""
    if value is None or value.state == "running":
        return None
    title = f"The Spark demo does not run: {value.reason}. Everything else runs."
    return html.Span("no Spark demo", id="spark-demo-state", title=title)


def service_state(value: StatusOut) -> list[Component | str]:
    """The line of the footer about the service."""
    unhealthy = f", {value.targets_unhealthy} unhealthy" if value.targets_unhealthy else ""
    # None while the store is unreachable.
    total = value.targets_total
    targets = [] if total is None else [f"{total} {'target' if total == 1 else 'targets'}{unhealthy}"]
    parts: list[Component | str] = [
        f"Barrierscope {value.version}",
        *targets,
        cards.age("newest reading", value.newest_observation_at),
    ]
    if value.pipeline is not None:
        parts.append(pipeline_state(value.pipeline))
    if (demo := spark_demo_state(value.spark_demo)) is not None:
        parts.append(demo)
    if value.store != "ok":
        parts.insert(0, status.badge("store unreachable", "cross", Tone.BAD))
    joined: list[Component | str] = []
    for part in parts:
        joined += [part] if not joined else [" · ", part]
    return joined
