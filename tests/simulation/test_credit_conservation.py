"""Goal: no sender ever exceeds its credit, and no buffer is lost or duplicated (INV-8; CR-1, CR-5, BUF-3, BUF-4).

Method: after every third event of a run, ``tests/support/buffer_books.py`` checks that the credits and buffers
of each channel, gate and pool add up. Each seed chooses a schedule, a record size and late triggers. In every
run, the job fails and restarts once.
"""

from __future__ import annotations

import pytest

from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import FaultSpec
from tests.support.buffer_books import check_books
from tests.support.runtime_jobs import PROTOCOLS, late_triggers, small_job


@pytest.mark.parametrize("exclusive", [2, 0])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_credits_and_buffers_balance_after_every_event(protocol: str, exclusive: int) -> None:
    for seed in range(4 if exclusive else 2):
        plan = [FaultSpec("task.in-sync", hit=15 + seed), *(late_triggers() if seed % 2 else ())]
        spec = small_job(
            protocol,
            seed=seed,
            fuzz=1 + seed,
            task_managers=2,
            record_bytes=(60, 120, 700, 1500)[seed],
            records=None,
            plan=tuple(plan),
            config={
                "taskmanager.network.memory.buffers-per-channel": exclusive,
                "taskmanager.network.memory.floating-buffers-per-gate": 8 if exclusive else 1 + seed,
            },
        )
        engine = JobEngine(spec)
        _after_every_event(engine, f"{protocol}, {exclusive} exclusive, seed {seed}", until_us=1_300_000)
        assert engine.restart_count == 1, f"seed {seed}"
        assert engine.coordinator.completed_count > 1, f"seed {seed}"


def _after_every_event(engine: JobEngine, what: str, *, until_us: int) -> None:
    heap = engine.scheduler._heap
    checked = 0
    while engine.now_us < until_us:
        engine.run_until(heap[0][0] if heap else until_us)
        checked += 1
        # Check only every third event. An imbalance lasts for several events, and a check costs more than an event.
        if checked % 3 or engine.status != "RUNNING":
            continue
        where = f"{what}, {engine.now_us} us"
        check_books(engine.tasks, where)
    assert checked > 2_000
