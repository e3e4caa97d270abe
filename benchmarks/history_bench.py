"""Measures the disk space of a day of history, before and after the arrays of its healthy checkpoints are removed.

One job is written through ingest: a checkpoint each minute, of which one in a hundred fails and one in a hundred takes
ten times as long, and readings of backpressure as retention leaves them, one each minute. All values by subtask differ,
as in a real cluster under unaligned checkpoints, so that the shorter form of equal values saves nothing. Then retention
removes arrays, and the space is measured again. Sizes include indexes and are read from the catalogue of PostgreSQL.

A *subtask sample* is what is stored of one subtask at one checkpoint: ten values. The limit is 60 bytes at parallelism
40; the exit code is 1 if it is exceeded, or if a result of a whole day differs from the table in ``docs/sizing.md`` by
more than 15 %.

Last, the day of a fleet is down-sampled, while a reader and a late writer use it: jobs of 12 subtasks with a checkpoint
each minute. The result is the time, the CPU time of all processes, the write-ahead log, and the longest time that a
read and a write took.

    python benchmarks/history_bench.py [--minutes 1440] [--fleet-jobs 50] [--fleet-checkpoints 60] [--json]
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date, timedelta
from pathlib import Path

import psutil
import psycopg
from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.domain.checkpoint import Checkpoint, CheckpointStatus, VertexDetail
from backend.domain.ids import TargetId, VertexId
from backend.domain.pressure import VertexPressure
from backend.domain.target import TargetOrigin
from backend.store.downsampling import Removed, remove_from_day
from backend.store.ingest import IngestWriter
from backend.store.postgres.connections import create_store_engine, session, writing
from backend.store.schema.partitions import Retention, day_of, list_partitions
from backend.store.schema.tables import PARTITIONED, metadata
from backend.store.targets.targets import NewTarget, TargetRepository
from tests.support.benchmarking import parser_of
from tests.support.databases import Databases, temporary_server
from tests.support.observations import NOW, SteppingClock, header, job, observation

_SEED = 13
_DAY_MINUTES = 1440
_MINUTE = timedelta(minutes=1)
# The first instant of the measured day, which is old enough to be down-sampled.
_START = NOW.replace(hour=0, minute=0) - timedelta(days=4)
_PER_WRITE = 30
_SAMPLE_BYTES_MAX = 60.0
_GATED_PARALLELISM = 40
_USED_EVERY_S = 0.005
_DIFFERENCE_MAX = 0.15
ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a job: its vertices and their parallelism."""

    vertices: int
    parallelism: int


SHAPES = (Shape(3, 4), Shape(4, 10), Shape(5, 40), Shape(5, 200))


@dataclass(frozen=True, slots=True)
class Result:
    """The disk space of one job, with a checkpoint each minute.

    ``day_mib`` and ``downsampled_day_mib`` are for a day of 1440 checkpoints.
    """

    vertices: int
    parallelism: int
    subtasks: int
    bytes_per_subtask_sample: float
    bytes_per_checkpoint_header: float
    bytes_per_subtask_reading: float
    day_mib: float
    downsampled_day_mib: float


def _detail(rng: random.Random, vertex: int, count: int, *, slow: int) -> VertexDetail:
    def values(draw: float, spread: float) -> tuple[int, ...]:
        return tuple(round(draw * rng.lognormvariate(0, spread)) for _ in range(count))

    return VertexDetail(
        vertex_id=VertexId(f"{vertex:032x}"),
        start_delay_ms=values(200 * slow, 0.5),
        alignment_duration_ms=values(50 * slow, 1.0),
        sync_duration_ms=values(15, 0.5),
        async_duration_ms=values(300, 0.5),
        ack_delay_ms=values(700 * slow, 0.3),
        checkpointed_size_bytes=values(4e6, 0.5),
        full_state_size_bytes=values(4e8, 0.2),
        processed_bytes=values(3e5, 0.7),
        persisted_bytes=values(3e5, 0.7),
        unaligned=(1,) * count,
    )


