"""Measures the fleet board and one evaluation of the alert rules over many live jobs.

The jobs are written directly into the tables: a graph of four vertices with ten subtasks each, a checkpoint every
minute for two hours, the details of the newest sixteen, and readings of backpressure. A third of the jobs has an open
checkpoint at nearly all times, one in ten fails often, and one in twenty has ended (``tests/support/live_fleet.py``).
Then each case is measured in turn:

* ``first``: the first board of a process that knows no job yet, over a store without findings.
* ``unchanged``: a later board, after a poll that found no new checkpoint. Open checkpoints have progressed.
* ``changing``: a later board, after one job in thirty began or ended a checkpoint. With a checkpoint a minute and a
  refresh every two seconds, this is the load of a live fleet.
* ``alerts first``, ``alerts second``, ``alerts unchanged`` and ``alerts changing``: an evaluation of the alert rules,
  with the changes of its cycle of five seconds before each: one job in twelve. After the first evaluation, those of the
  next cycles go on reading the past checkpoints of the jobs; the second one is measured alone, too.
* ``metrics first``, ``metrics unchanged`` and ``metrics changing``: a scrape of ``/metrics`` every 30 s in the process
  that exports the jobs, with the text that it answers. Half of the jobs changed since the scrape before.

Each case is compared with a ``SELECT`` of all rows of the table ``runs``. The case and the ``SELECT`` alternate in
the same run. The CPU time is that of this process and of the server's backends.

    python benchmarks/board_bench.py [--jobs 1000 5000] [--alert-jobs 2000] [--metrics-jobs 1000] [--rounds 7] [--json]
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

import uvloop
from prometheus_client import CollectorRegistry, generate_latest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.cli.garbage import collect_garbage_less_often
from backend.metrics.registry import register
from backend.services.alerts.evaluation import AlertEvaluator
from backend.services.alerts.signals import SignalReader
from backend.services.history_forecast import HistoryForecast
from backend.services.jobs.analysed import AnalysedJobs
from backend.services.jobs.evidence import EvidenceReader
from backend.services.jobs.fleet import FleetService
from backend.services.metrics.fleet import FleetMetrics, Sources
from backend.store.alerts.lease import take_term
from backend.store.postgres.connections import create_store_engine, reading
from backend.store.schema.partitions import Retention
from tests.support.benchmarking import children_cpu_s, parser_of, print_json
from tests.support.databases import temporary_server
from tests.support.live_fleet import LiveFleet
from tests.support.observations import NOW, SteppingClock

_BOARD_EVERY_S = 2
_ALERTS_EVERY_S = 5
_SCRAPED_EVERY_S = 30
_CHECKPOINT_EVERY_S = 60


class _Clock(SteppingClock):
    """A clock that the benchmark advances. Its monotonic time also passes by itself, which budgets of time need."""

    def monotonic_s(self) -> float:
        return super().monotonic_s() + time.perf_counter()


@dataclass(frozen=True, slots=True)
class Result:
    """The median cost of one case: wall time, CPU time of this process and of the server, and the ratio to a read."""

    case: str
    jobs: int
    rounds: int
    wall_ms: float
    client_cpu_ms: float
    server_cpu_ms: float
    cpu_ratio_to_plain_read: float


class _Meter:
    """Measures wall time, and the CPU time of this process and of every backend of the server."""

    def __init__(self, server_pid: int) -> None:
        self._server_pid = server_pid

    def read(self) -> tuple[float, float, dict[int, float]]:
        """Return the wall time, the CPU time of this process, and that of each backend, in seconds."""
        return time.perf_counter(), time.process_time(), children_cpu_s(self._server_pid)


_Step = Callable[[], Awaitable[object]]


async def _cost(meter: _Meter, step: _Step) -> tuple[float, float, float]:
    began = meter.read()
    await step()
    ended = meter.read()
    # A backend that ended meanwhile is left out.
    server_s = sum(cpu_s - began[2].get(pid, 0.0) for pid, cpu_s in ended[2].items() if cpu_s)
    return (ended[0] - began[0]) * 1000, (ended[1] - began[1]) * 1000, server_s * 1000


async def _measured(
    meter: _Meter, case: str, jobs: int, rounds: int, before: _Step, step: _Step, plain: _Step
) -> Result:
    costs, ratios = [], []
    for _ in range(rounds):
        await before()
        cost = await _cost(meter, step)
        floor = await _cost(meter, plain)
        costs.append(cost)
        ratios.append((cost[1] + cost[2]) / (floor[1] + floor[2]))
    wall_ms, client_ms, server_ms = (statistics.median(c[i] for c in costs) for i in range(3))
    return Result(case, jobs, rounds, wall_ms, client_ms, server_ms, statistics.median(ratios))


async def measure(url: str, server_pid: int, jobs: int, rounds: int, *, part: str) -> list[Result]:
    """Return the results of one part, such as ``alerts``, over ``jobs`` jobs in the empty store at ``url``."""
    clock = _Clock(NOW)
    every_s = {"board": _BOARD_EVERY_S, "alerts": _ALERTS_EVERY_S, "metrics": _SCRAPED_EVERY_S}[part]
    meter = _Meter(server_pid)
    engine = create_store_engine(url)
    fleet = LiveFleet(url, jobs)
    await asyncio.to_thread(fleet.fill)
    step = (
        await _alerts(engine, clock)
        if part == "alerts"
        else {"board": _board, "metrics": _metrics}[part](engine, clock)
    )

    async def plain() -> None:
        async with reading(engine) as connection:
            (await connection.execute(text("SELECT * FROM runs"))).all()

    async def nothing() -> None:
        pass

    async def polled(share: int | None) -> None:
        clock.at += timedelta(seconds=every_s)
        await asyncio.to_thread(fleet.poll, clock.at, share)

    async def unchanged() -> None:
        await polled(None)

    async def changing() -> None:
        await polled(_CHECKPOINT_EVERY_S // every_s)

    is_second = part == "alerts"
    try:
        return [
            await _measured(meter, f"{part}, first", jobs, 1, nothing, step, plain),
            *([await _measured(meter, f"{part}, second", jobs, 1, changing, step, plain)] if is_second else []),
            await _measured(meter, f"{part}, unchanged", jobs, rounds, unchanged, step, plain),
            await _measured(meter, f"{part}, changing", jobs, rounds, changing, step, plain),
        ]
    finally:
        await engine.dispose()


def _board(engine: AsyncEngine, clock: SteppingClock) -> _Step:
    service = FleetService(engine, clock, AnalysedJobs(clock, EvidenceReader(clock)))
    return service.board


async def _alerts(engine: AsyncEngine, clock: SteppingClock) -> _Step:
    evaluator = AlertEvaluator(engine, clock, SignalReader(engine, clock, EvidenceReader(clock)))
    term = await take_term(engine, holder="bench", ttl_s=3600)
    if term is None:
        raise RuntimeError("the lease of an empty store is free")
    return lambda: evaluator.evaluate(term)


def _metrics(engine: AsyncEngine, clock: SteppingClock) -> _Step:
    jobs = AnalysedJobs(clock, EvidenceReader(clock))
    sources = Sources(
        jobs, FleetService(engine, clock, jobs), HistoryForecast(engine, clock, Retention()), lambda: None
    )
    fleet = FleetMetrics(engine, clock, sources, lambda: True)
    registry = CollectorRegistry(auto_describe=False)
    register(fleet.collect, registry)

    async def scrape() -> None:
        await fleet.renew()
        await asyncio.to_thread(generate_latest, registry)

    return scrape


def main() -> None:
    """Run the benchmark and print its results."""
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", type=int, nargs="*", default=[1000, 5000])
    parser.add_argument("--alert-jobs", type=int, nargs="*", default=[2000])
    parser.add_argument("--metrics-jobs", type=int, nargs="*", default=[1000])
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    collect_garbage_less_often()
    results: list[Result] = []
    with temporary_server() as server:
        counts = {"board": arguments.jobs, "alerts": arguments.alert_jobs, "metrics": arguments.metrics_jobs}
        for part, jobs in [(part, n) for part, numbers in counts.items() for n in numbers]:
            with server.databases.migrated() as url:
                results += uvloop.run(measure(url, server.pid, jobs, arguments.rounds, part=part))
    if arguments.json:
        print_json(results, indent=2)
        return
    print(f"{'case':24}{'jobs':>6}{'wall ms':>10}{'client CPU ms':>15}{'server CPU ms':>15}{'x plain read':>14}")
    for r in results:
        print(
            f"{r.case:24}{r.jobs:>6}{r.wall_ms:>10.1f}{r.client_cpu_ms:>15.1f}{r.server_cpu_ms:>15.1f}"
            f"{r.cpu_ratio_to_plain_read:>14.1f}"
        )


if __name__ == "__main__":
    main()
