"""Implements ``barrierscope diagnose``: reads one target for some seconds and prints its diagnosis. Stores nothing.

It reads the checkpoints that the engine still lists. It waits for two readings of backpressure that the engine fetched
at different times, because one reading does not show what a subtask does in between (``flink.freshness``). At most 4
requests are in flight, and at most 40 begin within a second (``pacing``). All of it has a total time (``time_left``).
``backend.analysis`` derives the verdict.
The diagnosis goes to standard output, everything else to standard error. If one of the readings fails, the diagnosis
is based on the readings before it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

import orjson

from backend.advisor import advise
from backend.advisor.advice import Advice
from backend.analysis.assembling import RunAt, is_lost
from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.measures.input_rates import input_per_s
from backend.analysis.measures.replay_debt import RunFacts, debt_of
from backend.analysis.verdict import without_data
from backend.analysis.verdict.verdict import considered_count, diagnose
from backend.contracts import flink
from backend.domain import spelling
from backend.domain.checkpoint import Checkpoint, LateBarrier
from backend.domain.checkpoint_mode import mode_of
from backend.domain.clock import Clock
from backend.domain.connection import ANYWHERE, Reach
from backend.domain.engines import FLINK, EngineCapabilities
from backend.domain.errors import (
    FieldProblem,
    InvalidInputError,
    TargetProtocolError,
    TargetUnavailableError,
    UpstreamError,
)
from backend.domain.fail_on import FailOn
from backend.domain.ids import VertexId, target_id
from backend.domain.observation import JobObservation, JobState, Observation
from backend.domain.pressure import VertexPressure
from backend.domain.topology import Topology
from backend.domain.urgency import urgency_key
from backend.domain.verdict import Diagnosis
from collectors.base import FlinkTransport
from collectors.diagnosis_print import Answer, DiagnosisFormat, JobAnswer
from collectors.finishing import Wanted, finish
from collectors.flink import parse
from collectors.flink.client import open_transport
from collectors.flink.collector import CollectorOptions, FlinkCollector
from collectors.flink.parse import JobEntry
from collectors.flink.probe import ask_once, check_page
from collectors.flink.requests import Requests
from collectors.flink.roots import better_error
from collectors.logs.diagnosing import Join, diagnose_files
from collectors.pacing import PacedTransport
from collectors.spark.event_log import Observe
from collectors.step_line import ShowStep, StepLine
from collectors.time_left import TOTAL_S, TimeLeft

READINGS: Final = 4
PAUSE_S: Final = 1.0
WAIT_MAX_S: Final = 120.0
"""If the engine fetches its metrics less often than this, the second reading is left out."""
TIMEOUT_S: Final = 10.0
ENDED_MAX: Final = 5
"""The number of newest ended jobs that are diagnosed if no job runs."""

_AT_REST = (JobState.ENDED, JobState.STARTING)
_ANY_AGE_S = 10 * 365 * 86_400.0
_REQUESTS_MAX = 4_000
# The deadlines of one of the four polls, for targets that answer slowly.
_DEADLINE_S = 60.0
_JOB_TIMEOUT_S = 30.0
_NAMES_MAX = 20
_NEVER = datetime.min.replace(tzinfo=UTC)
_POLL_SHARE = 0.8
_NO_ADVICE = Advice((), (), 0)

Sleep = Callable[[float], Awaitable[None]]

_ONE_READING = (
    "the metrics were read once{why}, so it is not known whether a subtask stands still or how many records it reads"
)


def run(
    url: str,
    *,
    job: str | None,
    output_format: str,
    is_verbose: bool = False,
    is_quick: bool = False,
    deadline_s: float = TOTAL_S,
    logs: Sequence[str] = (),
    event_logs: Sequence[str] = (),
    observe: Observe | None = None,
    reach: Reach = ANYWHERE,
    fail_on: FailOn | None = None,
) -> int:
    """Diagnose the target at ``url`` and print the diagnosis. Return 0 if the target and one of its jobs could be read.

    Return 1 if there are jobs, and none of them could be read. With ``logs``, print what these files tell too, and with
    ``event_logs`` the diagnosis of the queries in these event logs of Spark; ``url`` may then be empty. ``observe``
    parses Spark's events; it is the parser of the ingest API. ``reach`` has the credentials for the target.

    With ``is_quick``, do not wait until the engine has fetched its metrics a second time. After ``deadline_s``, print
    what is known by then, and what was left out. ``fail_on`` makes the code tell of the jobs too (``finishing``).

    Raises:
        InvalidInputError: the format or the address is not valid, or no job has the name or id ``job``.
        TargetUnavailableError: the target does not respond.
        WrongRootError: Flink's REST is at another path of this address, which the message names.
        TargetProtocolError: the target's response is not one that Flink sends.
    """
    try:
        wanted = Wanted(job, DiagnosisFormat(output_format), is_verbose, fail_on)
    except ValueError:
        problem = FieldProblem("--format", f"{output_format!r} is not a valid value", ", ".join(DiagnosisFormat))
        raise InvalidInputError([problem], what="option") from None
    if logs or event_logs or not url:
        asked = partial(ask, url, job=job, is_quick=is_quick, deadline_s=deadline_s, reach=reach) if url else None
        return diagnose_files(wanted, logs, event_logs, ask=asked, observe=observe)
    return finish(ask(url, job=job, is_quick=is_quick, deadline_s=deadline_s, reach=reach), wanted)


def ask(
    url: str,
    *,
    job: str | None,
    is_quick: bool,
    deadline_s: float,
    join: Join | None = None,
    reach: Reach = ANYWHERE,
) -> Answer:
    """Return the diagnoses of the jobs at ``url``. This raises the same errors as ``run``.

    ``join`` adds to the evidence of a job what another source tells of it.
    """
    with StepLine() as show_step:
        named = partial(_read_at, url, show_step=show_step, deadline_s=deadline_s, reach=reach)
        read = partial(named, job=job, is_quick=is_quick, join=join)
        return asyncio.run(_asked(url, read, show_step=show_step, deadline_s=deadline_s, reach=reach))


async def _asked(
    url: str, read: Callable[[], Awaitable[Answer]], *, show_step: ShowStep, deadline_s: float, reach: Reach
) -> Answer:
    began_s = time.monotonic()
    show_step(f"asking {_shown(url)}")
    await check_page(url, timeout_s=min(TIMEOUT_S, deadline_s), reach=reach)
    try:
        return await read()
    except TargetProtocolError as error:
        timeout_s = max(0.0, min(TIMEOUT_S, deadline_s - (time.monotonic() - began_s)))
        ask = partial(ask_once, timeout_s=timeout_s, reach=reach)
        raise await better_error(error, url, ask, reach=reach, timeout_s=timeout_s) from None


async def _read_at(
    url: str,
    *,
    job: str | None,
    show_step: ShowStep,
    is_quick: bool,
    deadline_s: float,
    join: Join | None,
    reach: Reach,
) -> Answer:
    async with open_transport(url, timeout_s=min(TIMEOUT_S, deadline_s), reach=reach) as transport:
        clock = WallClock()
        paced = PacedTransport(transport, monotonic_s=clock.monotonic_s, sleep=clock.sleep)
        return await answer_of(
            paced,
            job=job,
            show_step=show_step,
            clock=clock,
            sleep=clock.sleep,
            is_quick=is_quick,
            deadline_s=deadline_s,
            join=join,
        )


async def answer_of(
    transport: FlinkTransport,
    *,
    job: str | None,
    show_step: ShowStep,
    clock: Clock,
    sleep: Sleep,
    is_quick: bool = False,
    deadline_s: float = TOTAL_S,
    join: Join | None = None,
) -> Answer:
    """Read the target several times with pauses, and diagnose its jobs. This raises the same errors as ``run``."""
    began_s = clock.monotonic_s()
    time_left = TimeLeft(deadline_s, clock.monotonic_s)
    requests = Requests(
        transport, now=clock.now(), monotonic_s=clock.monotonic_s, budget_count=_REQUESTS_MAX, sleep=sleep
    )
    entries = parse.jobs_overview(await requests.get(flink.JOBS_OVERVIEW))
    wanted = wanted_jobs(entries, job=job)
    readings = Readings(
        OnlyJobs(transport, frozenset(e.engine_run_id for e in wanted)),
        clock=clock,
        sleep=sleep,
        show_step=show_step,
        time_left=time_left,
    )
    await readings.take(has_running=any(e.state not in _AT_REST for e in wanted), is_quick=is_quick)
    readings.count_unread(wanted)
    show_step("working out the verdicts and the advice")
    jobs = tuple(sorted(_job_answers(readings, join), key=_worst_first))
    return Answer(
        url=transport.url,
        engine=readings.engine,
        jobs=jobs,
        problems=tuple(dict.fromkeys(readings.problems)),
        limits=readings.limits,
        unread_count=readings.unread_count,
        request_count=readings.request_count,
        took_s=clock.monotonic_s() - began_s,
        as_of=readings.as_of,
    )


def wanted_jobs(entries: Sequence[JobEntry], *, job: str | None) -> tuple[JobEntry, ...]:
    """Return the jobs to diagnose: the running ones or, if no job runs, the newest ended ones.

    If ``job`` is not None, only jobs with this name or id are returned.

    Raises:
        InvalidInputError: no job has this name or id; the message lists the names.
    """
    if job is not None:
        named = [e for e in entries if job in (e.name, e.engine_run_id)]
        if not named:
            names = sorted({e.name for e in entries})
            more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
            allowed = ", ".join(names[:_NAMES_MAX]) + more if names else "there is no job at all"
            problem = FieldProblem("--job", f"no job is called {job!r}", allowed)
            raise InvalidInputError([problem], what="option")
        entries = named
    running = tuple(e for e in entries if e.state is not JobState.ENDED)
    if running:
        return running
    newest: dict[str, JobEntry] = {}
    for entry in sorted(entries, key=lambda e: e.started_at, reverse=True):
        newest.setdefault(entry.name, entry)
    return tuple(newest.values())[:ENDED_MAX]


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
            losses=observed.losses or before.losses,
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
            budget_count=_REQUESTS_MAX,
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


def _job_answers(readings: Readings, join: Join | None) -> Iterator[JobAnswer]:
    without_advice: list[str] = []
    for gathered in readings.jobs.values():
        evidence, last = gathered.evidence(readings.kind, readings.version), gathered.last
        if join is not None:
            evidence = join(last, evidence)
        if readings.is_cut(gathered):
            evidence = _of_headers(evidence)
        if gathered.is_readable:
            found = diagnose(evidence)
        else:
            without = without_data.diagnosis_of(last.state, last.engine_state, next(iter(last.problems), None))
            if without is None:
                readings.unread_count += 1
                continue
            found = without
        advice = _NO_ADVICE
        if readings.time_left.is_over:
            without_advice.append(last.name)
        else:
            advice = advise(evidence, engine=readings.kind, version=readings.version)
        yield _job_answer(gathered, evidence, found, advice, readings.kind)
    if without_advice:
        readings.limits += (readings.time_left.without_advice(without_advice),)


def _worst_first(job: JobAnswer) -> tuple[int, str]:
    """Return the sort key of a job: the order of the fleet."""
    found = job.diagnosis
    return urgency_key(found.health, found.verdict.kind, debt_ms=job.debt_ms, has_ended=job.has_ended), job.name


def _of_headers(evidence: JobEvidence) -> JobEvidence:
    """Return the evidence without what is known of open checkpoints.

    Who has not acknowledged an open checkpoint yet says nothing of the cause without the checkpoints that have ended.
    """
    checkpoints = tuple(c if c.header.status.is_terminal else replace(c, details=()) for c in evidence.checkpoints)
    return replace(evidence, checkpoints=checkpoints, late_barriers={})


def _job_answer(
    gathered: Gathered, evidence: JobEvidence, diagnosis: Diagnosis, advice: Advice, engine: EngineCapabilities
) -> JobAnswer:
    last = gathered.last
    headers = [c.header for c in evidence.checkpoints]
    run = RunFacts(
        started_at=last.started_at,
        counts=evidence.counts,
        headers=headers,
        config=evidence.config,
        restores_savepoints=engine.restores_savepoints,
    )
    debt = None if last.state in (JobState.ENDED, JobState.UNREADABLE) else debt_of(run)
    return JobAnswer(
        name=gathered.last.name,
        engine_state=gathered.last.engine_state,
        mode=mode_of(evidence.config),
        is_batch=evidence.topology.is_batch is True,
        is_advised=advice is not _NO_ADVICE,
        diagnosis=diagnosis,
        is_read=gathered.is_readable or gathered.last.state is not JobState.UNREADABLE,
        has_ended=last.state is JobState.ENDED,
        considered_count=considered_count(evidence),
        as_of=gathered.as_of,
        debt=debt,
        debt_ms=None if debt is None else debt.age_ms(evidence.now),
        input_per_s=input_per_s(evidence),
        advice=advice,
    )


class WallClock:
    """The machine's clocks. The store has the same class, but importing that class would import a database driver."""

    def now(self) -> datetime:
        return datetime.fromtimestamp(time.time(), UTC)

    def monotonic_s(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def _shown(url: str) -> str:
    # An address that is not parsed yet may contain credentials before the @, so only the part after it is shown.
    return url.rpartition("@")[2][:200]