def _checkpoint(rng: random.Random, shape: Shape, number: int) -> Checkpoint:
    status = CheckpointStatus.FAILED if number % 100 == 50 else CheckpointStatus.COMPLETED
    slow = 10 if number % 100 == 99 else 1
    own = replace(
        header(number, status, triggered_at=_START + number * _MINUTE),
        end_to_end_duration_ms=slow * rng.randint(800, 1200),
        subtask_count=shape.vertices * shape.parallelism,
    )
    return Checkpoint(own, tuple(_detail(rng, v, shape.parallelism, slow=slow) for v in range(shape.vertices)))


def _readings(rng: random.Random, shape: Shape, number: int) -> list[VertexPressure]:
    count = shape.parallelism
    found = []
    for vertex in range(shape.vertices):
        busy = [rng.randint(200, 800) for _ in range(count)]
        held = [rng.randint(0, 1000 - b) for b in busy]
        total = [number * 60_000 + rng.randint(0, 60_000) for _ in range(count)]
        found.append(
            VertexPressure(
                vertex_id=VertexId(f"{vertex:032x}"),
                observed_at=_START + number * _MINUTE,
                busy_ratio=tuple(b / 1000 for b in busy),
                backpressured_ratio=tuple(h / 1000 for h in held),
                idle_ratio=tuple((1000 - b - h) / 1000 for b, h in zip(busy, held, strict=True)),
                out_pool_usage_ratio=tuple(rng.random() for _ in range(count)),
                in_pool_usage_ratio=tuple(rng.random() for _ in range(count)),
                queued_in_bytes=tuple(rng.randint(0, 500_000) for _ in range(count)),
                queued_out_bytes=tuple(rng.randint(0, 500_000) for _ in range(count)),
                records_in_count=tuple(total),
                records_out_count=tuple(n * 9 // 10 for n in total),
                bytes_in_count=tuple(n * 120 for n in total),
                start_delay_gauge_ms=tuple(rng.randint(0, 500) for _ in range(count)),
                alignment_gauge_ms=tuple(rng.randint(0, 100) for _ in range(count)),
            )
        )
    return found


@dataclass(frozen=True, slots=True)
class FleetResult:
    """The cost of down-sampling the day of a fleet. Sizes are those of the day's partitions."""

    jobs: int
    checkpoints: int
    before_mib: float
    after_mib: float
    wall_s: float
    cpu_s: float
    wal_mib: float
    reads: int
    usual_read_ms: float
    slowest_read_ms: float
    writes: int
    usual_write_ms: float
    slowest_write_ms: float


def _cpu_s(server_pid: int) -> float:
    """Return the CPU time of this process, and of all processes of the server, also of those that have ended."""
    server = psutil.Process(server_pid)
    times = [psutil.Process().cpu_times(), server.cpu_times(), *(p.cpu_times() for p in server.children())]
    ended = server.cpu_times()
    return float(sum(t.user + t.system for t in times) + ended.children_user + ended.children_system)


async def _fleet(url: str, server_pid: int, jobs: int, minutes: int) -> FleetResult:
    engine = create_store_engine(url)
    await _write_day(engine, Shape(3, 4), minutes)
    day = day_of(_START)
    for name in PARTITIONED:
        columns = [c.name for c in metadata.tables[name].c]
        values = ", ".join("md5(run_id || n)" if c == "run_id" else c for c in columns)
        statement = (
            f"INSERT INTO {name} ({', '.join(columns)}) SELECT {values} FROM {name}, generate_series(2, {jobs}) n"
        )
        async with session(engine, statement_timeout_s=3600) as connection:
            await connection.exec_driver_sql(statement)
            await connection.commit()
    with psycopg.connect(url, autocommit=True) as own:
        # The rows of a past day were read before, and vacuumed. Otherwise the first read would write each page.
        own.execute("VACUUM (FREEZE, ANALYZE)")
        own.execute("CHECKPOINT")
    before = await _size_bytes(engine)
    took_ms: dict[str, list[float]] = {"read": [], "write": []}
    is_done = asyncio.Event()
    async with asyncio.TaskGroup() as users:
        users.create_task(_use(engine, day, took_ms["read"], _READ, is_done))
        users.create_task(_use(engine, day, took_ms["write"], _WRITE, is_done))
        began_s, cpu_s, wal = time.perf_counter(), _cpu_s(server_pid), await _wal_bytes(engine)
        while not await remove_from_day(engine, day, Removed(arrays=True), Retention()):
            print("the replacement got no lock; trying again", file=sys.stderr)
        wall_s, used_s = time.perf_counter() - began_s, _cpu_s(server_pid) - cpu_s
        wal_mib = (await _wal_bytes(engine) - wal) / 2**20
        is_done.set()
    after = await _size_bytes(engine)
    await engine.dispose()
    reads, writes = took_ms["read"], took_ms["write"]
    return FleetResult(
        jobs,
        jobs * minutes,
        round(before / 2**20, 1),
        round(after / 2**20, 1),
        round(wall_s, 1),
        round(used_s, 1),
        round(wal_mib, 1),
        len(reads),
        round(statistics.median(reads), 1),
        round(max(reads), 1),
        len(writes),
        round(statistics.median(writes), 1),
        round(max(writes), 1),
    )


_READ = text("SELECT * FROM checkpoint_details WHERE triggered_on = :day AND checkpoint_id = :id AND run_id = :run")
_WRITE = text(
    "UPDATE checkpoint_details SET subtask_count = subtask_count"
    " WHERE triggered_on = :day AND checkpoint_id = :id AND run_id = :run"
)


async def _use(
    engine: AsyncEngine, day: date, took_ms: list[float], statement: TextClause, is_done: asyncio.Event
) -> None:
    """Use the rows of a job again and again until ``is_done``, and note how long each transaction takes."""
    async with engine.connect() as connection:
        run = (await connection.execute(text("SELECT run_id FROM checkpoint_details LIMIT 1"))).scalar_one()
    for number in itertools.count():
        began_s = time.perf_counter()
        async with writing(engine) as connection:
            await connection.execute(statement, {"day": day, "id": number % 60, "run": run})
        took_ms.append((time.perf_counter() - began_s) * 1000)
        await asyncio.sleep(_USED_EVERY_S)
        if is_done.is_set():
            return


async def _size_bytes(engine: AsyncEngine) -> int:
    return sum(p.size_bytes for p in await list_partitions(engine) if p.day == day_of(_START))


async def _wal_bytes(engine: AsyncEngine) -> int:
    async with engine.connect() as connection:
        query = text("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::int8")
        return int((await connection.execute(query)).scalar_one())


async def _write(url: str, shape: Shape, minutes: int) -> tuple[dict[str, int], dict[str, int]]:
    """Write one day of a job. Return the size of each table's partition, before and after down-sampling."""
    engine = create_store_engine(url)
    await _write_day(engine, shape, minutes)
    day = day_of(_START)
    sizes = []
    for removed in (None, Removed(arrays=True)):
        if removed is not None and not await remove_from_day(engine, day, removed, Retention()):
            raise SystemExit("the day could not be rewritten")
        sizes.append({p.name.rpartition("_p")[0]: p.size_bytes for p in await list_partitions(engine) if p.day == day})
    await engine.dispose()
    return sizes[0], sizes[1]


async def _write_day(engine: AsyncEngine, shape: Shape, minutes: int) -> None:
    target: TargetId = (await TargetRepository(engine).add(NewTarget("http://f", "f", TargetOrigin.API), at=NOW)).id
    writer = IngestWriter(engine, clock=SteppingClock())
    rng = random.Random(_SEED)
    for first in range(0, minutes, _PER_WRITE):
        numbers = range(first, min(first + _PER_WRITE, minutes))
        seen = replace(
            job([_checkpoint(rng, shape, n) for n in numbers]),
            started_at=_START,
            pressure=tuple(r for n in numbers for r in _readings(rng, shape, n)),
        )
        await writer.write(observation(target, seen, at=_START + numbers[-1] * _MINUTE))


def measure(databases: Databases, shape: Shape, minutes: int) -> Result:
    """Write one day of a job of this shape, and return the space that it takes."""
    with databases.migrated() as url:
        whole, left = asyncio.run(_write(url, shape, minutes))
    subtasks = shape.vertices * shape.parallelism
    per_day = _DAY_MINUTES / minutes / 2**20
    return Result(
        vertices=shape.vertices,
        parallelism=shape.parallelism,
        subtasks=subtasks,
        bytes_per_subtask_sample=round(whole["checkpoint_details"] / minutes / subtasks, 1),
        bytes_per_checkpoint_header=round(whole["checkpoints"] / minutes),
        bytes_per_subtask_reading=round(whole["pressure"] / minutes / subtasks, 1),
        day_mib=round(sum(whole.values()) * per_day, 2),
        downsampled_day_mib=round(sum(left.values()) * per_day, 2),
    )


def _print(result: Result) -> None:
    print(
        f"{result.vertices} x {result.parallelism} subtasks: {result.bytes_per_subtask_sample} B a subtask sample,"
        f" {result.bytes_per_subtask_reading} B a subtask reading, {result.bytes_per_checkpoint_header} B a header;"
        f" {result.day_mib} MiB a day, {result.downsampled_day_mib} MiB after down-sampling"
    )


def documented() -> dict[int, list[float]]:
    """Return the rows of the table in ``docs/sizing.md``: for each number of subtasks, the other columns."""
    text_of_table = (ROOT / "docs" / "sizing.md").read_text().partition("a day after its arrays were removed |")[2]
    rows = {}
    for line in text_of_table.partition("\n\n")[0].splitlines()[2:]:
        first, *others = line.strip("|").split("|")
        rows[int(first.split()[0])] = [float(cell.split()[0]) for cell in others]
    return rows


def _differences(result: Result) -> list[str]:
    """Return the columns of the documented table that differ from the result."""
    measured = (
        result.bytes_per_subtask_sample,
        result.bytes_per_subtask_reading,
        result.bytes_per_checkpoint_header,
        result.day_mib,
        result.downsampled_day_mib,
    )
    return [
        f"{result.subtasks} subtasks: measured {found:g}, docs/sizing.md has {stated:g}"
        for found, stated in zip(measured, documented()[result.subtasks], strict=True)
        if abs(found / stated - 1) > _DIFFERENCE_MAX
    ]


def _fleet_line(fleet: FleetResult) -> str:
    return (
        f"a day of {fleet.jobs} jobs with {fleet.checkpoints} checkpoints: {fleet.before_mib} MiB became"
        f" {fleet.after_mib} MiB in {fleet.wall_s} s, with {fleet.cpu_s} s of CPU time and {fleet.wal_mib} MiB of"
        f" write-ahead log; meanwhile {fleet.reads} reads took {fleet.usual_read_ms} ms (slowest"
        f" {fleet.slowest_read_ms}) and {fleet.writes} late writes {fleet.usual_write_ms} ms (slowest"
        f" {fleet.slowest_write_ms})"
    )


def main(arguments: Sequence[str]) -> None:
    """Measure every shape, print the results, and exit with 1 if a subtask sample is too large."""
    parser = parser_of(__doc__)
    parser.add_argument("--pairs", type=int, help="ignored; other benchmarks have it")
    parser.add_argument("--minutes", type=int, default=_DAY_MINUTES, help="checkpoints of each job, at least 60 [1440]")
    parser.add_argument("--fleet-jobs", type=int, default=50, help="jobs of the fleet; 0 leaves it out [50]")
    parser.add_argument("--fleet-checkpoints", type=int, default=60, help="checkpoints of each of these jobs [60]")
    parser.add_argument("--fleet-only", action="store_true", help="measure only the fleet")
    options = parser.parse_args(arguments)
    is_too_large, differences = False, list[str]()
    with temporary_server() as server:
        for shape in () if options.fleet_only else SHAPES:
            result = measure(server.databases, shape, max(60, min(options.minutes, _DAY_MINUTES)))
            if options.json:
                print(json.dumps(asdict(result)))
            else:
                _print(result)
            if options.minutes == _DAY_MINUTES:
                # The empty pages of indexes count more in a shorter day.
                differences += _differences(result)
            if shape.parallelism == _GATED_PARALLELISM:
                is_too_large = result.bytes_per_subtask_sample > _SAMPLE_BYTES_MAX
        if options.fleet_jobs:
            with server.databases.migrated() as url:
                minutes = max(60, min(options.fleet_checkpoints, _DAY_MINUTES))
                fleet = asyncio.run(_fleet(url, server.pid, options.fleet_jobs, minutes))
            print(json.dumps(asdict(fleet)) if options.json else _fleet_line(fleet))
    if differences:
        sys.exit("; ".join(differences))
    if is_too_large:
        sys.exit(f"a subtask sample takes more than {_SAMPLE_BYTES_MAX:g} B at parallelism {_GATED_PARALLELISM}")


if __name__ == "__main__":
    main(sys.argv[1:])
