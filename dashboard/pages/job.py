"""A job: its verdict, its checkpoints over time (V2), the one in progress (V8) and where the pressure is."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate

from backend.contracts.api import CheckpointOut, JobDetailOut, JobEventOut, Page
from backend.contracts.backpressure import BackpressureOut
from backend.domain.observation import Engine
from backend.domain.verdict import Basis
from dashboard import routes, text
from dashboard.client import ApiClient
from dashboard.components import brush, cards, micro_batch, progress, status, verdict
from dashboard.components.attributes import attrs
from dashboard.figures import pressure, timeline
from dashboard.live import digest, guarded, look
from dashboard.pages import trend
from dashboard.span import Span, epoch_ms, span_of

_PRESSURE_NOW = "now; measured, mean over the subtasks of a vertex"
_PRESSURE_THEN = "in the chosen range; measured, mean over its readings and subtasks"


def layout(route: routes.Route) -> Component:
    """The page of one job before its first answer."""
    log_switch = html.Button(
        "Log scale",
        id="job-log",
        className="button",
        title="logarithmic duration axis",
        **attrs({"aria-pressed": "false"}),
    )
    return html.Div(
        [
            dcc.Store(id="job-route", data={"job": route.job}),
            dcc.Store(id="job-digest"),
            dcc.Store(id="job-title"),
            html.Div(id="job-message"),
            html.Div(id="job-head", className="page-head"),
            html.Div(id="job-alerts"),
            dcc.Store(id="job-alerts-digest"),
            html.Div(id="job-verdict"),
            html.Div(
                [
                    cards.chart(
                        "timeline",
                        "Checkpoints over time",
                        hint="click one to see who held it; drag to choose a range",
                        tools=[log_switch],
                        before=html.Div(_timeline_legend(None), id="timeline-legend", className="legend"),
                        after=brush.panel(route.selection.since_ms, route.selection.until_ms),
                        height_px=timeline.HEIGHT_PX,
                    ),
                    progress.panel("job"),
                ],
                className="columns",
                id="job-over-time",
            ),
            html.Div(
                [
                    html.Div(
                        cards.chart(
                            "pressure",
                            "Where the pressure is",
                            hint=html.Span(_PRESSURE_NOW, id="job-pressure-hint"),
                        ),
                        id="job-pressure",
                    ),
                    html.Div(micro_batch.job_card(), id="job-micro-batches", style=micro_batch.HIDDEN),
                    cards.card("Settings and counts", html.Div(id="job-facts"), hint="measured: the engine's own"),
                ],
                className="columns",
            ),
            trend.panel(),
            html.Div(id="job-recent"),
            html.Div(id="job-source"),
        ]
    )


def _timeline_legend(engine: Engine | None) -> list[Component]:
    if engine is Engine.SPARK:
        return [html.Span("● completed   ✕ failed"), html.Span("a mark is a micro-batch; Spark tells of it at its end")]
    return [
        html.Span("● completed   ■ savepoint   ✕ failed   ○ in progress"),
        html.Span([html.Span(className="swatch mode-aligned"), "aligned"]),
        html.Span([html.Span(className="swatch mode-unaligned"), "unaligned"]),
        html.Span("size: persisted in-flight bytes"),
    ]


def register(app: Dash, client: ApiClient) -> None:
    """Keep the page live."""
    _register_job(app, client)

    @app.callback(Output("job-log", "aria-pressed"), Input("job-log", "n_clicks"), prevent_initial_call=True)
    def switch_log(clicks: int | None) -> str:
        return "true" if clicks and clicks % 2 else "false"

    @app.callback(Output("url", "href"), Input("timeline-graph", "clickData"), State("job-route", "data"))
    def open_checkpoint(click: Any, route: dict[str, str]) -> str:
        try:
            run, number, *_ = click["points"][0]["customdata"]
        except (TypeError, KeyError, IndexError, ValueError):
            raise PreventUpdate from None
        return routes.checkpoint(route["job"], str(run), int(number))

    for function, trigger, rest in (
        ("brush", Input("timeline-graph", "selectedData"), (State("job-range", "data"),)),
        ("moveRange", Input("job-range-slider", "value"), (State("job-range", "data"), State("job-span", "data"))),
        ("clearRange", Input("job-range-clear", "n_clicks"), ()),
    ):
        app.clientside_callback(
            ClientsideFunction("bs", function),
            Output("job-range", "data", allow_duplicate=True),
            trigger,
            *rest,
            prevent_initial_call=True,
        )
    app.clientside_callback(
        ClientsideFunction("bs", "placeRange"),
        Output("job-range-clear", "hidden"),
        Input("job-range", "data"),
        Input("job-span", "data"),
    )


def _register_job(app: Dash, client: ApiClient) -> None:
    outputs = (
        Output("job-message", "children"),
        Output("job-head", "children"),
        Output("job-verdict", "children"),
        Output("timeline-graph", "figure"),
        Output("timeline-summary", "children"),
        Output("timeline-data", "data"),
        Output("pressure-graph", "figure"),
        Output("pressure-summary", "children"),
        Output("pressure-data", "data"),
        Output("job-micro-batches", "style"),
        Output("job-pressure", "style"),
        Output("job-progress-panel", "style"),
        Output("job-over-time", "style"),
        *cards.chart_outputs("job-batches"),
        Output("timeline-legend", "children"),
        Output("job-facts", "children"),
        Output("job-recent", "children"),
        Output("job-source", "children"),
        Output("job-progress-target", "data"),
        Output("job-title", "data"),
        Output("job-pressure-hint", "children"),
        Output("job-range-words", "children"),
        Output("job-span", "data"),
        Output("job-digest", "data"),
    )

    @app.callback(
        *outputs,
        Input("tick", "n_intervals"),
        Input("look", "data"),
        Input("job-log", "aria-pressed"),
        Input("job-range", "data"),
        State("job-route", "data"),
        State("job-digest", "data"),
        State("job-progress-target", "data"),
    )
    @guarded(len(outputs))
    async def refresh(
        _tick: int | None,
        look_data: object,
        log: str,
        range_data: object,
        route: dict[str, str],
        before: str | None,
        target: Any,
    ) -> Any:
        view, span = look(look_data), span_of(range_data)
        job, (checkpoints, chosen, reading), events = await asyncio.gather(
            client.job(route["job"]), _looked_at(client, route["job"], span), client.events(route["job"])
        )
        is_log = log == "true"
        source = _source(job)
        wanted = _progress_target(job, checkpoints)
        shown: object = no_update if wanted == target else wanted
        now = digest(job, reading, view.theme.name, str(view.where), is_log, span, *checkpoints.items, *events.items)
        if now == before:
            return (None, *((no_update,) * 18), source, shown, *((no_update,) * 5))
        # Only where something is drawn anew: a change shows with a checkpoint.
        changes = await client.change_points(route["job"])
        chart = timeline.timeline(
            checkpoints.items,
            events.items,
            changes.items,
            theme=view.theme,
            where=view.where,
            timeout_ms=job.config.timeout_ms if job.config else job.timeout_ms,
            interval_ms=job.config.interval_ms if job.config else job.interval_ms,
            # What is in progress was so when it was read; since then it may be over.
            now=min(checkpoints.as_of, job.observed_at or checkpoints.as_of),
            is_log=is_log,
            revision=job.id,
            span=span,
        )
        pressed = pressure.backpressure if span.is_whole else pressure.along
        return (
            None,
            _head(job),
            verdict.verdict_card(job.verdict, engine=job.engine, tone_of=job.health, has_evidence=True),
            *cards.chart_values("timeline", chart),
            *cards.chart_values("pressure", pressed(reading, theme=view.theme)),
            *micro_batch.job_values(job, theme=view.theme),
            _timeline_legend(job.engine),
            _facts(job, reading),
            _recent(chosen, [e for e in events.items if span.holds(e.at)], view.where, is_range=not span.is_whole),
            source,
            shown,
            job.name,
            _PRESSURE_NOW if span.is_whole else _PRESSURE_THEN,
            brush.words(checkpoints.items, chosen, span, view.where, is_of_spark=job.engine is Engine.SPARK),
            _ends(checkpoints.items),
            now,
        )


async def _looked_at(
    client: ApiClient, job: str, span: Span
) -> tuple[Page[CheckpointOut], list[CheckpointOut], BackpressureOut]:
    """The checkpoints, those of the range, and the pressure now or while those of the range ran."""
    if span.is_whole:
        checkpoints, reading = await asyncio.gather(client.checkpoints(job), client.backpressure(job))
        return checkpoints, checkpoints.items, reading
    checkpoints = await client.checkpoints(job)
    chosen = [c for c in checkpoints.items if span.holds(c.triggered_at)]
    if not chosen:
        return checkpoints, [], await client.backpressure(job)
    since = min(c.triggered_at for c in chosen)
    until = max(_ended(c, checkpoints.as_of) for c in chosen)
    # The end is not included: a checkpoint that took no time at all has an instant all the same.
    return checkpoints, chosen, await client.backpressure(job, since, until + timedelta(milliseconds=1))


def _ended(checkpoint: CheckpointOut, now: datetime) -> datetime:
    if checkpoint.end_to_end_duration_ms is not None:
        return checkpoint.triggered_at + timedelta(milliseconds=checkpoint.end_to_end_duration_ms)
    return checkpoint.failed_at or (now if not checkpoint.is_lost else checkpoint.triggered_at)


def _ends(checkpoints: Sequence[CheckpointOut]) -> list[int] | None:
    times = [epoch_ms(c.triggered_at) for c in checkpoints]
    return [min(times), max(times)] if times else None


def _progress_target(job: JobDetailOut, checkpoints: Page[CheckpointOut]) -> dict[str, object] | None:
    if job.engine is Engine.SPARK:
        # A micro-batch is told of when it is over.
        return None
    if job.in_progress_checkpoint_id is not None:
        return {"job": job.id, "run": job.run_id, "checkpoint": job.in_progress_checkpoint_id}
    if not checkpoints.items:
        return None
    newest = checkpoints.items[0]
    return {"job": job.id, "run": newest.run_id, "checkpoint": newest.checkpoint_id}


# --- parts --------------------------------------------------------------------------------------------------------


def _head(job: JobDetailOut) -> list[Component]:
    chips: list[Component] = [
        status.health(job.health),
        *(() if job.engine is Engine.SPARK else (status.mode(job.mode),)),
        html.Span(f"{job.engine.value}: {_engine_state(job)}", className="chip", title="engine and state"),
    ]
    number = job.open_advice_count
    words = f"Advice ({number})" if number else "Advice"
    chips.append(cards.link_button(words, routes.advice(job.id), "bolt", hint="what is worth changing on this job"))
    if job.target_state != "ok":
        chips.append(status.badge(f"target {job.target_state}: old data", "warning", "bad"))
    return [
        html.Div(
            [
                html.Div([dcc.Link("Fleet", href=routes.fleet()), f" / {job.target_name}"], className="crumbs"),
                html.Div([html.H1(job.name), *chips], className="title-row"),
            ]
        ),
        cards.facts(
            [
                cards.fact("Success 24 h", text.percent(job.success_24h_ratio)),
                cards.fact("p50", text.duration(job.duration_p50_ms)),
                cards.fact("p99", text.duration(job.duration_p99_ms)),
                *_interval_and_timeout(job),
            ]
        ),
    ]


def _engine_state(job: JobDetailOut) -> str:
    told = job.run.engine_state.lower()
    return f"{told} when last heard" if job.target_state == "silent" else told


def _interval_and_timeout(job: JobDetailOut) -> list[html.Div]:
    if job.engine is Engine.SPARK:
        is_told = job.config is not None and job.config.interval_ms is not None
        hint = "told by the job" if is_told else "learned from the pauses between batches"
        basis = None if is_told else Basis.RECONSTRUCTED
        return [cards.fact("Trigger interval", text.duration(job.interval_ms), basis=basis, hint=hint)]
    return [
        cards.fact("Interval", text.duration(job.interval_ms), basis=None, hint="configured"),
        cards.fact("Timeout", text.duration(job.timeout_ms), basis=None, hint="configured"),
    ]


def _facts(job: JobDetailOut, reading: BackpressureOut) -> Component:
    config, counts = job.config, job.counts
    rows: list[tuple[str, str]] = []
    if config is not None:
        rows += [
            ("Mode", (config.mode or text.MISSING).replace("_", " ")),
            ("Unaligned", _yes(config.is_unaligned_enabled)),
            ("Aligned timeout", text.duration(config.aligned_timeout_ms)),
            ("Min pause", text.duration(config.min_pause_ms)),
            ("Max concurrent", text.count(config.max_concurrent)),
            ("Tolerable failures", _tolerable(config.tolerable_failed_count)),
            ("State backend", config.state_backend or text.MISSING),
            ("Storage", config.checkpoint_storage or text.MISSING),
        ]
    if counts is not None:
        rows += [
            ("Completed", text.count(counts.completed)),
            ("Failed", text.count(counts.failed)),
            ("of them never listed", text.count(counts.failed_unlisted)),
            ("Restored", text.count(counts.restored)),
        ]
    if job.engine is Engine.SPARK:
        return _spark_facts(job)
    rows.append(("Restarts", text.count(job.run.restart_count)))
    pairs = [html.Div([html.Dt(k, className="hint"), html.Dd(v, className="number")]) for k, v in rows]
    parts: list[Component] = [html.Dl(pairs, className="settings")]
    if job.exceptions:
        parts.append(html.Details([html.Summary(f"{len(job.exceptions)} exceptions"), *_exceptions(job.exceptions)]))
    return html.Div(parts)


def _spark_facts(job: JobDetailOut) -> Component:
    """Spark reports neither settings nor counters of checkpoints: what there is are the signs."""
    parts: list[Component | None] = [micro_batch.signs(job.signs), *(html.P(p, className="hint") for p in job.problems)]
    if job.exceptions:
        parts.append(html.Details([html.Summary(f"{len(job.exceptions)} exceptions"), *_exceptions(job.exceptions)]))
    return html.Div([p for p in parts if p is not None])


def _exceptions(exceptions: list[str]) -> list[Component]:
    return [html.P(text.short(e, 400), className="hint") for e in exceptions[:5]]


def _yes(value: bool | None) -> str:
    return text.MISSING if value is None else ("enabled" if value else "off")


def _tolerable(value: int | None) -> str:
    # Flink's way to say "any number".
    return "unlimited" if value is not None and value >= 2**31 - 1 else text.count(value)


_RECENT_MAX = 15
_RANGE_MAX = 60
_BARRIER_HEADS = ("Start delay", "Alignment", "Persisted")


def _recent(
    checkpoints: Sequence[CheckpointOut], events: Sequence[JobEventOut], where: tzinfo, *, is_range: bool
) -> Component:
    """The newest checkpoints as links: the keyboard's way to what the timeline offers the mouse."""
    shown = checkpoints[: _RANGE_MAX if is_range else _RECENT_MAX]
    is_of_spark = bool(shown) and all(c.subtask_count is None for c in shown)
    heads: tuple[str, ...] = (
        "Checkpoint",
        "Status",
        "Mode",
        "Triggered",
        "Duration",
        "Acked",
        "Start delay",
        "Alignment",
        "Persisted",
    )
    rows = [
        html.Tr(
            [
                html.Td(_link(c, "batch" if is_of_spark else c.kind.value)),
                html.Td([status.checkpoint(c), " ", status.failure(c)]),
                *(() if is_of_spark else (html.Td(status.mode(c.mode)),)),
                html.Td(text.instant(c.triggered_at, where), title=text.instant_utc(c.triggered_at)),
                html.Td(text.duration(c.end_to_end_duration_ms), className="right number"),
                *(() if is_of_spark else _barrier_cells(c)),
            ]
        )
        for c in shown
    ]  # fmt: skip
    if is_of_spark:
        heads = ("Micro-batch", "Status", "Triggered", "Duration")
    right = {"Duration", "Acked", "Start delay", "Alignment", "Persisted"}
    head = html.Thead(html.Tr([html.Th(h, className="right" if h in right else "") for h in heads]))
    table = html.Table([head, html.Tbody(rows)], className="plain-table")
    parts: list[Component] = [html.Div(table, className="table-scroll")]
    if events:
        parts.append(_events(events, where))
    noun = "micro-batches" if is_of_spark else "checkpoints"
    if is_range:
        hint = f"the newest {len(rows)} of {len(checkpoints)} in the chosen range, measured"
    else:
        hint = f"the newest {len(rows)}, measured; all that are kept are in the table of the timeline"
    return cards.card(f"{noun.capitalize()} in the range" if is_range else f"Newest {noun}", parts, hint=hint)


