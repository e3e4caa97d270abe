"""Measures what it costs to store and judge many large jobs: 2,000 jobs of 1,000 subtasks each.

Every round, each job has a new checkpoint with all values of its subtasks, and one reading of backpressure of each
vertex. They are written through ingest, twenty jobs at a target. Then a judge computes the findings on all jobs, as the
collector does after each commit. Last, the fleet board and the alert rules read all jobs for the first time. No HTTP
takes part.

CPU time is that of this process and of PostgreSQL. The floor of storing turns each value into an array once, and the
floor of a finding does so with the values that a finding uses. Both floors are measured in the same run. The memory is
the largest resident memory of this process, which also contains the jobs' values.

    python benchmarks/large_jobs_bench.py [--jobs 2000] [--parallelism 200] [--rounds 3] [--json]
"""

from __future__ import annotations

import asyncio
import random
import resource
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import pairwise

import numpy as np
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.domain.checkpoint import (
    Checkpoint,
    CheckpointConfig,
    CheckpointHeader,
    CheckpointKind,
    CheckpointStatus,
    VertexDetail,
)
from backend.domain.ids import EngineRunId, TargetId, VertexId
from backend.domain.observation import JobObservation
from backend.domain.pressure import VertexPressure
from backend.domain.target import TargetOrigin
from backend.domain.topology import Edge, Topology, Vertex
from backend.services.alerts.evaluation import AlertEvaluator
from backend.services.alerts.signals import SignalReader
from backend.services.checkpoints.judging import Judge, JudgeOptions
from backend.services.jobs.analysed import AnalysedJobs
from backend.services.jobs.evidence import EvidenceReader
from backend.services.jobs.fleet import FleetService
from backend.store.alerts.lease import take_term
from backend.store.ingest import IngestWriter
from backend.store.postgres.connections import create_store_engine, reading
from backend.store.targets.targets import NewTarget, TargetRepository
from tests.support.benchmarking import children_cpu_s, parser_of, print_json
from tests.support.databases import temporary_server
from tests.support.observations import NOW, SteppingClock, observation
from tests.support.observations import job as observed_job

_SEED = 17
_VERTICES = 5
_SLOW = 3
_JOBS_PER_TARGET = 20
_WRITERS = 8
_EVERY = timedelta(seconds=60)
# Jobs share these values, because generating values for every job would take longer than storing them.
_TEMPLATES = 8
_VERTEX = tuple(VertexId(f"{i:032x}") for i in range(_VERTICES))
_CONFIG = CheckpointConfig(mode="exactly_once", interval_ms=60_000, timeout_ms=60_000, is_unaligned_enabled=False)


@dataclass(frozen=True, slots=True)
class Result:
    """The cost of one step, over all jobs: seconds of wall and CPU time. ``floor_s`` is None if it has no floor."""

    step: str
    wall_s: float
    client_cpu_s: float
    server_cpu_s: float
    floor_s: float | None
    memory_mib: int
    store_mib: int


def _detail(rnd: random.Random, index: int, width: int) -> VertexDetail:
    def values(most: int) -> tuple[int, ...]:
        return tuple(rnd.randrange(most) for _ in range(width))

    wait_ms = 25_000 if index >= _SLOW else 100 * index
    first = tuple(wait_ms + v for v in values(400))
    parts = values(200), values(20), values(90)
    acks = tuple(sum(row) + 3 for row in zip(first, *parts, strict=True))
    sizes = values(10**6)
    return VertexDetail(_VERTEX[index], first, *parts, acks, sizes, sizes, sizes, sizes, values(1))


