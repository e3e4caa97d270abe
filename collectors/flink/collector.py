"""Reads one target with Flink or the live runtime: selects the jobs of a poll and handles their failures.

One poll requests the list of jobs, then ``JobReader`` reads each job. While no checkpoint is open and nothing happens,
the list is requested only every few seconds, so most polls of an idle job are one request. If a response about a job is
malformed, the job's observation reports this problem, and the job is read again at the next poll. The poll fails if the
target does not respond, or if no job could be read.

Invariant: the collector's memory changes only when the poll's observation is returned (``reading``). A run is
identified by (engine's run id, start time), so a job id that is used again after a failover is another run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TypeAlias

from backend.contracts import flink
from backend.domain.errors import TargetProtocolError, TargetUnavailableError, UpstreamError
from backend.domain.ids import EngineRunId, TargetId
from backend.domain.observation import NOT_LISTED, JobObservation, JobState, Observation
from collectors.base import Effort, FlinkTransport, KnownRuns
from collectors.flink import parse, parse_metrics
from collectors.flink.document import RowCache
from collectors.flink.freshness import FetchInterval
from collectors.flink.job import JobReader
from collectors.flink.parse import JobEntry
from collectors.flink.reading import EngineFacts, RunMemory
from collectors.flink.requests import Requests, Sleep

RunKey: TypeAlias = tuple[EngineRunId, datetime]

_NOTHING: KnownRuns = MappingProxyType({})
_OFFSETS_MAX = 20
_STEADY = (JobState.RUNNING, JobState.ENDED)
# A clock offset beyond this is treated as a clock error and ignored.
_OFFSET_MAX = timedelta(days=30)
# Flink's list of jobs may be a cached response (web.refresh-interval, 3 s by default).
_LIST_AGE_MAX = timedelta(seconds=10)
# After this many jobs have timed out, a poll reads no further jobs. Otherwise, hanging jobs could take all the time
# of the poll.
_LATE_JOBS_MAX = 2
_LATE_MIN_S = 1.0
_RETRY_MIN_S = 10.0
_RETRY_MAX_S = 120.0
_JOB_SHARE = 0.75


@dataclass(frozen=True, slots=True)
class CollectorOptions:
    """The limits of a collector's requests.

    ``pressure_interval_s`` is the pause between two readings of a job's backpressure and queues. ``list_interval_s`` is
    the pause between two readings of Flink's list of jobs while all its jobs are idle. A job that had ended
    more than ``ended_within_s`` before it was first seen is skipped. After ``budget_count`` requests in one poll,
    or after half of ``deadline_s``, details and backpressure wait for the next poll. After ``limit_count`` requests, or
    after ``deadline_s``, whole jobs wait. One job may take ``job_timeout_s``, or ``retry_timeout_s`` if it took too
    long the last time. Of the checkpoints that ended before the job was first seen, the details of the newest
    ``backlog_max`` are read.
    """

    pressure_interval_s: float = 10.0
    list_interval_s: float = 5.0
    ended_within_s: float = 3600.0
    budget_count: int = 400
    limit_count: int = 1200
    deadline_s: float = 20.0
    job_timeout_s: float = 10.0
    retry_timeout_s: float = 3.0
    backlog_max: int = 10


class FlinkCollector:
    """Implements ``Collector`` for one target with Flink's REST API."""

    def __init__(
        self,
        transport: FlinkTransport,
        *,
        target_id: TargetId,
        options: CollectorOptions | None = None,
        monotonic_s: Callable[[], float] = time.monotonic,
        known: KnownRuns = _NOTHING,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """Create a collector that has read nothing yet.

        ``known`` contains the runs that had not ended when any collector last read the target. A known run that the
        target no longer lists is reported as ended. For the other known runs, checkpoints that left the target's
        history while no collector read it are counted as shed.
        """
        self._transport = transport
        self._target_id = target_id
        self._options = options or CollectorOptions()
        self._monotonic_s = monotonic_s
        self._sleep = sleep
        self._engine: EngineFacts | None = None
        self._runs = {key: RunMemory(name=run.name, newest_id=run.newest_id) for key, run in known.items()}
        self._offsets: list[timedelta] = []
        self._entries: RowCache[JobEntry] = RowCache()
        self._listed: _Listed | None = None
        self._is_behind = False
        self._listed_until: datetime | None = None
        """Every run that this collector does not know and that began after this time, on our clock, is new. It began
        while the target was watched.
        """

    @property
    def poll_within_s(self) -> float | None:
        """The longest time between two polls, in seconds, in which no checkpoint should be missed.

        It is half the time in which new checkpoints replace the whole history that Flink keeps of the busiest job. None
        if the interval of no job is known.
        """
        return min((m.poll_within_s for m in self._runs.values() if m.poll_within_s is not None), default=None)

    @property
    def fetch_interval_s(self) -> float:
        """How often the engine fetches its metrics, in seconds; 0 if it keeps no copies, or before the first poll."""
        return 0.0 if self._engine is None else self._engine.fetch_interval.time.total_seconds()

    def limit(self, deadline_s: float) -> None:
        """Give the next polls at most this many seconds each. No single job may take all of them."""
        options = self._options
        self._options = replace(
            options,
            deadline_s=min(options.deadline_s, deadline_s),
            job_timeout_s=min(options.job_timeout_s, _JOB_SHARE * deadline_s),
        )

    def forget(self) -> None:
        """Read everything again at the next poll."""
        self._engine = None
        # The newest id of each run is kept, so that checkpoints that leave the history before they are read can still
        # be counted.
        self._runs = {
            key: RunMemory(
                name=m.name,
                newest_id=m.newest_id,
                newest_at=m.newest_at,
                is_watched_from_start=m.is_watched_from_start,
                lost=m.lost,
            )
            for key, m in self._runs.items()
            if not m.is_done
        }
        self._offsets = []
        self._listed = None

    async def collect(self, now: datetime, *, effort: Effort = Effort.FULL) -> Observation:
        """Read the target once; see ``Collector``."""
        requests = Requests(
            self._transport,
            now=now,
            monotonic_s=self._monotonic_s,
            budget_count=self._options.budget_count,
            budget_s=self._options.deadline_s / 2,
            # If the last poll did not read all jobs, this poll reads only the headers, which the target would drop
            # first.
            effort=Effort.HEADERS if self._is_behind else effort,
            sleep=self._sleep,
        )
        if self._listed_until is None:
            self._listed_until = now
        engine = self._engine or await _discover(requests)
        listed = self._listed
        if listed is not None and self._is_recent(listed, engine, requests.at()):
            with suppress(TargetProtocolError):
                jobs, runs = await self._read(requests, engine, listed)
                # The list and the jobs are read once more in two cases. If the poll made no request, it would not
                # notice that the target is down. If a job has a problem, it may have ended; this case waits for the
                # next poll if the budget is used up.
                if requests.count and not (any(job.problems for job in jobs) and requests.has_budget):
                    return self._returned(requests, engine, listed, jobs, runs)
            # A job may have ended or restarted after the list was read. So the list is read again, and then the jobs.
            # This is safe, because the memory has not changed yet.
        entries = parse.jobs_overview(await requests.get(flink.JOBS_OVERVIEW), self._entries)
        at = requests.at()
        # Each job of the live runtime has its own clock, which lags if the machine cannot keep up. So only the newest
        # offset is used.
        kept_count = 1 if engine.has_job_clocks else _OFFSETS_MAX
        listed = _Listed(entries, at, self._clock_offset(entries, at, kept_count=kept_count))
        jobs, runs = await self._read(requests, engine, listed)
        return self._returned(requests, engine, listed, jobs, runs)

    def _is_recent(self, listed: _Listed, engine: EngineFacts, now: datetime) -> bool:
        # On the live runtime, users change jobs and wait to see the change, so its list is read at every poll.
        return not engine.has_job_clocks and now - listed.at < timedelta(seconds=self._options.list_interval_s)

    def _is_idle(self, listed: _Listed, jobs: tuple[JobObservation, ...], runs: Mapping[RunKey, RunMemory]) -> bool:
        """Return whether this poll found nothing that can change the list, and no job needs an exact clock offset."""
        is_steady = all(entry.state in _STEADY for entry in listed.entries)
        is_known = len(self._offsets) >= _OFFSETS_MAX
        has_news = any(j.checkpoints or j.problems or j.state is not JobState.RUNNING for j in jobs)
        has_open = any(m.seen_open or m.watches or m.waiting_count for m in runs.values() if not m.is_done)
        return is_steady and is_known and not has_news and not has_open

    async def _read(
        self, requests: Requests, engine: EngineFacts, listed: _Listed
    ) -> tuple[tuple[JobObservation, ...], dict[RunKey, RunMemory]]:
        # Without an offset, the start of a run cannot be compared with our clock.
        since = None if self._listed_until is None or not self._offsets else self._listed_until
        poll = _Poll(requests, replace(engine, offset=listed.offset), self._options, listed_at=listed.at, since=since)
        return await poll.read(self._in_turn(listed.entries), self._runs)

    def _returned(
        self,
        requests: Requests,
        engine: EngineFacts,
        listed: _Listed,
        jobs: tuple[JobObservation, ...],
        runs: dict[RunKey, RunMemory],
    ) -> Observation:
        """Remember what the poll has read, and return it."""
        self._engine, self._runs = engine, runs
        self._listed_until = listed.at - _LIST_AGE_MAX
        self._is_behind = requests.is_over
        self._listed = listed if self._is_idle(listed, jobs, runs) else None
        offset_ms = round(listed.offset / timedelta(milliseconds=1)) if self._offsets else None
        return Observation(
            self._target_id, requests.began_at, engine.capabilities, engine.version, jobs, requests.cost(), offset_ms
        )

    def _clock_offset(self, entries: tuple[JobEntry, ...], at: datetime, *, kept_count: int) -> timedelta:
        """Return the engine's clock minus ours.

        A running job's start time plus its duration is the current time on the engine's clock, or an earlier time if
        the response was cached. So the largest offset of the last ``kept_count`` polls is the best estimate.
        """
        seen = [offset for offset in (_offset_of(e, at) for e in entries) if offset is not None]
        if seen:
            self._offsets = [*self._offsets, max(seen)][-kept_count:]
        return max(self._offsets, default=timedelta(0))

    def _in_turn(self, entries: tuple[JobEntry, ...]) -> list[JobEntry]:
        """Return the jobs in the order in which they are read.

        Jobs that took too long the last time come last, so they delay no other job. Running jobs come before ended
        ones. Among jobs of the same state, those with more unread data come first, so that the jobs left out when the
        request budget is used up are not always the same.
        """

        def rank(entry: JobEntry) -> tuple[bool, bool, int]:
            memory = self._runs.get((entry.engine_run_id, entry.started_at))
            is_ended = entry.state is JobState.ENDED
            return (False, is_ended, 0) if memory is None else (memory.late_count > 0, is_ended, -memory.waiting_count)

        return sorted(entries, key=rank)


@dataclass(frozen=True, slots=True)
class _Listed:
    """A response of ``/jobs/overview``: the jobs, when it was read, and the engine's clock minus ours."""

    entries: tuple[JobEntry, ...]
    at: datetime
    offset: timedelta


async def _discover(requests: Requests) -> EngineFacts:
    info = parse.engine_info(await requests.get(flink.CONFIG))
    if info.has_job_clocks:
        return EngineFacts(info.engine, info.version, fetch_interval=FetchInterval(timedelta(0)), has_job_clocks=True)
    debloat_target_ms, cluster = None, None
    interval = FetchInterval(timedelta(milliseconds=flink.METRICS_FETCH_INTERVAL_DEFAULT_MS), is_known=False)
    # A proxy in front of the REST API may refuse to return the configuration. Flink's default is then assumed.
    with suppress(TargetProtocolError):
        settings = await requests.get(flink.CLUSTER_CONFIG)
        interval = FetchInterval(timedelta(milliseconds=parse_metrics.fetch_interval_ms(settings)))
        debloat_target_ms = parse_metrics.debloat_target_ms(settings)
        cluster = parse_metrics.cluster_settings(settings)
    return EngineFacts(
        info.engine,
        info.version,
        fetch_interval=interval,
        names_unaligned=info.names_unaligned,
        debloat_target_ms=debloat_target_ms,
        cluster_settings=cluster,
    )


class _Poll:
    """One poll over the jobs of a target, with the target's list of jobs already read."""

    def __init__(
        self,
        requests: Requests,
        engine: EngineFacts,
        options: CollectorOptions,
        *,
        listed_at: datetime,
        since: datetime | None,
    ) -> None:
        self._requests = requests
        self._engine = engine
        self._options = options
        self._listed_at = listed_at
        self._since = since

    async def read(
        self, entries: list[JobEntry], runs: Mapping[RunKey, RunMemory]
    ) -> tuple[tuple[JobObservation, ...], dict[RunKey, RunMemory]]:
        """Read the jobs. Return their observations, and what must be remembered for the next poll.

        Raises:
            TargetUnavailableError, TargetProtocolError: no job could be read.
        """
        seen: list[JobObservation] = []
        kept: dict[RunKey, RunMemory] = {}
        errors: list[UpstreamError] = []
        read_count = 0
        for entry in entries:
            key = (entry.engine_run_id, entry.started_at)
            before = runs.get(key)
            if before is None and self._is_old(entry):
                continue
            if before is not None and before.is_done:
                kept[key] = before
                continue
            if self._is_over or _is_away(errors):
                self._requests.is_over = self._is_over
                kept[key] = _waiting(before or self._new(entry))
                continue
            if before is not None and before.retry_at is not None and self._requests.at() < before.retry_at:
                kept[key] = before
                seen.append(_only_listed(entry, before.late_reason))
                continue
            began_s = self._requests.elapsed_s
            try:
                kept[key], observation = await self._job(entry, before)
            except UpstreamError as error:
                errors.append(error)
                seen.append(_only_listed(entry, str(error)))
                kept[key] = before or self._new(entry)
                # A job whose failure took no time is not postponed, for example if the target refuses connections.
                if self._requests.elapsed_s - began_s > _LATE_MIN_S:
                    kept[key] = self._postponed(kept[key].copy(), str(error))
                continue
            if observation is not None:
                read_count += 1
                seen.append(observation)
        if errors and not read_count:
            raise errors[0]
        return (*seen, *(_gone(key, m) for key, m in runs.items() if key not in kept and not m.is_done)), kept

    @property
    def _is_over(self) -> bool:
        """Whether this poll is over, so that the jobs that were not read yet wait for the next poll."""
        requests, options = self._requests, self._options
        return requests.count >= options.limit_count or requests.elapsed_s >= options.deadline_s

    async def _job(self, entry: JobEntry, before: RunMemory | None) -> tuple[RunMemory, JobObservation | None]:
        memory = self._new(entry) if before is None else before.copy()
        memory.name = entry.name
        own = self._own_offset(entry)
        engine = self._engine if own is None else replace(self._engine, offset=own)
        reader = JobReader(self._requests, entry, memory, engine=engine)
        options = self._options
        began_s = self._requests.elapsed_s
        observation = await reader.read(
            pressure_interval_s=options.pressure_interval_s,
            timeout_s=options.retry_timeout_s if memory.late_count else options.job_timeout_s,
            backlog_max=options.backlog_max,
        )
        if reader.late_reason and self._requests.elapsed_s - began_s > _LATE_MIN_S:
            self._postponed(memory, reader.late_reason)
        else:
            memory.late_count, memory.late_reason, memory.retry_at = 0, "", None
        if observation is None or own is None:
            return memory, observation
        return memory, replace(observation, clock_offset_ms=round(own / timedelta(milliseconds=1)))

    def _new(self, entry: JobEntry) -> RunMemory:
        began_at = entry.started_at - (self._own_offset(entry) or self._engine.offset)
        return RunMemory(name=entry.name, is_watched_from_start=self._since is not None and began_at >= self._since)

    def _postponed(self, memory: RunMemory, reason: str) -> RunMemory:
        """Skip the job in the next polls. The pause doubles each time that the target does not respond in time.

        The job is tried again before the target drops unread checkpoints.
        """
        within_s = _RETRY_MAX_S if memory.poll_within_s is None else max(memory.poll_within_s, _RETRY_MIN_S)
        wait_s = min(_RETRY_MIN_S * float(1 << min(memory.late_count, 10)), _RETRY_MAX_S, within_s)
        memory.late_count += 1
        memory.late_reason, memory.retry_at = reason, self._requests.at() + timedelta(seconds=wait_s)
        return memory

    def _own_offset(self, entry: JobEntry) -> timedelta | None:
        """Return the offset of the job's own clock on the live runtime.

        Return None on Flink, where all jobs share the JobManager's clock.
        """
        return _offset_of(entry, self._listed_at) if self._engine.has_job_clocks else None

    def _is_old(self, entry: JobEntry) -> bool:
        if entry.state is not JobState.ENDED or entry.ended_at is None:
            return False
        age = self._requests.at() + self._engine.offset - entry.ended_at
        return age > timedelta(seconds=self._options.ended_within_s)


def _is_away(errors: Sequence[UpstreamError]) -> bool:
    """Return whether the whole target is treated as unreachable, because it did not respond for two jobs."""
    return sum(isinstance(e, TargetUnavailableError) for e in errors) >= _LATE_JOBS_MAX


def _offset_of(entry: JobEntry, at: datetime) -> timedelta | None:
    """Return the engine's clock minus ours, or None if it cannot be derived from this job."""
    if entry.ended_at is not None or not 0 <= entry.duration_ms <= parse.DURATION_MAX_MS:
        return None
    offset = entry.started_at + timedelta(milliseconds=entry.duration_ms) - at
    return offset if abs(offset) <= _OFFSET_MAX else None


def _waiting(before: RunMemory) -> RunMemory:
    memory = before.copy()
    memory.waiting_count += 1
    return memory


def _only_listed(entry: JobEntry, problem: str) -> JobObservation:
    """Return the observation of a job of which only the row in the list of jobs could be read."""
    return JobObservation(
        entry.engine_run_id,
        entry.name,
        entry.state if entry.state is JobState.ENDED else JobState.UNREADABLE,
        entry.engine_state,
        entry.started_at,
        entry.ended_at,
        problems=(problem,),
    )


def _gone(key: RunKey, memory: RunMemory) -> JobObservation:
    """Return the observation of a run that the engine no longer lists.

    The run has ended, and how it ended is not known.
    """
    run_id, started_at = key
    return JobObservation(run_id, memory.name, JobState.ENDED, NOT_LISTED, started_at)
