"""Lets the viewer choose the range that all charts of a job's page show.

The store ``job-range`` contains ``{"since", "until"}`` in epoch milliseconds on the engine's clock, both included; null
means no limit. A range of a fixed length up to now also has ``"range"``, its name in ``span.WINDOWS``; the browser
moves its start. If the store itself is null, the page shows the newest checkpoints. The address contains the range.
"""

from __future__ import annotations

from datetime import datetime, tzinfo
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate

from backend.contracts.api import CheckpointOut
from backend.contracts.history import HistoryOut
from dashboard import text
from dashboard.callbacks import Changes, connect
from dashboard.components import cards, status
from dashboard.components.attributes import attrs
from dashboard.job_address import JobView
from dashboard.live import look_of
from dashboard.span import ALL, WINDOWS, epoch_ms, instant_of

_NEWEST = "newest"
_OWN = "own"
_FORMAT = "such as 2026-11-22 14:05"


def panel(view: JobView) -> Component:
    """Build the row of controls under the timeline, and the text that describes what is shown."""
    choice = view.window or (_OWN if view.has_ends else _NEWEST)
    words = {_NEWEST: "newest 200"} | WINDOWS | {_OWN: "from … to …"}
    return html.Div(
        [
            dcc.Store(id="job-range", data=_stored(view)),
            dcc.Store(id="job-span"),
            dcc.Store(id="job-clock"),
            html.Div(
                [
                    _button("job-range-earlier", "left", "Earlier", "show the window before this one"),
                    cards.choice("Range", "job-range-choice", words, choice, width_px=124),
                    _button("job-range-later", "right", "Later", "show the window after this one"),
                    html.Button("Zoom out", id="job-range-out", className="button", title="show twice as much time"),
                    html.Button(
                        "Back", id="job-range-back", className="button", title="show the range before", hidden=True
                    ),
                    html.Details(
                        [
                            html.Summary("Own range"),
                            html.Div(
                                [
                                    _field("From", "job-range-from"),
                                    _field("To", "job-range-to"),
                                    html.Button("Show", id="job-range-show", className="button"),
                                    html.Span(id="job-range-problem", role="alert", className="problem"),
                                ],
                                className="range-fields",
                            ),
                        ],
                        id="job-range-own",
                    ),
                ],
                className="range-row",
            ),
            html.Div(html.Span("\u00a0", id="job-range-words", role="status"), className="brush-words hint"),
        ],
        className="range-picker",
        **attrs({"role": "group", "aria-label": "Range of all charts"}),
    )


def _stored(view: JobView) -> dict[str, object] | None:
    if view.window == ALL:
        return {"range": ALL, "since": 0, "until": None}
    if view.window is not None:
        # The browser adds the start, which depends on its clock.
        return {"range": view.window}
    return {"since": view.since_ms, "until": view.until_ms} if view.has_ends else None


def _button(id_: str, icon: str, word: str, hint: str) -> html.Button:
    return html.Button([status.icon(icon), html.Span(word)], id=id_, className="button", title=hint)


def _field(word: str, id_: str) -> html.Label:
    return html.Label([word, dcc.Input(id=id_, type="text", maxLength=30, placeholder=_FORMAT)])


def is_awaited(chosen_range: object) -> bool:
    """Return whether the browser has not added the start of the chosen range yet."""
    return isinstance(chosen_range, dict) and "since" not in chosen_range


