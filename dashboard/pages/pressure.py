"""V7: the page of a job's backpressure over time, with the suspects and the checkpoints of the same time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate

from backend.contracts.api import CheckpointOut, JobDetailOut
from backend.contracts.pressure_history import PressureHistoryOut, SuspectOut
from backend.domain.pressure import PressureMeasure
from backend.domain.text import capitalised
from dashboard import routes, text
from dashboard.callbacks import Changes, connect
from dashboard.checkpoint_address import CheckpointView
from dashboard.client import ApiClient
from dashboard.components import cards, freshness, micro_batch, status
from dashboard.components.attributes import attrs
from dashboard.figures import batch_rates, pressure_history
from dashboard.live import Look, digest, look_of
from dashboard.pressure_address import share_of
from dashboard.span import epoch_ms, span_of

_NONE = ""
_NO_VERTEX = "none"
_AS_LINKED = "chosen"
_DEFAULT = "1h"
_SUSPECTS_MAX = 10
_LENGTHS: dict[str, tuple[str, timedelta]] = {
    "15m": ("15 minutes", timedelta(minutes=15)),
    "1h": ("1 hour", timedelta(hours=1)),
    "6h": ("6 hours", timedelta(hours=6)),
    "24h": ("24 hours", timedelta(hours=24)),
    "7d": ("7 days", timedelta(days=7)),
}
_MEASURE_WORDS = {
    PressureMeasure.BACKPRESSURED: "backpressured",
    PressureMeasure.BUSY: "busy",
    PressureMeasure.IDLE: "idle",
}
_HIDDEN, _SHOWN = micro_batch.HIDDEN, micro_batch.SHOWN


def layout(route: routes.Route) -> Component:
    """Build the page without data, which the first refresh adds."""
    chosen = route.pressure
    vertex = chosen.vertex or _NONE
    is_linked = chosen.since_ms is not None or chosen.until_ms is not None
    lengths = ({_AS_LINKED: "as linked"} if is_linked else {}) | {k: words for k, (words, _) in _LENGTHS.items()}
    length = _AS_LINKED if is_linked else (chosen.last if chosen.last in _LENGTHS else _DEFAULT)
    tools = [
        cards.choice("Time", "pressure-length", lengths, length or _DEFAULT, width_px=120),
        # The first refresh adds the names of the vertices.
        cards.choice(
            "Subtasks of",
            "pressure-vertex",
            {_NONE: _NO_VERTEX} | ({vertex: vertex} if vertex else {}),
            vertex,
            width_px=180,
        ),
        cards.choice(
            "Their",
            "pressure-measure",
            {m.value: f"{words} time" for m, words in _MEASURE_WORDS.items()},
            chosen.share.value,
            width_px=160,
        ),
    ]
    range_ms = {"since": chosen.since_ms, "until": chosen.until_ms}
    return html.Div(
        [
            dcc.Store(id="pressure-route", data={"job": route.job} | range_ms),
            dcc.Store(id="pressure-digest"),
            dcc.Store(id="pressure-title"),
            html.Div(id="pressure-message"),
            html.Div(id="pressure-stale"),
            html.Div(id="pressure-head", className="page-head"),
            html.Div(id="pressure-suspects", className="awaited"),
            html.Div(
                cards.chart(
                    "pressure-history",
                    "Pressure over time",
                    hint="click a row for its subtasks, a checkpoint to open it",
                    tools=tools,
                    before=html.Div(_legend(), className="legend"),
                    after=html.P(id="pressure-notes", className="hint"),
                    height_px=pressure_history.HEIGHT_PX,
                ),
                id="pressure-barriers",
            ),
            html.Div(
                cards.chart(
                    "batch-rates",
                    "Rates and durations of micro-batches",
                    hint="Spark measures no backpressure; it is behind if rows arrive faster than it processes them",
                    height_px=batch_rates.HEIGHT_PX,
                ),
                id="pressure-batches",
                style=_HIDDEN,
            ),
            html.Div(id="pressure-source"),
        ]
    )


def _legend() -> list[Component]:
    return [
        *(
            html.Span([html.Span(className=f"swatch share-{m.value}"), words])
            for m, words in (
                (PressureMeasure.BUSY, "busy"),
                (PressureMeasure.BACKPRESSURED, "backpressured"),
                (PressureMeasure.IDLE, "idle"),
            )
        ),
        html.Span("— busiest subtask"),
        html.Span("┄ most backpressured subtask"),
        html.Span("▮ checkpoint   ✕ failed"),
        html.Span("an empty part of a row: no reading"),
    ]


def register(app: Dash, client: ApiClient) -> None:
    """Register the callbacks of the page."""
    connect(
        app,
        partial(refresh, client),
        output={
            "message": Output("pressure-message", "children"),
            "stale": Output("pressure-stale", "children"),
            "head": Output("pressure-head", "children"),
            "suspects": Output("pressure-suspects", "children"),
            "history": cards.chart_outputs("pressure-history"),
            "history_style": Output("pressure-barriers", "style"),
            "rates": cards.chart_outputs("batch-rates"),
            "rates_style": Output("pressure-batches", "style"),
            "vertices": Output("pressure-vertex", "data"),
            "notes": Output("pressure-notes", "children"),
            "source": Output("pressure-source", "children"),
            "title": Output("pressure-title", "data"),
            "digest": Output("pressure-digest", "data"),
        },
        inputs={
            "tick": Input("status-tick", "n_intervals"),
            "look": Input("look", "data"),
            "length": Input("pressure-length", "value"),
            "vertex": Input("pressure-vertex", "value"),
            "measure": Input("pressure-measure", "value"),
        },
        state={"route": State("pressure-route", "data"), "before": State("pressure-digest", "data")},
    )
    connect(
        app,
        follow,
        output={
            "href": Output("url", "href", allow_duplicate=True),
            "vertex": Output("pressure-vertex", "value"),
        },
        inputs={"click": Input("pressure-history-graph", "clickData")},
        state={"route": State("pressure-route", "data"), "vertex": State("pressure-vertex", "value")},
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("bs", "placePressure"),
        Input("pressure-length", "value"),
        Input("pressure-vertex", "value"),
        Input("pressure-measure", "value"),
        prevent_initial_call=True,
    )


async def refresh(
    client: ApiClient,
    *,
    tick: int | None,
    look: object,
    length: str | None,
    vertex: str | None,
    measure: str | None,
    route: dict[str, Any],
    before: str | None,
) -> Changes:
    """Return the contents of the page. ``before`` is the ``digest`` output of the previous call."""
    view = look_of(look)
    job = await client.graph(route["job"])
    if not job.capabilities.has_subtasks:
        return _of_batches(job, view, before)
    since, until = _ends(length, route, job)
    history = await client.pressure_history(job.id, since, until, vertex or None, share_of(measure))
    checkpoints, is_cut = await client.checkpoints_between(job.id, history.since, history.until)
    dated = job.freshness and (job.freshness.state, job.freshness.reason)
    now = digest(history, *checkpoints, view, vertex, job.verdict, job.config, dated)
    if now == before:
        return {"message": None}
    target_ms = None if job.config is None else job.config.debloat_target_ms
    how = pressure_history.View(
        view.theme, view.where, is_narrow=view.is_narrow, opened=vertex or None, debloat_target_ms=target_ms
    )
    shown = pressure_history.pressure_history(history, checkpoints, how, revision=job.id)
    return {
        "message": None,
        "stale": _stale(job),
        "head": _head(job),
        "suspects": _suspects(job, history, checkpoints, view, length),
        "history": cards.chart_values("pressure-history", shown),
        "vertices": _choices(history, job, vertex or _NONE),
        "notes": _notes(history, checkpoints, view, is_cut=is_cut),
        "source": _source(job),
        "title": f"Pressure of {job.name}",
        "digest": now,
    }


def follow(*, click: Any, route: dict[str, Any], vertex: str | None) -> Changes:
    """Open the vertex whose row was clicked, or close it if it is open; go to a checkpoint that was clicked."""
    try:
        first, *rest = click["points"][0]["customdata"]
    except (TypeError, KeyError, IndexError, ValueError):
        raise PreventUpdate from None
    if first is not None:
        return {"vertex": _NONE if first == vertex else first}
    run, number = rest
    view = CheckpointView(opened=(vertex,) if vertex else None)
    return {"href": routes.checkpoint(route["job"], str(run), int(number), view)}


def _ends(length: str | None, route: dict[str, Any], job: JobDetailOut) -> tuple[datetime | None, datetime | None]:
    """Return the chosen range.

    None means the API's default: the range ends at the newest reading and begins an hour before it.
    """
    if length == _AS_LINKED:
        span = span_of(route)
        return span.since, span.until
    read_at = job.read_at_engine or job.observed_at
    if length == _DEFAULT or length not in _LENGTHS or read_at is None:
        return None, None
    return read_at - _LENGTHS[length][1], None


def _of_batches(job: JobDetailOut, view: Look, before: str | None) -> Changes:
    """Return the page of an engine that runs micro-batches, which report no backpressure."""
    now = digest(job, view)
    if now == before:
        return {"message": None}
    chart = batch_rates.batch_rates(
        job.batches, theme=view.theme, where=view.where, interval_ms=job.interval_ms, revision=job.id
    )
    signs = micro_batch.signs(job.signs)
    return {
        "message": None,
        "stale": _stale(job),
        "head": _head(job),
        "suspects": html.Div(
            html.Section(signs, className="card", **attrs({"aria-label": "Signs of backpressure"}))
            if signs is not None
            else html.P("The engine reports no backpressure, and no sign of it yet.", className="hint")
        ),
        "history_style": _HIDDEN,
        "rates_style": _SHOWN if job.batches else _HIDDEN,
        "rates": cards.chart_values("batch-rates", chart),
        "source": _source(job),
        "title": f"Pressure of {job.name}",
        "digest": now,
    }


def _stale(job: JobDetailOut) -> Component | None:
    return freshness.note(job.freshness, "This job") or freshness.final(job.freshness)


def _head(job: JobDetailOut) -> list[Component]:
    crumbs: list[Component | str] = [
        dcc.Link("Fleet", href=routes.fleet()),
        " / ",
        dcc.Link(job.name, href=routes.job(job.id)),
    ]
    health = freshness.past_health(job.health) if freshness.is_past(job.freshness) else status.health(job.health)
    title = [html.H1("Pressure"), health, *status.clock(job.clock_offset_ms)]
    tools = [cards.link_button("Advice", routes.advice(job.id), "bolt", hint="recommendations for the job")]
    return [
        html.Div([html.Div(crumbs, className="crumbs"), html.Div(title, className="title-row")]),
        html.Div(tools, className="head-tools"),
    ]


def _suspects(
    job: JobDetailOut,
    history: PressureHistoryOut,
    checkpoints: Sequence[CheckpointOut],
    view: Look,
    length: str | None,
) -> Component:
    """Build the card of the suspects, most likely first. Each links to its subtasks and to its phases."""
    at = text.instant(history.until, view.where)
    hint = f"at {at}; the most likely cause first"
    said = job.verdict.headline or job.verdict.sentence
    verdict = html.P(
        [html.Span(f"Verdict on the job {'then' if freshness.is_past(job.freshness) else 'now'}: "), said],
        className="hint",
    )
    if not history.suspects:
        words = "No subtask that is busy nearly all the time is downstream of a backpressured one."
        if not history.buckets:
            words = "No readings of backpressure were taken in this time."
        elif history.suspects is None:
            words = "Not known: no readings of backpressure were taken in the two minutes before."
        return cards.card("What holds the data back", [html.P(words), verdict], hint=hint)
    ended = next((c for c in checkpoints if c.status.is_terminal), None)
    ends_ms = (epoch_ms(history.since), epoch_ms(history.until)) if length == _AS_LINKED else None
    likely = history.suspects[:_SUSPECTS_MAX]
    rows = [_suspect(_place(job, s, ended, last=length, ends_ms=ends_ms), s, ended) for s in likely]
    more = len(history.suspects) - len(likely)
    rest = html.P(f"{more} more vertices are less likely causes.", className="hint") if more else None
    return cards.card("What holds the data back", [html.Ol(rows, className="suspects"), rest, verdict], hint=hint)


@dataclass(frozen=True, slots=True)
class _Place:
    """The address of a suspect's subtasks on this page and, if a checkpoint is known, of its phases."""

    here: str
    phases: str | None


