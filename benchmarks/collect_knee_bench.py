"""Finds how many targets one collector process can read (the knee), and what it stores if there are more of them.

A process plays the REST API of many Flinks. Each has one job with a checkpoint every 0.125 s and a history of 4
entries. So the history is replaced within half a second, and a minute of a usual cluster is tested in a few seconds.
The product's manager, loops and collectors read the targets in a process of their own, and every new terminal
checkpoint that they pass on is counted. PostgreSQL is left out, because its cost is measured by ``ingest_bench.py``.

For each limit, a first run with far too many targets finds how many checkpoints per second of CPU time arrive at most.
The knee is the number of targets that take as many. Then the knee and two, three and four times as many targets are
read: right at the knee, and once, twice and three times the knee beyond it. The result is the rate of each run divided
by the highest of them. Right at the knee, the rate is lower, because the collector also reads details there. A run
past the knee that is below 0.9 is measured again, and the better rate counts, because runs of a few seconds vary. If it
is still below 0.9 although the limit bound, the benchmark fails.

The collector reads all targets once without a limit. From then on, its process is limited to a part of one core: it is
stopped with SIGSTOP while it has used more CPU time than its part of the time that has passed, and continued with
SIGCONT. On a busy machine, a process may get less than its limit. So if the system permits it (as root), the processes
of the benchmark run with a raised priority. A rate is the number of checkpoints per second of CPU time that the
collector used. How much a second of CPU time achieves depends on what else the machine does. So the process times a
fixed piece of work again and again, and the ratios compare rates per unit of this work. The benchmark prints the part
of a core that each run used, and whether the limit bound.

    python benchmarks/collect_knee_bench.py [--cores 0.2 0.5 1] [--vertices 5] [--parallelism 40] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import uvloop

from backend.cli.garbage import collect_garbage_less_often
from backend.domain.connection import PLAIN, ConnectionOptions
from backend.domain.errors import TargetProtocolError
from backend.domain.ids import TargetId
from backend.domain.observation import NOTHING_SHED, Observation
from backend.domain.target import TargetOrigin, TargetState
from backend.store.wall_clock import WallClock
from collectors.base import Collector, TargetRow, pause
from collectors.flink.client import open_transport
from collectors.flink.collector import FlinkCollector
from collectors.loop import LoopOptions
from collectors.manager import CollectorManager, ManagerOptions
from tests.support.benchmarking import parser_of, thread_cpu_s
from tests.support.plain_http import Connection
from tests.support.scripted_flink import ScriptedFlink, ScriptedJob

_CHECKPOINT_INTERVAL_S = 0.125
_HISTORY_MAX = 4
_POLL_INTERVAL_S = 0.25
_FRESH_S = 0.02
_PROBE_TARGETS_PER_CORE = 400
_WARM_UP_MAX_S = 30.0
_SETTLED_S = 1.5
_MEASURED_S = 4.0
_TICK_S = 0.005
_UNIT_EVERY_S = 0.1
_TIMES = (1, 2, 3, 4)
_RATIO_MIN = 0.9
_BOUND_RATIO = 0.85
_NICE = -12
# Unused time is not saved up for later.
_CREDIT_MAX_S = 0.05


# --- the targets --------------------------------------------------------------------------------------------------


class _Played:
    """The responses of all targets. All play the same job."""

    def __init__(self, vertex_count: int, parallelism: int) -> None:
        self._clock = WallClock()
        job = ScriptedJob(
            0,
            interval_s=_CHECKPOINT_INTERVAL_S,
            duration_s=0.1,
            history_max=_HISTORY_MAX,
            vertex_count=vertex_count,
            parallelism=parallelism,
            started_s=self._clock.monotonic_s() - 60.0,
        )
        self._flink = ScriptedFlink(self._clock, [job])
        self._answers: dict[str, tuple[float, bytes]] = {}

    def response(self, path: str) -> bytes:
        """Return the whole HTTP response to a GET of ``path``. It is computed once in 20 ms."""
        now_s = self._clock.monotonic_s()
        found = self._answers.get(path)
        if found is None or now_s - found[0] > _FRESH_S:
            if len(self._answers) > 1000:
                self._answers.clear()
            found = self._answers[path] = (now_s, self._made(path, now_s))
        return found[1]

    def _made(self, path: str, now_s: float) -> bytes:
        status, body = 200, b""
        try:
            body = self._flink.body(path, now_s)
        except TargetProtocolError as error:
            status = error.status or 500
        head = b"HTTP/1.1 %d x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
        return head + body


async def _serve(options: argparse.Namespace) -> None:
    played = _Played(options.vertices, options.parallelism)
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(played.response), "127.0.0.1", 0, backlog=4096
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


@contextmanager
def _served(options: argparse.Namespace) -> Iterator[int]:
    """Play the targets in a process of their own. Yield the port."""
    command = [sys.executable, __file__, "--serve", "--vertices", str(options.vertices)]
    command += ["--parallelism", str(options.parallelism)]
    process = _preferred(command)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise SystemExit("the targets did not start")
        yield int(line)
    finally:
        process.terminate()
        process.wait(10)


# --- the collector ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Row:
    id: TargetId
    url: str
    kind: str = "flink"
    name: str = "played"
    labels: Mapping[str, str] = field(default_factory=dict)
    origin: TargetOrigin = TargetOrigin.API
    connection: ConnectionOptions = PLAIN
    interval_s: float | None = None


class _Rows:
    def __init__(self, rows: Sequence[_Row]) -> None:
        self._rows = rows

    async def take(self) -> Sequence[TargetRow]:
        return self._rows

    async def release(self, target_ids: Collection[TargetId]) -> None:
        pass


class _Counting:
    """Counts the new terminal checkpoints, and those that were shed."""

    def __init__(self, target_count: int) -> None:
        self._target_count = target_count
        self._newest: dict[TargetId, int] = {}
        self.has_all = asyncio.Event()
        """Set once every target was read."""
        self.new: dict[TargetId, int] = {}
        self.shed = NOTHING_SHED
        self.failed_count = 0

    def reset(self) -> None:
        self.new.clear()
        self.shed, self.failed_count = NOTHING_SHED, 0

    async def write(self, observation: Observation) -> object:
        target = observation.target_id
        headers = [c.header for job in observation.jobs for c in job.checkpoints]
        ids = [h.checkpoint_id for h in headers if h.status.is_terminal]
        before = self._newest.get(target, -1)
        self.new[target] = self.new.get(target, 0) + sum(1 for n in ids if n > before)
        self._newest[target] = max([before, *ids])
        if len(self._newest) == self._target_count:
            self.has_all.set()
        self.shed += observation.shed_in_all
        return None

    async def report_failure(self, target_id: TargetId, *, kind: TargetState, reason: str, at: datetime) -> None:
        self.failed_count += 1


_WARM = "warm"
"""What the collector's process prints once it has read all targets."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the collector: the new checkpoints per second, and what it shed and used while it was measured."""

    target_count: int
    read_count: int
    """Number of targets of which at least one new checkpoint arrived."""
    rate_per_s: float
    shed_checkpoint_count: int
    shed_detail_count: int
    failed_poll_count: int
    cores: float
    unit_us: float
    """The CPU time of the fixed piece of work, on average over the run."""

    @property
    def rate_per_cpu_s(self) -> float:
        """The checkpoints per second of CPU time."""
        return self.rate_per_s / max(self.cores, 0.01)


