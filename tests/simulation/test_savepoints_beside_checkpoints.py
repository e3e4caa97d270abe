"""Goal: savepoints during checkpointing lose no record, and do not affect the diagnosed health of a job.

Method: savepoints are requested all the time, with crashes at every failpoint, lost messages and random
schedules. The committed ledger is compared with the sources. The collector then reads a healthy demo job whose
savepoints are slow because they align, and this job is diagnosed.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.domain.checkpoint import CheckpointKind, CheckpointStatus
from backend.domain.verdict import Health
from backend.runtime.demo import demo_names, demo_path
from backend.runtime.engine.jobfile import JobSpec, SavepointSpec, load_job
from backend.runtime.engine.kernel import JobEngine
from tests.support.invariants import run_to_the_end
from tests.support.runtime_jobs import PROTOCOLS, RECORDS, drawn_run
from tests.support.simulated_target import SimulatedTarget

_SEEDS = range(0, 48, 7)


def _with_savepoints(spec: JobSpec, seed: int) -> JobSpec:
    gap_us = (37_000, 61_000, 113_000, 240_000)[seed % 4]
    return replace(spec, savepoints=tuple(SavepointSpec(gap_us * n) for n in range(1, 15)))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_savepoints_lose_and_repeat_nothing_whatever_fails(protocol: str) -> None:
    completed = restarts = 0
    for seed in _SEEDS:
        spec = _with_savepoints(drawn_run(protocol, seed), seed)
        engine = run_to_the_end(spec, records=RECORDS)
        coordinator = engine.coordinator
        completed += len(coordinator.savepoints)
        restarts += engine.restart_count
        for savepoint in coordinator.savepoints.values():
            where = f"{protocol}, seed {seed}, savepoint {savepoint.record.id}"
            assert savepoint.record.persisted_bytes == 0, where
            assert not savepoint.has_channel_state, where
        engine.run_until(max(engine.now_us, 3_400_000) + 2_100_000)
        asked = coordinator.triggering.savepoint_requests.values()
        assert all(s.ended_at_us is not None for s in asked), f"seed {seed}"
    assert completed > 2 * len(_SEEDS)
    assert restarts > len(_SEEDS) / 2


def test_the_same_savepoints_give_the_same_trace() -> None:
    hashes = set()
    for slice_us in (1_000_000, 7_000):
        engine = JobEngine(_with_savepoints(drawn_run("unaligned", 5), 5))
        while engine.now_us < 1_000_000:
            engine.run_until(engine.now_us + slice_us)
        engine.run_until(1_001_000)
        hashes.add(engine.trace_hash)
    assert len(hashes) == 1


@pytest.mark.anyio
async def test_slow_savepoints_are_shown_as_such_and_leave_the_job_healthy() -> None:
    name = next(n for n in demo_names() if load_job(demo_path(n)).name == "orders-unaligned")
    asked = tuple(SavepointSpec(at_s * 1_000_000) for at_s in (8, 18, 28))
    async with SimulatedTarget([replace(load_job(demo_path(name)), savepoints=asked)]) as target:
        await target.sleep(48)
        (evidence,) = await target.evidence()
        (job,) = (await target.diagnosed()).jobs
    kinds = {c.header.checkpoint_id: c.header.kind for c in evidence.checkpoints}
    savepoints = [c for c in evidence.checkpoints if c.header.kind is CheckpointKind.SAVEPOINT]
    assert savepoints, kinds
    assert all(c.header.status is not CheckpointStatus.FAILED for c in savepoints)
    slowest = max(c.header.end_to_end_duration_ms or 0 for c in savepoints)
    others = [c.header.end_to_end_duration_ms or 0 for c in evidence.checkpoints if c not in savepoints]
    assert slowest > 3 * max(others), "savepoints are as fast as checkpoints, so that nothing was tested"
    assert job.diagnosis.health is Health.HEALTHY