def _barrier_cells(c: CheckpointOut) -> list[Component]:
    acknowledged = text.MISSING if c.subtask_count is None else f"{c.acknowledged_count}/{c.subtask_count}"
    return [
        html.Td(acknowledged, className="right number"),
        html.Td(text.duration(c.start_delay_max_ms), className="right number"),
        html.Td(text.duration(c.alignment_max_ms), className="right number"),
        html.Td(text.size(c.persisted_bytes), className="right number"),
    ]


def _link(c: CheckpointOut, word: str) -> Component:
    return dcc.Link(f"{word} {c.checkpoint_id}", href=routes.checkpoint(c.job_id, c.run_id, c.checkpoint_id))


def _events(events: Sequence[JobEventOut], where: tzinfo) -> Component:
    rows = [
        html.Tr(
            [
                html.Td(text.instant(e.at, where), title=text.instant_utc(e.at), className="number"),
                html.Td(e.kind.replace("-", " ")),
                html.Td(text.short(e.text, 300)),
            ]
        )
        for e in events[:20]
    ]
    number = len(events)
    summary = html.Summary(f"{number} {'event' if number == 1 else 'events'}: restarts, changes of settings")
    return html.Details([summary, html.Table(html.Tbody(rows), className="plain-table")], className="events")


_WHENCE = {
    Engine.FLINK: "REST of the cluster",
    Engine.RUNTIME: "reference runtime",
    Engine.SPARK: "the listener in the query's driver",
}


def _source(job: JobDetailOut) -> Component:
    kind = _WHENCE[job.engine]
    return cards.source_line(
        [
            f"Source: {kind}, target {job.target_name}",
            cards.age("read", job.observed_at),
            f"run {job.run_id}",
        ]
    )
