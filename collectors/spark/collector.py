"""Reads Spark applications from a source of event logs: a history server, or a folder.

One poll lists the applications. The log of an application is read if it has grown. Logs are read one after the other,
by a task that may take longer than a poll. Three limits protect a server: all logs together take at most
``rate_bytes_per_s`` on average, an application without queries is looked at less and less often, and so is one whose
log could not be read.

Invariant: the memory changes only when a reading has ended, and what was found is handed on once.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

import structlog

from backend.domain.clock import to_epoch_ms
from backend.domain.errors import TargetProtocolError, TargetUnavailableError
from backend.domain.ids import EngineRunId, TargetId
from backend.domain.observation import NOT_LISTED, JobObservation, JobState, Observation
from collectors.base import Effort, KnownRuns
from collectors.spark.applications import Attempt
from collectors.spark.log_source import LogFailedError, LogSource
from collectors.spark.read_application import ReadApplication

_log = structlog.get_logger(__name__)

_LOOKED_UP_MAX: Final = 20
_LOOKED_UP_AGAIN_S: Final = 30.0
_SKEW_MS: Final = 300_000
_ABSENT: Final = "no application that is listed has this query, so it is not known whether it still runs"


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The limits of a collector of event logs.

    Applications that ended more than ``ended_within_s`` ago are not listed, and running ones whose log has not grown
    for that long are not read when they are first seen. A poll waits up to ``wait_s`` for logs that are being read. A
    server that lists nothing is taken for one that has just started for ``empty_s``. A run has ended once no
    application that is listed has had it for ``absent_s``. ``is_dated_by_list`` takes the newest time in the list for
    the time of the poll. ``reads_all_running`` reads running applications of any age.
    """

    ended_within_s: float = 3600.0
    wait_s: float = 10.0
    rate_bytes_per_s: float = 4 * 2**20
    quiet_first_s: float = 30.0
    quiet_most_s: float = 900.0
    empty_s: float = 120.0
    absent_s: float = 600.0
    is_dated_by_list: bool = False
    reads_all_running: bool = False


@dataclass(slots=True)
class _App:
    """An attempt of an application, and when its log is due. ``read_ms`` is ``updated_ms`` of the log that was read.

    ``absent_since_s`` is since when it is neither listed nor found by its id, ``asked_s`` when it was last asked for.
    """

    listed: Attempt
    read: ReadApplication
    read_ms: int | None = None
    size_bytes: int = 0
    due_s: float = 0.0
    quiet_s: float = 0.0
    failures: int = 0
    absent_since_s: float | None = None
    asked_s: float = -math.inf

    @property
    def has_ended(self) -> bool:
        return self.listed.ended_at is not None

    @property
    def is_read(self) -> bool:
        return self.read_ms == self.listed.updated_ms


Start = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
"""Starts a task that somebody awaits."""


