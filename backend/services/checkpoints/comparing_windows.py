"""Compares the checkpoints of a job in two windows of time, and lists what changed in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

import anyio.to_thread
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.analysis.windows import (
    MEDIAN_MIN_COUNT,
    Distribution,
    Tally,
    change,
    distribution,
    failure_change,
    headline,
)
from backend.contracts.comparing_windows import (
    ChangeOut,
    DirectionOut,
    DistributionOut,
    WindowEventOut,
    WindowMeasureOut,
    WindowOut,
    WindowsComparisonOut,
)
from backend.domain.checkpoint import CheckpointConfig, CheckpointStatus
from backend.domain.clock import Clock
from backend.domain.errors import FieldProblem, InvalidInputError
from backend.domain.rollup import Measure
from backend.domain.topology import Topology
from backend.services.checkpoints.comparing import settings_of, settings_out
from backend.store.advice.cards import list_cards
from backend.store.checkpoints.windows import WindowCheckpoint, WindowCounts, window_checkpoints, window_counts
from backend.store.jobs.annotations import list_annotations
from backend.store.jobs.reader import JobRecord, get_job, list_events, list_runs, shape_at
from backend.store.postgres.connections import reading

CONSIDERED_MAX: Final = 10_000
"""The measures of at most this many checkpoints are read for each window: the newest ones."""
_LONGEST: Final = timedelta(days=400)
_EVENTS_MAX: Final = 100
_CARDS_MAX: Final = 50
_RUNS_MAX: Final = 200
# Between these phases, the headline names the one that changed most.
_PHASES: Final = (Measure.START_DELAY, Measure.ALIGNMENT, Measure.SYNC, Measure.ASYNC)


@dataclass(frozen=True, slots=True)
class Window:
    """A range of trigger times, from ``since`` until before ``until``."""

    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class ReadWindow:
    """A window with its checkpoints, the newest first, and the graph and the settings at its end."""

    window: Window
    counts: WindowCounts
    checkpoints: Sequence[WindowCheckpoint]
    topology: Topology
    config: CheckpointConfig | None


class WindowComparisonService:
    """Handles requests to compare windows."""

    def __init__(self, engine: AsyncEngine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    async def of(self, job_id: str, before: Window, after: Window) -> WindowsComparisonOut:
        """Return the comparison of two windows.

        Raises:
            UnknownEntityError: there is no such job.
            InvalidInputError: a window ends before it begins, is empty or is longer than 400 days, or the second one
                begins before the first one ends.
        """
        _check(before, after)
        async with reading(self._engine) as connection:
            job = await get_job(connection, job_id)
            first, second = await _read(connection, job, before), await _read(connection, job, after)
            events = await _events(connection, job, before, after)
        return await anyio.to_thread.run_sync(
            lambda: compared_windows(job, first, second, events, as_of=self._clock.now())
        )


def around(at: datetime, width: timedelta) -> tuple[Window, Window]:
    """Return the windows of this width before and after an instant."""
    return Window(at - width, at), Window(at, at + width)


def _check(before: Window, after: Window) -> None:
    problems = []
    for name, window in (("before", before), ("after", after)):
        if window.since >= window.until:
            what = f"{window.since.isoformat()} is not before {window.until.isoformat()}"
            problems.append(FieldProblem(f"{name}_from", what, f"an instant before `{name}_to`"))
        elif window.until - window.since > _LONGEST:
            what = f"{window.since.isoformat()} is too far before {window.until.isoformat()}"
            problems.append(FieldProblem(f"{name}_from", what, f"{_LONGEST.days} days at most"))
    if not problems and after.since < before.until:
        what = f"{after.since.isoformat()} is before {before.until.isoformat()}"
        problems.append(FieldProblem("after_from", what, "an instant at or after `before_to`"))
    if problems:
        raise InvalidInputError(problems, what="query")


async def _read(connection: AsyncConnection, job: JobRecord, window: Window) -> ReadWindow:
    counts = await window_counts(connection, job.id, window.since, window.until)
    found = await window_checkpoints(connection, job.id, window.since, window.until, limit=CONSIDERED_MAX)
    runs = await list_runs(connection, job.id, before=None, limit=_RUNS_MAX)
    # The graph and the settings come from the newest run that began before the end of the window.
    run = next((r for r in runs if r.started_at < window.until), runs[-1] if runs else job.run)
    # The end is excluded: settings that changed at that instant belong to the time after the window.
    shape = await shape_at(connection, run.id, window.until - timedelta(milliseconds=1) - job.reading_offset)
    return ReadWindow(window, counts, found, shape.topology, shape.config)


async def _events(connection: AsyncConnection, job: JobRecord, before: Window, after: Window) -> list[WindowEventOut]:
    since, until = before.since, after.until

    def place(at: datetime) -> Literal["before", "between", "after"]:
        return "before" if at < before.until else "after" if at >= after.since else "between"

    found = [
        WindowEventOut(at=e.at, kind=e.kind.value, text=e.text, place=place(e.at))
        for e in await list_events(connection, job.id, before=(until, "", "", ""), limit=_EVENTS_MAX)
        if e.at >= since
    ]
    for card in await list_cards(connection, job.id, limit=_CARDS_MAX):
        # The times of recommendations are on our clock, so they are converted to the engine's clock.
        at = None if card.applied_at is None else job.engine_now(card.applied_at)
        if at is not None and since <= at < until:
            words = str(card.document.get("headline", card.kind))
            found.append(WindowEventOut(at=at, kind="advice-applied", text=words, place=place(at)))
    notes = await list_annotations(connection, job.id, since, until, before=None, limit=_EVENTS_MAX)
    found += [
        WindowEventOut(at=n.at_engine, kind="annotation", text=n.text, place=place(n.at_engine), link=n.link)
        for n in notes
        if n.at_engine >= since
    ]
    return sorted(found, key=lambda e: e.at)[-_EVENTS_MAX:]


def compared_windows(
    job: JobRecord, before: ReadWindow, after: ReadWindow, events: Sequence[WindowEventOut], *, as_of: datetime
) -> WindowsComparisonOut:
    """Compare two windows that were read."""
    both = {m: (_distribution(before, m), _distribution(after, m)) for m in Measure}
    tallies = _tally(before), _tally(after)
    medians = {
        m: change(None if a is None else a.median, None if b is None else b.median) for m, (a, b) in both.items()
    }
    durations = both[Measure.DURATION]
    return WindowsComparisonOut(
        job_id=job.id,
        job=job.name,
        capabilities=job.run.engine,
        headline=headline(durations, [(m, medians[m]) for m in _PHASES], tallies),
        is_too_few=min(0 if d is None else d.count for d in durations) < MEDIAN_MIN_COUNT,
        before=_window_out(before),
        after=_window_out(after),
        failures=DirectionOut(failure_change(*tallies)),
        measures=[
            WindowMeasureOut(
                measure=m,
                unit="bytes" if m.value.endswith("_bytes") else "ms",
                before=None if a is None else DistributionOut.model_validate(a),
                after=None if b is None else DistributionOut.model_validate(b),
                median=ChangeOut.model_validate(medians[m]),
                p95=ChangeOut.model_validate(change(None if a is None else a.p95, None if b is None else b.p95)),
            )
            for m, (a, b) in both.items()
            if a is not None or b is not None
        ],
        settings=settings_out(settings_of(before.config, before.topology), settings_of(after.config, after.topology)),
        events=list(events),
        as_of=as_of,
    )


def _distribution(window: ReadWindow, measure: Measure) -> Distribution | None:
    done = [c.values[measure] for c in window.checkpoints if c.status is CheckpointStatus.COMPLETED]
    expired = [c.values[measure] for c in window.checkpoints if c.is_expired and measure is Measure.DURATION]
    return distribution([v for v in done if v is not None], [v for v in expired if v is not None])


def _tally(window: ReadWindow) -> Tally:
    return Tally(window.counts.completed_count, window.counts.failed_count)


def _window_out(read: ReadWindow) -> WindowOut:
    tally, hours = _tally(read), (read.window.until - read.window.since) / timedelta(hours=1)
    return WindowOut(
        since=read.window.since,
        until=read.window.until,
        completed_count=tally.completed_count,
        failed_count=tally.failed_count,
        failed_ratio=tally.failed_ratio,
        failed_per_h=tally.failed_count / hours,
        failed_by_reason=dict(read.counts.failed_by_reason),
        considered_count=len(read.checkpoints),
        is_capped=tally.ended_count > len(read.checkpoints),
    )
