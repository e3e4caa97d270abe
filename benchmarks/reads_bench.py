"""Measures a read of the last 100 checkpoints of a job, over millions of them, compared with ``SELECT 1``.

The checkpoints are written directly into the tables: 1,000 jobs over eight days, one partition a day. Two pairs are
measured, each alternating (A B A B ...), so that a busy machine affects both:

* ``statement``: the statement of the page, and ``SELECT 1``, on one connection of the driver. The rows are read
  as the page reads them.
* ``page``: the same read by the API's service of checkpoints as its response model, and ``SELECT 1`` in a transaction
  of its own through the same pool.

The ratio is that of the CPU time of this process and of the server's backend, summed over all pairs, because the wall
time of short statements depends on what else the machine does. The ratio of the wall time is printed too: the median
over the pairs. Reads are of a different job each time.

The indexes are created after the checkpoints are written, which takes a fraction of the time.

    python benchmarks/reads_bench.py [--checkpoints 2000000] [--pairs 300] [--json]
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg
from sqlalchemy import text
from sqlalchemy.dialects import postgresql

from backend.services.checkpoints.reader import CheckpointService
from backend.services.jobs.evidence import EvidenceReader
from backend.store.checkpoints.reader import CheckpointFilter, checkpoint_page
from backend.store.postgres.connections import create_store_engine, reading
from backend.store.schema.partitions import Partitions, day_of
from tests.support.benchmarking import parser_of, print_json, spread, spread_words, thread_cpu_s
from tests.support.databases import temporary_server
from tests.support.observations import NOW, SteppingClock

_JOBS = 1000
_DAYS = 8
_PAGE = 100
_RATIO_MAX = 4.0

_FLEET = (
    "INSERT INTO targets (id, url, name, origin, added_at) VALUES ('t', 'http://flink:8081', 'flink', 'api', %(now)s)",
    "INSERT INTO jobs SELECT 'j' || j, 'fleet', 'job-' || j, %(now)s FROM generate_series(0, %(jobs)s - 1) j",
    "INSERT INTO runs (id, job_id, target_id, engine_run_id, engine, started_at, state, engine_state,"
    " first_observed_at, observed_at) SELECT 'r' || j, 'j' || j, 't', 'e' || j, 'flink', %(now)s - interval '9 days',"
    " 'running', 'RUNNING', %(now)s, %(now)s FROM generate_series(0, %(jobs)s - 1) j",
)
# In the order of time, as the rows of many jobs arrive.
_CHECKPOINTS = """
INSERT INTO checkpoints (run_id, checkpoint_id, triggered_on, job_id, kind, status, is_unaligned, triggered_at,
  latest_ack_at, end_to_end_duration_ms, checkpointed_size_bytes, full_state_size_bytes, subtask_count,
  acknowledged_count, start_delay_max_ms, alignment_max_ms, sync_max_ms, async_max_ms, observed_at)
SELECT 'r' || j, n, (at AT TIME ZONE 'UTC')::date, 'j' || j, 'checkpoint',
  CASE WHEN (j + n) %% 50 = 0 THEN 'failed' ELSE 'completed' END, false, at, at + interval '400 ms',
  400 + (j + n) %% 300, 100000 + j, 1000000 + j, 40, 40, 50, 40, 5, 300, at + interval '2 s'
FROM (SELECT j, n, %(now)s - (%(per_job)s - n) * %(step_s)s * interval '1 s' - j * interval '1 ms' AS at
  FROM generate_series(%(first)s::int, %(last)s::int) n, generate_series(0, %(jobs)s - 1) j) g
"""


@dataclass(frozen=True, slots=True)
class Result:
    """The median wall times of one pair, and the ratios of its two parts.

    ``ratio`` is that of the wall time: (median, lower quartile, upper quartile) of the pairs.
    """

    case: str
    checkpoints: int
    pairs: int
    wall_us: float
    floor_us: float
    ratio: tuple[float, float, float]
    cpu_ratio: float


def fill(url: str, checkpoints: int) -> int:
    """Write the checkpoints. Return their number."""
    per_job = max(1, checkpoints // _JOBS)
    step_s = (_DAYS - 1) * 86400 / per_job
    engine = create_store_engine(url)

    async def make_partitions() -> None:
        await Partitions(engine).ensure({day_of(NOW - timedelta(days=d)) for d in range(_DAYS + 1)})
        await engine.dispose()

    asyncio.run(make_partitions())
    values = {"now": NOW, "jobs": _JOBS, "per_job": per_job, "step_s": step_s}
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in _FLEET:
            connection.execute(statement, values)
        with _without_indexes(connection):
            for first in range(1, per_job + 1, 500):
                last = min(first + 499, per_job)
                connection.execute(_CHECKPOINTS, values | {"first": first, "last": last})
        connection.execute("VACUUM ANALYZE checkpoints")
    return per_job * _JOBS


@contextmanager
def _without_indexes(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Drop the indexes of the table, and create them again at the end, which is faster than to maintain them."""
    indexes = connection.execute(
        "SELECT i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid), c.conname, pg_get_constraintdef(c.oid)"
        " FROM pg_index i LEFT JOIN pg_constraint c ON c.conindid = i.indexrelid AND c.conrelid = i.indrelid"
        " WHERE i.indrelid = 'checkpoints'::regclass"
    ).fetchall()
    for name, _, constraint, _ in indexes:
        kind = f"ALTER TABLE checkpoints DROP CONSTRAINT {constraint}" if constraint else f"DROP INDEX {name}"
        connection.execute(kind.encode())
    connection.execute("SET synchronous_commit = off")
    connection.execute("SET maintenance_work_mem = '512MB'")
    yield
    for _, definition, constraint, key in indexes:
        made = definition.replace(" ON ONLY ", " ON ")
        made = f"ALTER TABLE checkpoints ADD CONSTRAINT {constraint} {key}" if constraint else made
        connection.execute(made.encode())


