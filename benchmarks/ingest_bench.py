"""Measures the cost of ingest compared with a plain binary COPY of the same bytes into the same tables.

The plain COPY uses the rows that ingest stored. The benchmark reads them back as COPY's own bytes, and copies them into
an equal, empty schema on the same server: one transaction per observation, one COPY per table, without look-ups or
encoding. That is the least work that PostgreSQL needs for these rows. Ingest adds the encoding, the look-ups that make
a repeated write harmless, the state of the run and the health of the target. If several targets are polled at the
same time, ingest commits the observations that wait together in one transaction.

Ingest and plain COPY alternate (A B A B ...), so that a busy machine affects both. The CPU time of the server is read
from /proc, per process. A ratio is the median over the pairs, with the range of the middle half.

    python benchmarks/ingest_bench.py [--pairs 7] [--json]
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path

import psycopg

from backend.domain.checkpoint import DETAIL_ARRAYS, Checkpoint, VertexDetail
from backend.domain.ids import TargetId, VertexId
from backend.domain.observation import JobObservation, Observation
from backend.domain.target import TargetOrigin
from backend.store.ingest import IngestWriter
from backend.store.postgres.connections import create_store_engine, reading
from backend.store.targets.targets import NewTarget, TargetRepository
from tests.support.benchmarking import parser_of, spread, spread_words
from tests.support.databases import Databases, temporary_server
from tests.support.observations import NOW, SteppingClock, header, job, observation

_VERTICES = 5
_SUBTASKS = 40
_TABLES = ("checkpoints", "checkpoint_details")
_WARM_ID = 0


@dataclass(frozen=True, slots=True)
class Case:
    """A workload: ``write_count`` observations, each with ``checkpoint_count`` new checkpoints.

    They come from ``target_count`` targets, which are polled at the same time.
    """

    name: str
    checkpoint_count: int
    write_count: int
    target_count: int = 1

    @property
    def row_count(self) -> int:
        """The number of header rows and detail rows that the workload writes."""
        return self.write_count * self.checkpoint_count * (1 + _VERTICES)

    @property
    def sample_count(self) -> int:
        """The number of per-subtask values that the workload writes."""
        return self.write_count * self.checkpoint_count * _VERTICES * _SUBTASKS * len(DETAIL_ARRAYS)


CASES = (
    Case("first poll of a target", 10, 30),
    Case("one checkpoint a poll", 1, 150),
    Case("one checkpoint a poll, 50 targets", 1, 300, 50),
)


@dataclass(frozen=True, slots=True)
class Cost:
    """The seconds that one measurement of ingest or of plain COPY took: wall time, client CPU time, server CPU time."""

    wall_s: float
    client_cpu_s: float
    server_cpu_s: float


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one workload over all pairs.

    A ratio compares ingest to plain COPY: (median, lower quartile, upper quartile).
    """

    case: str
    pairs: int
    ingest_rows_per_s: float
    copy_rows_per_s: float
    ingest_samples_per_s: float
    ingest_cpu_us_per_sample: float
    disk_bytes_per_sample: float
    wall_ratio: tuple[float, float, float]
    server_cpu_ratio: tuple[float, float, float]
    replay_wall_ratio: tuple[float, float, float]


class Meter:
    """Measures the wall time, and the CPU time of this process and of one backend of the server."""

    def __init__(self, backend_pid: int) -> None:
        self._stat = Path(f"/proc/{backend_pid}/schedstat")
        self._began = self._read()

    def _read(self) -> tuple[float, float, float]:
        # This file counts CPU time in nanoseconds; /proc/PID/stat is too coarse.
        return time.perf_counter(), time.process_time(), int(self._stat.read_text().split()[0]) / 1e9

    def cost(self) -> Cost:
        """Return the time that was spent since this object was created."""
        return Cost(*(now - then for now, then in zip(self._read(), self._began, strict=True)))


