"""Goal: every measurement equals the value that an oracle computes from the trace (T-13; ME-1 to ME-9, ME-11, ME-19).

Method: the oracle of ``tests/support/measurement_oracle.py`` checks every completed checkpoint. Ten seeds for
each protocol choose schedules.
"""

from __future__ import annotations

import pytest

from backend.runtime.engine.kernel import JobEngine
from tests.support.invariants import Watch
from tests.support.runtime_jobs import PROTOCOLS, small_job


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_measurement_matches_the_trace(protocol: str) -> None:
    checked = 0
    for seed in range(10):
        spec = small_job(protocol, seed=seed, fuzz=seed, task_managers=1 + seed % 2, record_bytes=(120, 700)[seed % 2])
        watch = Watch(JobEngine(spec))
        try:
            watch.run_until(2_000_000)
        except AssertionError as error:
            raise AssertionError(f"{protocol}, seed {seed}: {error}") from None
        checked += watch.checked_subtasks
    assert checked > 200


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_busy_idle_and_backpressured_time_add_up_to_all_time(protocol: str) -> None:
    engine = JobEngine(small_job(protocol, seed=3, records=None))
    engine.run_until(12_345_678)
    for task in engine.tasks:
        assert sum(task.account.settle(engine.now_us)) == engine.now_us, task.name
        busy, idle, soft, hard = task.account.ms_per_s()
        assert 996 <= busy + idle + soft + hard <= 1000, task.name
    assert any(t.account.totals_us[2] for t in engine.tasks), "nothing was backpressured: the test shows nothing"
