"""Goal: advised settings have the predicted effects, and settings that are advised against would not help (AD-2).

Method: a job of the reference runtime runs until it has enough checkpoints for advice. The same job then runs
with the same seed and the advised settings. Its medians must lie in the predicted intervals.
``benchmarks/advice_calibration.py`` does this for many more jobs. To replay one run: pytest
tests/simulation/test_advice_calibration.py -k "skew-seed-0"
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from backend.domain.advice import Topic
from backend.runtime.demo import demo_path
from backend.runtime.engine.jobfile import load_job
from backend.runtime.engine.simulate import simulate
from backend.runtime.job import config as settings
from tests.simulators.calibration import advice_of, compared
from tests.support.drawn_jobs import CAUSES

ALIGNED = {"execution.checkpointing.unaligned.enabled": "false"}
RUN_S = 45


def drawn(cause, seed):
    job = CAUSES[cause](random.Random(f"{cause}/{seed}")).spec
    return replace(job, config=settings.change(job.config, ALIGNED))


@pytest.mark.anyio
@pytest.mark.parametrize(("cause", "seed"), [("capacity", 0), ("skew", 0)], ids=["capacity-seed-0", "skew-seed-0"])
async def test_the_same_job_with_the_advised_settings_measures_inside_the_intervals(cause, seed):
    rows = await compared(drawn(cause, seed), run_s=RUN_S)

    assert rows, f"{cause}, seed {seed}: nothing was advised"
    assert all(row.is_inside for row in rows), "\n".join(map(str, rows))


@pytest.mark.anyio
async def test_the_demo_job_with_the_hot_key_does_as_predicted():
    rows = await compared(load_job(demo_path("hot-key")), run_s=RUN_S)

    assert len(rows) == 3
    assert all(row.is_inside for row in rows), "\n".join(map(str, rows))


@pytest.mark.anyio
async def test_on_a_slow_store_unaligned_is_advised_against_and_would_not_help():
    spec = load_job(demo_path("slow-store"))
    advice = await advice_of(spec, RUN_S)
    (refused,) = [s for s in advice.silences if s.topic is Topic.MODE]
    assert refused.rule == "R-UC-2"

    unaligned = replace(spec, config=replace(spec.config, is_unaligned=True))
    runs = [simulate(s, duration_us=RUN_S * 10**6).to_json() for s in (spec, unaligned)]
    durations = [run["summary"]["end_to_end_us"]["median"] for run in runs]
    assert durations[1] > 0.9 * durations[0]
