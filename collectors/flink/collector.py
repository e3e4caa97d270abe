"""Reads one Flink, or the live runtime: selects the jobs of a poll and handles their failures.

One poll requests the list of jobs, then ``JobReader`` reads each. A job with a malformed answer gets a problem line and
is tried again. The poll fails if the target does not answer, or if no job could be read.

Invariant: memory changes only when the poll's observation is returned (``reading``). A run is (engine's run id, start
time), so a job id that is used again after a failover is another run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TypeAlias

from backend.contracts import flink
from backend.domain.errors import TargetProtocolError
from backend.domain.ids import EngineRunId, TargetId
from backend.domain.observation import JobObservation, JobState, Observation
from collectors.base import FlinkTransport
from collectors.flink import parse, parse_metrics
from collectors.flink.job import JobReader
from collectors.flink.parse import JobEntry
from collectors.flink.reading import EngineFacts, RunMemory
from collectors.flink.requests import Requests

RunKey: TypeAlias = tuple[EngineRunId, datetime]

_NOT_LISTED = "NOT LISTED"
_NOTHING: Mapping[RunKey, str] = MappingProxyType({})
_OFFSETS_MAX = 20
# Larger values are treated as clock errors.
_OFFSET_MAX = timedelta(days=30)
_DURATION_MAX_MS = 10**12


@dataclass(frozen=True, slots=True)
class CollectorOptions:
    """The limits of a collector's requests.

    ``pressure_interval_s`` is the pause between two readings of a job's backpressure and queues. A job that had ended
    more than ``ended_within_s`` before it was first seen is skipped. After ``budget_count`` requests in one poll,
    details and backpressure wait for the next poll; after ``limit_count``, whole jobs wait.
    """

    pressure_interval_s: float = 10.0
    ended_within_s: float = 3600.0
    budget_count: int = 400
    limit_count: int = 1200


class FlinkCollector:
    """``Collector`` of one Flink-shaped target."""

    def __init__(
        self,
        transport: FlinkTransport,
        *,
        target_id: TargetId,
        options: CollectorOptions | None = None,
        monotonic_s: Callable[[], float] = time.monotonic,
        known: Mapping[RunKey, str] = _NOTHING,
    ) -> None:
        """``known``: runs that had not ended when any collector last read the target, and the names of their jobs.

        A known run that the target no longer lists is reported as ended; the others are read as usual.
        """
        self._transport = transport
        self._target_id = target_id
        self._options = options or CollectorOptions()
        self._monotonic_s = monotonic_s
        self._engine: EngineFacts | None = None
        self._runs = {key: RunMemory(name=name) for key, name in known.items()}
        self._offsets: list[timedelta] = []

    @property
    def poll_within_s(self) -> float | None:
        """Half the time in which the busiest job's checkpoint history is replaced."""
        return min((m.poll_within_s for m in self._runs.values() if m.poll_within_s is not None), default=None)

    def forget(self) -> None:
        """Read everything again at the next poll."""
        self._engine = None
        self._runs = {key: RunMemory(name=m.name) for key, m in self._runs.items() if not m.is_done}
        self._offsets = []

    async def collect(self, now: datetime) -> Observation:
        """Make one poll; see ``Collector``."""
        requests = Requests(
            self._transport, now=now, monotonic_s=self._monotonic_s, budget_count=self._options.budget_count
        )
        engine = self._engine or await _discover(requests)
        entries = parse.jobs_overview(await requests.get(flink.JOBS_OVERVIEW))
        at = requests.at()
        # The runtime's clocks lag if its machine cannot keep up.
        kept_count = 1 if engine.has_job_clocks else _OFFSETS_MAX
        offset = self._clock_offset(entries, at, kept_count=kept_count)
        poll = _Poll(requests, replace(engine, offset=offset), self._options, listed_at=at)
        jobs, runs = await poll.read(self._in_turn(entries), self._runs)
        self._engine, self._runs = engine, runs
        offset_ms = round(offset / timedelta(milliseconds=1)) if self._offsets else None
        return Observation(self._target_id, now, engine.capabilities, engine.version, jobs, requests.cost(), offset_ms)

    def _clock_offset(self, entries: tuple[JobEntry, ...], at: datetime, *, kept_count: int) -> timedelta:
        """Return the engine's clock minus ours.

        A running job's start time plus its duration is the engine's present, or earlier if the answer was cached.
        Therefore the largest offset of the last ``kept_count`` polls is the best estimate.
        """
        seen = [offset for offset in (_offset_of(e, at) for e in entries) if offset is not None]
        if seen:
            self._offsets = [*self._offsets, max(seen)][-kept_count:]
        return max(self._offsets, default=timedelta(0))

    def _in_turn(self, entries: tuple[JobEntry, ...]) -> list[JobEntry]:
        """Order the jobs: those with waiting work come first, so that a spent budget does not starve the last ones."""

        def waiting_count(entry: JobEntry) -> int:
            memory = self._runs.get((entry.engine_run_id, entry.started_at))
            return 0 if memory is None else memory.waiting_count

        return sorted(entries, key=lambda e: (e.state is JobState.ENDED, -waiting_count(e)))


