"""Goal: the twin predicts a changed run of a job of which it knows only what a collector read.

Method: a job of known parameters runs on the live runtime behind its REST API. A model is built and calibrated from
what the collector read, and predicts the job with the other checkpoint mode. Then the job runs with that mode.
``python -m tests.simulators.twin_proof`` compares with recordings of Flink, and with ``--drawn N`` more such jobs.
"""

from __future__ import annotations

import pytest

from tests.simulators.twin_jobs import Compared, compared, drawn_job


def errors(found: Compared) -> dict[str, float]:
    """Return the distance of each prediction as a share of what was measured."""
    pairs = {
        "duration": (found.outcome.duration_ms, found.measured.duration_ms),
        "persisted": (found.outcome.persisted_bytes, found.measured.persisted_bytes),
        "throughput": (found.outcome.records_per_s, found.measured.records_per_s),
    }
    return {
        name: predicted.value / measured - 1
        for name, (predicted, measured) in pairs.items()
        if predicted is not None and measured > 0
    }


@pytest.mark.parametrize("is_unaligned", [False, True])
def test_the_other_checkpoint_mode_of_a_job_is_predicted(is_unaligned: bool):
    found = compared(drawn_job(0, is_unaligned=is_unaligned), run_s=45.0, seeds=(1,))
    off = errors(found)

    # The run is short, so the measured throughput itself varies by some per cent.
    assert abs(off["throughput"]) <= 0.08, str(found)
    if found.measured.duration_ms >= 1000:
        assert abs(off["duration"]) <= 0.2, str(found)
    else:
        assert -0.5 <= off["duration"] <= 1.0, str(found)
    assert abs(off.get("persisted", 0.0)) <= 0.2, str(found)
    assert found.outcome.duration_ms is not None
    assert found.outcome.duration_ms.low <= found.measured.duration_ms <= found.outcome.duration_ms.high
