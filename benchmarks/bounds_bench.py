"""Asks every route of the API that reads or predicts about one very large job, and measures what each answer costs.

The job has 1,000 vertices of 100 subtasks and 10,000 checkpoints, three of them with the values of all subtasks, and a
reading of backpressure. The API runs as a process of its own. While it answers, `/health/live` is asked all the time.
The benchmark fails if an answer is larger than 2 MB, if the API used more than 600 MB, or if `/health/live` took longer
than 50 ms beside an answer. A machine that does other things delays both, so the limit for `/health/live` is raised by
the longest time that it takes in the same run while the API does nothing else.

    python benchmarks/bounds_bench.py [--vertices 1000] [--parallelism 100] [--checkpoints 10000] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

import httpx
import psutil
import psycopg

from backend.domain.checkpoint import (
    Checkpoint,
    CheckpointConfig,
    CheckpointHeader,
    CheckpointKind,
    CheckpointStatus,
    VertexDetail,
)
from backend.domain.engines import FLINK
from backend.domain.ids import EngineRunId, TargetId, VertexId
from backend.domain.observation import JobObservation, JobState, Observation, PollCost
from backend.domain.pressure import VertexPressure
from backend.domain.target import TargetOrigin
from backend.domain.topology import Edge, Placement, Topology, Vertex
from backend.store.ingest import IngestWriter
from backend.store.postgres.connections import create_store_engine
from backend.store.schema.partitions import Partitions, day_of
from backend.store.targets.targets import NewTarget, TargetRepository
from backend.store.wall_clock import WallClock
from tests.support.benchmarking import parser_of
from tests.support.databases import temporary_server

_ANSWER_MAX_BYTES = 2_000_000
_MEMORY_MAX_BYTES = 600 * 2**20
_HEALTH_MAX_MS = 50.0
_DETAILED = 3
# What-if needs two readings. Its rates come from their counts.
_READINGS_AGE_S = (40, 20, 0)
_TIMEOUT_S = 120.0
_CALM_WITHIN_S = 600
_CALM_S = 4
_QUIET_S = 10
_CALM_PERCENT = 10.0
_HEADERS = """
INSERT INTO checkpoints (run_id, checkpoint_id, triggered_on, job_id, kind, status, is_unaligned, triggered_at,
  latest_ack_at, end_to_end_duration_ms, checkpointed_size_bytes, full_state_size_bytes, subtask_count,
  acknowledged_count, start_delay_max_ms, alignment_max_ms, sync_max_ms, async_max_ms, observed_at)
SELECT r.id, n, (at AT TIME ZONE 'UTC')::date, r.job_id, 'checkpoint',
  CASE WHEN n %% 50 = 0 THEN 'failed' ELSE 'completed' END, false, at, at + interval '400 ms', 400 + n %% 300, 100000,
  1000000, %(subtasks)s, %(subtasks)s, 50, 40, 5, 300, at + interval '2 s'
FROM runs r, (SELECT n, %(now)s::timestamptz - (%(count)s - n) * interval '10 s' AS at
  FROM generate_series(1, %(count)s - %(detailed)s) n) g
