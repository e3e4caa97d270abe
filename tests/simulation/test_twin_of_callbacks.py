"""Long callbacks of jobs of the reference runtime, found by the twin in what a collector reads of them."""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from typing import Any

import pytest

from backend.advisor.twin.asking.changes import WhatIf
from backend.advisor.twin.asking.changing import changed
from backend.advisor.twin.model.building import build
from backend.advisor.twin.model.model import JobModel
from backend.advisor.twin.tiers.runtime_tier import Scale, simulate
from backend.domain.advice import Mode
from backend.domain.engines import RUNTIME
from backend.runtime.engine.jobfile import JobSpec, load_job_document
from tests.simulators.culprits import drawn
from tests.support.twin_evidence import runtime_evidence


def job(*, is_unaligned: bool = False, source: dict[str, Any] | None = None, **last: Any) -> JobSpec:
    """Return source -> middle -> last with 100 records a second, 40 keys, and checkpoints every 4 s."""
    shape = {"parallelism": 2, "record_bytes": 2000, "cost_us": 200}
    vertices = [
        {**shape, "id": "source", "kind": "source", "keys": 40, "rate": 100, **(source or {})},
        {**shape, "id": "middle", "kind": "keyed"},
        {**shape, "id": "last", "kind": "keyed+sink", **last},
    ]
    config = {
        "execution.checkpointing.interval": "4 s",
        "execution.checkpointing.tolerable-failed-checkpoints": "unlimited",
        "execution.checkpointing.unaligned.enabled": is_unaligned,
    }
    edges = [{"from": a["id"], "to": b["id"], "partitioner": "hash"} for a, b in pairwise(vertices)]
    return load_job_document({"name": "callback", "seed": 7, "config": config, "vertex": vertices, "edge": edges})


def model_of(spec: JobSpec, run_s: float = 80.0) -> JobModel:
    return build(runtime_evidence(spec, run_s=run_s, every_s=2.5), engine=RUNTIME, version="0.0.0")


@pytest.mark.parametrize("is_unaligned", [False, True], ids=["aligned", "unaligned"])
def test_windows_that_fire_for_seconds_are_a_callback_of_about_their_time_that_unaligned_does_not_cure(
    is_unaligned: bool,
):
    # About 20 keys at each subtask, whose windows fire every 5 s, for 0.1 s each.
    model = model_of(job(is_unaligned=is_unaligned, kind="window+sink", window="5 s", timer_cost_us=100_000))
    source, middle, last = model.vertices

    assert (source.callback_period_ms, middle.callback_period_ms) == (None, None)
    assert last.callback_period_ms == pytest.approx(5000.0, rel=0.03)
    assert sum(last.callback_ms) == pytest.approx(40 * 100.0, rel=0.2)
    # What the callback takes is no time of the records: 200 us each, of which a tenth of the callback would make 4 ms.
    assert max(last.service_us) < 1000.0
    said = [a for a in model.assumptions if a.subject == "long callback of last"]
    assert len(said) == 1
    assert "in every 5" in said[0].taken
    scale = Scale(1, 4062.5, 100_000.0, ())
    runs = [simulate(changed(model, WhatIf(mode=m)), scale=scale) for m in (Mode.ALIGNED, Mode.UNALIGNED)]
    aligned, unaligned = ([c.duration_ms for c in run.checkpoints] for run in runs)
    assert max(unaligned) == pytest.approx(max(aligned), rel=0.2)
    assert max(unaligned) > 1200.0
    assert 0.25 < sum(d > 300.0 for d in unaligned) / len(unaligned) < 0.75
    assert [run.records_per_s for run in runs] == pytest.approx([100.0] * 2, rel=0.05)


CALM = {
    "busy": job(cost_us=14_000),
    "overloaded-unaligned": job(is_unaligned=True, cost_us=30_000),
    "bursts": job(cost_us=12_000, source={"burst_period": "12 s", "burst_ratio": 0.2}),
    "sync": job(sync="2 s"),
}


@pytest.mark.parametrize("spec", CALM.values(), ids=CALM)
def test_a_job_without_timers_gets_no_callback(spec: JobSpec):
    model = model_of(spec, run_s=60.0)

    assert [v.callback_period_ms for v in model.vertices] == [None] * 3
    assert not [a for a in model.assumptions if "callback" in a.subject]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *(f"{kind}/{seed}" for kind in ("healthy", "capacity", "straggler", "sync", "late_input") for seed in (1, 2)),
        *(f"{kind}/1/intermittent" for kind in ("capacity", "straggler", "sync", "coordinator")),
        "commit/1",
    ],
)
def test_a_drawn_job_whose_cause_is_another_gets_no_callback(name: str):
    draft = drawn(name)
    model = model_of(draft.spec(), draft.run_s)

    assert [v.callback_period_ms for v in model.vertices] == [None] * len(model.vertices)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 3, 5])
def test_the_callbacks_of_drawn_jobs_are_found_with_their_period_and_their_time(seed: int):
    draft = drawn(f"callback/{seed}/intermittent")
    (vertex,) = (v for v in draft.stages if "window" in v)
    (found,) = (v for v in model_of(draft.spec(), draft.run_s).vertices if v.callback_period_ms)

    assert found.name == vertex["id"]
    assert found.callback_period_ms == pytest.approx(1000 * float(vertex["window"].split()[0]), rel=0.03)
    assert median(found.callback_ms) == pytest.approx(0.6 * vertex["timer_cost_us"] / draft.parallelism, rel=0.2)