def register(app: Dash) -> None:
    """Register the callbacks of the controls."""
    chosen, span, clock = State("job-range", "data"), State("job-span", "data"), State("job-clock", "data")
    for function, triggers, rest, is_first in (
        ("brush", [Input("timeline-graph", "selectedData")], [chosen], False),
        ("chooseRange", [Input("job-range-choice", "value")], [chosen, clock], False),
        ("moveRange", [Input("tick", "n_intervals"), Input("job-clock", "data")], [chosen], True),
        (
            "stepRange",
            [Input(f"job-range-{name}", "n_clicks") for name in ("earlier", "later", "out", "back")],
            [span],
            False,
        ),
    ):
        app.clientside_callback(
            ClientsideFunction("bs", function),
            Output("job-range", "data", allow_duplicate=True),
            *triggers,
            *rest,
            prevent_initial_call="initial_duplicate" if is_first else True,
        )
    app.clientside_callback(
        ClientsideFunction("bs", "placeRange"),
        Output("job-range-back", "hidden"),
        Output("job-trend", "style"),
        Input("job-range", "data"),
    )
    app.clientside_callback(
        ClientsideFunction("bs", "showEnds"),
        Output("job-range-from", "value"),
        Output("job-range-to", "value"),
        Input("job-span", "data"),
        State("look", "data"),
    )
    connect(
        app,
        own_range,
        output={
            "range": Output("job-range", "data", allow_duplicate=True),
            "problem": Output("job-range-problem", "children"),
        },
        inputs={
            "clicks": Input("job-range-show", "n_clicks"),
            "entered": Input("job-range-from", "n_submit"),
            "confirmed": Input("job-range-to", "n_submit"),
        },
        state={
            "since": State("job-range-from", "value"),
            "until": State("job-range-to", "value"),
            "look": State("look", "data"),
        },
        prevent_initial_call=True,
    )


def own_range(
    *,
    clicks: int | None,
    entered: int | None,
    confirmed: int | None,
    since: str | None,
    until: str | None,
    look: object,
) -> Changes:
    """Return the range that was typed, in the viewer's time zone, or the problem with it. A field may be empty."""
    if not (clicks or entered or confirmed):
        raise PreventUpdate
    where = look_of(look).where
    ends: dict[str, Any] = {}
    for name, typed in (("since", since), ("until", until)):
        try:
            ends[name] = epoch_ms(_instant(typed, where)) if typed and typed.strip() else None
        except (ValueError, OverflowError):
            return {"problem": f"{typed!r} is not a time {_FORMAT}"}
        if ends[name] is not None and instant_of(ends[name]) is None:
            return {"problem": f"{typed!r} is not between the years 1970 and 2103"}
    if ends["since"] is None and ends["until"] is None:
        return {"problem": "Enter at least one end."}
    if None not in ends.values() and ends["since"] >= ends["until"]:
        return {"problem": "The range ends before it begins."}
    return {"range": ends, "problem": None}


def _instant(typed: str, where: tzinfo) -> datetime:
    instant = datetime.fromisoformat(typed.strip())
    return instant if instant.tzinfo is not None else instant.replace(tzinfo=where)


def words(checkpoints: list[CheckpointOut], where: tzinfo, *, is_range: bool, is_of_batches: bool) -> str:
    """Return the sentence that states which single checkpoints the page shows."""
    noun = "micro-batches" if is_of_batches else "checkpoints"
    if not checkpoints:
        return f"No {noun} in this range." if is_range else f"No {noun} yet."
    first, last = min(c.triggered_at for c in checkpoints), max(c.triggered_at for c in checkpoints)
    number = len(checkpoints)
    what = f"{number} {noun if number != 1 else noun.removesuffix('s').removesuffix('e' if is_of_batches else '')}"
    between = f"{text.instant(first, where)} to {text.instant(last, where)}"
    return f"{'' if is_range else 'The newest '}{what}, {between}. Drag across the chart to zoom in."


def step_words(history: HistoryOut, where: tzinfo, *, is_of_batches: bool) -> str:
    """Return the sentence that states that the page shows steps, how long they are, and where they come from."""
    hours = (history.step_s or 0) // 3600
    step = "Hourly values" if hours == 1 else f"Values of {hours} hours each"
    number = sum(p.completed_count + p.failed_count for p in history.points)
    noun = "micro-batches" if is_of_batches else "checkpoints"
    said = [f"{step} of {text.count(number)} {noun}; drag across the chart to zoom in to single ones."]
    if history.rolled_up_until is None:
        said.append("No hour of this range is rolled up yet: all values are computed from the checkpoints.")
    elif any(p.source != "rollup" for p in history.points):
        until = text.instant(history.rolled_up_until, where)
        said.append(f"Rollups reach to {until}; other hours are computed from their checkpoints.")
    if history.left_out_before is not None:
        before = text.instant(history.left_out_before, where)
        said.append(f"Hours before {before} that are not rolled up yet are left out.")
    return " ".join(said)
