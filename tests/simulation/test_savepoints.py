"""Savepoints of a running job: when they start, which of their failures count, and how a job starts from one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.domain.failure import FailureReason
from backend.runtime.coordinator.coordinator import AckOutcome
from backend.runtime.coordinator.failure_policy import Failure, FailurePolicy
from backend.runtime.core.elements import Alignment, SnapshotType
from backend.runtime.engine.jobfile import JobSpec
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import FaultAction, FaultSpec
from backend.runtime.measure.measures import CheckpointState
from backend.runtime.measure.requested import RequestedFormat, Savepoint
from tests.support.inside_jobs import take_over
from tests.support.runtime_jobs import PROTOCOLS, RECORDS, exactly_once_violations, small_job, two_subtasks_job

_CP = "execution.checkpointing."


def test_a_forced_savepoint_starts_although_an_aligned_checkpoint_has_the_only_slot() -> None:
    engine = JobEngine(two_subtasks_job(store_ms=80))
    engine.run_until(150_000)
    while not engine.coordinator.in_progress_count:
        engine.run_until(engine.now_us + 1_000)
    asked_us = engine.now_us
    savepoint = engine.request_savepoint()
    assert engine.coordinator.in_progress_count == 2
    engine.run_until(engine.now_us + 150_000)
    assert savepoint.reason is None
    # The savepoint started at once. It waited only for the store, which writes one file at a time.
    assert asked_us + 80_000 <= (savepoint.ended_at_us or 0) <= asked_us + 100_000
    record = next(r for r in engine.coordinator.history if r.id == savepoint.checkpoint_id)
    assert record.triggered_at_us == asked_us


def test_with_unaligned_checkpoints_a_savepoint_waits_for_the_slot_and_goes_first() -> None:
    engine = JobEngine(_unaligned(store_ms=130))
    engine.run_until(250_000)
    while not engine.coordinator.in_progress_count:
        engine.run_until(engine.now_us + 1_000)
    (pending,) = [r for r in engine.coordinator.history if r.state is CheckpointState.IN_PROGRESS]
    savepoint = engine.request_savepoint(RequestedFormat.NATIVE)
    assert engine.coordinator.in_progress_count == 1
    engine.run_until(pending.triggered_at_us + 700_000)
    done = next(r for r in engine.coordinator.history if r.id == savepoint.checkpoint_id)
    assert done.id == pending.id + 1
    assert pending.latest_ack_us is not None
    assert done.triggered_at_us == pending.latest_ack_us
    assert (done.barrier.alignment, done.barrier.snapshot_type) == (Alignment.ALIGNED, SnapshotType.SAVEPOINT)
    assert done.barrier.aligned_timeout_us is None
    assert (savepoint.ended_at_us or 0) - savepoint.requested_at_us > 130_000


def _unaligned(*, store_ms: int) -> JobSpec:
    return two_subtasks_job(store_ms=store_ms).with_config({f"{_CP}unaligned.enabled": True})


def test_a_savepoint_subsumes_nothing_commits_nothing_and_is_no_recovery_point() -> None:
    # The checkpoint's acknowledgements arrive so late that the savepoint, which starts later, completes first.
    late = tuple(FaultSpec("rpc.ack", hit=1, action=FaultAction.DELAY, delay_us=400_000) for _ in range(2))
    spec = two_subtasks_job(plan=late, max_concurrent_checkpoints=1)
    engine = JobEngine(spec, keeps_rows=True)
    while not engine.coordinator.in_progress_count:
        engine.run_until(engine.now_us + 1_000)
    engine.run_until(engine.now_us + 20_000)
    savepoint = engine.request_savepoint()
    engine.run_until(engine.now_us + 50_000)
    assert savepoint.ended_at_us is not None
    assert savepoint.reason is None
    assert engine.coordinator.in_progress_count == 1, "the older checkpoint is still pending"
    assert engine.coordinator.newest is None
    assert engine.coordinator.latest_completed is None
    assert engine.coordinator.latest_savepoint is not None
    assert list(engine.coordinator.savepoints) == [savepoint.checkpoint_id]
    assert engine.ledger.committed_count == 0, "nothing is committed for a savepoint"
    engine.run_until(engine.now_us + 500_000)
    assert engine.coordinator.newest is not None
    assert engine.ledger.committed_count > 0


def test_a_newer_checkpoint_does_not_subsume_a_pending_savepoint() -> None:
    late = (FaultSpec("rpc.ack", at_us=350_000, action=FaultAction.DELAY, delay_us=600_000),)
    engine = JobEngine(two_subtasks_job(plan=late, max_concurrent_checkpoints=3))
    engine.run_until(350_000)
    assert not engine.coordinator.in_progress_count
    savepoint = engine.request_savepoint()
    engine.run_until(engine.now_us + 500_000)
    newest = engine.coordinator.newest
    assert newest is not None
    assert newest.record.id > (savepoint.checkpoint_id or 0)
    assert savepoint.ended_at_us is None
    engine.run_until(engine.now_us + 300_000)
    assert savepoint.ended_at_us is not None
    assert savepoint.reason is None


def test_a_restart_uses_the_newest_checkpoint_and_not_a_newer_savepoint() -> None:
    spec = two_subtasks_job(plan=(FaultSpec("source.after-emit", at_us=405_000),))
    engine = JobEngine(spec)
    engine.run_until(395_000)
    savepoint = engine.request_savepoint()
    engine.run_until(404_000)
    engine.run_until(600_000)
    assert engine.restart_count == 1
    assert engine.restored_id is not None
    assert engine.restored_id < (savepoint.checkpoint_id or 0)


def test_a_failed_savepoint_reports_the_reason_to_its_requester() -> None:
    engine = JobEngine(
        two_subtasks_job(plan=(FaultSpec("rpc.ack", hit=3, at_us=300_000, action=FaultAction.DROP),), timeout="200 ms")
    )
    engine.run_until(300_000)
    savepoint = engine.request_savepoint()
    restarting = JobEngine(two_subtasks_job(plan=(FaultSpec("source.after-emit", at_us=300_000),)))
    restarting.run_until(306_000)
    refused = restarting.request_savepoint()
    engine.run_until(900_000)
    assert (refused.reason, refused.checkpoint_id) == (FailureReason.NOT_ALL_TASKS_RUNNING, None)
    assert savepoint.ended_at_us is not None


def test_requests_that_wait_or_run_when_the_job_fails_end_with_that_reason() -> None:
    engine = JobEngine(two_subtasks_job(store_ms=500, plan=(FaultSpec("source.after-emit", at_us=400_000),)))
    engine.run_until(380_000)
    running = engine.request_savepoint()
    engine.run_until(500_000)
    assert running.reason is FailureReason.COORDINATOR_SUSPENDED
    waiting_job = JobEngine(
        replace(_unaligned(store_ms=500), faults=(FaultSpec("source.after-emit", at_us=400_000),)),
    )
    waiting_job.run_until(380_000)
    waiting = waiting_job.request_savepoint()
    assert waiting.checkpoint_id is None
    waiting_job.run_until(500_000)
    assert (waiting.reason, waiting.checkpoint_id) == (FailureReason.COORDINATOR_SUSPENDED, None)


@pytest.mark.parametrize(
    ("point", "reason", "words"),
    [
        ("coordinator.metadata", FailureReason.FINALIZE_FAILURE, "Failure to finalize checkpoint."),
        (
            "coordinator.location",
            FailureReason.IO_FAILURE,
            "An Exception occurred while triggering the checkpoint. IO-problem detected.",
        ),
    ],
)
def test_a_failing_write_at_the_coordinator_fails_the_checkpoint_and_counts(
    point: str, reason: FailureReason, words: str
) -> None:
    engine = JobEngine(two_subtasks_job(plan=(FaultSpec(point, hit=2, action=FaultAction.ERROR),)))
    engine.run_until(500_000)
    failed = engine.coordinator.latest_failed
    assert failed is not None
    assert (failed.id, failed.reason, failed.message) == (2, reason, words)
    assert engine.restart_count == 0
    assert engine.coordinator.completed_count >= 3
    strict = JobEngine(
        two_subtasks_job(plan=(FaultSpec(point, hit=2, action=FaultAction.ERROR),), tolerable_failed_checkpoints=0)
    )
    strict.run_until(500_000)
    assert strict.restart_count == 1
    # If the same failure hits a savepoint, it counts as a failure of the coordinator, and not as a failed checkpoint
    # of the job (FP-6).
    asked = JobEngine(
        two_subtasks_job(
            plan=(FaultSpec(point, at_us=350_000, action=FaultAction.ERROR),), tolerable_failed_checkpoints=0
        )
    )
    asked.run_until(350_000)
    while asked.coordinator.in_progress_count:
        asked.run_until(asked.now_us + 1_000)
    savepoint = asked.request_savepoint()
    asked.run_until(asked.now_us + 20_000)
    assert (savepoint.reason, savepoint.message) == (reason, words)
    asked.run_until(800_000)
    assert asked.restart_count == 0


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        ((), None),
        ((FaultSpec("coordinator.metadata", action=FaultAction.ERROR),), FailureReason.FINALIZE_FAILURE),
        ((FaultSpec("task.before-sync"),), FailureReason.COORDINATOR_SUSPENDED),
    ],
)
def test_a_waiter_for_a_savepoint_is_notified_in_an_event_at_the_instant_of_its_end(
    plan: tuple[FaultSpec, ...], reason: FailureReason | None
) -> None:
    engine = JobEngine(two_subtasks_job(store_ms=10, interval="10 s", plan=plan))
    engine.run_until(50_000)
    heard: list[tuple[int, Savepoint]] = []
    then = lambda ended: heard.append((engine.now_us, ended))  # noqa: E731
    savepoint = engine.coordinator.triggering.request_savepoint(RequestedFormat.CANONICAL, when_ended=then)
    engine.run_until(100_000)
    assert savepoint.reason is reason
    assert heard == [(savepoint.ended_at_us, savepoint)]


def test_a_refused_stop_leaves_the_job_unchanged() -> None:
    engine = JobEngine(two_subtasks_job(store_ms=10, plan=(FaultSpec("task.before-sync", hit=5),)))
    while engine.status != "RESTARTING":
        engine.run_until(engine.now_us + 1_000)
    stop = engine.request_stop()
    engine.run_until(engine.now_us + 1_000)
    assert stop.reason is FailureReason.NOT_ALL_TASKS_RUNNING
    completed = engine.coordinator.completed_count
    engine.run_until(engine.now_us + 500_000)
    assert (engine.status, engine.coordinator.triggering.stop) == ("RUNNING", None)
    assert engine.coordinator.completed_count > completed + 2


def test_a_savepoint_failure_counts_at_a_task_and_not_at_the_coordinator() -> None:
    policy = FailurePolicy()
    for reason in (FailureReason.EXPIRED, FailureReason.FINALIZE_FAILURE, FailureReason.IO_FAILURE):
        assert not policy.failed(Failure(1, reason, SnapshotType.SAVEPOINT, is_at_task=False), tolerable=0)
        assert policy.failed(Failure(1, reason, SnapshotType.CHECKPOINT, is_at_task=False), tolerable=0)
    for reason in (FailureReason.DECLINED, FailureReason.ASYNC_FAILURE):
        assert policy.failed(Failure(1, reason, SnapshotType.SAVEPOINT, is_at_task=True), tolerable=0)
    assert not policy.failed(Failure(1, FailureReason.SUBSUMED, SnapshotType.CHECKPOINT, is_at_task=False), tolerable=0)


def test_duplicate_late_and_unknown_acknowledgements_are_distinguished() -> None:
    twice = tuple(FaultSpec("rpc.ack", hit=1, action=FaultAction.DUPLICATE) for _ in range(4))
    late = (FaultSpec("rpc.ack", hit=2, action=FaultAction.DELAY, delay_us=300_000),)
    engine = JobEngine(two_subtasks_job(plan=(*twice, *late), timeout="150 ms"))
    engine.run_until(1_000_000)
    outcomes = engine.coordinator.ack_outcomes
    assert outcomes[AckOutcome.SUCCESS] >= 10
    assert outcomes[AckOutcome.DUPLICATE] + outcomes[AckOutcome.DISCARDED] >= 4
    assert outcomes[AckOutcome.DISCARDED] >= 1
    crashed = JobEngine(
        two_subtasks_job(
            plan=(
                FaultSpec("rpc.ack", hit=5, action=FaultAction.DELAY, delay_us=300_000),
                FaultSpec("source.after-emit", at_us=400_000),
            )
        )
    )
    crashed.run_until(1_000_000)
    assert crashed.coordinator.ack_outcomes[AckOutcome.UNKNOWN_TASK] == 1


def test_more_requests_than_the_queue_holds_are_refused() -> None:
    engine = JobEngine(_unaligned(store_ms=5_000))
    engine.run_until(200_000)
    asked = [engine.request_savepoint() for _ in range(1_002)]
    refused = [s for s in asked if s.reason is FailureReason.TOO_MANY_REQUESTS]
    assert refused == asked[-2:]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_job_started_from_a_savepoint_continues_where_it_was_taken(protocol: str) -> None:
    records = 3 * RECORDS
    spec = small_job(protocol, seed=3, task_managers=2, records=records)
    first = JobEngine(spec, keeps_rows=True)
    first.run_until(450_000)
    # No later checkpoint may commit the records that follow the savepoint.
    first.set_config({f"{_CP}interval": "1 h"})
    first.run_until(700_000)
    savepoint = first.request_savepoint()
    while savepoint.ended_at_us is None:
        first.run_until(first.now_us + 1_000)
    assert savepoint.checkpoint_id is not None
    assert 0 < first.ledger.committed_count < records
    kept = first.coordinator.savepoints[savepoint.checkpoint_id]
    assert not kept.has_channel_state, "a savepoint is aligned, whatever the mode of the checkpoints"
    stored = first.savepoint(savepoint.checkpoint_id)
    assert stored is not None
    second = JobEngine(spec, keeps_rows=True, restore=stored)
    take_over(second.ledger, first.ledger)
    while second.ledger.committed_count < records and second.now_us < 30_000_000:
        second.run_until(second.now_us + 100_000)
    assert exactly_once_violations(second.ledger.rows, records) == []
    assert min(r.id for r in second.coordinator.history) > savepoint.checkpoint_id
    assert first.savepoint(99_999) is None
