"""Measures how often a recommendation has its predicted effect, on jobs of the reference runtime (AD-2).

    python benchmarks/advice_calibration.py [SEEDS] [--demo] [--cap]

The benchmark runs each job twice with the same seed: first with the job's own settings, then with the advised ones.
It prints each prediction next to the measured value, and the share of measured values inside the predicted range. It
runs on virtual time, so the figures do not depend on the machine.

``--cap`` tests the cap on in-flight data (R-CAP-1) instead of the checkpoint mode. Its jobs are unaligned, lack
capacity, and have a store that is too slow for their in-flight data.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from backend.domain.advice import Topic
from backend.runtime.demo import demo_path
from backend.runtime.engine.jobfile import JobSpec, load_job
from backend.runtime.job import config as settings
from tests.simulators.calibration import MEASURED, Compared, compared
from tests.support.drawn_jobs import CAUSES

_ALIGNED = {"execution.checkpointing.unaligned.enabled": "false"}
_CAUSES = ("capacity", "skew", "straggler")
_DEMO = ("backpressured", "hot-key", "middle-straggler")
_UNALIGNED = {
    "execution.checkpointing.unaligned.enabled": "true",
    "execution.checkpointing.aligned-checkpoint-timeout": "0 ms",
    "execution.checkpointing.timeout": "1 min",
}
_STORES_BYTES_PER_S = (500_000, 800_000)
_RUN_S = 60.0
_STRAGGLER_S = 110.0


def _jobs(seeds: int) -> Iterator[tuple[str, JobSpec, float]]:
    for cause in _CAUSES:
        for seed in range(seeds):
            spec = CAUSES[cause](random.Random(f"{cause}/{seed}")).spec
            yield f"{cause}/{seed}", replace(spec, config=settings.change(spec.config, _ALIGNED)), _RUN_S
    if "--demo" in sys.argv:
        for name in _DEMO:
            yield name, load_job(demo_path(name)), _STRAGGLER_S if name == "middle-straggler" else _RUN_S


def _capped(seeds: int) -> Iterator[tuple[str, JobSpec, float]]:
    for seed in range(seeds):
        spec = CAUSES["capacity"](random.Random(f"capacity/{seed}")).spec
        config = settings.change(spec.config, _UNALIGNED)
        for speed in _STORES_BYTES_PER_S:
            store = replace(spec.store, bytes_per_s=speed)
            yield f"cap/{seed}/{speed // 1000} kB/s", replace(spec, config=config, store=store), _RUN_S


async def _main(seeds: int) -> None:
    rows: list[Compared] = []
    advised = asked = 0
    topic, jobs = (Topic.IN_FLIGHT, _capped(seeds)) if "--cap" in sys.argv else (Topic.MODE, _jobs(seeds))
    for name, spec, run_s in jobs:
        found = await compared(spec, run_s=run_s, topic=topic)
        asked += 1
        advised += bool(found)
        rows += found
        for row in found:
            print(f"{name}: {row}", flush=True)
    print(f"advised {advised} of {asked} jobs")
    for metric in MEASURED:
        of = [row for row in rows if row.expected.metric is metric]
        if of:
            print(f"{metric.value}: {sum(row.is_inside for row in of)} of {len(of)} inside")


asyncio.run(_main(int(next((a for a in sys.argv[1:] if a.isdigit()), "8"))))
