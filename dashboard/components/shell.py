"""Builds the frame of every page: skip link, header with navigation and switches, footer with the service's state."""

from __future__ import annotations

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from backend.contracts.status import HistoryOut, PipelineOut, SparkDemoOut, StatusOut
from dashboard import routes, text
from dashboard.components import alerts, cards, status, zones
from dashboard.components.attributes import attrs
from dashboard.palette import Tone

TICK_MS = 2_000
# The options of a list are within the landmark ``main``, where screen readers find them. The list of options scrolls
# itself: a scrolling box around it would have to be a stop of the Tab key.
_COMPONENTS = {
    "Combobox": {"defaultProps": {"portalProps": {"target": "#main"}}},
    "Select": {"defaultProps": {"withScrollArea": False}},
}


def shell(*, has_login: bool = False) -> dmc.MantineProvider:
    """Build the layout of the application. The address decides what the element ``page`` contains."""
    return dmc.MantineProvider(
        [
            dcc.Location(id="url", refresh="callback-nav"),
            dcc.Store(id="theme", storage_type="local"),
            dcc.Store(id="zone", storage_type="local"),
            dcc.Store(id="paused", storage_type="session"),
            dcc.Store(id="narrow"),
            dcc.Store(id="look"),
            dcc.Store(id="tour-ask"),
            dcc.Store(id="tour-plan"),
            dcc.Store(id="unread-sources-digest"),
            dcc.Interval(id="tick", interval=TICK_MS),
            # It has no timer. It counts every fifth tick, so it stands still whenever the tick does.
            dcc.Interval(id="status-tick", disabled=True),
            html.A("Skip to content", href="#main", className="skip-link"),
            _header(has_login=has_login),
            html.Main(
                [html.Div(id="unexpected"), _silence(), html.Div(id="unread-sources"), html.Div(id="page")],
                id="main",
                tabIndex="-1",
            ),
            _footer(),
        ],
        id="mantine",
        forceColorScheme="light",
        theme={
            "primaryColor": "blue",
            "defaultRadius": "sm",
            "fontFamily": "var(--bs-font)",
            "components": _COMPONENTS,
        },
    )


def _header(*, has_login: bool) -> html.Header:
    nav = html.Nav(
        [
            dcc.Link("Fleet", href=routes.fleet(), id="nav-fleet", className="nav-link"),
            dcc.Link("Targets", href=routes.targets(), id="nav-targets", className="nav-link"),
            dcc.Link("Lab", href=routes.lab(), id="nav-lab", className="nav-link"),
            # This link is the last one, because the number after it appears later and would move any further link.
            dcc.Link(
                [html.Span("Alerts"), html.Span(id="nav-alerts-count")],
                href=routes.alerts(),
                id="nav-alerts",
                className="nav-link",
            ),
        ],
        **attrs({"aria-label": "Main"}),
    )
    switches = html.Div(
        [
            html.Span(id="live-word", className="live-word", role="status"),
            _switch("tour-start", "question", "Tour", "a tour of three minutes through the demo jobs"),
            _switch("pause-toggle", "pause", "Pause", "stop refreshing"),
            html.Div(
                [_switch("zone-toggle", "clock", "Local time", "show times in local time or in UTC"), zones.picker()],
                className="zone",
            ),
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


def _silence() -> html.Div:
    """Build the message that the script shows by the browser's own clock while the service does not answer."""
    age = html.Span(className="age", **attrs({"data-instant": ""}))
    words = html.P(["It last answered ", age, ". The page shows what was read before that."])
    return html.Div(
        # This icon is on every page, so the browser need not request it from the service.
        [status.icon("clock"), html.Div([html.Strong("The service does not answer"), words])],
        id="api-silence",
        className="message tone-bad",
        role="alert",
        hidden=True,
    )


def _log_out() -> html.Form:
    # The button sends a POST request, because logging out changes something, and a GET request must not.
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
                    html.Span("Numbers without a mark: reported by the engine · "),
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
    """Build the number of firing alerts, shown next to the link to the alerts. Return None if no alert fires."""
    if not value.alerts_firing_count:
        return None
    seen = "" if value.alerts_severity is not None else "; all are silenced or seen"
    return status.badge(
        str(value.alerts_firing_count),
        "bolt",
        alerts.tone_of(value.alerts_severity),
        hint=f"firing alerts of all jobs, with silenced ones: {value.alerts_firing_count}{seen}",
    )


def pipeline_state(value: PipelineOut) -> html.Span:
    """Build the state of the pipeline: what it is doing, and its last and next run."""
    ran = "never ran" if value.last_run_at is None else f"last run {text.instant_utc(value.last_run_at)}"
    due = "" if value.next_run_at is None else f", next {text.instant_utc(value.next_run_at)}"
    match value.state:
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
    why = f" {value.last_run_reason}" if value.last_run_reason else ""
    title = f"Hourly rollups: {ran}{due}.{why} All pages work without them."
    return html.Span(words, id="pipeline-state", title=title)


def spark_demo_state(value: SparkDemoOut | None) -> html.Span | None:
    """Build a note that the Spark demo does not run, with the reason.

    Return None if the demo runs, or if there is no demo.
    """
    if value is None or value.state == "running":
        return None
    title = f"The Spark demo does not run: {value.reason}. Everything else runs."
    return html.Span("no Spark demo", id="spark-demo-state", title=title)


def history_state(value: HistoryOut | None) -> Component | None:
    """Build a warning that the size limit will drop days before their age limit. Return None if every day fits."""
    if value is None or not value.is_short or value.held_days is None:
        return None
    # The text uses MiB, because the setting that limits the size does too.
    needed = "" if value.needed_bytes is None else f" Every day fits into {-(-value.needed_bytes // 2**20)} MiB."
    title = (
        f"The size limit of {value.size_limit_bytes // 2**20} MiB will delete days that are younger than"
        f" {value.promised_days:g} days, their age limit (BARRIERSCOPE_RETENTION_MAX_SIZE_MIB).{needed}"
    )
    words = f"history holds {value.held_days:.1f} of {value.promised_days:g} days"
    return html.Span(words, id="history-state", title=title)


def rewriting_state(value: HistoryOut | None) -> html.Span | None:
    """Build a note on the past day that is being rewritten. Return None if there is none."""
    if value is None or value.rewriting is None:
        return None
    rewriting = value.rewriting
    title = (
        f"Old arrays of healthy checkpoints of {rewriting.day} are removed. {rewriting.percent} % of the table"
        f" {rewriting.table} are done. Pages can read the day meanwhile."
    )
    return html.Span(f"rewriting {rewriting.day}: {rewriting.percent} %", id="rewriting-state", title=title)


def service_state(value: StatusOut) -> list[Component | str]:
    """Build the line of the footer about the service: version, targets, newest reading, pipeline and store."""
    unhealthy = f", {value.targets_unhealthy} unhealthy" if value.targets_unhealthy else ""
    # The total is None while the store is unreachable.
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
    if (short := history_state(value.history)) is not None:
        parts.append(short)
    if (rewriting := rewriting_state(value.history)) is not None:
        parts.append(rewriting)
    if value.store != "ok":
        parts.insert(0, status.badge(f"store {value.store}", "cross", Tone.BAD))
    joined: list[Component | str] = []
    for part in parts:
        joined += [part] if not joined else [" · ", part]
    return joined
