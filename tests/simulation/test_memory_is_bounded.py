"""Goal: the memory of a run does not grow with its length (T-23).

Method: the job of the soak test (``tests/simulators/soak.py``) runs with its crashes. The test counts live
objects instead of allocated bytes, so that the result does not depend on the machine. ``make soak`` runs a
million records and a thousand checkpoints.
"""

from __future__ import annotations

import gc

import pytest

from tests.simulators.soak import soak_job


@pytest.mark.slow
def test_the_live_objects_of_a_run_do_not_grow_with_its_length() -> None:
    engine = soak_job("aligned-timeout", records=30_000, seed=1)
    counts = []
    for share in (1, 2, 3):
        while engine.ledger.committed_count < 10_000 * share:
            engine.run_until(engine.now_us + 50_000)
        gc.collect()
        counts.append(len(gc.get_objects()))
    first, second, third = counts
    # The coordinator keeps up to a thousand checkpoints, and this run has fewer, so its history grows by one entry for
    # each checkpoint.
    assert engine.coordinator.completed_count > 20
    a_checkpoint = 200
    assert third - second < a_checkpoint * engine.coordinator.completed_count, counts
    assert abs(second - first) < first // 5, counts
