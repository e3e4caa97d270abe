"""Implements ``barrierscope diagnose --watch``: reads a target again and again, and shows it until ``q`` is pressed.

It stores nothing. It asks as carefully as ``diagnose``: at most 40 requests begin within a second (``pacing``), and
each reading has a deadline. If a reading fails, the screen keeps what was read before and says so.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Protocol

from rich.console import Console
from rich.live import Live

from backend.analysis.verdict.verdict import diagnose
from backend.domain.clock import Clock
from backend.domain.connection import Reach
from backend.domain.errors import FieldProblem, InvalidInputError, TargetProtocolError, UpstreamError
from backend.domain.ids import EngineRunId, target_id
from backend.domain.observation import JobState, Observation
from backend.domain.topology import Topology
from backend.domain.urgency import urgency_key
from collectors.base import FlinkTransport
from collectors.flink.client import open_transport
from collectors.flink.collector import CollectorOptions, FlinkCollector
from collectors.flink.probe import ask_once, check_page
from collectors.flink.roots import better_error
from collectors.pacing import PacedTransport
from collectors.readings import Gathered
from collectors.spark.watched import opened_spark
from collectors.terminal_keys import read_keys, single_keys
from collectors.wall_clock import WallClock
from collectors.watch_rows import Selection, WatchedJob
from collectors.watch_screen import screen

PERIOD_S: Final = 2.0
_TIMEOUT_S = 10.0
_NAMES_MAX = 20
_CHECKPOINTS_MAX = 20
_READINGS_MAX_AGE = timedelta(seconds=120)
EXIT_QUIT: Final = 0
EXIT_INTERRUPTED: Final = 130


class Watched(Protocol):
    """A target that is read repeatedly. ``names`` are those of all its jobs, also of those that are not shown."""

    @property
    def engine(self) -> str: ...

    @property
    def names(self) -> Sequence[str]: ...

    async def read(self) -> tuple[WatchedJob, ...]: ...


class WatchedTarget:
    """Reads one target repeatedly, and keeps what the screen needs of its running jobs."""

    def __init__(self, transport: FlinkTransport, *, job: str | None, clock: Clock) -> None:
        self.engine = ""
        self.names: list[str] = []
        """The names of all running jobs, also of those that are not shown."""
        self._job = job
        self._clock = clock
        self._gathered: dict[tuple[EngineRunId, datetime], Gathered] = {}
        self._collector = FlinkCollector(
            transport,
            target_id=target_id(url=transport.url),
            options=CollectorOptions(pressure_interval_s=PERIOD_S, list_interval_s=0.0),
            monotonic_s=clock.monotonic_s,
        )

    async def read(self) -> tuple[WatchedJob, ...]:
        """Read the target once, and return its running jobs, the most urgent first.

        Raises:
            UpstreamError: the target did not answer, or not as Flink does.
        """
        observation = await self._collector.collect(self._clock.now())
        self.engine = " ".join(w for w in (observation.engine.name, observation.engine_version) if w)
        return await asyncio.to_thread(self._add, observation)

    def _add(self, observation: Observation) -> tuple[WatchedJob, ...]:
        self.names = sorted({job.name for job in observation.jobs if job.state is not JobState.ENDED})
        seen = {}
        for job in observation.jobs:
            if job.state is JobState.ENDED or self._job not in (None, job.name, job.engine_run_id):
                continue
            key = (job.engine_run_id, job.started_at)
            gathered = seen[key] = self._gathered.get(key) or Gathered(job)
            own = job.clock_offset_ms
            offset = timedelta(milliseconds=(observation.clock_offset_ms if own is None else own) or 0)
            gathered.add(job, observation.observed_at, offset)
            _forget_old(gathered)
        # What a poll did not list has ended.
        self._gathered = seen
        found = [self._watched(gathered, observation) for gathered in seen.values()]
        return tuple(sorted(found, key=_urgency))

    def _watched(self, gathered: Gathered, observation: Observation) -> WatchedJob:
        last = gathered.last
        diagnosis = None
        if gathered.is_readable:
            diagnosis = diagnose(gathered.evidence(observation.engine, observation.engine_version))
        return WatchedJob(
            id=last.engine_run_id,
            name=last.name,
            engine_state=last.engine_state,
            diagnosis=diagnosis,
            topology=gathered.topology or Topology(()),
            checkpoints=tuple(c for _, c in sorted(gathered.checkpoints.items())),
            pressure=tuple(gathered.pressure),
            now=observation.observed_at + gathered.clock_offset,
        )


def _forget_old(gathered: Gathered) -> None:
    for old in sorted(gathered.checkpoints)[:-_CHECKPOINTS_MAX]:
        del gathered.checkpoints[old]
        gathered.late.pop(old, None)
    if gathered.pressure:
        since = gathered.pressure[-1].observed_at - _READINGS_MAX_AGE
        gathered.pressure = [reading for reading in gathered.pressure if reading.observed_at >= since]


def _urgency(job: WatchedJob) -> tuple[bool, tuple[int, ...] | int, str]:
    found = job.diagnosis
    if found is None:
        return True, 0, job.name
    return False, urgency_key(found.health, found.verdict.kind, debt_ms=None, has_ended=False), job.name


def watch(url: str, *, job: str | None, reach: Reach) -> int:
    """Show the target at ``url`` until ``q`` is pressed, and return the exit code.

    Raises:
        InvalidInputError: standard input or output is not a terminal, the address is not valid, or no running job has
            the name or id ``job``.
        TargetUnavailableError: the target does not answer the first request.
        TargetProtocolError: the first answer is not one that Flink sends.
    """
    for name, stream in (("input", sys.stdin), ("output", sys.stdout)):
        if not stream.isatty():
            problem = FieldProblem("--watch", f"standard {name} is not a terminal", "a terminal, or leave --watch out")
            raise InvalidInputError([problem], what="option")
    return asyncio.run(_watch(url, job=job, reach=reach))


async def _watch(url: str, *, job: str | None, reach: Reach) -> int:
    await check_page(url, timeout_s=_TIMEOUT_S, reach=reach)
    async with open_transport(url, timeout_s=_TIMEOUT_S, reach=reach) as transport:
        clock = WallClock()
        paced = PacedTransport(transport, monotonic_s=clock.monotonic_s, sleep=asyncio.sleep)
        target = WatchedTarget(paced, job=job, clock=clock)
        # Until the first answer, the terminal stays as it is, so that an error is one line as ever.
        try:
            jobs = await target.read()
        except TargetProtocolError as error:
            if (code := await _watch_spark(url, job=job, clock=clock, reach=reach)) is not None:
                return code
            ask = partial(ask_once, timeout_s=_TIMEOUT_S, reach=reach)
            raise await better_error(error, url, ask, reach=reach, timeout_s=_TIMEOUT_S) from None
        return await _shown(target, jobs, transport.url, job=job)


async def _watch_spark(url: str, *, job: str | None, clock: Clock, reach: Reach) -> int | None:
    """Show the queries of the history server or the driver at ``url``. None if Spark does not answer there."""
    async with opened_spark(url, job=job, clock=clock, timeout_s=_TIMEOUT_S, reach=reach) as target:
        try:
            await target.check()
        except UpstreamError:
            return None
        return await _shown(target, await target.read(), url, job=job)


async def _shown(target: Watched, jobs: tuple[WatchedJob, ...], url: str, *, job: str | None) -> int:
    if job is not None and not jobs:
        allowed = ", ".join(target.names[:_NAMES_MAX]) or "there is no running job"
        raise InvalidInputError([FieldProblem("--job", f"no running job is called {job!r}", allowed)], what="option")
    return await _Watching(target, Selection(jobs=jobs), url).run()


class _Watching:
    def __init__(self, target: Watched, selection: Selection, url: str) -> None:
        self._target = target
        self._selection = selection
        self._url = url
        self._notice = ""
        self._ended = asyncio.Event()
        self._code = EXIT_QUIT
        self._console = Console(highlight=False, markup=False, emoji=False)

    async def run(self) -> int:
        descriptor = sys.stdin.fileno()
        with single_keys(descriptor), Live(console=self._console, screen=True, auto_refresh=False) as live:
            self._live = live
            with self._listening(descriptor):
                self._draw()
                async with asyncio.TaskGroup() as tasks:
                    reading = tasks.create_task(self._read_until_ended())
                    await self._ended.wait()
                    reading.cancel()
        return self._code

    @contextmanager
    def _listening(self, descriptor: int) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        loop.add_reader(descriptor, self._on_keys, descriptor)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._end, EXIT_INTERRUPTED)
        loop.add_signal_handler(signal.SIGWINCH, self._draw)
        try:
            yield
        finally:
            loop.remove_reader(descriptor)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH):
                loop.remove_signal_handler(number)

    def _end(self, code: int) -> None:
        self._code = code
        self._ended.set()

    def _on_keys(self, descriptor: int) -> None:
        for key in read_keys(descriptor):
            if key == "q":
                self._end(EXIT_QUIT)
                return
            self._selection.press(key)
        self._draw()

    async def _read_until_ended(self) -> None:
        while True:
            await asyncio.sleep(PERIOD_S)
            try:
                self._selection.jobs = await self._target.read()
                self._notice = ""
            except UpstreamError as error:
                self._notice = f"what is shown is old: {error}"
            self._draw()

    def _draw(self) -> None:
        jobs = self._selection.jobs
        is_spark = any(job.is_micro_batched for job in jobs)
        counted = f"{len(jobs)} {'running' if not is_spark else 'query' if len(jobs) == 1 else 'queries'}"
        title = f"{self._url} · {self._target.engine} · {counted}"
        height = self._console.size.height
        self._live.update(screen(self._selection, title=title, notice=self._notice, height=height), refresh=True)
