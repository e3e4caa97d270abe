"""Measures how much slower the pages and the API respond while Spark computes rollups on the same machine.

The API with its pages runs in its own process and serves a store with thousands of checkpoints of several jobs. Each
pair of rounds sends requests one after another, first without Spark, then during a run of ``barrierscope pipeline
rollups`` (a JVM and its workers, at the priority that the product gives them). The rounds alternate, so that a busy
machine affects both. A ratio is a quantile with Spark divided by the same quantile without Spark.

    python benchmarks/pages_beside_spark_bench.py [--pairs 2] [--json]
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg

from backend.domain.rollup import Measure
from backend.store.wall_clock import WallClock
from tests.support.benchmarking import parser_of
from tests.support.dash_calls import request_of
from tests.support.databases import Databases, temporary_server
from tests.support.many_checkpoints import insert, row
from tests.support.running_up import free_port
from tests.support.waiting import until

_SEED = 20261121
_JOBS = 12
_CHECKPOINTS = 10_000
_HOURS = 24
_QUIET_S = 8.0
_COMMAND = (sys.executable, "-P", "-m", "backend.cli")


@dataclass(frozen=True, slots=True)
class Result:
    """The response times of one kind of request: quiet (without Spark, all rounds together) and busy (beside Spark)."""

    request: str
    quiet_count: int
    busy_count: int
    quiet_p50_ms: float
    quiet_p95_ms: float
    busy_p50_ms: float
    busy_p95_ms: float
    busy_max_ms: float

    @property
    def ratios(self) -> tuple[float, float]:
        """The ratios of busy to quiet: of the medians, and of the 95th percentiles."""
        return self.busy_p50_ms / self.quiet_p50_ms, self.busy_p95_ms / self.quiet_p95_ms


@dataclass(frozen=True, slots=True)
class Spark:
    """The time that one Spark run took, its CPU time, and the number of hours that it rolled up."""

    wall_s: float
    cpu_s: float
    hours_done: int


Times = dict[str, list[float]]


def measure(databases: Databases, folder: Path, pairs: int) -> tuple[list[Result], list[Spark]]:
    """Alternate quiet and busy rounds. Return the response times and the Spark runs."""
    with databases.migrated() as url:
        now = WallClock().now()
        _make_jobs(url, now)
        insert(url, _drawn(now))
        environment = os.environ | {
            "BARRIERSCOPE_DATABASE_URL": url,
            "BARRIERSCOPE_DATA_DIR": str(folder),
            "BARRIERSCOPE_LOG_LEVEL": "error",
        }
        sparks: list[Spark] = []
        with _api(environment) as client:
            quiet, busy = _ask(client, lambda: False, rounds=3), _ask(client, lambda: True)
            for times in quiet.values():
                # The first requests fill caches, so their times do not count.
                times.clear()
            for _ in range(pairs):
                _add(quiet, _for_seconds(client, _QUIET_S))
                times_beside, spark = _beside_spark(client, environment)
                _add(busy, times_beside)
                sparks.append(spark)
    return [_result(name, quiet[name], busy[name]) for name in quiet], sparks


def _drawn(now: datetime) -> list[dict[str, Any]]:
    rng = random.Random(_SEED)
    step = timedelta(hours=_HOURS) / _CHECKPOINTS
    rows = []
    for number in range(_CHECKPOINTS):
        duration_ms = round(rng.lognormvariate(6.5, 0.8))
        values = {m.value: rng.randrange(1, 5_000_000) if m.value.endswith("bytes") else duration_ms for m in Measure}
        status = "failed" if rng.random() < 0.05 else "completed"
        at = now - timedelta(hours=_HOURS) + number * step
        rows.append(row(f"j{number % _JOBS}", number, at, status, **values))
    return rows


def _make_jobs(url: str, now: datetime) -> None:
    """Write the target, jobs and runs to which the random checkpoints refer."""
    with psycopg.connect(url) as connection:
        connection.execute(
            "INSERT INTO targets (id, url, name, origin, added_at) VALUES ('t', 'http://flink', 'flink', 'api', %s)",
            [now],
        )
        for number in range(_JOBS):
            job = f"j{number}"
            connection.execute("INSERT INTO jobs VALUES (%s, 'flink', %s, %s)", [job, job, now])
            connection.execute(
                "INSERT INTO runs (id, job_id, target_id, engine_run_id, engine, started_at, state, engine_state,"
                " first_observed_at, observed_at) VALUES (%s, %s, 't', %s, 'flink', %s, 'running', 'RUNNING', %s, %s)",
                [f"r-{job}", job, job, now - timedelta(hours=_HOURS), now, now],
            )


def _add(to: Times, times: Times) -> None:
    for name, values in times.items():
        to[name] += values


@contextmanager
def _api(environment: dict[str, str]) -> Iterator[httpx.Client]:
    port = free_port()
    process = subprocess.Popen([*_COMMAND, "api", "--port", str(port)], env=environment, stderr=subprocess.DEVNULL)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60.0, trust_env=False) as client:
            until(lambda: _is_ready(client), "the API serves", timeout_s=120)
            yield client
    finally:
        process.terminate()
        process.wait(30)


def _is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/health/ready").is_success
    except httpx.HTTPError:
        return False


def _requests(client: httpx.Client) -> dict[str, Callable[[], httpx.Response]]:
    answer = client.get("/api/v1/jobs?limit=1")
    if not answer.is_success:
        raise SystemExit(f"the API does not answer: {answer.text[:500]}")
    job = answer.json()["items"][0]["id"]
    asked = {"fleet-request.data": {"startRow": 0, "endRow": 50, "sortModel": [], "filterModel": {}}}
    callbacks = client.get("/ui/_dash-dependencies").json()
    fleet = request_of(callbacks, "fleet-rows.data", asked, by="fleet-request.data")
    return {
        "page: fleet, 50 rows": lambda: client.post("/ui/_dash-update-component", json=fleet),
        "API: board, 50 rows": lambda: client.get("/api/v1/board?limit=50"),
        "API: fleet": lambda: client.get("/api/v1/jobs?limit=100"),
        "API: a job's checkpoints": lambda: client.get(f"/api/v1/jobs/{job}/checkpoints?limit=100"),
        "API: a job's seven days": lambda: client.get(f"/api/v1/jobs/{job}/rollups?limit=200"),
    }


def _ask(client: httpx.Client, is_over: Callable[[], bool], *, rounds: int | None = None) -> Times:
    requests = _requests(client)
    found: Times = {name: [] for name in requests}
    turn = 0
    while not is_over() and (rounds is None or turn < rounds):
        turn += 1
        for name, request in requests.items():
            began_s = time.perf_counter()
            request().raise_for_status()
            found[name].append((time.perf_counter() - began_s) * 1000)
            # People pause to read. Without pauses, the requests would measure only the server's maximum load.
            time.sleep(0.02)
    return found


def _for_seconds(client: httpx.Client, seconds: float) -> Times:
    deadline_s = time.monotonic() + seconds
    return _ask(client, lambda: time.monotonic() > deadline_s)


def _beside_spark(client: httpx.Client, environment: dict[str, str]) -> tuple[Times, Spark]:
    began_s = time.monotonic()
    options = ["--master", "local[2]", "--since", "2020-01-01T00:00:00Z", "--format", "json"]
    command = [*_COMMAND, "pipeline", "rollups", *options]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    family = psutil.Process(process.pid)
    cpu_s: dict[int, float] = {}

    def is_over() -> bool:
        for member in [family, *_children(family)]:
            try:
                times = member.cpu_times()
                cpu_s[member.pid] = times.user + times.system
            except psutil.Error:
                continue
        return process.poll() is not None

    found = _ask(client, is_over)
    took_s = time.monotonic() - began_s
    assert process.stdout is not None
    said = process.stdout.read()
    if process.wait() != 0:
        raise SystemExit("the rollups did not end well; run `barrierscope pipeline rollups` to see why")
    return found, Spark(round(took_s, 1), round(sum(cpu_s.values()), 1), json.loads(said)["hours_done"])


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        found: list[psutil.Process] = process.children(recursive=True)
    except psutil.Error:
        return []
    return found


def _result(name: str, quiet: Sequence[float], busy: Sequence[float]) -> Result:
    return Result(
        name, len(quiet), len(busy), _quantile(quiet, 50), _quantile(quiet, 95), _quantile(busy, 50),
        _quantile(busy, 95), round(max(busy), 1),
    )  # fmt: skip


def _quantile(values: Sequence[float], percent: int) -> float:
    return round(statistics.quantiles(values, n=100, method="inclusive")[percent - 1], 2)


def _print(results: Sequence[Result], sparks: Sequence[Spark]) -> None:
    for spark in sparks:
        print(f"Spark: {spark.hours_done} hours rolled up in {spark.wall_s} s, {spark.cpu_s} s of CPU")
    for r in results:
        p50, p95 = r.ratios
        print(f"{r.request}: {r.quiet_count} requests quiet, {r.busy_count} beside Spark")
        print(f"  p50 {r.quiet_p50_ms} ms quiet, {r.busy_p50_ms} ms beside Spark: {p50:.2f} times")
        print(f"  p95 {r.quiet_p95_ms} ms quiet, {r.busy_p95_ms} ms beside Spark: {p95:.2f} times")
        print(f"  worst beside Spark {r.busy_max_ms} ms")


def main(arguments: Sequence[str]) -> None:
    """Run the benchmark and print its results."""
    parser = parser_of(__doc__)
    parser.add_argument("--pairs", type=int, default=2, help="pairs of a quiet and a busy round [2]")
    options = parser.parse_args(arguments)
    with temporary_server() as server:
        results, sparks = measure(server.databases, server.folder / "data", max(1, options.pairs))
        if options.json:
            for line in (*map(asdict, sparks), *map(asdict, results)):
                print(json.dumps(line))
        else:
            _print(results, sparks)


if __name__ == "__main__":
    main(sys.argv[1:])
