"""Reads a job and draws its page anew."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from dash import Dash, Input, Output, State, no_update

from backend.contracts.api import CheckpointOut, JobDetailOut, Page
from backend.contracts.backpressure import BackpressureOut
from backend.domain.observation import Engine
from dashboard.client import ApiClient
from dashboard.components import brush, cards, micro_batch, verdict
from dashboard.figures import pressure, timeline
from dashboard.live import digest, guarded, look
from dashboard.pages.job import parts
from dashboard.pages.job.recent import recent_card
from dashboard.span import Span, epoch_ms, span_of


def register_job(app: Dash, client: ApiClient) -> None:
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
        source = parts.source(job)
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
            parts.head(job),
            verdict.verdict_card(job.verdict, engine=job.engine, tone_of=job.health, has_evidence=True),
            *cards.chart_values("timeline", chart),
            *cards.chart_values("pressure", pressed(reading, theme=view.theme)),
            *micro_batch.job_values(job, theme=view.theme),
            parts.timeline_legend(job.engine),
            parts.facts(job, reading),
            recent_card(chosen, [e for e in events.items if span.holds(e.at)], view.where, is_range=not span.is_whole),
            source,
            shown,
            job.name,
            parts.PRESSURE_NOW if span.is_whole else parts.PRESSURE_THEN,
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
