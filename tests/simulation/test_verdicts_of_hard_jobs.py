"""Goal: the verdict is right for jobs that were once judged wrong, each with the cause that it was given.

Method: each job runs on the reference runtime in virtual time and is polled like a live target.
"""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.verdict.verdict import diagnose
from backend.domain.verdict import VerdictKind
from tests.simulators.culprits import POLL_S, Draft
from tests.support.simulated_target import SimulatedTarget

_CP = "execution.checkpointing."
_UNALIGNED = {f"{_CP}unaligned.enabled": True}


def _draft(count: int, names: tuple[str, ...]) -> Draft:
    """Return a job of these vertices, each with ``count`` subtasks, that can keep up everywhere."""
    job = Draft(random.Random(7))
    common: dict[str, Any] = {"parallelism": count, "record_bytes": 2_000, "cost_us": 200}
    job.source |= {**common, "rate": 60 * count}
    job.stages = [{**common, "id": name, "kind": "keyed"} for name in names]
    job.stages[-1]["kind"] = "keyed+sink"
    return job


async def _evidence(job: Draft) -> JobEvidence:
    async with SimulatedTarget([job.spec()]) as target:
        return (await target.watched(polls=math.ceil(job.run_s / POLL_S), every_s=POLL_S)).evidence()


@pytest.mark.anyio
async def test_slow_uploads_between_bursts_of_the_input_are_no_stuck_sync_part():
    """Once *stuck in the sync part*: the subtasks of the slow uploads read nothing between two bursts."""
    job = _draft(4, ("stage-1", "stage-2", "last"))
    job.stages[1] |= {"state_bytes": 2_000, "slow_uploads": {"2": 900.0}}
    job.source |= {"burst_period": "25 s", "burst_ratio": 0.1}
    job.config |= {**_UNALIGNED, f"{_CP}aligned-checkpoint-timeout": "1 s", f"{_CP}timeout": "6 s"}

    verdict = diagnose(await _evidence(job)).verdict

    assert (verdict.kind, verdict.vertex) == (VerdictKind.STORE, "stage-2"), verdict.sentence


@pytest.mark.anyio
async def test_a_vertex_that_cannot_keep_up_with_bursts_is_named_and_not_the_one_that_it_holds_back():
    """Once the vertex above it was named: barriers wait there, and overtake the queue of the one at capacity."""
    job = _draft(4, ("stage-1", "stage-2", "stage-3", "last"))
    for stage, cost_us in zip(job.stages, (2_400, 12_000, 7_200, 4_800), strict=True):
        stage["cost_us"] = cost_us
    job.source |= {"rate": 0.7 * 4e6 / 12_000, "burst_period": "7 s", "burst_ratio": 0.2}
    job.config |= {**_UNALIGNED, f"{_CP}aligned-checkpoint-timeout": "1 s"}

    verdict = diagnose(await _evidence(job)).verdict

    assert (verdict.kind, verdict.vertex) == (VerdictKind.CAPACITY, "stage-2"), verdict.sentence
    assert "stage-2 holds back stage-1, and the barrier waits" in verdict.sentence
    assert verdict.subtasks == (0, 1, 2, 3)


@pytest.mark.anyio
@pytest.mark.parametrize("cost_us", [8_000, 1_500])
async def test_a_vertex_at_capacity_is_told_beside_a_long_sync_part_although_barriers_overtake_its_queues(cost_us):
    """Once told only when the sync part was cured: with unaligned checkpoints, it takes no time of a checkpoint."""
    job = _draft(3, ("stage-1", "stage-2", "last"))
    job.stages[0]["sync"] = "3 s"
    job.stages[2]["cost_us"] = cost_us
    job.source["rate"] = 3e6 / 8_000 * 1.3
    job.config |= _UNALIGNED

    verdict = diagnose(await _evidence(job)).verdict

    assert (verdict.kind, verdict.vertex) == (VerdictKind.SYNC, "stage-1"), verdict.sentence
    if cost_us < 8_000:
        assert verdict.second is None, verdict.sentence
        return
    assert verdict.second is not None
    assert (verdict.second.kind, verdict.second.vertex) == (VerdictKind.CAPACITY, "last")
    assert verdict.second.share_ratio is None
    assert verdict.sentence.endswith("; barriers overtake its queues.")
