"""Tests of triggering: a request may wait for pending checkpoints, and its end must be reported only once."""

from __future__ import annotations

from backend.domain.failure import FailureReason
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import FaultSpec
from tests.support.runtime_jobs import two_subtasks_job

_UNALIGNED = "execution.checkpointing.unaligned.enabled"


def test_a_refused_request_is_not_refused_again_when_the_job_fails() -> None:
    engine = JobEngine(two_subtasks_job(plan=(FaultSpec("task.in-sync"),)))
    while not engine.restart_count:
        engine.run_until(engine.now_us + 1_000)
    asked = engine.request_checkpoint()
    told = (asked.reason, asked.ended_at_us)
    assert told == (FailureReason.NOT_ALL_TASKS_RUNNING, engine.now_us), "no task runs before the restart"

    engine.run_until(engine.now_us + 1_000)
    engine.coordinator.suspend()

    assert (asked.reason, asked.ended_at_us) == told


def test_a_savepoint_waits_for_an_unaligned_checkpoint_triggered_before_a_change_of_settings() -> None:
    engine = JobEngine(two_subtasks_job(store_ms=50, interval="10 s").with_config({_UNALIGNED: True}))
    engine.run_until(1_000_000)
    checkpoint = engine.request_checkpoint()
    engine.set_config({_UNALIGNED: False})

    savepoint = engine.request_savepoint()

    assert engine.coordinator.in_progress_count == 1
    assert (checkpoint.checkpoint_id is not None, savepoint.checkpoint_id) == (True, None), "CC-3"
    engine.run_until(1_200_000)
    assert checkpoint.ended_at_us is not None
    assert savepoint.completed_at_us is not None
