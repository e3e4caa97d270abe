"""Goal: no crash at any failpoint loses or repeats a record, whatever the protocol (INV-4, INV-5, INV-14).

Method: each seed determines the job's data, the crashes, the number of task managers, the record sizes and the
schedule. After the faults, the job must commit every record once, with counts 1..n for each key. No invariant
may be broken during the run (``tests/support/invariants.py``). Over 200 seeds (``make test-long``), each
failpoint of a protocol must have crashed the job at least five times, and over the first 45 seeds at least
once. ``make sim SEEDS=10000`` runs far more. To replay one run: ``drawn_run("unaligned", 17)`` of
``tests/support/runtime_jobs.py``.
"""

from __future__ import annotations

from collections import Counter

import pytest

from backend.runtime.job.faults import MESSAGE_POINTS
from backend.runtime.job.graph import FaultAction, FaultSpec
from tests.support.invariants import run_to_the_end
from tests.support.runtime_jobs import (
    PROTOCOLS,
    RECORDS,
    drawn_run,
    points_of,
    small_job,
)


@pytest.mark.parametrize(
    ("seeds", "hits_least"), [(45, 1), pytest.param(200, 5, marks=pytest.mark.slow)], ids=["some-seeds", "all-seeds"]
)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_crash_loses_or_repeats_a_record(protocol: str, seeds: int, hits_least: int) -> None:
    struck: Counter[str] = Counter()
    restores = 0
    for seed in range(seeds):
        engine = run_to_the_end(drawn_run(protocol, seed), records=RECORDS)
        assert not engine.ledger.lost, f"{protocol}, seed {seed}: transactions timed out"
        struck.update(engine.env.faults.struck)
        restores += engine.coordinator.restored_count
    seldom = {point: struck[point] for point in points_of(protocol) if struck[point] < hits_least}
    assert not seldom, f"{protocol}: struck less than {hits_least} times over {seeds} seeds: {seldom}"
    assert restores > seeds // 2, "too few restores: the runs do not test recovery"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_lost_repeated_and_late_messages_cost_time_but_no_record(protocol: str) -> None:
    for seed in range(12):
        kinds = enumerate((point, action) for point in MESSAGE_POINTS for action in ("drop", "duplicate", "delay"))
        plan = [
            FaultSpec(point, hit=1 + (seed * 7 + i) % 9, action=action, delay_us=150_000)
            for i, (point, action) in kinds
        ]
        plan.append(FaultSpec("store.write", hit=3 + seed, action=FaultAction.ERROR))
        timeout: dict[str, object] = {"execution.checkpointing.timeout": "250 ms"}
        engine = run_to_the_end(
            small_job(protocol, seed=seed, fuzz=seed, plan=tuple(plan), config=timeout), records=RECORDS
        )
        assert engine.coordinator.failed_count > 0, f"{protocol}, seed {seed}: the faults had no effect"
