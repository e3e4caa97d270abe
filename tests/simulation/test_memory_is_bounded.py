"""Goal: what a run keeps in memory does not grow with its length (T-23).

Method: the soak's job (``tests/simulators/soak.py``), with its crashes; what lives is counted, not what is allocated,
so that the machine does not matter. A million records and a thousand checkpoints: ``make soak``.
"""

from __future__ import annotations

import gc

import pytest

from tests.simulators.soak import soak_job


@pytest.mark.slow
def test_what_a_run_keeps_does_not_grow_with_its_length() -> None:
    engine = soak_job("aligned-timeout", records=30_000, seed=1)
    counts = []
    for share in (1, 2, 3):
        while engine.ledger.committed_count < 10_000 * share:
            engine.run_until(engine.now_us + 50_000)
        gc.collect()
        counts.append(len(gc.get_objects()))
    first, second, third = counts
    # What is kept of each checkpoint for the history's sake, up to a thousand of them.
    assert engine.coordinator.completed_count > 20
    a_checkpoint = 200
    assert third - second < a_checkpoint * engine.coordinator.completed_count, counts
    assert abs(second - first) < first // 5, counts
