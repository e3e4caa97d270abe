"""Reads a job and updates its page."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from dash import Dash, Input, Output, State

from backend.contracts.api import CheckpointOut, JobDetailOut, JobEventOut, Page
from backend.contracts.backpressure import BackpressureOut
from backend.contracts.changes import ChangePointOut
from dashboard.callbacks import Changes, connect
from dashboard.client import ApiClient
from dashboard.components import brush, cards, micro_batch, verdict
from dashboard.figures import pressure, timeline
from dashboard.figures.base import Chart
from dashboard.live import Look, digest, look_of
from dashboard.pages.job import parts
from dashboard.pages.job.recent import recent_card
from dashboard.span import Span, epoch_ms, span_of


@dataclass(frozen=True, slots=True)
class _Read:
    """What one refresh read of a job."""

    job: JobDetailOut
    checkpoints: Page[CheckpointOut]
    chosen: list[CheckpointOut]
    """The checkpoints in the chosen range."""
    pressure: BackpressureOut
    """The latest readings, or those taken while the chosen checkpoints ran."""
    events: list[JobEventOut]


def register(app: Dash, client: ApiClient) -> None:
    """Update the page on every tick and when the viewer changes what it shows."""
    connect(
        app,
        partial(refresh, client),
        output={
            "message": Output("job-message", "children"),
            "head": Output("job-head", "children"),
            "verdict": Output("job-verdict", "children"),
            "timeline": cards.chart_outputs("timeline"),
            "pressure": cards.chart_outputs("pressure"),
            "batches": micro_batch.job_outputs(),
            "legend": Output("timeline-legend", "children"),
            "facts": Output("job-facts", "children"),
            "recent": Output("job-recent", "children"),
            "source": Output("job-source", "children"),
            "progress_target": Output("job-progress-target", "data"),
            "title": Output("job-title", "data"),
            "pressure_hint": Output("job-pressure-hint", "children"),
            "range_words": Output("job-range-words", "children"),
            "span": Output("job-span", "data"),
            "digest": Output("job-digest", "data"),
        },
        inputs={
            "tick": Input("tick", "n_intervals"),
            "look": Input("look", "data"),
            "log": Input("job-log", "aria-pressed"),
            "chosen_range": Input("job-range", "data"),
        },
        state={
            "route": State("job-route", "data"),
            "before": State("job-digest", "data"),
            "target": State("job-progress-target", "data"),
        },
    )


async def refresh(
    client: ApiClient,
    *,
    tick: int | None,
    look: object,
    log: str | None,
    chosen_range: object,
    route: dict[str, str],
    before: str | None,
    target: dict[str, Any] | None,
) -> Changes:
    """The page of the job in ``route``. ``before`` is the ``digest`` output of the previous call."""
    view, span, is_log = look_of(look), span_of(chosen_range), log == "true"
    read = await _read(client, route["job"], span)
    changes: Changes = {"message": None, "source": parts.source(read.job)}
    wanted = _progress_target(read.job, read.checkpoints)
    if wanted != target:
        changes["progress_target"] = wanted
    now = digest(
        read.job, read.pressure, view.theme.name, str(view.where), is_log, span, *read.checkpoints.items, *read.events
    )
    if now == before:
        return changes
    # Change points need no place in the digest: a new one appears together with a new checkpoint.
    found = await client.change_points(route["job"])
    chart = _timeline(read, found.items, view, span, is_log=is_log)
    return changes | _drawn(read, chart, view, span) | {"digest": now}


async def _read(client: ApiClient, job: str, span: Span) -> _Read:
    found, (checkpoints, chosen, reading), events = await asyncio.gather(
        client.job(job), _looked_at(client, job, span), client.events(job)
    )
    return _Read(found, checkpoints, chosen, reading, events.items)


def _timeline(read: _Read, found: Sequence[ChangePointOut], view: Look, span: Span, *, is_log: bool) -> Chart:
    job, as_of = read.job, read.checkpoints.as_of
    return timeline.timeline(
        read.checkpoints.items,
        read.events,
        found,
        theme=view.theme,
        where=view.where,
        timeout_ms=job.config.timeout_ms if job.config else job.timeout_ms,
        interval_ms=job.config.interval_ms if job.config else job.interval_ms,
        # A checkpoint in progress is drawn as long as it was when it was read; it may have ended since.
        now=min(as_of, job.observed_at or as_of),
        is_log=is_log,
        revision=job.id,
        span=span,
    )


def _drawn(read: _Read, chart: Chart, view: Look, span: Span) -> Changes:
    job, checkpoints = read.job, read.checkpoints.items
    pressed = pressure.backpressure if span.is_whole else pressure.along
    events = [e for e in read.events if span.holds(e.at)]
    engine = job.capabilities
    return {
        "head": parts.head(job),
        "verdict": verdict.verdict_card(job.verdict, engine=engine, tone_of=job.health, has_evidence=True),
        "timeline": cards.chart_values("timeline", chart),
        "pressure": cards.chart_values("pressure", pressed(read.pressure, theme=view.theme)),
        "batches": micro_batch.job_values(job, theme=view.theme),
        "legend": parts.timeline_legend(engine),
        "facts": parts.facts(job),
        "recent": recent_card(read.chosen, events, view.where, engine=engine, is_range=not span.is_whole),
        "title": job.name,
        "pressure_hint": parts.PRESSURE_NOW if span.is_whole else parts.PRESSURE_THEN,
        "range_words": brush.words(checkpoints, read.chosen, span, view.where, is_of_batches=engine.is_micro_batched),
        "span": _ends(checkpoints),
    }


async def _looked_at(
    client: ApiClient, job: str, span: Span
) -> tuple[Page[CheckpointOut], list[CheckpointOut], BackpressureOut]:
    """All checkpoints, those in the range, and the backpressure now or while those in the range ran."""
    if span.is_whole:
        checkpoints, reading = await asyncio.gather(client.checkpoints(job), client.backpressure(job))
        return checkpoints, checkpoints.items, reading
    checkpoints = await client.checkpoints(job)
    chosen = [c for c in checkpoints.items if span.holds(c.triggered_at)]
    if not chosen:
        return checkpoints, [], await client.backpressure(job)
    since = min(c.triggered_at for c in chosen)
    until = max(_ended(c, checkpoints.as_of) for c in chosen)
    # The API excludes the end. With 1 ms more, a checkpoint of 0 ms still has a range.
    return checkpoints, chosen, await client.backpressure(job, since, until + timedelta(milliseconds=1))


def _ended(checkpoint: CheckpointOut, now: datetime) -> datetime:
    if checkpoint.end_to_end_duration_ms is not None:
        return checkpoint.triggered_at + timedelta(milliseconds=checkpoint.end_to_end_duration_ms)
    return checkpoint.failed_at or (now if not checkpoint.is_lost else checkpoint.triggered_at)


def _ends(checkpoints: Sequence[CheckpointOut]) -> list[int] | None:
    times = [epoch_ms(c.triggered_at) for c in checkpoints]
    return [min(times), max(times)] if times else None


def _progress_target(job: JobDetailOut, checkpoints: Page[CheckpointOut]) -> dict[str, object] | None:
    if not job.capabilities.has_barriers:
        return None
    if job.in_progress_checkpoint_id is not None:
        return {"job": job.id, "run": job.run_id, "checkpoint": job.in_progress_checkpoint_id}
    if not checkpoints.items:
        return None
    newest = checkpoints.items[0]
    return {"job": job.id, "run": newest.run_id, "checkpoint": newest.checkpoint_id}