def _reading(rnd: random.Random, index: int, width: int) -> VertexPressure:
    busy = tuple(0.98 if i < width // 2 else 0.3 for i in range(width)) if index == _SLOW else (0.2,) * width
    held = tuple(0.5 + 0.3 * rnd.random() if index < _SLOW else 0.0 for _ in range(width))
    return VertexPressure(
        vertex_id=_VERTEX[index],
        observed_at=NOW,
        busy_ratio=busy,
        backpressured_ratio=held,
        idle_ratio=tuple(max(0.0, 1 - b - h) for b, h in zip(busy, held, strict=True)),
        queued_out_bytes=tuple(rnd.randrange(10**6) if index < _SLOW else 0 for _ in range(width)),
        queued_in_bytes=(0,) * width,
        records_in_count=tuple(rnd.randrange(10**6) for _ in range(width)),
        bytes_in_count=tuple(rnd.randrange(10**8) for _ in range(width)),
    )


class LargeFleet:
    """Many jobs of five vertices, whose values come from a few templates."""

    def __init__(self, jobs: int, parallelism: int) -> None:
        rnd = random.Random(_SEED)
        self.jobs = jobs
        self._subtasks = _VERTICES * parallelism
        vertices = tuple(Vertex(v, f"vertex {i}", parallelism) for i, v in enumerate(_VERTEX))
        self._topology = Topology(vertices, tuple(Edge(a, b, "HASH") for a, b in pairwise(_VERTEX)))
        self._details = [tuple(_detail(rnd, i, parallelism) for i in range(_VERTICES)) for _ in range(_TEMPLATES)]
        self._readings = [tuple(_reading(rnd, i, parallelism) for i in range(_VERTICES)) for _ in range(_TEMPLATES)]

    def floor_s(self, rounds: int) -> float:
        """Turn each value of all jobs in this many rounds into an array once. Return the CPU time that this takes."""
        began_s = time.process_time()
        for number in range(self.jobs * rounds):
            for d in self._details[number % _TEMPLATES]:
                for row in (d.start_delay_ms, d.alignment_duration_ms, d.sync_duration_ms, d.async_duration_ms):
                    np.array(row, dtype=np.float64)
                for sizes in (d.ack_delay_ms, d.checkpointed_size_bytes, d.processed_bytes, d.persisted_bytes):
                    np.array(sizes, dtype=np.float64)
            for r in self._readings[number % _TEMPLATES]:
                for ratios in (r.busy_ratio, r.backpressured_ratio, r.idle_ratio):
                    np.array(ratios, dtype=np.float64)
                for counts in (r.queued_out_bytes, r.records_in_count, r.bytes_in_count):
                    np.array(counts, dtype=np.float64)
        return time.process_time() - began_s

    def seen(self, number: int, round_number: int) -> JobObservation:
        """Return what a poll reads of one job in a round."""
        at = NOW + round_number * _EVERY
        template = (number + round_number) % _TEMPLATES
        details = self._details[template]
        checkpoint = CheckpointHeader(
            checkpoint_id=round_number + 1,
            kind=CheckpointKind.CHECKPOINT,
            status=CheckpointStatus.COMPLETED,
            triggered_at=at - timedelta(seconds=30),
            end_to_end_duration_ms=max(v for d in details for v in d.ack_delay_ms if v is not None),
            subtask_count=self._subtasks,
            acknowledged_count=self._subtasks,
        )
        counted = round_number * 10**6
        readings = tuple(
            replace(
                r,
                observed_at=at,
                records_in_count=tuple(v + counted for v in r.records_in_count if v is not None),
                bytes_in_count=tuple(v + 100 * counted for v in r.bytes_in_count if v is not None),
            )
            for r in self._readings[template]
        )
        return replace(
            observed_job([Checkpoint(checkpoint, details)], name=f"job {number}"),
            engine_run_id=EngineRunId(f"{number:032x}"),
            topology=self._topology,
            config=_CONFIG,
            placements=(),
            counts=None,
            pressure=readings,
            started_at=NOW - timedelta(hours=1),
        )


class _Costs:
    """Collects the costs of steps."""

    def __init__(self, engine: AsyncEngine, server_pid: int) -> None:
        self._engine = engine
        self._server_pid = server_pid
        self.results: list[Result] = []

    @asynccontextmanager
    async def of(self, step: str, floor_s: float | None = None) -> AsyncIterator[None]:
        wall_s, client_s, server_s = time.perf_counter(), time.process_time(), self._server_cpu_s()
        yield
        wall_s, client_s = time.perf_counter() - wall_s, time.process_time() - client_s
        server_s = self._server_cpu_s() - server_s
        async with reading(self._engine) as connection:
            size = await connection.execute(text("SELECT pg_database_size(current_database())"))
            store_bytes: int = size.scalar_one()
        memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        self.results.append(Result(step, wall_s, client_s, server_s, floor_s, memory_mib, store_bytes // 2**20))
        print(f"{step}: done after {wall_s:.0f} s", file=sys.stderr)

    def _server_cpu_s(self) -> float:
        return sum(children_cpu_s(self._server_pid).values())


async def _each(count: int, step: Callable[[int], Awaitable[object]]) -> None:
    """Call ``step`` for each number, in a few tasks at once."""
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await step(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(_WRITERS):
            group.create_task(worker())


async def measure(url: str, server_pid: int, fleet: LargeFleet, rounds: int) -> list[Result]:
    """Store and judge the fleet in the empty store at ``url``, and return the costs."""
    clock = SteppingClock(NOW)
    # A connection that stays open keeps the process of its server, whose CPU time is read.
    engine = create_store_engine(url, pool_size=_WRITERS + 2, pool_overflow=0)
    repository = TargetRepository(engine)
    target_count = -(-fleet.jobs // _JOBS_PER_TARGET)
    targets: list[TargetId] = [
        (await repository.add(NewTarget(f"http://f{i}", f"f{i}", TargetOrigin.API), at=NOW)).id
        for i in range(target_count)
    ]
    judge = Judge(engine, clock, JudgeOptions(jobs_max=fleet.jobs, checkpoints_max=fleet.jobs * rounds))
    writer = IngestWriter(engine, clock=clock, on_commit=judge.note)
    costs = _Costs(engine, server_pid)

    async def write(number: int, round_number: int) -> None:
        begin = number * _JOBS_PER_TARGET
        jobs = [fleet.seen(n, round_number) for n in range(begin, min(begin + _JOBS_PER_TARGET, fleet.jobs))]
        await writer.write(observation(targets[number], *jobs, at=clock.at))

    try:
        floor_s = fleet.floor_s(1)
        for round_number in range(rounds):
            clock.at = NOW + round_number * _EVERY
            async with costs.of(f"store round {round_number + 1}", floor_s):
                await _each(target_count, lambda n, r=round_number: write(n, r))  # type: ignore[misc]
        floor_s = fleet.floor_s(rounds)
        async with costs.of("findings", floor_s):
            while await judge.work():
                pass
        if judge.shed_count:
            print(f"{judge.shed_count} findings were left out", file=sys.stderr)
        async with costs.of("fleet board, first"):
            jobs = AnalysedJobs(clock, EvidenceReader(clock))
            board = FleetService(engine, clock, jobs)
            await board.board()
            while jobs.is_behind:
                await board.board()
        evaluator = AlertEvaluator(engine, clock, SignalReader(engine, clock, EvidenceReader(clock)))
        term = await take_term(engine, holder="bench", ttl_s=3600)
        if term is None:
            raise RuntimeError("the lease of an empty store is free")
        async with costs.of("alert rules, first"):
            await evaluator.evaluate(term)
    finally:
        await engine.dispose()
    return costs.results


def main(arguments: Sequence[str]) -> None:
    """Run the benchmark and print its results."""
    parser = parser_of(__doc__)
    parser.add_argument("--pairs", type=int, help="ignored; other benchmarks have it")
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--parallelism", type=int, default=200, help="subtasks of each of the five vertices [200]")
    parser.add_argument("--rounds", type=int, default=3, help="checkpoints of each job [3]")
    options = parser.parse_args(arguments)
    fleet = LargeFleet(options.jobs, options.parallelism)
    with temporary_server() as server, server.databases.migrated() as url:
        results = asyncio.run(measure(url, server.pid, fleet, options.rounds))
    if options.json:
        print_json(results, indent=2)
        return
    print(f"{options.jobs} jobs of {_VERTICES * options.parallelism} subtasks")
    print(f"{'step':22}{'wall s':>9}{'client CPU s':>14}{'server CPU s':>14}{'x floor':>9}{'MiB':>7}{'store MiB':>11}")
    for r in results:
        ratio = "" if r.floor_s is None else f"{(r.client_cpu_s + r.server_cpu_s) / r.floor_s:.1f}"
        print(
            f"{r.step:22}{r.wall_s:>9.1f}{r.client_cpu_s:>14.1f}{r.server_cpu_s:>14.1f}{ratio:>9}"
            f"{r.memory_mib:>7}{r.store_mib:>11}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
