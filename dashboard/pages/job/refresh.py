"""Reads a job and updates its page."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from dash import Dash, Input, Output, State
from dash.exceptions import PreventUpdate

from backend.contracts.advice import CardOut
from backend.contracts.annotations import AnnotationOut
from backend.contracts.api import CheckpointOut, JobDetailOut
from backend.contracts.backpressure import BackpressureOut
from backend.contracts.changes import ChangePointOut
from backend.contracts.history import HistoryOut
from backend.contracts.links import LinksOut
from backend.domain.observation import JobState
from dashboard import text
from dashboard.callbacks import Changes, connect
from dashboard.client import ApiClient
from dashboard.components import cards, freshness, links, micro_batch, verdict, windows
from dashboard.figures import pressure, timeline
from dashboard.figures.base import Chart
from dashboard.live import Look, digest, look_of
from dashboard.pages.job import parts, range_picker
from dashboard.pages.job.recent import annotations_card, recent_card
from dashboard.span import EPOCH, Span, epoch_ms, span_of

_CLOCK_STEP_MS = 2_000


@dataclass(frozen=True, slots=True)
class _Read:
    """The data of a job that one refresh has read."""

    job: JobDetailOut
    checkpoints: list[CheckpointOut]
    """The checkpoints in the range that the viewer chose, or the newest ones. Empty if the range is shown in steps."""
    newest: CheckpointOut | None
    """The newest checkpoint of the job, which need not be in the range."""
    as_of: datetime
    steps: HistoryOut | None
    """The range in steps, if it has many checkpoints."""
    pressure: BackpressureOut
    """The latest readings or, if a range is chosen, the readings made while the checkpoints in the range ran."""
    around: timeline.Around
    """What is drawn around the checkpoints, still without the changes of the median."""

    @property
    def is_pressure_then(self) -> bool:
        """Whether ``pressure`` has the readings of the chosen range."""
        return bool(self.pressure.series)


@dataclass(frozen=True, slots=True)
class _Shown:
    """The checkpoints of a range, and the limits of the time axis."""

    checkpoints: list[CheckpointOut]
    as_of: datetime
    steps: HistoryOut | None = None
    since: datetime | None = None
    until: datetime | None = None


def register(app: Dash, client: ApiClient) -> None:
    """Register the callback that updates the page on every tick and when the viewer changes what it shows."""
    connect(
        app,
        partial(refresh, client),
        output={
            "message": Output("job-message", "children"),
            "stale": Output("job-stale", "children"),
            "head": Output("job-head", "children"),
            "verdict": Output("job-verdict", "children"),
            "timeline": cards.chart_outputs("timeline"),
            "pressure": cards.chart_outputs("pressure"),
            "batches": micro_batch.job_outputs(),
            "legend": Output("timeline-legend", "children"),
            "changes": Output("job-changes", "children"),
            "facts": Output("job-facts", "children"),
            "recent": Output("job-recent", "children"),
            "source": Output("job-source", "children"),
            "progress_target": Output("job-progress-target", "data"),
            "title": Output("job-title", "data"),
            "pressure_hint": Output("job-pressure-hint", "children"),
            "range_words": Output("job-range-words", "children"),
            "span": Output("job-span", "data"),
            "clock": Output("job-clock", "data"),
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
            "clock": State("job-clock", "data"),
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
    before: dict[str, str] | None,
    target: dict[str, Any] | None,
    clock: int | None = None,
) -> Changes:
    """Return the contents of the page for the job in ``route``.

    ``before`` is the ``digest`` output of the previous call.
    """
    if range_picker.is_awaited(chosen_range):
        raise PreventUpdate
    view, span, is_log = look_of(look), span_of(chosen_range), log == "true"
    read = await _read(client, route["job"], span)
    changes: Changes = {}
    wanted = _progress_target(read.job, read.newest)
    if wanted != target:
        changes["progress_target"] = wanted
    # The browser needs the engine's clock to move a range. Small differences come from single readings.
    offset_ms = read.job.clock_offset_ms or 0
    if abs(offset_ms - (clock or 0)) > _CLOCK_STEP_MS:
        changes["clock"] = offset_ms
    now = _digests(read, view, span, is_log=is_log)
    if now == before:
        if changes:
            return changes
        raise PreventUpdate
    changes["message"] = None
    # The links are not in the digest: the time in them moves on, which alone is no reason to draw the page again.
    named = read.job.verdict
    subtask = named.subtasks[0] if named.vertex_id and named.subtasks else None
    out = await links.read(client, route["job"], vertex=named.vertex_id, subtask=subtask)
    drawn = _drawn(read, view, span, out)
    # Plotly needs more time than all other parts, so a chart is drawn again only if its own data has changed.
    if before and before["pressure"] == now["pressure"]:
        del drawn["pressure"]
    if not before or before["timeline"] != now["timeline"]:
        # The digest need not contain change points, because a new one appears only together with a new checkpoint.
        change_points = await client.change_points(route["job"])
        drawn["changes"] = windows.change_links(route["job"], change_points.items, read.around.events, view.where)
        drawn["timeline"] = cards.chart_values("timeline", _timeline(read, change_points.items, view, is_log=is_log))
    return changes | drawn | {"digest": now}


def _digests(read: _Read, view: Look, span: Span, *, is_log: bool) -> dict[str, str]:
    """Return a digest of what each chart shows, and one of everything that the page shows."""
    look = (view.theme.name, str(view.where), view.is_narrow, span)
    job = read.job
    open_until = job.read_at_engine if any(not c.status.is_terminal for c in read.checkpoints) else None
    around = read.around
    steps = () if read.steps is None else (read.steps,)
    shown = (*read.checkpoints, *steps, *around.events, *around.annotations)
    others = (around.usual, around.since)
    limits = (job.config, job.timeout_ms, job.interval_ms, open_until)
    return {
        "timeline": digest(*look, is_log, limits, *shown, *others),
        "pressure": digest(*look, read.pressure),
        "page": digest(
            *look,
            is_log,
            job,
            text.clock_difference(job.clock_offset_ms),
            read.pressure,
            *shown,
            *others,
        ),
    }


async def _read(client: ApiClient, job: str, span: Span) -> _Read:
    found, shown, events, applied = await asyncio.gather(
        client.job(job), _looked_at(client, job, span), client.events(job), client.applied_advice(job)
    )
    since = shown.since or min((c.triggered_at for c in shown.checkpoints), default=None)
    pressure_read, noted, usual, newest = await asyncio.gather(
        _pressure_of(client, job, shown),
        client.annotations(job, _whole_minute(since), None),
        client.usual_range(job),
        _newest(client, job, shown, is_range=not span.is_whole),
    )
    around = timeline.Around(
        events=events.items,
        annotations=sorted([*noted.items, *_applied(found, applied)], key=lambda a: a.at_engine, reverse=True),
        usual=usual.usual,
        since=shown.since,
        until=shown.until,
    )
    return _Read(found, shown.checkpoints, newest, shown.as_of, shown.steps, pressure_read, around)


async def _newest(client: ApiClient, job: str, shown: _Shown, *, is_range: bool) -> CheckpointOut | None:
    if is_range:
        return await client.newest_checkpoint_or_none(job)
    return shown.checkpoints[0] if shown.checkpoints else None


def _whole_minute(at: datetime | None) -> datetime | None:
    # Each new checkpoint moves the start of the newest ones. The start is rounded, so that requests repeat and are
    # answered from the cache.
    return None if at is None else at.replace(second=0, microsecond=0)


def _applied(job: JobDetailOut, cards_: Sequence[CardOut]) -> list[AnnotationOut]:
    """Return the applied recommendations as annotations."""
    offset = timedelta(milliseconds=job.clock_offset_ms or 0)
    return [
        AnnotationOut(
            id=card.id,
            job_id=job.id,
            at=card.applied_at,
            until=None,
            at_engine=card.applied_at + offset,
            until_engine=None,
            text=f"advice applied: {card.recommendation.headline}",
            link=None,
            tags=["advice"],
            author=_applied_by(card, card.applied_at),
            added_at=card.applied_at,
        )
        for card in cards_
        if card.applied_at is not None
    ]


def _applied_by(card: CardOut, at: datetime) -> str | None:
    """Return who last sent the change before it was in force; None if no name was given or nothing was sent."""
    sent = [e for e in card.history if e.kind.is_apply and e.at <= at]
    return max(sent, key=lambda e: e.at).author if sent else None


def _timeline(read: _Read, change_points: Sequence[ChangePointOut], view: Look, *, is_log: bool) -> Chart:
    job = read.job
    timeout_ms = job.config.timeout_ms if job.config else job.timeout_ms
    interval_ms = job.config.interval_ms if job.config else job.interval_ms
    if read.steps is not None:
        return timeline.timeline_in_steps(
            read.steps,
            read.around,
            theme=view.theme,
            where=view.where,
            timeout_ms=timeout_ms,
            interval_ms=interval_ms,
            is_log=is_log,
            revision=job.id,
        )
    return timeline.timeline(
        read.checkpoints,
        replace(read.around, changes=change_points),
        theme=view.theme,
        where=view.where,
        timeout_ms=timeout_ms,
        interval_ms=interval_ms,
        # A checkpoint in progress is drawn with its duration at the last reading, because it may have ended after
        # that reading. Its trigger is on the engine's clock.
        now=job.read_at_engine or read.as_of,
        is_log=is_log,
        revision=job.id,
    )


def _drawn(read: _Read, view: Look, span: Span, out: LinksOut | None) -> Changes:
    """Return the contents of all parts except the timeline."""
    job, checkpoints, around = read.job, read.checkpoints, read.around
    pressed = pressure.along if read.is_pressure_then else pressure.backpressure
    events = [e for e in around.events if span.holds(e.at)]
    engine, is_range = job.capabilities, not span.is_whole
    if read.steps is not None:
        said = range_picker.step_words(read.steps, view.where, is_of_batches=engine.is_micro_batched)
    else:
        said = range_picker.words(checkpoints, view.where, is_range=is_range, is_of_batches=engine.is_micro_batched)
    return {
        "stale": freshness.note(job.freshness, "This job"),
        "head": parts.head(job),
        "verdict": verdict.verdict_card(
            job.verdict,
            engine=engine,
            tone_of=job.health,
            is_past=freshness.is_past(job.freshness),
            beside=[*parts.growth(job), parts.pressure_link(job, read.checkpoints, span)],
            below=[row for row in (links.row(out),) if row is not None],
            has_evidence=True,
        ),
        "pressure": cards.chart_values("pressure", pressed(read.pressure, theme=view.theme, is_narrow=view.is_narrow)),
        "batches": micro_batch.job_values(job, theme=view.theme, has_pressure=bool(read.pressure.vertices)),
        "legend": parts.timeline_legend(engine, checkpoints) if read.steps is None else parts.steps_legend(),
        "facts": parts.facts(job),
        "source": parts.source(job),
        "recent": [
            recent_card(checkpoints, events, view.where, engine=engine, is_range=is_range),
            annotations_card([a for a in around.annotations if _overlaps(a, span)], view.where),
        ],
        "title": job.name,
        "pressure_hint": parts.PRESSURE_THEN if read.is_pressure_then else parts.PRESSURE_NOW,
        "range_words": said,
        "span": _ends(read),
    }


def _overlaps(annotation: AnnotationOut, span: Span) -> bool:
    end = annotation.until_engine or annotation.at_engine
    return (span.since is None or end >= span.since) and (span.until is None or annotation.at_engine <= span.until)


async def _looked_at(client: ApiClient, job: str, span: Span) -> _Shown:
    """Return the checkpoints in the range, or its steps if they are many. Without a range, return the newest ones."""
    if span.is_whole:
        page = await client.checkpoints(job)
        return _Shown(page.items, page.as_of)
    history = await client.history(job, span.since, span.until)
    # An unlimited range begins with the job's first checkpoint.
    since = history.since if span.since is None or span.since == EPOCH else span.since
    steps = history if history.resolution == "steps" else None
    return _Shown(history.checkpoints, history.as_of, steps, since, span.until or history.until)


async def _pressure_of(client: ApiClient, job: str, shown: _Shown) -> BackpressureOut:
    """Return the backpressure of the time in which the checkpoints of the range ran.

    Without a range, and for a range in steps, which may have very many readings, return the latest readings.
    """
    if shown.since is None or not shown.checkpoints:
        return await client.backpressure(job)
    since = min(c.triggered_at for c in shown.checkpoints)
    ends = [_ended(c) for c in shown.checkpoints]
    known = [end for end in ends if end is not None]
    # The API excludes the end of the range. The additional 1 ms makes the range non-empty even for a checkpoint of 0
    # ms. If a checkpoint is in progress, the range has no end: the API ends it now, on the engine's clock.
    until = max(known) + timedelta(milliseconds=1) if len(known) == len(ends) else None
    return await client.backpressure(job, since, until)


def _ended(checkpoint: CheckpointOut) -> datetime | None:
    """Return when the checkpoint ended, or None if it is in progress."""
    if checkpoint.end_to_end_duration_ms is not None:
        return checkpoint.triggered_at + timedelta(milliseconds=checkpoint.end_to_end_duration_ms)
    return checkpoint.failed_at or (checkpoint.triggered_at if checkpoint.is_lost else None)


def _ends(read: _Read) -> dict[str, int] | None:
    """Return the range that the time axis shows, in epoch milliseconds."""
    times = [c.triggered_at for c in read.checkpoints]
    since, until = read.around.since or min(times, default=None), read.around.until or max(times, default=None)
    return None if since is None or until is None else {"since": epoch_ms(since), "until": epoch_ms(until)}


def _progress_target(job: JobDetailOut, newest: CheckpointOut | None) -> dict[str, object] | None:
    if not job.capabilities.has_barriers:
        return None
    if job.in_progress_checkpoint_id is not None:
        return {"job": job.id, "run": job.run_id, "checkpoint": job.in_progress_checkpoint_id}
    if newest is None:
        return None
    # No later checkpoint of an ended job replaces this one.
    is_last = {"is_last": True} if job.state is JobState.ENDED else {}
    phases = {"phases": _phases(newest)} if newest.status.is_terminal else {}
    return {"job": job.id, "run": newest.run_id, "checkpoint": newest.checkpoint_id, **is_last, **phases}


def _phases(newest: CheckpointOut) -> list[list[str]]:
    """Return the largest value of each phase of a checkpoint that has ended, with its label."""
    found = {
        "Start delay, max": text.duration(newest.start_delay_max_ms),
        "Alignment, max": text.duration(newest.alignment_max_ms),
        "Sync, max": text.duration(newest.sync_max_ms),
        "Async, max": text.duration(newest.async_max_ms),
        "Persisted in-flight": text.size(newest.persisted_bytes),
    }
    return [[word, text.bounded(said, is_lower_bound=newest.is_lower_bound)] for word, said in found.items()]
