"""Measures `barrierscope pipeline whatif` over a whole fleet against the bare predictions of the same jobs.

Some drawn jobs of the reference runtime are observed in virtual time, and stored under as many names as asked for. The
command then predicts all of them with a Spark of its own. The floor is the processor time of the same predictions in
this process, from evidence in memory, divided by the cores. What the command takes beyond it is the JVM, Spark, and
reading the store.

    python benchmarks/fleet_what_if_bench.py [--jobs 1000] [--drawn 8] [--json]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta

import uvloop

from backend.advisor.twin.fast import fast
from backend.advisor.twin.tiers.fleet import answer_of
from backend.advisor.twin.tiers.tiers import QuickTiers
from backend.analysis.measures.evidence import JobEvidence
from backend.domain.engines import RUNTIME
from backend.store.postgres.connections import create_store_engine
from tests.simulators.regret_jobs import KINDS, Drawn
from tests.support.benchmarking import parser_of
from tests.support.databases import temporary_server
from tests.support.observations import SteppingClock
from tests.support.observed_fleets import fill_fleet
from tests.support.twin_evidence import runtime_evidence

_RUN_S = 120.0
_SETTINGS = {"mode": "unaligned"}
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Result:
    """What the command took.

    ``floor_s`` is the processor time of the bare predictions of as many jobs, divided by the number of cores, and
    ``ratio`` is ``wall_s`` over it.
    """

    jobs: int
    predicted: int
    cores: int
    wall_s: float
    floor_s: float
    ratio: float
    document_kib: float


def _floor_s(seen: Sequence[JobEvidence]) -> float:
    """Return the mean processor time of the prediction of one of these jobs, in seconds."""
    quick, took = QuickTiers(is_ready=True), []
    for found in [*seen] * _ROUNDS:
        began_s = time.process_time()
        answer = answer_of(found, _SETTINGS, engine=RUNTIME, version="0.1.0", quick=quick)
        took.append(time.process_time() - began_s)
        assert answer.problem is None, answer.problem
    return sum(took) / len(took)


def measure(url: str, jobs: int, drawn: int) -> Result:
    """Return what the what-if on so many jobs costs in the empty store at ``url``."""
    specs = [Drawn.of(f"{kind}/1") for kind in list(KINDS)[:drawn]]
    seen = [runtime_evidence(j.spec(j.now.config(), seed=1), run_s=_RUN_S, every_s=5.0) for j in specs]
    uvloop.run(_fill(url, seen, jobs))
    fast.prepare()
    cores = os.cpu_count() or 1
    floor_s = _floor_s(seen) * jobs / cores
    command = [sys.executable, "-m", "backend.cli", "pipeline", "whatif", "--set", "mode=unaligned", "--format", "json"]
    began_s = time.perf_counter()
    done = subprocess.run([*command, "--database-url", url], stdout=subprocess.PIPE, text=True, check=True)
    wall_s = time.perf_counter() - began_s
    found = json.loads(done.stdout)
    if len(found["jobs"]) != jobs:
        sys.exit(f"{len(found['jobs'])} of {jobs} jobs were answered")
    return Result(
        jobs=jobs,
        predicted=sum(job["problem"] is None for job in found["jobs"]),
        cores=cores,
        wall_s=wall_s,
        floor_s=floor_s,
        ratio=wall_s / floor_s,
        document_kib=len(done.stdout) / 1024,
    )


async def _fill(url: str, seen: Sequence[JobEvidence], jobs: int) -> None:
    engine = create_store_engine(url)
    try:
        await fill_fleet(engine, SteppingClock(max(found.now for found in seen) + timedelta(seconds=1)), seen, jobs)
    finally:
        await engine.dispose()


def main(arguments: Sequence[str]) -> None:
    """Measure and print the result."""
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--drawn", type=int, default=8)
    options = parser.parse_args(arguments)
    with temporary_server() as server, server.databases.migrated() as url:
        found = measure(url, options.jobs, options.drawn)
    if options.json:
        print(json.dumps(asdict(found)))
        return
    print(f"{found.jobs} jobs, {found.predicted} predicted in {found.wall_s:.0f} s on {found.cores} cores")
    print(f"{found.ratio:.2f} times the {found.floor_s:.0f} s of the bare predictions on as many cores")
    print(f"document: {found.document_kib:.0f} KiB")


if __name__ == "__main__":
    main(sys.argv[1:])
