"""Reads one target several times for a diagnosis, and gathers the values of each run. Stores nothing.

One reading does not show what a subtask does in between, so there are as many readings as give two values of
backpressure that the engine fetched at different times (``flink.freshness``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

import orjson

from backend.analysis.assembling import LOSSES_COUNT, RunAt, is_lost
from backend.analysis.measures.evidence import JobEvidence
from backend.contracts import flink
from backend.domain import spelling
from backend.domain.checkpoint import Checkpoint, LateBarrier
from backend.domain.clock import Clock
from backend.domain.engines import FLINK, EngineCapabilities
from backend.domain.errors import TargetProtocolError, TargetUnavailableError, UpstreamError
from backend.domain.ids import VertexId, target_id
from backend.domain.observation import JobObservation, JobState, Observation
from backend.domain.pressure import VertexPressure
from backend.domain.topology import Topology
from collectors.base import FlinkTransport
from collectors.flink.collector import CollectorOptions, FlinkCollector
from collectors.flink.parse import JobEntry
from collectors.step_line import ShowStep
from collectors.time_left import TOTAL_S, TimeLeft

READINGS: Final = 4
PAUSE_S: Final = 1.0
WAIT_MAX_S: Final = 120.0
"""If the engine fetches its metrics less often than this, the second reading is left out."""
REQUESTS_MAX: Final = 4_000

_ANY_AGE_S = 10 * 365 * 86_400.0
# The deadlines of one of the four polls, for targets that answer slowly.
_DEADLINE_S = 60.0
_JOB_TIMEOUT_S = 30.0
_NEVER = datetime.min.replace(tzinfo=UTC)
_POLL_SHARE = 0.8

Sleep = Callable[[float], Awaitable[None]]

_ONE_READING = (
    "the metrics were read once{why}, so it is not known whether a subtask stands still or how many records it reads"
)


class OnlyJobs:
    """Wraps a ``FlinkTransport`` and lists only the jobs to diagnose, so that no requests are made for other jobs."""

    def __init__(self, transport: FlinkTransport, wanted: frozenset[str]) -> None:
        self._transport = transport
        self._wanted = wanted

    @property
    def url(self) -> str:
        """The target's root URL without credentials."""
        return self._transport.url

    async def get(self, path: str) -> bytes:
        """Return the response body of the wrapped transport. The list of jobs is reduced to the jobs to diagnose."""
        body = await self._transport.get(path)
        if path != flink.JOBS_OVERVIEW:
            return body
        try:
            document = orjson.loads(body)
            rows = [row for row in document["jobs"] if row["jid"] in self._wanted]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            # The response is passed on unchanged, because the collector reports what is wrong with it.
            return body
        return orjson.dumps({**document, "jobs": rows})