def _place(
    job: JobDetailOut,
    suspect: SuspectOut,
    checkpoint: CheckpointOut | None,
    *,
    last: str | None,
    ends_ms: tuple[int, int] | None,
) -> _Place:
    """Return the place of a suspect, over the same range as the page."""
    last = last if last in _LENGTHS else None
    here = routes.pressure(job.id, vertex=suspect.vertex_id, share=PressureMeasure.BUSY, ends_ms=ends_ms, last=last)
    if checkpoint is None:
        return _Place(here, None)
    picked = f"{suspect.vertex_id}:{suspect.subtasks[0]}" if suspect.subtasks else None
    view = CheckpointView(opened=(suspect.vertex_id,), picked=picked)
    return _Place(here, routes.checkpoint(job.id, checkpoint.run_id, checkpoint.checkpoint_id, view))


def _suspect(place: _Place, suspect: SuspectOut, checkpoint: CheckpointOut | None) -> html.Li:
    who = "subtask" if len(suspect.subtasks) == 1 else "subtasks"
    links: list[Component] = [dcc.Link("busy time of its subtasks", href=place.here)]
    if place.phases is not None and checkpoint is not None:
        links.append(dcc.Link(f"its phases in checkpoint {checkpoint.checkpoint_id}", href=place.phases))
    return html.Li(
        [
            html.B(text.short(suspect.vertex, 60)),
            html.Span(f" {who} {text.subtasks(suspect.subtasks)}"),
            # The first letter is not changed to upper case, because the reason often begins with the name of a vertex.
            html.P(f"{suspect.reason}."),
            html.Div(links, className="effects"),
        ]
    )


