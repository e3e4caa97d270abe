"""The page that compares the checkpoints before and after an instant, in any two windows of time, or of two jobs.

The store ``windows-chosen`` contains both windows in epoch milliseconds, the job of the window before if it is another
one, and the measure whose distributions are shown. The address of the page contains the same. Until the viewer chooses
windows, the address has those that the page shows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from typing import Any

import dash_mantine_components as dmc
from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate

from backend.contracts.comparing_windows import WindowsComparisonOut
from backend.domain.errors import ApiRefusedError
from backend.domain.rollup import Measure
from dashboard import routes, text
from dashboard.callbacks import Changes, connect
from dashboard.client import ApiClient, Ends
from dashboard.components import cards, freshness, job_picker
from dashboard.components import windows as parts
from dashboard.components.attributes import attrs
from dashboard.figures import windows as figure
from dashboard.live import Look, digest, look_of
from dashboard.pages import job_search
from dashboard.span import epoch_ms

_WIDTHS = {600: "10 min", 1_800: "30 min", 3_600: "1 h", 10_800: "3 h", 43_200: "12 h", 86_400: "24 h", 604_800: "7 d"}
_WIDTH_S = 3_600
_ENDS = ("before-from", "before-to", "after-from", "after-to")
_LABELS = ("First: from", "to", "Second: from", "to")
_OTHER = "windows-other"
_DAY_MS = 86_400_000
_FORMAT = "%Y-%m-%d %H:%M:%S"


def layout(route: routes.Route) -> Component:
    """Build the page without data, which the first refresh adds."""
    chosen = route.windows
    data = {
        "before": chosen.before_ms,
        "after": chosen.after_ms,
        "with": chosen.other,
        "against": chosen.against,
        "measure": chosen.measure.value,
    }
    measures = {m.value: figure.WORDS[m] for m in Measure}
    return html.Div(
        [
            dcc.Store(id="windows-route", data={"job": route.job}),
            dcc.Store(id="windows-chosen", data=data),
            dcc.Store(id="windows-digest"),
            dcc.Store(id="windows-title"),
            html.Div(id="windows-message"),
            html.Div(id="windows-stale"),
            html.Div(
                html.Div([html.Div(id="windows-crumbs", className="crumbs"), html.H1("Compare times or jobs")]),
                className="page-head",
            ),
            html.Div(id="windows-settings"),
            html.Div(id="windows-headline", className="awaited"),
            html.Section(_controls(), className="card windows-controls", **attrs({"aria-label": "Windows"})),
            html.Div(
                [
                    html.Section(id="windows-before", className="card", **attrs({"aria-label": "Before"})),
                    html.Section(id="windows-after", className="card", **attrs({"aria-label": "After"})),
                ],
                className="comparison-sides",
            ),
            html.Div(id="windows-changes"),
            cards.chart(
                "windows",
                "Distributions",
                hint="share of checkpoints up to each value; further to the right means larger",
                tools=[cards.choice("Measure", "windows-measure", measures, chosen.measure.value, width_px=190)],
                height_px=figure.HEIGHT_PX,
            ),
            html.Div(id="windows-load"),
            html.Div(id="windows-changed"),
            html.Div(id="windows-source"),
        ]
    )


def _controls() -> list[Component]:
    return [
        html.Div(
            [
                html.Label(
                    [
                        html.Span("Before and after", className="hint"),
                        dmc.Select(
                            id="windows-instant",
                            data=[],
                            searchable=True,
                            size="xs",
                            placeholder="a change of the duration, or an event",
                            nothingFoundMessage="no such change or event",
                            className="windows-instant",
                            **attrs({"aria-label": "Before and after a change or an event"}),
                        ),
                    ],
                    className="inline-field",
                ),
                cards.choice(
                    "Length of each",
                    "windows-width",
                    {str(s): w for s, w in _WIDTHS.items()},
                    str(_WIDTH_S),
                    width_px=90,
                ),
            ],
            className="windows-row",
        ),
        html.Div(
            [_end(name, label) for name, label in zip(_ENDS, _LABELS, strict=True)],
            className="windows-row",
        ),
        html.Div(
            [
                job_picker.picker(_OTHER, "Job of the first window"),
                _button("yesterday", "Now and yesterday", "the newest time, and the same time one day earlier"),
                _button("now", "Both now", "the same newest time of both jobs"),
            ],
            className="windows-row",
        ),
    ]


def _button(name: str, word: str, hint: str) -> Component:
    return html.Button(html.Span(word), id=f"windows-{name}", className="button", title=hint)


def _end(name: str, label: str) -> Component:
    side = name.partition("-")[0].capitalize()
    return html.Label(
        [
            html.Span(label, className="hint"),
            html.Span(f" of the window {side.lower()}; year-month-day hour:minute:second", className="visually-hidden"),
            dcc.Input(id=f"windows-{name}", type="text", debounce=True, maxLength=25, autoComplete="off"),
        ],
        className="inline-field comparison-id windows-end",
    )


def register(app: Dash, client: ApiClient) -> None:
    """Register the callbacks of the page."""
    connect(
        app,
        partial(refresh, client),
        output={
            "message": Output("windows-message", "children"),
            "stale": Output("windows-stale", "children"),
            "crumbs": Output("windows-crumbs", "children"),
            "settings": Output("windows-settings", "children"),
            "headline": Output("windows-headline", "children"),
            "before_side": Output("windows-before", "children"),
            "after_side": Output("windows-after", "children"),
            "changes": Output("windows-changes", "children"),
            "chart": cards.chart_outputs("windows"),
            "load": Output("windows-load", "children"),
            "changed": Output("windows-changed", "children"),
            "jobs": Output(_OTHER, "data"),
            "job": Output(_OTHER, "value"),
            "both_now": Output("windows-now", "disabled"),
            "source": Output("windows-source", "children"),
            "instants": Output("windows-instant", "data"),
            "ends": {name: Output(f"windows-{name}", "value") for name in _ENDS},
            "title": Output("windows-title", "data"),
            "digest": Output("windows-digest", "data"),
        },
        inputs={
            "tick": Input("status-tick", "n_intervals"),
            "look": Input("look", "data"),
            "chosen": Input("windows-chosen", "data"),
        },
        state={"route": State("windows-route", "data"), "before": State("windows-digest", "data")},
    )
    connect(
        app,
        choose,
        output={
            "chosen": Output("windows-chosen", "data", allow_duplicate=True),
            "message": Output("windows-message", "children", allow_duplicate=True),
        },
        inputs={
            "other": Input(_OTHER, "value"),
            "yesterday": Input("windows-yesterday", "n_clicks"),
            "now": Input("windows-now", "n_clicks"),
            "instant": Input("windows-instant", "value"),
            "width": Input("windows-width", "value"),
            "measure": Input("windows-measure", "value"),
            **{name.replace("-", "_"): Input(f"windows-{name}", "value") for name in _ENDS},
        },
        state={
            "before": State("windows-chosen", "data"),
            "shown": State("windows-digest", "data"),
            "route": State("windows-route", "data"),
            "look": State("look", "data"),
        },
        has_trigger=True,
        prevent_initial_call=True,
    )
    job_search.register(app, client, _OTHER)
    app.clientside_callback(
        ClientsideFunction("bs", "placeWindows"),
        Input("windows-chosen", "data"),
        Input("windows-digest", "data"),
        prevent_initial_call=True,
    )


async def refresh(
    client: ApiClient,
    *,
    tick: int | None,
    look: object,
    chosen: dict[str, Any],
    route: dict[str, str],
    before: dict[str, Any] | None,
) -> Changes:
    """Return the contents of the page. ``before`` is the ``digest`` output of the previous call."""
    view, job = look_of(look), route["job"]
    points, events = await asyncio.gather(client.change_points(job), client.events(job))
    windows = _chosen(chosen, before)
    if windows is None and chosen["with"] is None and chosen["against"] is None:
        # By default, the newest change of the duration is compared or, if there is none, the newest event.
        at = max((p.at for p in points.items), default=max((e.at for e in events.items), default=points.as_of))
        windows = (at - timedelta(seconds=_WIDTH_S), at), (at, at + timedelta(seconds=_WIDTH_S))
    try:
        answer = await client.windows(job, *(windows or (None, None)), other=chosen["with"])
    except ApiRefusedError as problem:
        if before is None:
            raise
        return {"message": cards.answer(False, str(problem))}
    windows = (answer.before.since, answer.before.until), (answer.after.since, answer.after.until)
    now = digest(answer, view, chosen, points.items, events.items)
    if before and before["drawn"] == now:
        return {"message": None}
    ends = [at for window in windows for at in window]
    drawn = {
        "drawn": now,
        "windows": [[epoch_ms(at) for at in window] for window in windows],
        "with": chosen["with"],
        "as_of": epoch_ms(answer.as_of),
        "picked": answer.before.job.id,
    }
    picked: Changes = {}
    if before is None or before["picked"] != answer.before.job.id:
        # Otherwise the viewer may be searching, and the answers stay.
        picked["jobs"], picked["job"] = job_picker.chosen(answer.before.job)
    return _contents(answer, view, Measure(chosen["measure"])) | {
        "instants": parts.instants(points.items, events.items, view.where),
        "ends": {name: text.instant(at, view.where) for name, at in zip(_ENDS, ends, strict=True)},
        **picked,
        "both_now": chosen["with"] is None,
        "digest": drawn,
    }


def _chosen(chosen: dict[str, Any], before: dict[str, Any] | None) -> tuple[Ends, Ends] | None:
    """Return the windows that the viewer chose or, until then, those that the page shows already."""
    if chosen["before"] and chosen["after"]:
        return _window(chosen["before"]), _window(chosen["after"])
    if before is not None and before["with"] == chosen["with"]:
        first, second = before["windows"]
        return _window(first), _window(second)
    return None


def _contents(comparison: WindowsComparisonOut, view: Look, measure: Measure) -> Changes:
    crumbs = [
        dcc.Link("Fleet", href=routes.fleet()),
        " / ",
        dcc.Link(comparison.job, href=routes.job(comparison.job_id)),
    ]
    is_one_job = parts.is_one_job(comparison)
    sources = dict.fromkeys(window.job.capabilities.source for window in (comparison.before, comparison.after))
    first, second = ("Before", "After") if is_one_job else parts.names(comparison)
    return {
        "message": None,
        "stale": freshness.of_sides(
            [
                ("This job" if is_one_job else window.name, window.freshness)
                for window in (comparison.before, comparison.after)
            ]
        ),
        "crumbs": crumbs,
        "settings": parts.settings(comparison),
        "headline": parts.headline(comparison),
        "before_side": parts.side(comparison.before, first, view.where),
        "after_side": parts.side(comparison.after, second, view.where),
        "load": parts.load(comparison),
        "changes": parts.changes(comparison),
        "chart": cards.chart_values("windows", figure.distributions(comparison, measure, theme=view.theme)),
        "changed": parts.changed(comparison, view.where),
        "source": cards.source_line([f"Source: {', '.join(sources)}", "intervals from order statistics"]),
        "title": f"Before and after, {comparison.job}" if is_one_job else f"{comparison.job} and {first}",
    }


def _window(ends_ms: Sequence[int]) -> Ends:
    first, last = (datetime.fromtimestamp(ms / 1000, UTC) for ms in ends_ms)
    return first, last


def choose(
    *,
    other: str | None,
    yesterday: int | None,
    now: int | None,
    instant: str | None,
    width: str | None,
    measure: str | None,
    before_from: str | None,
    before_to: str | None,
    after_from: str | None,
    after_to: str | None,
    before: dict[str, Any],
    shown: dict[str, Any] | None,
    route: dict[str, str],
    look: object,
    trigger: object,
) -> Changes:
    """Return what is compared after the viewer used one of the controls."""
    if shown is None:
        raise PreventUpdate
    # A choice of the measure may come together with values that the page set itself, which then are the trigger.
    changed = before | {"measure": measure or before["measure"]}
    (first, last), (second, end) = shown["windows"]
    width_ms = int(width or _WIDTH_S) * 1000
    if trigger == _OTHER:
        changed["with"] = None if other in (None, route["job"]) else other
        if changed["with"] != before["with"]:
            # Two jobs are compared in the same time, one job in two times.
            earlier = 0 if changed["with"] is not None else max(_DAY_MS, end - second)
            changed["before"], changed["after"] = [second - earlier, end - earlier], [second, end]
    elif trigger in ("windows-yesterday", "windows-now"):
        if not (yesterday or now):
            raise PreventUpdate
        earlier = 0 if trigger == "windows-now" else max(_DAY_MS, width_ms)
        until = int(shown["as_of"])
        changed["after"] = [until - width_ms, until]
        changed["before"] = [at - earlier for at in changed["after"]]
    elif trigger == "windows-instant":
        if instant is None:
            raise PreventUpdate
        changed["before"], changed["after"] = _around(int(instant), width_ms)
    elif trigger == "windows-width":
        # The windows grow or shrink at their outer ends.
        changed["before"], changed["after"] = [last - width_ms, last], [second, second + width_ms]
    elif trigger != "windows-measure":
        where = look_of(look).where
        typed = (before_from, before_to, after_from, after_to)
        ends = [first, last, second, end]
        for i, value in enumerate(typed):
            if value == text.instant(datetime.fromtimestamp(ends[i] / 1000, UTC), where):
                continue
            read = _read(value, where)
            if read is None:
                words = f"{value!r} is not an instant such as 2026-01-31 14:05:00."
                said = {"message": cards.answer(False, words)}
                return said if changed == before else said | {"chosen": changed}
            ends[i] = read
        if ends != [first, last, second, end]:
            changed["before"], changed["after"] = ends[:2], ends[2:]
    if changed == before:
        raise PreventUpdate
    return {"chosen": changed}


def _around(at_ms: int, width_ms: int) -> tuple[list[int], list[int]]:
    return [at_ms - width_ms, at_ms], [at_ms, at_ms + width_ms]


def _read(value: str | None, where: tzinfo) -> int | None:
    """Return the instant that the viewer typed, in epoch milliseconds. The seconds may be left out."""
    words = (value or "").strip().replace("T", " ")
    for form in (_FORMAT, _FORMAT.removesuffix(":%S")):
        try:
            at = datetime.strptime(words, form).replace(tzinfo=where)
        except ValueError:
            continue
        return max(0, epoch_ms(at))
    return None