class _Unit:
    """Times a fixed piece of work, which parses JSON and builds values as the collector does."""

    def __init__(self) -> None:
        rows = [{"index": n, "name": f"row {n}", "values": list(range(8))} for n in range(60)]
        self._body = orjson.dumps(rows)
        self.took_s: list[float] = []

    async def run(self) -> None:
        while True:
            began_s = time.process_time()
            for _ in range(10):
                rows = orjson.loads(self._body)
                sorted(((row["name"], sum(row["values"])) for row in rows), key=lambda found: found[1])
            self.took_s.append(time.process_time() - began_s)
            await asyncio.sleep(_UNIT_EVERY_S)


async def _collect(port: int, count: int) -> Run:
    rows = [_Row(TargetId(f"t{n}"), f"http://127.0.0.1:{port}") for n in range(count)]
    counting, stop, clock = _Counting(count), asyncio.Event(), WallClock()

    @asynccontextmanager
    async def opened(row: TargetRow) -> AsyncIterator[Collector]:
        async with open_transport(row.url, timeout_s=10.0) as transport:
            yield FlinkCollector(transport, target_id=row.id)

    manager = CollectorManager(
        _Rows(rows),
        counting,
        opened,
        clock=clock,
        pause=pause,
        random=random.Random(1).random,
        options=ManagerOptions(loop=LoopOptions(interval_s=_POLL_INTERVAL_S), stop_within_s=0.1),
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(manager.run(stop))
        with suppress(TimeoutError):
            await asyncio.wait_for(counting.has_all.wait(), _WARM_UP_MAX_S)
        print(_WARM, flush=True)
        await asyncio.sleep(_SETTLED_S)
        counting.reset()
        unit = _Unit()
        timing = group.create_task(unit.run())
        began_s, used_s = time.monotonic(), time.process_time()
        await asyncio.sleep(_MEASURED_S)
        took_s, used_s = time.monotonic() - began_s, time.process_time() - used_s
        run = Run(
            count,
            sum(1 for n in counting.new.values() if n),
            round(sum(counting.new.values()) / took_s, 1),
            counting.shed.checkpoint_count,
            counting.shed.detail_count,
            counting.failed_count,
            round(used_s / took_s, 2),
            round(1e6 * statistics.mean(unit.took_s), 1),
        )
        timing.cancel()
        stop.set()
    return run


def _limited(port: int, count: int, cores: float) -> Run:
    """Run the collector in a process that gets at most ``cores`` of a core once it has read all targets."""
    command = [sys.executable, __file__, "--collect", str(port), "--targets", str(count)]
    process = _preferred(command, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    try:
        if process.stdout.readline().strip() != _WARM:
            raise SystemExit("the collector ended before it had read its targets")
        if cores < 1:
            _hold(process, cores)
        process.wait(_WARM_UP_MAX_S + 10 * (_SETTLED_S + _MEASURED_S))
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)
    line = process.stdout.read().strip()
    if not line:
        raise SystemExit("the collector ended without a result")
    return Run(**json.loads(line))


def _hold(process: subprocess.Popen[str], cores: float) -> None:
    """Stop and continue the process until it ends, so that it uses at most ``cores`` of a core."""
    credit_s, is_stopped = 0.0, False
    try:
        last_s, last_cpu_s = time.monotonic(), thread_cpu_s(process.pid)
        while process.poll() is None:
            time.sleep(_TICK_S)
            now_s, cpu_s = time.monotonic(), thread_cpu_s(process.pid)
            credit_s = min(credit_s + cores * (now_s - last_s), _CREDIT_MAX_S) - (cpu_s - last_cpu_s)
            last_s, last_cpu_s = now_s, cpu_s
            if (credit_s < 0) != is_stopped:
                is_stopped = credit_s < 0
                process.send_signal(signal.SIGSTOP if is_stopped else signal.SIGCONT)
    except (FileNotFoundError, ProcessLookupError):
        pass


def _preferred(command: Sequence[str], **options: Any) -> subprocess.Popen[str]:
    """Start a process with a raised priority, if the system permits it."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True, **options)
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, process.pid, _NICE)
        # Linux shares CPU time between sessions first, by the priorities of the sessions.
        Path(f"/proc/{process.pid}/autogroup").write_text(str(_NICE))
    return process


# --- the measurement ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Result:
    """The knee at one limit, and the runs at it and at two, three and four times as many targets.

    ``ratios`` are their checkpoints per unit of the fixed work, divided by the highest of these values. ``kept_ratios``
    are their checkpoints divided by those that were possible: all that the targets made, or the highest rate if that is
    less. ``is_bound`` is whether every run got nearly as much CPU time as the limit allows.
    """

    cores: float
    vertices: int
    parallelism: int
    knee_targets: int
    ratios: tuple[float, ...]
    kept_ratios: tuple[float, ...]
    runs: tuple[Run, ...]
    load: float
    is_bound: bool


def measure(port: int, cores: float, options: argparse.Namespace) -> Result:
    """Find the knee at one limit, and measure the runs past it."""
    probe = _limited(port, round(_PROBE_TARGETS_PER_CORE * cores), cores)
    knee = max(1, round(probe.rate_per_s / max(probe.cores, 0.01) * cores * _CHECKPOINT_INTERVAL_S))
    runs = tuple(_limited(port, times * knee, cores) for times in _TIMES)
    rates = [run.rate_per_cpu_s * run.unit_us for run in runs]
    for n, run in enumerate(runs):
        if n and rates[n] < _RATIO_MIN * max(rates):
            again = _limited(port, run.target_count, cores)
            rates[n] = max(rates[n], again.rate_per_cpu_s * again.unit_us)
    ratios = tuple(round(rate / max(rates), 2) for rate in rates)
    kept = tuple(
        round(min(1.0, max(ratio, run.rate_per_s * _CHECKPOINT_INTERVAL_S / run.target_count)), 2)
        for ratio, run in zip(ratios, runs, strict=True)
    )
    is_bound = all(run.cores >= _BOUND_RATIO * cores for run in runs)
    load = round(os.getloadavg()[0], 1)
    return Result(cores, options.vertices, options.parallelism, knee, ratios, kept, runs, load, is_bound)


def _print(result: Result) -> None:
    print(
        f"at most {result.cores:g} core: the knee is at {result.knee_targets} targets x"
        f" {result.vertices * result.parallelism} subtasks (load {result.load};"
        f" {'the limit bound' if result.is_bound else 'the machine was too busy for the limit to bind'})"
    )
    for times, run, ratio, kept in zip(_TIMES, result.runs, result.ratios, result.kept_ratios, strict=True):
        print(
            f"  {f'{times - 1} x beyond' if times > 1 else 'at'} the knee, {run.target_count} targets:"
            f" {run.rate_per_s:.0f} checkpoints/s, {run.rate_per_cpu_s:.0f} per second of CPU time,"
            f" {ratio:.2f} of the peak, {kept:.2f} of what was possible, from {run.read_count} targets;"
            f" shed {run.shed_checkpoint_count} checkpoints and"
            f" {run.shed_detail_count} details; {run.failed_poll_count} failed polls; {run.cores:.2f} core used"
        )


def main(arguments: Sequence[str]) -> None:
    """Run the benchmark and print its result."""
    parser = parser_of(__doc__)
    parser.add_argument("--cores", type=float, nargs="+", default=[0.2, 0.5, 1.0], help="limits [0.2 0.5 1]")
    parser.add_argument("--vertices", type=int, default=5, help="vertices of each job [5]")
    parser.add_argument("--parallelism", type=int, default=40, help="subtasks of each vertex [40]")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--collect", type=int, metavar="PORT", help=argparse.SUPPRESS)
    parser.add_argument("--targets", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        asyncio.run(_serve(options))
        return
    if options.collect is not None:
        # The role does this too.
        collect_garbage_less_often()
        print(json.dumps(asdict(uvloop.run(_collect(options.collect, options.targets)))), flush=True)
        return
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _NICE)
        Path("/proc/self/autogroup").write_text(str(_NICE))
    collapsed: list[str] = []
    with _served(options) as port:
        for cores in options.cores:
            result = measure(port, cores, options)
            if result.is_bound and min(result.kept_ratios) < _RATIO_MIN:
                collapsed.append(f"{min(result.kept_ratios)} of what was possible at {cores:g} core")
            if options.json:
                print(json.dumps(asdict(result)), flush=True)
            else:
                _print(result)
    if collapsed:
        raise SystemExit(f"at or past the knee the rate falls below {_RATIO_MIN}: {', '.join(collapsed)}")


if __name__ == "__main__":
    main(sys.argv[1:])
