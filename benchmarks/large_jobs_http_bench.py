"""Measures what it costs to collect large jobs over HTTP and to store them: jobs of 1,000 subtasks each.

A process plays Flinks with twenty jobs each. Its responses are made once and shared by all jobs, so that the process
costs little. Each job takes a checkpoint every minute, with different values of all its subtasks, and offers eight
metrics of each subtask. The product's collectors poll every two seconds of virtual time. The clock advances only
between polls, so an overloaded machine delays nothing and nothing is shed. Every observation is stored in PostgreSQL.

There are three steps: the first poll, which reads graph, tasks and the backlog; the polls until each job has its first
reading of backpressure; and a minute of polls, with a new checkpoint of each job. The benchmark fails if a checkpoint
or the values of a subtask are missing in the store at the end.

The cost of a job does not depend on the number of jobs, so by default a tenth of the 2,000 jobs is collected, in a few
minutes. The last line is the number of cores that 2,000 such jobs need, from the CPU time of the last step. The CPU
time is that of this process and of PostgreSQL. The memory is the largest resident memory of this process.

    python benchmarks/large_jobs_http_bench.py [--jobs 200] [--parallelism 200] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import resource
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

import orjson
import uvloop
from sqlalchemy import text

from backend.cli.garbage import collect_garbage_less_often
from backend.contracts import flink
from backend.domain.errors import TargetProtocolError
from backend.domain.target import TargetOrigin
from backend.store.ingest import IngestWriter
from backend.store.postgres.connections import create_store_engine, reading
from backend.store.targets.targets import NewTarget, TargetRepository
from backend.store.wall_clock import WallClock
from collectors.flink.client import open_transport
from collectors.flink.collector import CollectorOptions, FlinkCollector
from tests.support.benchmarking import parser_of, print_json, targets_in_a_process, tree_cpu_s
from tests.support.databases import temporary_server
from tests.support.observations import SteppingClock
from tests.support.plain_http import Connection
from tests.support.scripted_flink import ScriptedFlink, ScriptedJob

_SEED = 17
_VERTICES = 5
_JOBS_PER_TARGET = 20
_FLEET_JOBS = 2000
_INTERVAL_S = 60.0
_POLL_EVERY_S = 2.0
_IN_FLIGHT = 16
_TIMEOUT_S = 60.0
_PRESSURE_POLLS_MAX = 60
# A busy machine may need long for a job, which must not be cut.
_OPTIONS = CollectorOptions(job_timeout_s=300.0)
_METRICS = (
    flink.BUSY,
    flink.BACKPRESSURED,
    flink.IDLE,
    flink.RECORDS_IN,
    flink.RECORDS_OUT,
    flink.BYTES_IN,
    flink.START_DELAY,
    flink.ALIGNMENT_TIME,
)


# --- the targets --------------------------------------------------------------------------------------------------


class _Played(ScriptedFlink):
    """Targets with large jobs. All targets are the same."""

    def __init__(self, clock: SteppingClock, job_count: int, parallelism: int) -> None:
        began_s = clock.monotonic_s() - 2.5 * _INTERVAL_S
        jobs = [
            ScriptedJob(n, _INTERVAL_S, 5.0, vertex_count=_VERTICES, parallelism=parallelism, started_s=began_s)
            for n in range(job_count)
        ]
        super().__init__(clock, jobs)
        self._played_clock = clock
        self._made: dict[str, bytes] = {}

    def response(self, path: str) -> bytes:
        """Return the whole HTTP response to a GET of ``path``."""
        if path.startswith("/benchmark/at/"):
            self._played_clock.at = datetime.fromisoformat(path.removeprefix("/benchmark/at/"))
            # The details of a checkpoint and its values do not change.
            self._made = {key: made for key, made in self._made.items() if "/details/" in key}
            return _http(200, b"")
        # The jobs differ in their ids only, which no response about a single job contains.
        key = re.sub(r"^/jobs/[0-9a-f]{32}", "/jobs/ID", path)
        if key not in self._made:
            self._made[key] = self._response(path)
        return self._made[key]

    def _response(self, path: str) -> bytes:
        if path.endswith("/subtasks/metrics"):
            return _http(200, orjson.dumps([{"id": name} for name in _METRICS]))
        if "/metrics?get=" in path:
            rnd = random.Random(path)
            ids = path.partition("?get=")[2].split(",")
            return _http(200, orjson.dumps([{"id": n, "value": str(rnd.randrange(1000))} for n in ids]))
        if path.endswith("/checkpoints/config"):
            interval_ms = round(_INTERVAL_S * 1000)
            limits = {"timeout": 600_000, "min_pause": 0, "max_concurrent": 1}
            return _http(200, orjson.dumps({"mode": "exactly_once", "interval": interval_ms, **limits}))
        try:
            body = self.body(path, self._played_clock.monotonic_s())
        except TargetProtocolError as error:
            return _http(error.status or 500, b"{}")
        if "/details/" in path:
            body = _varied(body, random.Random(f"{_SEED} {path.partition('/details/')[2]}"))
        return _http(200, body)


def _varied(body: bytes, rnd: random.Random) -> bytes:
    """Give each subtask values of its own."""
    answer = orjson.loads(body)
    for row in answer["subtasks"]:
        row["start_delay"] = rnd.randrange(400)
        row["checkpoint"] = {"sync": rnd.randrange(20), "async": rnd.randrange(500)}
        row["alignment"] = {"buffered": 0, "processed": rnd.randrange(10**6), "persisted": 0}
        row["alignment"]["duration"] = rnd.randrange(200)
        row["checkpointed_size"] = rnd.randrange(10**6)
        row["state_size"] = rnd.randrange(10**7)
        # The trigger time, which is the difference of these two, stays the same.
        earlier_ms = rnd.randrange(4000)
        row["ack_timestamp"] -= earlier_ms
        row["end_to_end_duration"] -= earlier_ms
    return orjson.dumps(answer)


def _http(status: int, body: bytes) -> bytes:
    head = b"HTTP/1.1 %d x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
    return head + body


async def _serve(options: argparse.Namespace) -> None:
    played = _Played(SteppingClock(datetime.fromisoformat(options.serve)), _JOBS_PER_TARGET, options.parallelism)
    loop = asyncio.get_running_loop()
    servers = [
        await loop.create_server(lambda: Connection(played.response), "127.0.0.1", 0)
        for _ in range(-(-options.jobs // _JOBS_PER_TARGET))
    ]
    print(json.dumps([server.sockets[0].getsockname()[1] for server in servers]), flush=True)
    await asyncio.Event().wait()


def _served(options: argparse.Namespace, now: datetime) -> AbstractContextManager[list[int]]:
    """Play the targets in a process of their own, which yields their ports."""
    command = [sys.executable, __file__, "--serve", now.isoformat(), "--jobs", str(options.jobs)]
    command += ["--parallelism", str(options.parallelism)]
    return targets_in_a_process(command)


# --- the collectors -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Result:
    """The cost of one step, over all jobs. ``fleet_cores`` is the part of a core that 2,000 jobs need."""

    step: str
    jobs: int
    subtasks: int
    polls: int
    requests: int
    received_mib: float
    wall_s: float
    client_cpu_s: float
    server_cpu_s: float
    memory_mib: int
    fleet_cores: float | None = None


class _Collecting:
    """A collector for each target, and one writer."""

    def __init__(
        self, url: str, server_pid: int, ports: Sequence[int], options: argparse.Namespace, at: datetime
    ) -> None:
        self._server_pid = server_pid
        self._ports = ports
        self._options = options
        self._engine = create_store_engine(url, plans_once=True)
        self._writer = IngestWriter(self._engine)
        self._stack = AsyncExitStack()
        self._collectors: list[FlinkCollector] = []
        self.clock = SteppingClock(at)
        self._counts = [0, 0, 0]
        self.with_pressure: set[tuple[str, str]] = set()

    async def __aenter__(self) -> _Collecting:
        repository = TargetRepository(self._engine)
        for port in self._ports:
            url = f"http://127.0.0.1:{port}"
            target = await repository.add(NewTarget(url, str(port), TargetOrigin.API), at=self.clock.at)
            transport = await self._stack.enter_async_context(open_transport(url, timeout_s=_TIMEOUT_S))
            self._collectors.append(
                FlinkCollector(transport, target_id=target.id, monotonic_s=self.clock.monotonic_s, options=_OPTIONS)
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
        await self._engine.dispose()

    async def step(self, name: str, poll_counts: Iterator[int]) -> Result:
        """Poll all targets once for each item of ``poll_counts``. Return the cost."""
        self._counts = [0, 0, 0]
        wall_s, client_s, server_s = time.perf_counter(), time.process_time(), tree_cpu_s(self._server_pid)
        for _ in poll_counts:
            limit = asyncio.Semaphore(_IN_FLIGHT)
            await asyncio.gather(*(self._poll(c, limit) for c in self._collectors))
            self.clock.at += timedelta(seconds=_POLL_EVERY_S)
            await asyncio.to_thread(_advance, self._ports[0], self.clock.at)
        server_s, client_s = tree_cpu_s(self._server_pid) - server_s, time.process_time() - client_s
        polls, requests, received = self._counts
        return Result(
            name,
            self._options.jobs,
            _VERTICES * self._options.parallelism,
            polls,
            requests,
            round(received / 2**20, 1),
            round(time.perf_counter() - wall_s, 1),
            round(client_s, 2),
            round(server_s, 2),
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        )

    async def _poll(self, collector: FlinkCollector, limit: asyncio.Semaphore) -> None:
        async with limit:
            observation = await collector.collect(self.clock.at)
            problems = [p for job in observation.jobs for p in job.problems]
            if problems:
                raise SystemExit(f"a job was not read: {problems[0]}")
            await self._writer.write(observation)
        cost = observation.cost
        self._counts = [a + b for a, b in zip(self._counts, (1, cost.request_count, cost.response_bytes), strict=True)]
        self.with_pressure |= {(observation.target_id, job.engine_run_id) for job in observation.jobs if job.pressure}

    def until_all_have_pressure(self) -> Iterator[int]:
        """Yield a number for each poll, until every job has a reading of backpressure."""
        for n in range(_PRESSURE_POLLS_MAX):
            if len(self.with_pressure) == len(self._collectors) * _JOBS_PER_TARGET:
                return
            yield n
        raise SystemExit("not every job has a reading of backpressure")

    async def check(self) -> None:
        """Fail if a checkpoint is missing in the store, or the values of a subtask."""
        query = (
            "SELECT min(n), max(n), count(*) FROM (SELECT c.run_id, c.checkpoint_id, sum(d.subtask_count) AS n FROM"
            " checkpoints c LEFT JOIN checkpoint_details d USING (run_id, checkpoint_id) GROUP BY 1, 2) AS found"
        )
        runs = (
            "SELECT min(n), max(n), count(*) FROM (SELECT run_id, count(*) AS n FROM checkpoints GROUP BY 1) AS found"
        )
        async with reading(self._engine) as connection:
            least, most, _ = (await connection.execute(text(query))).one()
            fewest, largest, run_count = (await connection.execute(text(runs))).one()
        subtasks = _VERTICES * self._options.parallelism
        jobs = len(self._collectors) * _JOBS_PER_TARGET
        if (least, most) != (subtasks, subtasks) or fewest != largest or run_count != jobs:
            raise SystemExit(
                f"missing: {least} to {most} subtasks, {fewest} to {largest} checkpoints, {run_count} runs"
            )


def _advance(port: int, at: datetime) -> None:
    """Set the clock of the targets."""
    urllib.request.urlopen(f"http://127.0.0.1:{port}/benchmark/at/{at.isoformat()}", timeout=_TIMEOUT_S).close()


async def measure(url: str, server_pid: int, options: argparse.Namespace) -> list[Result]:
    """Collect the jobs, and store them in the empty store at ``url``. Return the cost of each step."""
    now = WallClock().now() - timedelta(minutes=5)
    with _served(options, now) as ports:
        async with _Collecting(url, server_pid, ports, options, now) as collecting:
            first = await collecting.step("first poll", iter(range(1)))
            pressure = await collecting.step("until backpressure", collecting.until_all_have_pressure())
            polls = round(_INTERVAL_S / _POLL_EVERY_S)
            minute = await collecting.step("a minute", iter(range(polls)))
            await collecting.check()
    cpu_s = minute.client_cpu_s + minute.server_cpu_s
    cores = round(cpu_s / (len(ports) * _JOBS_PER_TARGET) * _FLEET_JOBS / _INTERVAL_S, 2)
    return [first, pressure, Result(**(asdict(minute) | {"fleet_cores": cores}))]


def main(arguments: Sequence[str]) -> None:
    """Run the benchmark and print its results."""
    parser = parser_of(__doc__)
    parser.add_argument("--pairs", type=int, help="ignored; other benchmarks have it")
    parser.add_argument("--jobs", type=int, default=200, help="number of jobs, rounded up to whole targets [200]")
    parser.add_argument("--parallelism", type=int, default=200, help="subtasks of each of the five vertices [200]")
    parser.add_argument("--serve", metavar="NOW", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        asyncio.run(_serve(options))
        return
    collect_garbage_less_often()
    with temporary_server() as server, server.databases.migrated() as url:
        results = uvloop.run(measure(url, server.pid, options))
    if options.json:
        print_json(results, indent=2)
        return
    print(f"{options.jobs} jobs of {_VERTICES * options.parallelism} subtasks")
    heads = ("polls", 7), ("requests", 10), ("MiB read", 10), ("wall s", 9), ("client CPU s", 14), ("server CPU s", 14)
    print(f"{'step':20}" + "".join(f"{head:>{width}}" for head, width in (*heads, ("MiB", 7))))
    for r in results:
        print(
            f"{r.step:20}{r.polls:>7}{r.requests:>10}{r.received_mib:>10.0f}{r.wall_s:>9.1f}{r.client_cpu_s:>14.1f}"
            f"{r.server_cpu_s:>14.1f}{r.memory_mib:>7}"
        )
    print(f"{_FLEET_JOBS} such jobs need {results[-1].fleet_cores} cores")


if __name__ == "__main__":
    main(sys.argv[1:])
