"""Measures how long the fast simulation takes to choose settings for a whole fleet, from the store to the store.

Some drawn jobs of the reference runtime are observed in virtual time, and stored under as many names as asked for. Each
has five failures on record, so that all wait for a choice. Then two choosers, as two processes of the role ``api`` have
them, choose until no job waits. They do not rest between the choices; the time with the rests is computed.

    python benchmarks/choices_bench.py [--jobs 1000] [--drawn 8] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
import time
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta

import uvloop
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.advisor.choice.choosing import choose
from backend.advisor.situation import Situation
from backend.advisor.tier_choice import TierChoice
from backend.advisor.twin.fast import fast
from backend.advisor.twin.tiers.tiers import QuickTiers
from backend.domain.errors import StoreUnavailableError
from backend.services.jobs.analysed import AnalysedJobs
from backend.services.jobs.evidence import EvidenceReader
from backend.services.whatif.choosing import REST_RATIO, SettingChooser
from backend.store.postgres.connections import create_store_engine, reading
from backend.store.schema.choice_tables import setting_choices
from tests.simulators.regret_jobs import KINDS, Drawn
from tests.support.benchmarking import parser_of, print_values
from tests.support.databases import temporary_server
from tests.support.observations import NOW, SteppingClock
from tests.support.observed_fleets import fill_fleet
from tests.support.twin_evidence import runtime_evidence

_RUN_S = 120.0
# Findings are read again only if this time has passed.
_REFRESHED_AFTER_S = 1.001
# How long a chooser waits if no job waits for it.
_IDLE_S = 1.0


class _Clock(SteppingClock):
    """A clock that passes by itself from where it was set.

    Nothing sets it while the choosers work: time that one of them skipped would count as work of the other.
    """

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=time.perf_counter())

    def monotonic_s(self) -> float:
        return self.now().timestamp()


class _Counting:
    """Chooses as the service does, and keeps how long each simulation took and what it refused."""

    def __init__(self) -> None:
        self.simulated_s: list[float] = []
        self.refusals: Counter[str] = Counter()

    def __call__(self, known: Situation) -> TierChoice:
        began_s = time.thread_time()
        found = choose(known)
        self.simulated_s.append(time.thread_time() - began_s)
        if found.why_not is not None:
            self.refusals[found.why_not] += 1
        return found


@dataclass(frozen=True, slots=True)
class Result:
    """What the choices for a fleet cost. ``cpu_ms`` is the processor time of this process for one choice.

    ``simulated_ms`` is the part of the simulation. ``looked_at`` counts the jobs that a chooser claimed, with those
    for which the other one had chosen meanwhile. ``took_s`` is the time until each job had a choice. ``with_rests_s``
    is that time if both choosers rest as the service does: that of the chooser with more to do. It is measured if
    ``rest_ratio`` is that of the service, and computed otherwise. Here both share one process and wait for each other,
    so two processes need less.
    """

    jobs: int
    rest_ratio: float
    looked_at: int
    chosen: int
    refused: int
    stored: int
    wall_ms: float
    cpu_ms: float
    simulated_ms: float
    simulated_max_ms: float
    took_s: float
    with_rests_s: float


async def _analyse(engine: AsyncEngine, clock: _Clock) -> None:
    """Compute the findings, which the collectors compute in the product."""
    jobs = AnalysedJobs(clock, EvidenceReader(clock))
    is_behind = True
    while is_behind:
        clock.at += timedelta(seconds=_REFRESHED_AFTER_S)
        async with reading(engine) as connection:
            await jobs.refresh(connection)
        is_behind = jobs.is_behind


class _Choosers:
    """Two choosers, which work until each of the jobs was chosen for or ``at_most_s`` have passed."""

    def __init__(self, engine: AsyncEngine, clock: _Clock, counting: _Counting, options: argparse.Namespace) -> None:
        self._engine = engine
        self._clock = clock
        self._counting = counting
        self._jobs: int = options.jobs
        self._rest_ratio: float = options.rest
        self._at_most_s: float = options.at_most_s
        self.spent_s: list[float] = []

    async def work(self) -> float:
        """Choose, and return how long this chooser worked."""
        evidence = EvidenceReader(self._clock)
        jobs = AnalysedJobs(self._clock, evidence)
        chooser = SettingChooser(self._engine, self._clock, evidence, jobs, QuickTiers(is_ready=True), self._counting)
        began_s, own_s = time.perf_counter(), 0.0
        while len(self._counting.simulated_s) < self._jobs and time.perf_counter() - began_s < self._at_most_s:
            spent_s = 0.0
            # As the role does, a chooser waits for a store that does not answer.
            with contextlib.suppress(StoreUnavailableError):
                spent_s = await chooser.choose_next()
            if not spent_s:
                await asyncio.sleep(_IDLE_S)
                continue
            own_s += spent_s
            self.spent_s.append(spent_s)
            if len(self.spent_s) % 100 == 0:
                counts = f"{len(self._counting.simulated_s)} of {self._jobs}"
                print(f"{time.perf_counter() - began_s:.0f} s: {counts}", file=sys.stderr, flush=True)
            await asyncio.sleep(self._rest_ratio * spent_s)
        return own_s


async def measure(url: str, options: argparse.Namespace) -> Result:
    """Return what the choices for so many jobs cost in the empty store at ``url``."""
    specs = [Drawn.of(f"{kind}/1") for kind in list(KINDS)[: options.drawn]]
    seen = [
        await asyncio.to_thread(runtime_evidence, j.spec(j.now.config(), seed=1), run_s=_RUN_S, every_s=5.0)
        for j in specs
    ]
    clock, engine, counting = _Clock(NOW), create_store_engine(url), _Counting()
    await asyncio.to_thread(fast.prepare)
    clock.at = max(found.now for found in seen) - timedelta(seconds=time.perf_counter())
    await fill_fleet(engine, clock, seen, options.jobs)
    await _analyse(engine, clock)
    print(f"{options.jobs} jobs are stored, each with a finding", file=sys.stderr, flush=True)
    choosers = _Choosers(engine, clock, counting, options)
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    each_s = await asyncio.gather(choosers.work(), choosers.work())
    took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    async with reading(engine) as connection:
        stored = (await connection.execute(select(func.count()).select_from(setting_choices))).scalar_one()
    await engine.dispose()
    if not counting.simulated_s:
        sys.exit(f"no settings were chosen: none of the {options.jobs} jobs waited for a choice")
    return Result(
        jobs=options.jobs,
        rest_ratio=options.rest,
        looked_at=len(choosers.spent_s),
        chosen=len(counting.simulated_s),
        refused=counting.refusals.total(),
        stored=stored,
        wall_ms=statistics.median(choosers.spent_s) * 1000,
        cpu_ms=cpu_s / len(counting.simulated_s) * 1000,
        simulated_ms=statistics.median(counting.simulated_s) * 1000,
        simulated_max_ms=max(counting.simulated_s) * 1000,
        took_s=took_s,
        with_rests_s=took_s if options.rest == REST_RATIO else max(each_s) * (1 + REST_RATIO),
    )


def main(arguments: list[str]) -> None:
    """Measure and print the result."""
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--drawn", type=int, default=8)
    parser.add_argument("--rest", type=float, default=0.0, help=f"times the work; the product rests {REST_RATIO:g}")
    parser.add_argument("--at-most-s", type=float, default=3600.0, help="end then, with those jobs chosen for")
    options = parser.parse_args(arguments)
    with temporary_server() as server, server.databases.migrated() as url:
        found = uvloop.run(measure(url, options))
    print_values(found, is_json=options.json)


if __name__ == "__main__":
    main(sys.argv[1:])