@dataclass(slots=True)
class Gathered:
    """The values that were read of one run.

    A later value replaces an earlier one, but all readings of backpressure are collected.
    """

    last: JobObservation
    topology: Topology | None = None
    checkpoints: dict[int, Checkpoint] = field(default_factory=dict)
    pressure: list[VertexPressure] = field(default_factory=list)
    late: dict[int, dict[tuple[VertexId, int], LateBarrier]] = field(default_factory=dict)
    as_of: datetime = _NEVER
    clock_offset: timedelta = timedelta(0)

    @property
    def is_readable(self) -> bool:
        """Whether the job's graph was read. Without the graph, there is no verdict on its checkpoints."""
        return self.topology is not None

    def add(self, observed: JobObservation, at: datetime, clock_offset: timedelta) -> None:
        """Add one reading, made at ``at``. ``clock_offset`` is the engine's clock minus ours."""
        self.clock_offset = clock_offset
        if observed.counts is not None or not self.checkpoints:
            # If a poll was cut before it read the checkpoints, one that was open may have ended since.
            self.as_of = at
        self.topology = observed.topology or self.topology
        before = self.last
        self.last = replace(
            observed,
            config=observed.config or before.config,
            cluster_settings=observed.cluster_settings or before.cluster_settings,
            counts=observed.counts or before.counts,
            placements=observed.placements or before.placements,
            exceptions=observed.exceptions or before.exceptions,
            losses=tuple(dict.fromkeys((*observed.losses, *before.losses)))[:LOSSES_COUNT],
            effects=observed.effects or before.effects,
        )
        for checkpoint in observed.checkpoints:
            known = self.checkpoints.get(checkpoint.header.checkpoint_id)
            has_ended = known is not None and known.header.status is not checkpoint.header.status
            if known is None or checkpoint.details or not known.details or has_ended:
                self.checkpoints[checkpoint.header.checkpoint_id] = checkpoint
        self.pressure.extend(observed.pressure)
        for progress in observed.progress:
            barriers = self.late.setdefault(progress.checkpoint_id, {})
            barriers.update({(b.vertex_id, b.subtask): b for b in progress.late_barriers})

    def evidence(self, engine: EngineCapabilities = FLINK, version: str | None = None) -> JobEvidence:
        """Return the input of the analysis. ``version`` is that of the engine."""
        last, has_ended = self.last, self.last.state is JobState.ENDED
        read_at = self.as_of + self.clock_offset
        return RunAt(
            topology=self.topology or Topology(()),
            config=last.config,
            cluster_settings=last.cluster_settings,
            counts=last.counts,
            counted_at=read_at,
            placements=last.placements,
            exceptions=last.exceptions,
            losses=last.losses,
            restart_count=last.restart_count,
            state=last.state,
            engine_state=last.engine_state,
            started_at=last.started_at,
            engine=engine,
            engine_version=version,
        ).evidence_on_job(
            now=read_at,
            checkpoints=(
                c for _, c in sorted(self.checkpoints.items()) if not is_lost(c.header, has_run_ended=has_ended)
            ),
            readings=self.pressure,
            late={n: tuple(barriers.values()) for n, barriers in self.late.items()},
            ahead=self.clock_offset,
        )