_Step = Callable[[int], Awaitable[object]]


async def _measured(
    case: str, count: int, pairs: int, read: _Step, floor: _Step, server_pids: Callable[[], list[int]]
) -> Result:
    walls: list[list[float]] = [[], []]
    cpus = [0.0, 0.0]
    for number in range(-20, pairs):
        for i, step in enumerate((read, floor)):
            pids = server_pids()
            cpu_s = time.process_time() + sum(map(thread_cpu_s, pids))
            began_s = time.perf_counter()
            await step(number * 7 % _JOBS)
            wall_s = time.perf_counter() - began_s
            if number >= 0:
                walls[i].append(wall_s)
                cpus[i] += time.process_time() + sum(map(thread_cpu_s, pids)) - cpu_s
    ratios = [a / b for a, b in zip(*walls, strict=True)]
    wall_us, floor_us = (statistics.median(w) * 1e6 for w in walls)
    return Result(case, count, pairs, wall_us, floor_us, spread(ratios), cpus[0] / cpus[1])


async def measure(url: str, count: int, pairs: int) -> list[Result]:
    """Return the results of both pairs over the store at ``url``, which holds ``count`` checkpoints."""
    statement, values = checkpoint_page("j0", CheckpointFilter(), before=None, limit=_PAGE)
    compiled = statement.compile(dialect=postgresql.psycopg.dialect())  # type: ignore[no-untyped-call]
    page = str(compiled)
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        bound: dict[str, object] = dict(compiled.construct_params(values))

        async def read(job: int) -> object:
            cursor = connection.cursor(binary=True)
            return await (await cursor.execute(page, bound | {"job": f"j{job}"}, prepare=True)).fetchall()

        async def floor(_: int) -> object:
            return await (await connection.execute("SELECT 1", prepare=True)).fetchall()

        own = [connection.info.backend_pid]
        results = [await _measured("statement", count, pairs, read, floor, lambda: own)]
    engine = create_store_engine(url, pool_size=1, pool_overflow=0)
    clock = SteppingClock(NOW)
    service = CheckpointService(engine, clock, EvidenceReader(clock))

    async def served(job: int) -> object:
        return await service.page(f"j{job}", CheckpointFilter(), cursor=None, limit=_PAGE)

    async def plain(_: int) -> object:
        async with reading(engine) as connection:
            return (await connection.execute(text("SELECT 1"))).all()

    try:
        async with reading(engine) as one:
            pid = (await one.execute(text("SELECT pg_backend_pid()"))).scalar_one()
        results.append(await _measured("page", count, pairs, served, plain, lambda: [pid]))
    finally:
        await engine.dispose()
    return results


def main() -> None:
    """Run the benchmark, print its results, and exit with 1 if the statement takes more CPU time than the limit."""
    parser = parser_of(__doc__)
    parser.add_argument("--checkpoints", type=int, default=2_000_000)
    parser.add_argument("--pairs", type=int, default=300)
    arguments = parser.parse_args()
    with temporary_server() as server, server.databases.migrated() as url:
        began_s = time.perf_counter()
        count = fill(url, arguments.checkpoints)
        print(f"{count:,} checkpoints written in {time.perf_counter() - began_s:.0f} s", file=sys.stderr)
        results = asyncio.run(measure(url, count, arguments.pairs))
    if arguments.json:
        print_json(results, indent=2)
    else:
        for r in results:
            print(
                f"{r.case:10} CPU ratio {r.cpu_ratio:.2f}, {r.wall_us:8.0f} us, SELECT 1 {r.floor_us:6.0f} us,"
                f" ratio {spread_words(r.ratio)}"
            )
    if results[0].cpu_ratio > _RATIO_MAX:
        sys.exit(f"the statement takes more than {_RATIO_MAX:g} times the CPU time of SELECT 1")


if __name__ == "__main__":
    main()