def _choices(history: PressureHistoryOut, job: JobDetailOut, chosen: str) -> list[dict[str, str]]:
    # The chosen vertex stays in the list even if it has no readings in the range.
    names = {v.id: v.name for v in job.vertices} | {v.vertex_id: v.vertex for v in history.vertices}
    words = {_NONE: _NO_VERTEX} | ({chosen: chosen} if chosen else {})
    words |= {v: text.short(name, 40) for v, name in names.items()}
    return [{"value": value, "label": label} for value, label in words.items()]


def _notes(history: PressureHistoryOut, checkpoints: Sequence[CheckpointOut], view: Look, *, is_cut: bool) -> list[str]:
    """Return what the chart does not show: readings and checkpoints that were left out."""
    notes = [f"each point is {text.duration(history.bucket_s * 1000).replace('.0 s', ' s')}"]
    if history.readings_used_count < history.readings_count:
        notes.append(f"{history.readings_used_count} of {history.readings_count} readings are used")
    if history.left_out_before is not None:
        first = text.instant(history.left_out_before, view.where)
        notes.append(f"readings of runs before {first} are left out, because there are too many runs")
    if is_cut and checkpoints:
        first = text.instant(min(c.triggered_at for c in checkpoints), view.where)
        notes.append(f"checkpoints before {first} are not drawn")
    return [". ".join(capitalised(n) for n in notes) + "."]


def _source(job: JobDetailOut) -> Component:
    return cards.source_line(
        [f"Source: {job.capabilities.source}, target {job.target_name}", cards.age("read", job.observed_at)]
    )