class Readings:
    """Reads one target several times and collects the values of each run."""

    def __init__(
        self,
        transport: FlinkTransport,
        *,
        clock: Clock,
        sleep: Sleep,
        show_step: ShowStep,
        time_left: TimeLeft | None = None,
    ) -> None:
        self.time_left = time_left or TimeLeft(TOTAL_S, clock.monotonic_s)
        self._is_short = False
        self.jobs: dict[tuple[str, datetime], Gathered] = {}
        self.engine = ""
        self.kind = FLINK
        self.version: str | None = None
        self.problems: list[str] = []
        self.limits: tuple[str, ...] = ()
        self.unread_count = 0
        # The caller has already requested the list of jobs, which is one request.
        self.request_count = 1
        self.as_of = _NEVER
        self._url = transport.url
        self._clock = clock
        self._sleep = sleep
        self._show_step = show_step
        # A person waits for the answer, and there is no next poll that would read what is left out of this one.
        options = CollectorOptions(
            pressure_interval_s=0.0,
            list_interval_s=0.0,
            ended_within_s=_ANY_AGE_S,
            budget_count=REQUESTS_MAX,
            deadline_s=_DEADLINE_S,
            job_timeout_s=_JOB_TIMEOUT_S,
        )
        self._collector = FlinkCollector(
            transport,
            target_id=target_id(url=transport.url),
            options=options,
            monotonic_s=clock.monotonic_s,
            sleep=sleep,
        )

    async def take(self, *, has_running: bool, is_quick: bool = False) -> None:
        """Make all readings. If no job runs, make only one, because ended jobs do not change.

        The first poll makes the engine fetch its metrics, the second one reads them, and so do the third and the
        fourth. With ``is_quick``, there are two polls.
        """
        count = READINGS if has_running else 1
        if is_quick and has_running:
            count, self.limits = 2, (_ONE_READING.format(why=" (--quick)"),)
        for n in range(1, count + 1):
            self._show_step(f"reading {self._url}, {n} of {count}")
            try:
                if not await self._read(n):
                    return
            except UpstreamError as error:
                # If a proxy answered, the next reading may succeed.
                is_last = n == count or not (isinstance(error, TargetProtocolError) and error.is_passing)
                if is_last and not self.jobs:
                    raise
                self.problems.insert(0, f"reading {n} of {count} failed: {error}")
                if is_last:
                    return
            every_s = self._collector.fetch_interval_s
            if n == 2 and n < count and every_s > min(WAIT_MAX_S, self.time_left.to_read_s):
                more = "; --deadline gives the time to wait for that" if every_s <= WAIT_MAX_S else ""
                why = f", since the engine fetches them only every {spelling.duration(1000 * every_s)}{more}"
                self.limits = (_ONE_READING.format(why=why),)
                return
            if n < count:
                await self._wait(max(PAUSE_S, every_s) if n == 2 else PAUSE_S, every_s)

    async def _read(self, n: int) -> bool:
        """Make reading ``n``, and return whether the time allowed it.

        Raises:
            TargetUnavailableError: the time was over before the first reading had any job.
        """
        left_s = self.time_left.to_read_s
        if n > 1 and left_s <= 0:
            self.limits += (self.time_left.fewer_readings(n - 1),)
            return False
        # Half of the time remains for the readings after the first. A poll that keeps its own limit returns what it
        # has, while the timeout below would drop it.
        poll_s = left_s / 2 if n == 1 else _POLL_SHARE * left_s
        self._collector.limit(poll_s)
        try:
            async with asyncio.timeout(left_s):
                observation = await self._collector.collect(self._clock.now())
            self._add(observation)
            # After half of its time, a poll reads no more details.
            self._is_short |= observation.cost.duration_ms >= 500 * poll_s
        except TimeoutError:
            if n == 1:
                reason = f"no job was read within the time of {self.time_left.shown} (--deadline)"
                raise TargetUnavailableError(url=self._url, reason=reason) from None
            self.limits += (self.time_left.fewer_readings(n - 1),)
            return False
        return True

    def is_cut(self, gathered: Gathered) -> bool:
        """Return whether the time was over before the details of half of the job's ended checkpoints were read."""
        ended = [c for c in gathered.checkpoints.values() if c.header.status.is_terminal]
        return self._is_short and 2 * sum(bool(c.details) for c in ended) < len(ended)

    def count_unread(self, wanted: Sequence[JobEntry]) -> None:
        """Add the limits about jobs that were left out, or of which only the headers were read in time."""
        read = {run_id for run_id, _ in self.jobs}
        self.unread_count = sum(entry.engine_run_id not in read for entry in wanted)
        if self.unread_count:
            self.limits += (self.time_left.unread(self.unread_count, len(wanted)),)
        cut_count = sum(map(self.is_cut, self.jobs.values()))
        if cut_count:
            self.limits += (self.time_left.only_headers(cut_count, len(wanted)),)

    async def _wait(self, seconds: float, every_s: float) -> None:
        """Wait, and show for how long if it is longer than a pause."""
        left_s = seconds
        while left_s > PAUSE_S:
            self._show_step(
                f"waiting {spelling.duration(1000 * left_s)}: the engine fetches its metrics every"
                f" {spelling.duration(1000 * every_s)}, and two readings are needed (--quick does not wait)"
            )
            await self._sleep(PAUSE_S)
            left_s -= PAUSE_S
        await self._sleep(left_s)

    def _add(self, observation: Observation) -> None:
        self.kind, self.version = observation.engine, observation.engine_version
        self.engine = " ".join(w for w in (observation.engine.name, observation.engine_version) if w)
        self.request_count += observation.cost.request_count
        self.as_of = observation.observed_at
        for job in observation.jobs:
            own = job.clock_offset_ms
            offset = timedelta(milliseconds=(observation.clock_offset_ms if own is None else own) or 0)
            key = (job.engine_run_id, job.started_at)
            if key not in self.jobs:
                self.jobs[key] = Gathered(job)
            self.jobs[key].add(job, observation.observed_at, offset)
            self.problems.extend(f"{job.name}: {problem}" for problem in job.problems)