"""


# --- the job ------------------------------------------------------------------------------------------------------


def _topology(vertices: int, parallelism: int) -> Topology:
    ids = [VertexId(f"{n:032x}") for n in range(vertices)]
    found = tuple(Vertex(v, f"operator-{n} -> Map", parallelism, 128) for n, v in enumerate(ids))
    # Ten sources, and chains of a hundred vertices below them.
    edges = tuple(Edge(ids[n - 10], ids[n], "HASH") for n in range(10, vertices))
    return Topology(found, edges)


def _detail(vertex: Vertex, number: int) -> VertexDetail:
    def values(scale: int) -> tuple[int | None, ...]:
        return tuple(scale + (7 * i + 13 * number + len(vertex.name)) % (scale + 1) for i in range(vertex.parallelism))

    return VertexDetail(
        vertex_id=vertex.id,
        start_delay_ms=values(40),
        alignment_duration_ms=values(20),
        sync_duration_ms=values(5),
        async_duration_ms=values(200),
        ack_delay_ms=values(400),
        checkpointed_size_bytes=values(10**8),
        full_state_size_bytes=values(10**9),
        processed_bytes=values(10**6),
        persisted_bytes=values(10**6),
        unaligned=(0,) * vertex.parallelism,
    )


def _pressure(vertex: Vertex, at: datetime, age_s: int) -> VertexPressure:
    ratios = tuple(round((i * 37 % 100) / 101, 6) for i in range(vertex.parallelism))
    counts = tuple(10**9 + 31 * i - 1_000 * age_s for i in range(vertex.parallelism))
    return VertexPressure(
        vertex_id=vertex.id,
        observed_at=at,
        busy_ratio=ratios,
        backpressured_ratio=tuple(round((1 - busy) / 2, 6) for busy in ratios),
        idle_ratio=tuple(round((1 - busy) / 2, 6) for busy in ratios),
        out_pool_usage_ratio=ratios,
        in_pool_usage_ratio=ratios,
        queued_in_bytes=counts,
        queued_out_bytes=counts,
        records_in_count=counts,
        records_in_per_s=ratios,
    )


def _placement(vertex: Vertex) -> Placement:
    hosts = tuple(f"taskmanager-{i % 50}.flink.svc" for i in range(vertex.parallelism))
    count = vertex.parallelism
    return Placement(vertex.id, hosts, hosts, (0,) * count, ("RUNNING",) * count)


def _observation(target: TargetId, options: argparse.Namespace, now: datetime, age_s: int) -> Observation:
    """Return what a poll reads ``age_s`` seconds before ``now``. Only the last one reads the values of subtasks."""
    read_at = now - timedelta(seconds=age_s)
    topology = _topology(options.vertices, options.parallelism)
    subtasks = options.vertices * options.parallelism
    checkpoints = []
    for number in range(options.checkpoints - _DETAILED + 1, options.checkpoints + 1) if age_s == 0 else ():
        at = now - (options.checkpoints - number) * timedelta(seconds=10) - timedelta(seconds=5)
        header = CheckpointHeader(
            checkpoint_id=number,
            kind=CheckpointKind.CHECKPOINT,
            status=CheckpointStatus.COMPLETED,
            triggered_at=at,
            is_unaligned=False,
            latest_ack_at=at + timedelta(milliseconds=801),
            end_to_end_duration_ms=801,
            checkpointed_size_bytes=10**8,
            full_state_size_bytes=10**9,
            subtask_count=subtasks,
            acknowledged_count=subtasks,
        )
        checkpoints.append(Checkpoint(header, tuple(_detail(v, number) for v in topology.vertices)))
    job = JobObservation(
        engine_run_id=EngineRunId("a" * 32),
        name="large",
        state=JobState.RUNNING,
        engine_state="RUNNING",
        started_at=now - timedelta(days=2),
        topology=topology,
        placements=tuple(map(_placement, topology.vertices)),
        config=CheckpointConfig(
            mode="exactly_once",
            interval_ms=10_000,
            timeout_ms=60_000,
            min_pause_ms=0,
            max_concurrent=1,
            is_unaligned_enabled=False,
            tolerable_failed_count=3,
        ),
        checkpoints=tuple(checkpoints),
        pressure=tuple(_pressure(v, read_at, age_s) for v in topology.vertices),
        restart_count=0,
    )
    return Observation(target, read_at, FLINK, "1.20.5", (job,), PollCost(5, 1000, 10))


async def _fill(url: str, options: argparse.Namespace) -> None:
    engine = create_store_engine(url)
    now = WallClock().now()
    try:
        new = NewTarget("http://flink:8081", "flink", TargetOrigin.API)
        target = await TargetRepository(engine).add(new, at=now)
        days = {day_of(now - timedelta(seconds=10 * n)) for n in range(0, options.checkpoints + 1, 1000)}
        await Partitions(engine).ensure(days | {day_of(now - timedelta(seconds=10 * options.checkpoints))})
        for age_s in _READINGS_AGE_S:
            await IngestWriter(engine).write(_observation(target.id, options, now, age_s))
    finally:
        await engine.dispose()
    subtasks = options.vertices * options.parallelism
    values = {"now": now, "count": options.checkpoints, "detailed": _DETAILED, "subtasks": subtasks}
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_HEADERS, values)
        connection.execute("ANALYZE")


# --- the API ------------------------------------------------------------------------------------------------------


@contextmanager
def _served(url: str) -> Iterator[tuple[str, psutil.Process]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "backend.cli", "api", "--port", str(port), "--database-url", url]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ))
    try:
        yield f"http://127.0.0.1:{port}", psutil.Process(process.pid)
    finally:
        # A thread that computes does not end before it has its result.
        process.kill()
        process.wait(20)


async def _until_ready(http: httpx.AsyncClient) -> None:
    until_s = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < until_s:
        try:
            if (await http.get("/health/ready")).status_code == 200:
                return
        except httpx.TransportError:
            pass
        await asyncio.sleep(0.2)
    raise SystemExit("the API is not ready")


async def _until_calm(process: psutil.Process) -> None:
    """Wait until the API has analysed the job, which it does on its own after it has started."""
    calm = 0
    process.cpu_percent()
    for _ in range(_CALM_WITHIN_S):
        await asyncio.sleep(1)
        calm = calm + 1 if process.cpu_percent() < _CALM_PERCENT else 0
        if calm == _CALM_S:
            return
    raise SystemExit("the API does not become calm")


_UNALIGNED = {"settings": {"mode": "unaligned"}}
_VARIED = _UNALIGNED | {"vary": {"key": "interval", "low": "5s", "high": "60s", "count": 9}}
_BACKTEST = {"parts": ["verdict", "advice"], "checkpoint_count": 500}
# The bodies of the routes that compute something of the job. The first request builds the model for what-if.
_POSTED: Sequence[tuple[str, object]] = (
    ("whatif", _UNALIGNED),
    ("whatif", _VARIED),
    ("whatif/dry-run", _UNALIGNED),
    ("whatif/accept", _UNALIGNED),
    ("annotations", {"text": "a deployment", "author": "benchmark"}),
    ("backtests", _BACKTEST),
)


@dataclass(frozen=True, slots=True)
class _Asked:
    path: str
    body: object = None

    async def answer(self, http: httpx.AsyncClient) -> httpx.Response:
        if self.body is None:
            return await http.get(self.path)
        return await http.post(self.path, json=self.body)


async def _requests(http: httpx.AsyncClient) -> list[_Asked]:
    """Return a request for each route that reads, about the large job, for parts of large answers, and ``_POSTED``."""
    (job,) = (await http.get("/api/v1/jobs")).json()["items"]
    detail = (await http.get(f"/api/v1/jobs/{job['id']}/checkpoints/latest")).json()
    vertex = f"{500:032x}"
    known = {
        "job": job["id"],
        "run": detail["run_id"],
        "checkpoint": detail["checkpoint_id"],
        "target": job["target_id"],
        "vertex": vertex,
        "subtask": 3,
        "rule": "CheckpointExpired",
    }
    paths = []
    for path, methods in (await http.get("/api/v1/openapi.json")).json()["paths"].items():
        names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
        # Thread dumps and flame graphs are read from the engine.
        if "get" in methods and all(name in known for name in names) and not path.endswith(("-dump", "-graph")):
            paths.append(path.format(**known))
    own, run, other = detail["link"], detail["run_id"], detail["checkpoint_id"] - 1
    root = f"/api/v1/jobs/{job['id']}"
    since = (datetime.fromisoformat(detail["triggered_at"]) - timedelta(hours=20)).isoformat().replace("+00:00", "Z")
    paths += [
        f"{own}/subtasks?vertex={vertex}",
        f"{own}/barriers?vertex={vertex}",
        f"{own}/space-time?open={vertex}",
        f"{root}/backpressure?vertex={vertex}",
        f"{root}/backpressure?from={since}",
        f"{root}/subtask-matrix?vertex={vertex}&limit=500",
        f"{root}/subtask-matrix?group=host&limit=500",
        f"{root}/checkpoints?limit=500",
        f"{root}/compare?a={run}:{other}&b={run}:{detail['checkpoint_id']}",
    ]
    return [*map(_Asked, paths), *(_Asked(f"{root}/{path}", body) for path, body in _POSTED)]


@dataclass(frozen=True, slots=True)
class Result:
    """What one answer cost. ``health_ms`` is the longest answer of ``/health/live`` beside it."""

    path: str
    status: int
    size_bytes: int
    took_ms: float
    health_ms: float
    memory_mib: int


class _Health:
    """Asks ``/health/live`` again and again, on a connection of its own."""

    def __init__(self) -> None:
        self.took_ms: list[float] = []

    @asynccontextmanager
    async def asked(self, root: str) -> AsyncIterator[None]:
        self.took_ms = []
        stop = asyncio.Event()

        async def ask() -> None:
            async with httpx.AsyncClient(base_url=root, timeout=_TIMEOUT_S, trust_env=False) as http:
                while not stop.is_set():
                    began_s = time.perf_counter()
                    await http.get("/health/live")
                    self.took_ms.append(1000 * (time.perf_counter() - began_s))
                    await asyncio.sleep(0.005)

        async with asyncio.TaskGroup() as group:
            group.create_task(ask())
            try:
                yield
            finally:
                stop.set()


async def measure(root: str, process: psutil.Process) -> tuple[list[Result], float]:
    """Return the cost of each answer, and the longest of ``/health/live`` without other requests, in ms."""
    async with httpx.AsyncClient(base_url=root, timeout=_TIMEOUT_S, trust_env=False) as http:
        await _until_ready(http)
        await http.get("/api/v1/jobs")
        await _until_calm(process)
        requests = await _requests(http)
        health = _Health()
        async with health.asked(root):
            await asyncio.sleep(_QUIET_S)
        quiet_ms = max(health.took_ms)
        results = []
        for asked in requests:
            async with health.asked(root):
                began_s = time.perf_counter()
                answer = await asked.answer(http)
                took_ms = 1000 * (time.perf_counter() - began_s)
            memory = process.memory_info().rss // 2**20
            size = len(answer.content)
            path = asked.path if asked.body is None else f"{asked.path} {json.dumps(asked.body)}"
            results.append(Result(path, answer.status_code, size, took_ms, max(health.took_ms), memory))
            print(f"{took_ms:8.0f} ms {path}", file=sys.stderr, flush=True)
    return results, quiet_ms


def _problems(results: Sequence[Result], quiet_ms: float) -> Iterator[str]:
    for r in results:
        if r.status >= 500:
            yield f"{r.path}: status {r.status}"
        if r.size_bytes > _ANSWER_MAX_BYTES:
            yield f"{r.path}: {r.size_bytes / 1e6:.1f} MB"
        if r.health_ms > _HEALTH_MAX_MS + quiet_ms:
            yield f"{r.path}: /health/live took {r.health_ms:.0f} ms beside it, and {quiet_ms:.0f} ms without it"
        if r.memory_mib * 2**20 > _MEMORY_MAX_BYTES:
            yield f"{r.path}: the API has {r.memory_mib} MiB"


def main() -> None:
    """Run the benchmark, print its results, and exit with 1 if a limit is exceeded."""
    parser = parser_of(__doc__)
    parser.add_argument("--pairs", type=int, help="ignored; other benchmarks have it")
    parser.add_argument("--vertices", type=int, default=1000)
    parser.add_argument("--parallelism", type=int, default=100)
    parser.add_argument("--checkpoints", type=int, default=10_000)
    options = parser.parse_args()
    with temporary_server() as server, server.databases.migrated() as url:
        asyncio.run(_fill(url, options))
        with _served(url) as (root, process):
            results, quiet_ms = asyncio.run(measure(root, process))
    if options.json:
        json.dump({"quiet_ms": quiet_ms, "results": [asdict(r) for r in results]}, sys.stdout, indent=2)
    else:
        print(f"/health/live without other requests: at most {quiet_ms:.0f} ms")
        for r in results:
            print(
                f"{r.status} {r.size_bytes / 1e3:9.1f} kB {r.took_ms:8.0f} ms, live {r.health_ms:6.0f} ms,"
                f" {r.memory_mib:5} MiB  {r.path}"
            )
    problems = list(_problems(results, quiet_ms))
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