async def _discover(requests: Requests) -> EngineFacts:
    info = parse.engine_info(await requests.get(flink.CONFIG))
    if info.has_job_clocks:
        return EngineFacts(info.engine, info.version, fetch_interval=timedelta(0), has_job_clocks=True)
    try:
        interval_ms = parse_metrics.fetch_interval_ms(await requests.get(flink.CLUSTER_CONFIG))
    except TargetProtocolError:
        # A proxy before the REST may refuse the configuration.
        interval_ms = flink.METRICS_FETCH_INTERVAL_DEFAULT_MS
    return EngineFacts(info.engine, info.version, fetch_interval=timedelta(milliseconds=interval_ms))


class _Poll:
    """One poll over the jobs of a target."""

    def __init__(
        self, requests: Requests, engine: EngineFacts, options: CollectorOptions, *, listed_at: datetime
    ) -> None:
        self._requests = requests
        self._engine = engine
        self._options = options
        self._listed_at = listed_at

    async def read(
        self, entries: list[JobEntry], runs: Mapping[RunKey, RunMemory]
    ) -> tuple[tuple[JobObservation, ...], dict[RunKey, RunMemory]]:
        """Read the jobs; return their observations and the memory to keep."""
        seen: list[JobObservation] = []
        kept: dict[RunKey, RunMemory] = {}
        errors: list[TargetProtocolError] = []
        read_count = 0
        for entry in entries:
            key = (entry.engine_run_id, entry.started_at)
            before = runs.get(key)
            if before is None and self._is_old(entry):
                continue
            if before is not None and before.is_done:
                kept[key] = before
                continue
            if self._requests.count >= self._options.limit_count:
                kept[key] = _waiting(entry, before)
                continue
            try:
                memory, observation = await self._job(entry, before)
            except TargetProtocolError as error:
                errors.append(error)
                seen.append(_only_listed(entry, str(error)))
                kept[key] = before or RunMemory(name=entry.name)
                continue
            kept[key] = memory
            if observation is not None:
                read_count += 1
                seen.append(observation)
        if errors and not read_count:
            raise errors[0]
        return (*seen, *(_gone(key, m) for key, m in runs.items() if key not in kept and not m.is_done)), kept

    async def _job(self, entry: JobEntry, before: RunMemory | None) -> tuple[RunMemory, JobObservation | None]:
        memory = RunMemory() if before is None else before.copy()
        memory.name = entry.name
        own = self._own_offset(entry)
        engine = self._engine if own is None else replace(self._engine, offset=own)
        reader = JobReader(self._requests, entry, memory, engine=engine)
        observation = await reader.read(pressure_interval_s=self._options.pressure_interval_s)
        if observation is None or own is None:
            return memory, observation
        return memory, replace(observation, clock_offset_ms=round(own / timedelta(milliseconds=1)))

    def _own_offset(self, entry: JobEntry) -> timedelta | None:
        """Return the offset of the job's own clock on the runtime; None on Flink, where jobs share the JobManager's."""
        return _offset_of(entry, self._listed_at) if self._engine.has_job_clocks else None

    def _is_old(self, entry: JobEntry) -> bool:
        if entry.state is not JobState.ENDED or entry.ended_at is None:
            return False
        age = self._requests.at() + self._engine.offset - entry.ended_at
        return age > timedelta(seconds=self._options.ended_within_s)


def _offset_of(entry: JobEntry, at: datetime) -> timedelta | None:
    """Return the clock of a running job's engine minus ours; None if it cannot be derived."""
    if entry.ended_at is not None or not 0 <= entry.duration_ms <= _DURATION_MAX_MS:
        return None
    offset = entry.started_at + timedelta(milliseconds=entry.duration_ms) - at
    return offset if abs(offset) <= _OFFSET_MAX else None


def _waiting(entry: JobEntry, before: RunMemory | None) -> RunMemory:
    memory = RunMemory(name=entry.name) if before is None else before.copy()
    memory.waiting_count += 1
    return memory


def _only_listed(entry: JobEntry, problem: str) -> JobObservation:
    return JobObservation(
        entry.engine_run_id,
        entry.name,
        entry.state,
        entry.engine_state,
        entry.started_at,
        entry.ended_at,
        problems=(problem,),
    )


def _gone(key: RunKey, memory: RunMemory) -> JobObservation:
    """Make the observation for a run that the engine no longer lists: it has ended in an unknown way."""
    run_id, started_at = key
    return JobObservation(run_id, memory.name, JobState.ENDED, _NOT_LISTED, started_at)
