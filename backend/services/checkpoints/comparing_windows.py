"""Compares the checkpoints in two windows of time, of one job or of two. Of one job, it lists what changed in between.

The window *after* is the side ``a`` of a request for any two sides, and *before* is its side ``b``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

import anyio.to_thread
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.analysis.assembling import LOST_AFTER
from backend.analysis.measures.matching import Matched, matched
from backend.analysis.measures.windows import (
    MEDIAN_MIN_COUNT,
    Distribution,
    Names,
    Tally,
    change,
    distribution,
    distribution_of,
    failure_change,
    headline,
)
from backend.contracts.comparing import LoadPairOut
from backend.contracts.comparing_windows import (
    ChangeOut,
    DirectionOut,
    DistributionOut,
    WindowEventOut,
    WindowMeasureOut,
    WindowOut,
    WindowsComparisonOut,
)
from backend.contracts.freshness import FreshnessOut
from backend.domain.checkpoint import CheckpointConfig, CheckpointStatus
from backend.domain.clock import Clock
from backend.domain.errors import FieldProblem, InvalidInputError
from backend.domain.ids import VertexId
from backend.domain.observation import JobState
from backend.domain.rollup import Measure
from backend.domain.topology import Topology, Vertex
from backend.services.checkpoints.compared_jobs import (
    LOAD_READINGS_MAX,
    ComparedJob,
    job_out,
    load_out,
    names_of,
    settings_out,
)
from backend.services.jobs.freshness import FINAL, freshness_now
from backend.store.advice.cards import list_cards
from backend.store.checkpoints.windows import (
    WindowCheckpoint,
    WindowCounts,
    has_open,
    window_checkpoints,
    window_counts,
)
from backend.store.jobs.annotations import list_annotations
from backend.store.jobs.changes import reading_time
from backend.store.jobs.pressure import WindowLoad, window_loads
from backend.store.jobs.reader import JobRecord, RunRecord, get_job, list_events, list_runs, shape_at
from backend.store.postgres.connections import reading
from backend.store.rollups.history import RolledUp, first_instants, rolled_up

CONSIDERED_MAX: Final = 10_000
"""The measures of at most this many checkpoints are read for each window: the newest ones."""
_LONGEST: Final = timedelta(days=400)
_DAY: Final = timedelta(days=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_CLOCKS_KNOWN_TO: Final = timedelta(seconds=1)
# Finding the instants of the readings of a longer time would take long for a large job.
_LOAD_LONGEST: Final = timedelta(hours=1)
_EVENTS_MAX: Final = 100
_CARDS_MAX: Final = 50
_RUNS_MAX: Final = 200
# Between these phases, the headline names the one that changed most.
_PHASES: Final = (Measure.START_DELAY, Measure.ALIGNMENT, Measure.SYNC, Measure.ASYNC)


@dataclass(frozen=True, slots=True)
class Window:
    """A range of trigger times, from ``since`` until before ``until``, on the clock of the engine."""

    since: datetime
    until: datetime

    def moved(self, by: timedelta) -> Window:
        """Return the window that begins and ends later by this time."""
        return Window(self.since + by, self.until + by)


@dataclass(frozen=True, slots=True)
class ReadWindow:
    """A window with its checkpoints, the newest first, and the graph and the settings at its end.

    If the checkpoints are no longer stored, ``rolled_up`` is what the rollups have of the window.
    """

    window: Window
    job: JobRecord
    run: RunRecord
    counts: WindowCounts
    checkpoints: Sequence[WindowCheckpoint]
    topology: Topology
    config: CheckpointConfig | None
    loads: Mapping[VertexId, WindowLoad] = field(default_factory=dict)
    rolled_up: RolledUp | None = None
    is_stored: bool = True
    freshness: FreshnessOut | None = None

    @property
    def side(self) -> ComparedJob:
        """The job at the end of the window."""
        return ComparedJob.of(self.job, self.run, self.config, self.topology)


class WindowComparisonService:
    """Handles requests to compare windows."""

    def __init__(self, engine: AsyncEngine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    async def of(self, job_id: str, before: Window, after: Window) -> WindowsComparisonOut:
        """Return the comparison of two windows of one job.

        Raises:
            UnknownEntityError: there is no such job.
            InvalidInputError: a window ends before it begins, is empty or is longer than 400 days, or the second one
                begins before the first one ends.
        """
        _check({"before": before, "after": after})
        _check_order(before, after, ("after_from", "before_to"))
        async with reading(self._engine) as connection:
            job = await get_job(connection, job_id)
            return await self._compared(connection, (job, before), (job, after))

    async def of_sides(
        self, a: str, b: str, windows: tuple[Window | None, Window | None], *, width: timedelta
    ) -> WindowsComparisonOut:
        """Return the comparison of a window of the job ``a`` with one of the job ``b``, which may be the same job.

        Without a window of ``a``, it is the time of this width up to now. Without one of ``b``, it is the same time of
        the other job or, of the same job, the same time one day earlier; if a day is shorter than the window, the time
        before it.

        Raises:
            UnknownEntityError: there is no such job.
            InvalidInputError: as for ``of``.
        """
        _check({name: w for name, w in zip("ab", windows, strict=True) if w is not None})
        async with reading(self._engine) as connection:
            job = await get_job(connection, a)
            other = job if a == b else await get_job(connection, b)
            now = job.engine_now(self._clock.now()).replace(microsecond=0)
            own = windows[0] or Window(now - width, now)
            beside = windows[1]
            if beside is None:
                clocks = timedelta(milliseconds=(other.clock_offset_ms or 0) - (job.clock_offset_ms or 0))
                beside = own.moved(-max(_DAY, own.until - own.since) if a == b else clocks)
            if a == b:
                _check_order(beside, own, ("a_from", "b_to"))
            return await self._compared(connection, (other, beside), (job, own))

    async def _compared(
        self, connection: AsyncConnection, before: tuple[JobRecord, Window], after: tuple[JobRecord, Window]
    ) -> WindowsComparisonOut:
        now = self._clock.now()
        first, second = await _read(connection, *before, now), await _read(connection, *after, now)
        is_one_job = first.job.id == second.job.id
        events = await _events(connection, first.job, first.window, second.window) if is_one_job else []
        return await anyio.to_thread.run_sync(lambda: compared_windows(first, second, events, as_of=now))


def around(at: datetime, width: timedelta) -> tuple[Window, Window]:
    """Return the windows of this width before and after an instant."""
    return Window(at - width, at), Window(at, at + width)


def _check(windows: Mapping[str, Window]) -> None:
    problems = []
    for name, window in windows.items():
        if window.since >= window.until:
            what = f"{window.since.isoformat()} is not before {window.until.isoformat()}"
            problems.append(FieldProblem(f"{name}_from", what, f"an instant before `{name}_to`"))
        elif window.until - window.since > _LONGEST:
            what = f"{window.since.isoformat()} is too far before {window.until.isoformat()}"
            problems.append(FieldProblem(f"{name}_from", what, f"{_LONGEST.days} days at most"))
    if problems:
        raise InvalidInputError(problems, what="query")


def _check_order(before: Window, after: Window, names: tuple[str, str]) -> None:
    if after.since < before.until:
        what = f"{after.since.isoformat()} is before {before.until.isoformat()}"
        raise InvalidInputError([FieldProblem(names[0], what, f"an instant at or after `{names[1]}`")], what="query")


async def _read(connection: AsyncConnection, job: JobRecord, window: Window, now: datetime) -> ReadWindow:
    counts = await window_counts(connection, job.id, window.since, window.until)
    checkpoints = await window_checkpoints(connection, job.id, window.since, window.until, limit=CONSIDERED_MAX)
    runs = await list_runs(connection, job.id, before=None, limit=_RUNS_MAX)
    # The graph and the settings come from the newest run that began before the end of the window.
    run = next((r for r in runs if r.started_at < window.until), None)
    # Settings that changed at the end belong to the time after the window. The clocks are known to about a second.
    end = window.until - min(_CLOCKS_KNOWN_TO, (window.until - window.since) / 2)
    shape = None
    if run is not None:
        read_at = await reading_time(connection, run.id, end, job.reading_offset)
        shape = await shape_at(connection, run.id, read_at)
    loads: Mapping[VertexId, WindowLoad] = {}
    if run is not None:
        since = max(window.since, run.started_at, end - _LOAD_LONGEST) - job.reading_offset
        loads = await window_loads(connection, run.id, since, end - job.reading_offset, limit=LOAD_READINGS_MAX)
    rollups = None
    if not checkpoints:
        rollups = await rolled_up(connection, job.id, window.since, window.until)
    return ReadWindow(
        window,
        job,
        run or job.run,
        counts if rollups is None else WindowCounts(rollups.completed_count, rollups.failed_by_reason),
        checkpoints,
        Topology(()) if shape is None else shape.topology,
        None if shape is None else shape.config,
        loads,
        rollups,
        is_stored=bool(checkpoints) or rollups is not None or await _was_read(connection, job, window),
        freshness=FINAL if await _is_final(connection, job, window) else await freshness_now(connection, job, now),
    )


async def _is_final(connection: AsyncConnection, job: JobRecord, window: Window) -> bool:
    """Return whether nothing about the checkpoints of a window will change any more."""
    if window.until > job.read_at_engine:
        return False
    if job.run.state is JobState.ENDED:
        return True
    seen_since = job.run.observed_at - LOST_AFTER
    return not await has_open(connection, job.run.id, window.since, window.until, seen_since=seen_since)


async def _was_read(connection: AsyncConnection, job: JobRecord, window: Window) -> bool:
    """Return whether the job was read in a window without checkpoints, so that there were none."""
    if window.since >= job.read_at_engine:
        return False
    first, hour = await first_instants(connection, job.id, _EPOCH, window.until)
    return first is not None or hour is not None


async def _events(connection: AsyncConnection, job: JobRecord, before: Window, after: Window) -> list[WindowEventOut]:
    since, until = before.since, after.until

    def place(at: datetime) -> Literal["before", "between", "after"]:
        return "before" if at < before.until else "after" if at >= after.since else "between"

    events = [
        WindowEventOut(at=e.at, kind=e.kind.value, text=e.text, place=place(e.at))
        for e in await list_events(connection, job.id, before=(until, "", "", ""), limit=_EVENTS_MAX)
        if e.at >= since
    ]
    for card in await list_cards(connection, job.id, limit=_CARDS_MAX):
        # The times of recommendations are on our clock, so they are converted to the engine's clock.
        at = None if card.applied_at is None else job.engine_now(card.applied_at)
        if at is not None and since <= at < until:
            words = str(card.document.get("headline", card.kind))
            events.append(WindowEventOut(at=at, kind="advice-applied", text=words, place=place(at)))
    notes = await list_annotations(connection, job.id, since, until, before=None, limit=_EVENTS_MAX)
    events += [
        WindowEventOut(at=n.at_engine, kind="annotation", text=n.text, place=place(n.at_engine), link=n.link)
        for n in notes
        if n.at_engine >= since
    ]
    return sorted(events, key=lambda e: e.at)[-_EVENTS_MAX:]


def compared_windows(
    before: ReadWindow, after: ReadWindow, events: Sequence[WindowEventOut], *, as_of: datetime
) -> WindowsComparisonOut:
    """Compare two windows that were read."""
    both = {m: (_distribution(before, m), _distribution(after, m)) for m in Measure}
    tallies = _tally(before), _tally(after)
    medians = {
        m: change(None if a is None else a.median, None if b is None else b.median) for m, (a, b) in both.items()
    }
    durations = both[Measure.DURATION]
    job, names = after.job, _names(before, after)
    pairs = matched(after.topology, before.topology, is_same_job=names is None)
    words = names or Names()
    labels = names_of(before.side, after.side) or (words.before, words.after)
    return WindowsComparisonOut(
        job_id=job.id,
        job=job.name,
        capabilities=after.run.engine,
        headline=_not_stored(before, after, words)
        or headline(durations, [(m, medians[m]) for m in _PHASES], tallies, names),
        is_too_few=min(0 if d is None else d.count for d in durations) < MEDIAN_MIN_COUNT,
        before=_window_out(before, labels[0], pairs.only_second),
        after=_window_out(after, labels[1], pairs.only_first),
        failures=DirectionOut(failure_change(*tallies)),
        measures=[
            WindowMeasureOut(
                measure=m,
                unit="bytes" if m.value.endswith("_bytes") else "ms",
                before=None if a is None else DistributionOut.model_validate(a),
                after=None if b is None else DistributionOut.model_validate(b),
                median=ChangeOut.model_validate(medians[m]),
                p95=ChangeOut.model_validate(change(None if a is None else a.p95, None if b is None else b.p95)),
                p99=ChangeOut.model_validate(change(None if a is None else a.p99, None if b is None else b.p99)),
            )
            for m, (a, b) in both.items()
            if a is not None or b is not None
        ],
        settings=settings_out(before.side, after.side, (pairs.only_second, pairs.only_first)),
        loads=_loads(before, after, pairs),
        events=list(events),
        as_of=as_of,
    )


def _names(before: ReadWindow, after: ReadWindow) -> Names | None:
    """Return how sentences call the windows of two jobs, or None for those of one job."""
    names = names_of(before.side, after.side)
    return None if names is None else Names(f"in {names[0]}", f"in {names[1]}", "differs", "difference")


def _not_stored(before: ReadWindow, after: ReadWindow, words: Names) -> str | None:
    missing = [word for read, word in ((before, words.before), (after, words.after)) if not read.is_stored]
    if not missing:
        return None
    return f"Nothing is stored of the time {' and '.join(missing)}, so the windows cannot be compared."


def _loads(before: ReadWindow, after: ReadWindow, pairs: Matched) -> list[LoadPairOut]:
    mine = {pairs.ids.get(v, v): load for v, load in before.loads.items()}
    names = {pairs.ids.get(v.id, v.id): v.name for v in before.topology.vertices}
    names |= {v.id: v.name for v in after.topology.vertices}
    order = [*(v.id for v in after.topology.vertices), *names, *mine, *after.loads]
    return [
        LoadPairOut(vertex_id=v, vertex=names.get(v, v), a=load_out(mine.get(v)), b=load_out(after.loads.get(v)))
        for v in dict.fromkeys(order)
        if v in mine or v in after.loads
    ]


def _distribution(window: ReadWindow, measure: Measure) -> Distribution | None:
    if window.rolled_up is not None:
        rolled = window.rolled_up
        return distribution_of(rolled.buckets, rolled.expired_min_ms) if measure is Measure.DURATION else None
    done = [c.values[measure] for c in window.checkpoints if c.status is CheckpointStatus.COMPLETED]
    expired = [c.values[measure] for c in window.checkpoints if c.is_expired and measure.is_censored]
    return distribution([v for v in done if v is not None], [v for v in expired if v is not None])


def _tally(window: ReadWindow) -> Tally:
    return Tally(window.counts.completed_count, window.counts.failed_count)


def _window_out(read: ReadWindow, name: str, only: Sequence[Vertex]) -> WindowOut:
    tally, hours = _tally(read), (read.window.until - read.window.since) / timedelta(hours=1)
    considered = len(read.checkpoints) if read.rolled_up is None else tally.ended_count
    return WindowOut(
        name=name,
        job=job_out(read.side, only),
        since=read.window.since,
        until=read.window.until,
        completed_count=tally.completed_count,
        failed_count=tally.failed_count,
        failed_ratio=tally.failed_ratio,
        failed_per_h=tally.failed_count / hours,
        failed_by_reason=dict(read.counts.failed_by_reason),
        considered_count=considered,
        is_capped=tally.ended_count > considered,
        is_stored=read.is_stored,
        source="checkpoints" if read.rolled_up is None else "rollups",
        freshness=read.freshness,
    )