def _checkpoint(number: int) -> Checkpoint:
    def values(scale: int) -> tuple[int, ...]:
        # All values differ, as in a real cluster, so that compression gains nothing.
        return tuple((number * 7919 + i * 104_729 + scale) % (1000 * scale) for i in range(_SUBTASKS))

    scales = (3, 5, 7, 11, 13, 10**6, 10**7, 10**5, 10**4)
    details = []
    for vertex in range(_VERTICES):
        arrays = {n: values(s + vertex) for n, s in zip(DETAIL_ARRAYS[:-1], scales, strict=True)}
        details.append(VertexDetail(vertex_id=VertexId(f"{vertex:032x}"), unaligned=(0,) * _SUBTASKS, **arrays))
    at = NOW - timedelta(hours=6) + timedelta(seconds=number % 10_000)
    return Checkpoint(replace(header(number, triggered_at=at), subtask_count=_VERTICES * _SUBTASKS), tuple(details))


def _observations(case: Case, targets: Sequence[TargetId]) -> list[list[Observation]]:
    """Return the observations of each round. A round has one observation of every target."""
    return [
        [
            observation(target, _polled(case, start + n), at=NOW + timedelta(seconds=start))
            for n, target in enumerate(targets)
        ]
        for start in range(0, case.write_count, len(targets))
    ]


def _polled(case: Case, number: int) -> JobObservation:
    """Return the job of one poll. Only the first poll of a target contains the graph and the settings."""
    whole = job(_checkpoints(case, number))
    return whole if case.checkpoint_count > 1 else replace(whole, topology=None, config=None)


def _checkpoints(case: Case, number: int) -> list[Checkpoint]:
    return [_checkpoint(i) for i in _ids(case, number)]


def _ids(case: Case, number: int) -> range:
    """Return the ids of the checkpoints of one observation. They rise, as those of a real job do."""
    first = _WARM_ID + 1 + number * case.checkpoint_count
    return range(first, first + case.checkpoint_count)


async def _ingest(url: str, case: Case) -> tuple[Cost, Cost]:
    """Write every observation, then write all of them again. Return the cost of each of the two passes."""
    engine = create_store_engine(url, plans_once=True)
    targets = [
        (await TargetRepository(engine).add(NewTarget(f"http://f{n}", "f", TargetOrigin.API), at=NOW)).id
        for n in range(case.target_count)
    ]
    writer = IngestWriter(engine, clock=SteppingClock())
    # The partitions, the connection, the query plans and the runs must exist before the measurement.
    warm = job([_checkpoint(_WARM_ID)])
    for second in range(-7, 0):
        polls = [observation(target, warm, at=NOW + timedelta(seconds=second)) for target in targets]
        await asyncio.gather(*map(writer.write, polls))
    rounds = _observations(case, targets)
    async with reading(engine) as connection:
        pid = (await connection.exec_driver_sql("SELECT pg_backend_pid()")).scalar_one()
    costs = []
    for _ in range(2):
        meter = Meter(pid)
        for polls in rounds:
            await asyncio.gather(*map(writer.write, polls))
        costs.append(meter.cost())
    await engine.dispose()
    return costs[0], costs[1]


def _stored_bytes(url: str, case: Case) -> list[dict[str, bytes]]:
    """Return the rows that each observation stored, by table, as COPY's own bytes."""
    stored = []
    with psycopg.connect(url) as connection:
        for number in range(case.write_count):
            ids = _ids(case, number)
            rows: dict[str, bytes] = {}
            for table in _TABLES:
                query = (
                    f"COPY (SELECT * FROM {table} WHERE checkpoint_id >= {ids.start}"
                    f" AND checkpoint_id < {ids.stop}) TO STDOUT (FORMAT binary)"
                )
                with connection.cursor().copy(query) as copy:
                    rows[table] = b"".join(bytes(part) for part in copy)
            stored.append(rows)
    return stored


