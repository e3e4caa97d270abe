"""A job: its verdict, its checkpoints over time (V2), the one in progress (V8) and where the pressure is."""

from __future__ import annotations

import asyncio
from datetime import tzinfo
from typing import Any

from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate

from backend.contracts.api import CheckpointOut, JobDetailOut, JobEventOut, Page
from backend.contracts.backpressure import BackpressureOut
from backend.domain.observation import Engine
from backend.domain.verdict import Basis
from dashboard import routes, text
from dashboard.client import ApiClient
from dashboard.components import cards, micro_batch, progress, status, verdict
from dashboard.components.attributes import attrs
from dashboard.figures import pressure, timeline
from dashboard.live import digest, guarded, look
from dashboard.pages import trend


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
                        hint="click one to see who held it",
                        tools=[log_switch],
                        before=html.Div(_timeline_legend(None), id="timeline-legend", className="legend"),
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
                            hint="now; measured, mean over the subtasks of a vertex",
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
            run, number = click["points"][0]["customdata"]
        except (TypeError, KeyError, IndexError, ValueError):
            raise PreventUpdate from None
        return routes.checkpoint(route["job"], str(run), int(number))


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
        Output("job-digest", "data"),
    )

    @app.callback(
        *outputs,
        Input("tick", "n_intervals"),
        Input("look", "data"),
        Input("job-log", "aria-pressed"),
        State("job-route", "data"),
        State("job-digest", "data"),
        State("job-progress-target", "data"),
    )
    @guarded(len(outputs))
    async def refresh(
        _tick: int | None, look_data: object, log: str, route: dict[str, str], before: str | None, target: Any
    ) -> Any:
        view = look(look_data)
        job, checkpoints, events, reading = await asyncio.gather(
            client.job(route["job"]),
            client.checkpoints(route["job"]),
            client.events(route["job"]),
            client.backpressure(route["job"]),
        )
        is_log = log == "true"
        source = _source(job)
        wanted = _progress_target(job, checkpoints)
        shown: object = no_update if wanted == target else wanted
        now = digest(job, reading, view.theme.name, str(view.where), is_log, *checkpoints.items, *events.items)
        if now == before:
            return (None, *((no_update,) * 18), source, shown, no_update, no_update)
        chart = timeline.timeline(
            checkpoints.items,
            events.items,
            theme=view.theme,
            where=view.where,
            timeout_ms=job.config.timeout_ms if job.config else job.timeout_ms,
            interval_ms=job.config.interval_ms if job.config else job.interval_ms,
            # What is in progress was so when it was read; since then it may be over.
            now=min(checkpoints.as_of, job.observed_at or checkpoints.as_of),
            is_log=is_log,
            revision=job.id,
        )
        return (
            None,
            _head(job),
            verdict.verdict_card(job.verdict, engine=job.engine, tone_of=job.health, has_evidence=True),
            *cards.chart_values("timeline", chart),
            *cards.chart_values("pressure", pressure.backpressure(reading, theme=view.theme)),
            *micro_batch.job_values(job, theme=view.theme),
            _timeline_legend(job.engine),
            _facts(job, reading),
            _recent(checkpoints, events, view.where),
            source,
            shown,
            job.name,
            now,
        )


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
_BARRIER_HEADS = ("Start delay", "Alignment", "Persisted")


def _recent(checkpoints: Page[CheckpointOut], events: Page[JobEventOut], where: tzinfo) -> Component:
    """The newest checkpoints as links: the keyboard's way to what the timeline offers the mouse."""
    is_of_spark = bool(checkpoints.items) and all(c.subtask_count is None for c in checkpoints.items[:_RECENT_MAX])
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
        for c in checkpoints.items[:_RECENT_MAX]
    ]  # fmt: skip
    if is_of_spark:
        heads = ("Micro-batch", "Status", "Triggered", "Duration")
    right = {"Duration", "Acked", "Start delay", "Alignment", "Persisted"}
    head = html.Thead(html.Tr([html.Th(h, className="right" if h in right else "") for h in heads]))
    table = html.Table([head, html.Tbody(rows)], className="plain-table")
    parts: list[Component] = [html.Div(table, className="table-scroll")]
    if events.items:
        parts.append(_events(events, where))
    hint = f"the newest {len(rows)}, measured; all that are kept are in the table of the timeline"
    return cards.card("Newest micro-batches" if is_of_spark else "Newest checkpoints", parts, hint=hint)


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


def _events(events: Page[JobEventOut], where: tzinfo) -> Component:
    rows = [
        html.Tr(
            [
                html.Td(text.instant(e.at, where), title=text.instant_utc(e.at), className="number"),
                html.Td(e.kind.replace("-", " ")),
                html.Td(text.short(e.text, 300)),
            ]
        )
        for e in events.items[:20]
    ]
    number = len(events.items)
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
