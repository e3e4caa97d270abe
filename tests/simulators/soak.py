"""Run the reference runtime for a long time under random failures, and check its memory (T-23): ``make soak``.

The state of the job does not grow. The job runs until it has committed a given number of records, and crashes every
few seconds of virtual time. After the first tenth of the records, memory may grow by at most a tenth plus 8 MiB.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from backend.runtime.core.prng import Stream
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import FaultSpec
from tests.support.runtime_jobs import PROTOCOLS, points_of, small_job

_RECORDS_A_CHECKPOINT = 1_000
_GROWTH_MAX = 1.1
_GROWTH_FLOOR_BYTES = 8 << 20
_PAGE_BYTES = 4096
_TELL_S = 5.0


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes. Linux only."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE_BYTES


def soak_job(protocol: str, *, records: int, seed: int) -> JobEngine:
    """Build a job with cheap records, about a checkpoint per 1000 records, and about a crash per 50000 records."""
    draws = Stream(seed, "soak")
    points = points_of(protocol)
    crashes = records // _RECORDS_A_CHECKPOINT // 50
    # The slowest stage has two subtasks and takes 100 us per record, so the run takes 50 us of virtual time per
    # record.
    lasts_us = records * 50
    plan = sorted(
        (FaultSpec(points[draws.below(len(points))], at_us=draws.below(lasts_us)) for _ in range(crashes)),
        key=lambda fault: fault.at_us,
    )
    config: dict[str, object] = {
        "execution.checkpointing.interval": "40 ms",
        "taskmanager.memory.segment-size": 4096,
    }
    keyed: dict[str, object] = {"cost_us": 100}
    spec = small_job(
        protocol,
        seed=seed,
        records=records,
        record_bytes=60,
        task_managers=2,
        plan=tuple(plan),
        config=config,
        keyed=keyed,
        mapped={"cost_us": 20},
    )
    return JobEngine(spec)


def soak(protocol: str, *, records: int, seed: int = 1, is_told: bool = False) -> tuple[JobEngine, int, int]:
    """Run the job, and measure the memory of this process.

    Return (the engine, most bytes during the first tenth of the records, most bytes during the whole run).
    """
    engine = soak_job(protocol, records=records, seed=seed)
    early_bytes = most_bytes = 0
    told = time.monotonic()
    while engine.ledger.committed_count < records and engine.now_us < records * 1_000:
        engine.run_until(engine.now_us + 200_000)
        held_bytes = resident_bytes()
        if engine.ledger.committed_count < records // 10:
            early_bytes = max(early_bytes, held_bytes)
        most_bytes = max(most_bytes, held_bytes)
        if is_told and time.monotonic() - told > _TELL_S:
            told = time.monotonic()
            counts = f"{engine.ledger.committed_count} records, {engine.coordinator.completed_count} checkpoints"
            print(f"{protocol}: {counts}, {engine.restart_count} restarts, {held_bytes >> 20} MiB", file=sys.stderr)
    return engine, early_bytes, most_bytes


def growth_allowed_bytes(early_bytes: int) -> int:
    """Return the run's memory limit in bytes: a tenth more than at the start, plus what the allocator may keep."""
    return int(early_bytes * _GROWTH_MAX) + _GROWTH_FLOOR_BYTES


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job. Return 0 if it committed the expected number of records and its memory is bounded, else 1."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--protocol", choices=[*PROTOCOLS], default="aligned-timeout")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    began = time.monotonic()
    engine, early, most = soak(options.protocol, records=options.records, seed=options.seed, is_told=True)
    is_bounded = most <= growth_allowed_bytes(early)
    is_exact = engine.ledger.committed_count == options.records
    counts = f"{engine.coordinator.completed_count} checkpoints, {engine.restart_count} restarts"
    print(
        f"{engine.ledger.committed_count} of {options.records} records, {counts} in {time.monotonic() - began:.0f} s; "
        f"{early >> 20} MiB after a tenth, {most >> 20} MiB at most: {'bounded' if is_bounded else 'GROWS'}"
    )
    return 0 if is_bounded and is_exact else 1


if __name__ == "__main__":
    sys.exit(main())