def _copy(url: str, stored: Sequence[dict[str, bytes]], case: Case) -> Cost:
    with psycopg.connect(url) as connection:
        for day in {NOW.date(), (NOW - timedelta(hours=6)).date()}:
            for table in _TABLES:
                connection.execute(
                    f"CREATE TABLE {table}_p{day:%Y%m%d} PARTITION OF {table} FOR VALUES"
                    f" FROM ('{day}') TO ('{day + timedelta(days=1)}')"
                )
        connection.commit()
        meter = Meter(connection.info.backend_pid)
        for rows in stored:
            for table, data in rows.items():
                with connection.cursor().copy(f"COPY {table} FROM STDIN (FORMAT binary)") as copy:
                    copy.write(data)
            connection.commit()
        cost = meter.cost()
        counted = connection.execute("SELECT count(*) FROM checkpoint_details").fetchone()
    if counted != (case.write_count * case.checkpoint_count * _VERTICES,):
        raise SystemExit(f"the peer stored {counted} rows of details")
    return cost


def _pair(databases: Databases, case: Case) -> tuple[Cost, Cost, Cost, int]:
    with databases.migrated() as ours, databases.migrated() as peers:
        written, again = asyncio.run(_ingest(ours, case))
        return written, again, _copy(peers, _stored_bytes(ours, case), case), _detail_bytes(ours)


def _detail_bytes(url: str) -> int:
    """Return the number of bytes that the details use on disk, with their indexes."""
    query = (
        "SELECT sum(pg_total_relation_size(inhrelid)) FROM pg_inherits WHERE inhparent = 'checkpoint_details'::regclass"
    )
    with psycopg.connect(url) as connection:
        row = connection.execute(query).fetchone()
    return int(row[0]) if row else 0


def measure(databases: Databases, case: Case, pairs: int) -> Result:
    """Run all pairs of one workload, and return its result."""
    costs = [_pair(databases, case) for _ in range(pairs)]
    wall_s = statistics.median(c.wall_s for c, *_ in costs)
    cpu_s = statistics.median(c.client_cpu_s + c.server_cpu_s for c, *_ in costs)
    return Result(
        case=case.name,
        pairs=pairs,
        ingest_rows_per_s=round(case.row_count / wall_s),
        copy_rows_per_s=round(case.row_count / statistics.median(p.wall_s for _, _, p, _ in costs)),
        ingest_samples_per_s=round(case.sample_count / wall_s),
        ingest_cpu_us_per_sample=round(1e6 * cpu_s / case.sample_count, 3),
        disk_bytes_per_sample=round(statistics.median(size for *_, size in costs) / case.sample_count, 1),
        wall_ratio=spread([c.wall_s / p.wall_s for c, _, p, _ in costs]),
        server_cpu_ratio=spread([c.server_cpu_s / p.server_cpu_s for c, _, p, _ in costs]),
        replay_wall_ratio=spread([r.wall_s / p.wall_s for _, r, p, _ in costs]),
    )


def _print(result: Result) -> None:
    print(
        f"{result.case}: {result.ingest_rows_per_s} rows/s, plain COPY {result.copy_rows_per_s} rows/s;"
        f" {result.ingest_samples_per_s} samples/s at {result.ingest_cpu_us_per_sample} us CPU and"
        f" {result.disk_bytes_per_sample} bytes of disk each\n"
        f"  x plain COPY: time {spread_words(result.wall_ratio)}, server CPU {spread_words(result.server_cpu_ratio)},"
        f" a full replay {spread_words(result.replay_wall_ratio)} ({result.pairs} pairs)"
    )


def main(arguments: Sequence[str]) -> None:
    """Run every workload and print its result."""
    parser = parser_of(__doc__)
    parser.add_argument("--pairs", type=int, default=7, help="pairs of runs per case, at least 3 [7]")
    options = parser.parse_args(arguments)
    with temporary_server() as server:
        for case in CASES:
            result = measure(server.databases, case, max(3, options.pairs))
            if options.json:
                print(json.dumps(asdict(result)))
            else:
                _print(result)


if __name__ == "__main__":
    main(sys.argv[1:])
