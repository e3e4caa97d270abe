"""Tests that a subtask reports its decision on capped in-flight data only for the checkpoint concerned (CAP-7)."""

from __future__ import annotations

from backend.runtime.engine.kernel import JobEngine
from tests.support.runtime_jobs import small_job


def test_after_the_cap_is_removed_no_checkpoint_reports_an_earlier_decision() -> None:
    engine = JobEngine(small_job("capped", records=None))
    engine.run_until(300_000)
    engine.set_config({"runtime.inflight-cap.bytes": "unlimited"})
    engine.run_until(900_000)

    told = {
        (record.barrier.is_capped, ack.measured.cap is not None)
        for record in engine.coordinator.all_completed
        for ack in record.acks.values()
    }

    assert told == {(True, True), (False, False)}