@asynccontextmanager
async def tasks() -> AsyncIterator[Start]:
    """Yield what starts tasks. They are awaited when the context ends. An error of the context is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group.create_task
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


@dataclass(slots=True)
class LogCollector:
    """Implements ``Collector`` for event logs of Spark. ``start`` starts a task; ``close`` ends it."""

    source: LogSource
    target_id: TargetId
    known: KnownRuns
    monotonic_s: Callable[[], float]
    start: Start
    options: LogOptions = field(default_factory=LogOptions)
    _apps: dict[tuple[str, str], _App] = field(default_factory=dict)
    _open: dict[tuple[EngineRunId, datetime], str] = field(default_factory=dict)
    _newest: dict[str, int] = field(default_factory=dict)
    _absent_since_s: dict[tuple[EngineRunId, datetime], float] = field(default_factory=dict)
    _reading: asyncio.Task[None] | None = None
    _empty_since_s: float | None = None

    def __post_init__(self) -> None:
        self._open = {key: run.name for key, run in self.known.items()}
        newest = {key[0]: run.newest_id for key, run in self.known.items()}
        self._newest = {run: number for run, number in newest.items() if number is not None}

    @property
    def poll_within_s(self) -> float | None:
        """None: a history server keeps its logs."""
        return None

    def forget(self) -> None:
        """Read everything again at the next poll."""
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        self._apps = {}
        self._newest = {}
        self._absent_since_s = {}

    def close(self) -> None:
        """End the reading of logs."""
        if self._reading is not None:
            self._reading.cancel()

    async def collect(self, now: datetime, *, effort: Effort = Effort.FULL) -> Observation:
        """List the applications, and hand on what was read of their logs by then. ``effort`` is ignored."""
        began_s = self.monotonic_s()
        listed = await self.source.list_since(now - timedelta(seconds=self.options.ended_within_s))
        return await self.observe(listed, now, began_s)

    @property
    def application_count(self) -> int:
        """The number of applications that are listed."""
        return len({app.listed.app_id for app in self._apps.values()})

    @property
    def streaming_count(self) -> int:
        """The number of applications in which a query was seen."""
        return sum(app.read.is_streaming for app in self._apps.values())

    @property
    def unread_count(self) -> int:
        """The number of applications whose logs were not read yet."""
        return sum(app.read_ms is None for app in self._apps.values())

    async def observe(self, listed: list[Attempt], now: datetime, began_s: float) -> Observation:
        """Read what has grown of the listed applications, and return what is new.

        The ages of logs are judged on the clock that dates them.
        """
        ahead = timedelta(0) if self.options.is_dated_by_list else self.source.clock_ahead
        await self._must_be_known(listed)
        await self._note(listed, now + ahead)
        if self._reading is None or self._reading.done():
            due = self._due(now)
            self._reading = self.start(self._read_all(due)) if due else None
        if self._reading is not None:
            await asyncio.wait({self._reading}, timeout=self.options.wait_s)
        self._raise_if_nothing_is_readable()
        jobs = self._jobs(now + ahead)
        duration_ms = round(1000 * (self.monotonic_s() - began_s))
        return Observation(
            target_id=self.target_id,
            observed_at=now,
            engine=self.source.engine,
            engine_version=self.source.version,
            jobs=tuple(jobs),
            cost=self.source.cost.taken(duration_ms),
            clock_offset_ms=round(ahead / timedelta(milliseconds=1)),
            left_out=self.source.problem,
        )

    async def _must_be_known(self, listed: list[Attempt]) -> None:
        """Raise an error if nothing is listed although queries were open: the source may have just started."""
        if listed or not self._open:
            self._empty_since_s = None
            return
        await self.source.check()
        now_s = self.monotonic_s()
        self._empty_since_s = now_s if self._empty_since_s is None else self._empty_since_s
        if self._empty_since_s + self.options.empty_s > now_s:
            self._absent_since_s = {}
            for app in self._apps.values():
                app.absent_since_s = None
            reason = "it lists no application, as a history server does that has just started"
            raise TargetUnavailableError(url=self.source.url, reason=reason)

    async def _note(self, listed: list[Attempt], now: datetime) -> None:
        """Take over the list. An application that was running and is not listed is asked for by its id."""
        known = {attempt.key: attempt for attempt in listed}
        known |= await self._looked_up(known)
        oldest_ms = to_epoch_ms(now - timedelta(seconds=self.options.ended_within_s))
        for key, attempt in known.items():
            app = self._apps.get(key)
            if app is not None:
                app.listed, app.absent_since_s = attempt, None
            elif (
                attempt.updated_ms >= oldest_ms
                or attempt.ended_at is not None
                or self.options.reads_all_running
                or self._may_have_open_run(attempt)
            ):
                self._apps[key] = _App(attempt, ReadApplication(attempt.name))
        self._apps = {key: app for key, app in self._apps.items() if key in known or not app.has_ended}

    async def _looked_up(self, listed: Mapping[tuple[str, str], Attempt]) -> dict[tuple[str, str], Attempt]:
        """Ask for the running applications that are not listed. Those that the source does not know are absent."""
        now_s = self.monotonic_s()
        missing = [
            app
            for key, app in self._apps.items()
            if key not in listed and not app.has_ended and app.asked_s + _LOOKED_UP_AGAIN_S <= now_s
        ]
        answers: dict[tuple[str, str], Attempt] = {}
        for app in sorted(missing, key=lambda a: a.asked_s)[:_LOOKED_UP_MAX]:
            app.asked_s = now_s
            again = await self.source.look_up(app.listed)
            answers |= {attempt.key: attempt for attempt in again}
            if not again and app.absent_since_s is None:
                app.absent_since_s = now_s
        return answers

    def _may_have_open_run(self, attempt: Attempt) -> bool:
        """Return whether a run that was open when this collector started may be one of the application.

        The log of a query with a long trigger does not grow for hours.
        """
        return any(
            attempt.updated_ms + _SKEW_MS >= to_epoch_ms(started_at)
            and (not attempt.is_named or name.startswith(f"{attempt.name}: "))
            for (_, started_at), name in self._open.items()
        )

    def _due(self, now: datetime) -> list[_App]:
        """Return the applications whose logs are read now: those that were never read first, the newest first."""
        now_s = self.monotonic_s()
        unread = (a for a in self._apps.values() if not a.is_read and a.absent_since_s is None)
        due = [a for a in unread if a.due_s <= now_s or self._is_final(a)]
        return sorted(due, key=lambda a: (a.read_ms is not None, a.has_ended, -a.listed.started_at.timestamp()))

    def _is_final(self, app: _App) -> bool:
        return app.has_ended and not app.failures

    async def _read_all(self, due: list[_App]) -> None:
        for app in due:
            await self._read(app)

    async def _read(self, app: _App) -> None:
        updated_ms = app.listed.updated_ms
        read = app.read.reading()
        try:
            await self.source.fetch(app.listed, read, app.read.positions)
        except LogFailedError as error:
            app.read.problem = str(error)
            app.failures += 1
            app.due_s = self.monotonic_s() + self._back_off_s(app.failures)
            _log.warning("event log not read", target=self.target_id, application=app.listed.app_id, reason=str(error))
        else:
            app.read.problem = None
            app.failures = 0
            app.read_ms = updated_ms
            if not app.listed.is_named and app.read.parser.applications:
                app.read.name = app.read.parser.applications[-1]
        app.size_bytes = read.packed_bytes
        app.read.take(read, is_whole=not app.failures)
        if not app.failures:
            app.due_s = self.monotonic_s() + self._pause_s(app)

    def _back_off_s(self, count: int) -> float:
        return min(self.options.quiet_first_s * float(1 << min(count - 1, 10)), self.options.quiet_most_s)

    def _pause_s(self, app: _App) -> float:
        """Return for how long the log is not read again after it was read."""
        if app.read.is_streaming:
            others = (a for a in self._apps.values() if a.read.is_streaming and not a.has_ended)
            return sum(a.size_bytes for a in others) / self.options.rate_bytes_per_s
        app.quiet_s = min(max(self.options.quiet_first_s, 2 * app.quiet_s), self.options.quiet_most_s)
        return app.quiet_s

    def _raise_if_nothing_is_readable(self) -> None:
        """If every log that was tried failed, and no query is known, the target cannot be read."""
        failing = [a for a in self._apps.values() if a.failures]
        if failing and not any(a.read_ms is not None or a.read.is_streaming for a in self._apps.values()):
            raise TargetProtocolError(url=self.source.url, reason=failing[0].read.problem or "")

    def _jobs(self, now: datetime) -> list[JobObservation]:
        jobs: list[JobObservation] = []
        now_ms = to_epoch_ms(now)
        for app in self._apps.values():
            # The end of the application is known before the end of its log was read.
            ended_at = app.listed.ended_at if app.is_read else None
            silent_for = timedelta(milliseconds=0 if app.has_ended else max(0, now_ms - app.listed.updated_ms))
            observed = app.read.observed(ended_at=ended_at, silent_for=silent_for, newest=self._newest)
            jobs += [self._absent(job, app.absent_since_s) for job in observed]
            app.read.hand_on(has_ended=ended_at is not None)
        self._apps = {key: app for key, app in self._apps.items() if not self._has_lapsed(app.absent_since_s)}
        is_caught_up = all(a.read_ms is not None for a in self._apps.values())
        jobs += list(self._gone(jobs, is_caught_up=is_caught_up))
        return jobs

    def _has_lapsed(self, since_s: float | None) -> bool:
        return since_s is not None and self.monotonic_s() - since_s >= self.options.absent_s

    def _absent(self, job: JobObservation, since_s: float | None) -> JobObservation:
        """Return the observation of a run that no listed application has had since then; None if one has it."""
        if since_s is None or job.state is JobState.ENDED:
            return job
        if self._has_lapsed(since_s):
            return replace(job, state=JobState.ENDED, engine_state=NOT_LISTED, problems=())
        return replace(job, state=JobState.UNKNOWN, problems=(_ABSENT,))

    def _gone(self, jobs: Iterable[JobObservation], *, is_caught_up: bool) -> Iterable[JobObservation]:
        """Yield the runs that no application has any more, and remember those that are open.

        A history server that has just started lists its applications little by little, so such a run has not ended yet.
        """
        seen: Mapping[EngineRunId, JobObservation] = {job.engine_run_id: job for job in jobs}
        for key, name in list(self._open.items()):
            job = seen.get(key[0])
            if job is None and is_caught_up:
                since_s = self._absent_since_s.setdefault(key, self.monotonic_s())
                job = self._absent(JobObservation(key[0], name, JobState.UNKNOWN, "ACTIVE", key[1]), since_s)
                yield job
                if job.state is not JobState.ENDED:
                    continue
            if job is not None:
                del self._open[key]
                self._absent_since_s.pop(key, None)
        for job in seen.values():
            if job.state is not JobState.ENDED:
                self._open[(job.engine_run_id, job.started_at)] = job.name
