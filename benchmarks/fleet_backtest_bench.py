"""Measures the backtest of a whole fleet with Spark: its time, CPU time, memory, and the size of its results.

Some drawn jobs (``tests/support/long_pasts.py``) are stored through ingest, and copied in the tables under as many
names as asked for. Then ``barrierscope pipeline backtest`` runs as a user runs it, with a page and a document. Its
processes are watched: the command, the JVM and the workers of Python. Memory is their proportional set size (PSS).

    python benchmarks/fleet_backtest_bench.py [--jobs 20] [--checkpoints 60] [--drawn 10] [--parallelism 16]
        [--page FILE] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import psycopg

from backend.domain.engines import flink
from backend.domain.target import TargetOrigin
from backend.store.ingest import IngestWriter
from backend.store.postgres.connections import create_store_engine
from backend.store.targets.targets import NewTarget, TargetRepository
from tests.support.benchmarking import parser_of, print_values
from tests.support.databases import temporary_server
from tests.support.long_pasts import LongPast
from tests.support.observations import SteppingClock, job, observation

_CHECKPOINTS_PER_WRITE = 50
_LOOK_S = 2.0
_VERSION = "1.20.5"
# The tables that the backtest reads.
_OF_RUNS = ("run_versions", "job_events", "checkpoints", "checkpoint_details", "pressure", "late_barriers", "verdicts")


@dataclass(frozen=True, slots=True)
class Result:
    """What the backtest of a fleet took. ``stored_mib`` is the size of the database."""

    jobs: int
    checkpoints: int
    subtasks: int
    stored_mib: float
    took_s: float
    cpu_s: float
    postgres_cpu_s: float
    peak_mib: float
    command_peak_mib: float
    jvm_peak_mib: float
    worker_peak_mib: float
    document_mib: float
    page_mib: float


async def _write(url: str, drawn: LongPast, number: int) -> None:
    """Store a drawn job through ingest, some checkpoints at a time."""
    clock, engine = SteppingClock(drawn.begin), create_store_engine(url)
    target = NewTarget(url=f"http://127.0.0.1:{10_000 + number}", name=f"target-{number}", origin=TargetOrigin.API)
    added = await TargetRepository(engine).add(target, at=clock.at)
    writer = IngestWriter(engine, clock=clock)
    rows, readings = list(drawn.rows()), list(drawn.readings())
    for begin in range(0, len(rows), _CHECKPOINTS_PER_WRITE):
        part = rows[begin : begin + _CHECKPOINTS_PER_WRITE]
        clock.at = max(c.header.triggered_at for c in part)
        pressure = tuple(r for r in readings if r.observed_at <= clock.at)
        readings = readings[len(pressure) :]
        own = replace(
            job(tuple(part), name=f"job-{number}", run=f"{number:032x}"),
            topology=drawn.topology(),
            placements=(),
            config=drawn.config(),
            counts=None,
            pressure=pressure,
            started_at=drawn.begin,
        )
        await writer.write(replace(observation(added.id, own, at=clock.at), engine=flink(_VERSION)))
    await engine.dispose()


def _columns(connection: psycopg.Connection[tuple[str]], table: str) -> list[str]:
    query = (
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"
        " AND attgenerated = '' ORDER BY attnum"
    )
    return [name for (name,) in connection.execute(query, (table,))]


def _multiply(url: str, drawn: int, jobs: int) -> None:
    """Copy the stored jobs until there are ``jobs`` of them."""
    with psycopg.connect(url, autocommit=True) as connection:
        names: dict[str, str] = dict(connection.execute("SELECT name, id FROM jobs").fetchall())
        for number in range(drawn, jobs):
            source = names[f"job-{number % drawn}"]
            changed = {
                "jobs": {"id": f"'j{number}'", "name": f"'job-{number}'"},
                "runs": {"id": f"id || '-{number}'", "job_id": f"'j{number}'", "engine_run_id": f"'e{number}'"},
            }
            for table in ("jobs", "runs", *_OF_RUNS):
                own = changed.get(table, {"run_id": f"run_id || '-{number}'", "job_id": f"'j{number}'"})
                there = _columns(connection, table)
                values = ", ".join(own.get(name, name) for name in there)
                which = "id = %s" if table == "jobs" else "job_id = %s"
                if table in _OF_RUNS:
                    which = "run_id IN (SELECT id FROM runs WHERE job_id = %s)"
                statement = f"INSERT INTO {table} ({', '.join(there)}) SELECT {values} FROM {table} WHERE {which}"
                connection.execute(statement.encode(), (source,))
        connection.execute("ANALYZE")


class _Watch:
    """Watches the processes below one process, and the CPU time of the processes of PostgreSQL."""

    def __init__(self, pid: int, postgres_pid: int) -> None:
        self._own = psutil.Process(pid)
        self._postgres = psutil.Process(postgres_pid)
        self._before_s = dict(self._cpu_s(self._postgres))
        self._cpu: dict[int, float] = {}
        self._postgres_cpu: dict[int, float] = {}
        self.peaks: dict[str, float] = {}

    @staticmethod
    def _cpu_s(root: psutil.Process) -> Iterator[tuple[int, float]]:
        for process in (root, *root.children(recursive=True)):
            with suppress(psutil.Error):
                times = process.cpu_times()
                yield process.pid, times.user + times.system

    def look(self) -> None:
        """Take the memory and the CPU time of now."""
        self._cpu |= dict(self._cpu_s(self._own))
        self._postgres_cpu |= dict(self._cpu_s(self._postgres))
        sums = {"all": 0.0}
        for process in (self._own, *self._own.children(recursive=True)):
            with suppress(psutil.Error):
                name = "command" if process == self._own else "jvm" if process.name() == "java" else "workers"
                mib = process.memory_full_info().pss / 2**20
                sums[name] = sums.get(name, 0.0) + mib
                sums["all"] += mib
        for name, mib in sums.items():
            self.peaks[name] = max(self.peaks.get(name, 0.0), mib)

    @property
    def cpu_s(self) -> float:
        """The CPU time of the watched processes, up to the last look at each."""
        return sum(self._cpu.values())

    @property
    def postgres_cpu_s(self) -> float:
        """The CPU time that PostgreSQL used meanwhile."""
        return sum(cpu_s - self._before_s.get(pid, 0.0) for pid, cpu_s in self._postgres_cpu.items())


@contextmanager
def filled(options: argparse.Namespace) -> Iterator[tuple[str, int]]:
    """Start a server with the stored fleet, and yield the URL of its database and its process id."""
    drawn = min(options.drawn, options.jobs)
    with temporary_server() as server, server.databases.migrated() as url:
        for number in range(drawn):
            past = LongPast(checkpoints=options.checkpoints, parallelism=options.parallelism, seed=number)
            asyncio.run(_write(url, past, number))
        _multiply(url, drawn, options.jobs)
        print(f"{options.jobs} jobs are stored", file=sys.stderr, flush=True)
        yield url, server.pid


def measure(options: argparse.Namespace) -> Result:
    """Store the fleet, run the command, and return what it took."""
    with filled(options) as (url, postgres_pid), tempfile.TemporaryDirectory() as folder:
        page, document = Path(options.page or Path(folder) / "page.html"), Path(folder) / "document.json"
        command = [str(Path(sys.executable).with_name("barrierscope")), "pipeline", "backtest", "--database-url", url]
        began_s = time.perf_counter()
        with document.open("wb") as out:
            process = subprocess.Popen([*command, "--html", str(page), "--format", "json"], stdout=out)
            watch = _Watch(process.pid, postgres_pid)
            while process.poll() is None:
                watch.look()
                time.sleep(_LOOK_S)
        took_s = time.perf_counter() - began_s
        if process.returncode != 0:
            sys.exit(f"the command ended with {process.returncode}")
        found = json.loads(document.read_bytes())
        counts = {one["verdict"]["checkpoint_count"] for one in found["jobs"]}
        if len(found["jobs"]) != options.jobs or counts != {options.checkpoints}:
            sys.exit(f"not everything was replayed: {len(found['jobs'])} jobs with {counts} checkpoints each")
        with psycopg.connect(url) as connection:
            row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
        return Result(
            jobs=options.jobs,
            checkpoints=options.checkpoints,
            subtasks=LongPast.vertices * options.parallelism,
            stored_mib=(row[0] if row else 0) / 2**20,
            took_s=took_s,
            cpu_s=watch.cpu_s,
            postgres_cpu_s=watch.postgres_cpu_s,
            peak_mib=watch.peaks.get("all", 0.0),
            command_peak_mib=watch.peaks.get("command", 0.0),
            jvm_peak_mib=watch.peaks.get("jvm", 0.0),
            worker_peak_mib=watch.peaks.get("workers", 0.0),
            document_mib=document.stat().st_size / 2**20,
            page_mib=page.stat().st_size / 2**20,
        )


def main(arguments: list[str]) -> None:
    """Measure and print the result."""
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--checkpoints", type=int, default=60)
    parser.add_argument("--drawn", type=int, default=10)
    parser.add_argument("--parallelism", type=int, default=16)
    parser.add_argument("--page", help="keep the page in this file")
    found = measure(options := parser.parse_args(arguments))
    print_values(found, is_json=options.json)


if __name__ == "__main__":
    main(sys.argv[1:])
