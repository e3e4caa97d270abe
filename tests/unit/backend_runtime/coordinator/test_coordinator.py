"""Tests of the coordinator's rules (T-17, T-18; CO, FP) on a job of two subtasks.

A checkpoint of this job takes as long as its store. All other costs are close to zero, so each expected time follows
from the interval, the minimum pause, the number of concurrent checkpoints and the store.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from backend.domain.failure import FailureReason
from backend.runtime.core.elements import Alignment
from backend.runtime.engine.jobfile import JobSpec
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import FaultAction, FaultSpec
from backend.runtime.measure.measures import CheckpointState, MeasuredCheckpoint
from backend.runtime.task.task import TaskStatus
from tests.support.inside_jobs import oldest_open_us
from tests.support.runtime_jobs import two_subtasks_job

_CP = "execution.checkpointing."


def _run(spec: JobSpec, *, until_ms: int = 2_000) -> tuple[JobEngine, list[MeasuredCheckpoint]]:
    """Run the job until ``until_ms``, and return the engine and all checkpoints in the order of their ids."""
    engine = JobEngine(spec)
    engine.run_until(until_ms * 1000)
    return engine, sorted(engine.coordinator.history, key=lambda r: r.id)


@pytest.mark.parametrize(
    ("store_ms", "settings", "between_ms"),
    [
        (10, {}, [100, 100, 100, 100]),
        # CO-3: only one checkpoint may be pending. The next request waits, and starts as soon as that checkpoint is
        # complete.
        (130, {}, [130, 130, 130, 130]),
        # CO-4: with a minimum pause, the waiting request starts when the pause after the completion is over.
        (130, {"min_pause": "50 ms"}, [180, 180, 180, 180]),
        (60, {"min_pause": "50 ms"}, [110, 110, 110, 110]),
        (10, {"min_pause": "50 ms"}, [100, 100, 100, 100]),
        # CO-1: a pause longer than the interval replaces the interval. The pause begins when the checkpoint is
        # complete.
        (10, {"min_pause": "300 ms"}, [310, 310, 310, 310]),
        (150, {"max_concurrent_checkpoints": 2}, [100, 100, 100, 100]),
        (250, {"max_concurrent_checkpoints": 2}, [100, 150, 100, 150]),
        # A failed checkpoint does not start a new pause: the pause counts from the last completion.
        (500, {"timeout": "210 ms", "min_pause": "100 ms", "interval": "250 ms"}, [250, 250, 250, 250]),
    ],
)
def test_checkpoints_are_triggered_at_the_times_that_the_rules_give(
    store_ms: int, settings: dict[str, Any], between_ms: list[int]
) -> None:
    _, records = _run(two_subtasks_job(store_ms=store_ms, **settings))
    triggers = [r.triggered_at_us for r in records]
    # Messages take some microseconds. Rounding to milliseconds removes them.
    assert [round((b - a) / 1000) for a, b in pairwise(triggers)][:4] == between_ms


def test_the_first_trigger_lies_between_pause_and_interval_and_differs_by_seed() -> None:
    firsts = [
        _run(two_subtasks_job(store_ms=1, seed=s, min_pause="40 ms"), until_ms=150)[1][0].triggered_at_us
        for s in range(20)
    ]
    assert all(40_000 <= at <= 100_000 for at in firsts), firsts
    assert len(set(firsts)) > 10


def test_a_pause_longer_than_the_interval_delays_the_first_trigger_by_the_pause() -> None:
    firsts = {
        _run(two_subtasks_job(store_ms=1, seed=s, min_pause="140 ms"), until_ms=150)[1][0].triggered_at_us
        for s in range(5)
    }
    assert firsts == {140_000}


@pytest.mark.parametrize(
    ("settings", "alignment", "timeout_us", "is_capped"),
    [
        ({}, Alignment.ALIGNED, None, False),
        ({f"{_CP}aligned-checkpoint-timeout": "1 s"}, Alignment.ALIGNED, None, False),
        ({f"{_CP}unaligned.enabled": True}, Alignment.UNALIGNED, None, False),
        (
            {f"{_CP}unaligned.enabled": True, f"{_CP}aligned-checkpoint-timeout": "1 s"},
            Alignment.ALIGNED,
            1_000_000,
            False,
        ),
        ({f"{_CP}unaligned.enabled": True, "runtime.inflight-cap.bytes": "1 kb"}, Alignment.UNALIGNED, None, True),
        ({"runtime.inflight-cap.bytes": "1 kb"}, Alignment.ALIGNED, None, False),
        ({f"{_CP}mode": "AT_LEAST_ONCE"}, Alignment.AT_LEAST_ONCE, None, False),
        ({f"{_CP}mode": "EXACTLY_ONCE"}, Alignment.ALIGNED, None, False),
    ],
)
def test_the_kind_of_barrier_follows_from_the_settings(
    settings: dict[str, object], alignment: Alignment, timeout_us: int | None, is_capped: bool
) -> None:
    _, records = _run(two_subtasks_job(store_ms=1).with_config(settings), until_ms=150)
    barrier = records[0].barrier
    assert (barrier.alignment, barrier.aligned_timeout_us, barrier.is_capped) == (alignment, timeout_us, is_capped)


@pytest.mark.parametrize("concurrent", [1, 2, 4])
def test_never_more_checkpoints_run_at_once_than_allowed(concurrent: int) -> None:
    engine = JobEngine(two_subtasks_job(store_ms=700, max_concurrent_checkpoints=concurrent))
    most = 0
    for at_ms in range(0, 2_000, 5):
        engine.run_until(at_ms * 1000)
        most = max(most, engine.coordinator.in_progress_count)
    assert most == concurrent


def test_a_checkpoint_older_than_its_timeout_expires_and_the_next_is_triggered() -> None:
    engine, records = _run(two_subtasks_job(store_ms=150, timeout="90 ms"), until_ms=1_000)
    assert engine.coordinator.completed_count == 0
    for record in records[:-1]:
        assert record.state is CheckpointState.FAILED
        assert record.reason is FailureReason.EXPIRED
        assert record.failed_at_us == record.triggered_at_us + 90_000
        assert record.message == "Checkpoint expired before completing."
    assert len(records) > 5


def test_an_acknowledgement_that_comes_after_the_expiry_changes_nothing() -> None:
    late = tuple(FaultSpec("rpc.ack", hit=1, action=FaultAction.DELAY, delay_us=95_000) for _ in range(50))
    engine, records = _run(two_subtasks_job(store_ms=10, timeout="90 ms", plan=late), until_ms=1_000)
    assert engine.coordinator.completed_count == 0
    assert {r.reason for r in records[:-1]} == {FailureReason.EXPIRED}


def test_a_repeated_acknowledgement_counts_once() -> None:
    twice = tuple(FaultSpec("rpc.ack", hit=1, action=FaultAction.DUPLICATE) for _ in range(50))
    engine, records = _run(two_subtasks_job(store_ms=10, plan=twice), until_ms=1_000)
    completed = [r for r in records if r.state is CheckpointState.COMPLETED]
    assert len(completed) == engine.coordinator.completed_count > 5
    assert {len(r.acks) for r in completed} == {2}


def test_a_newer_checkpoint_that_completes_first_subsumes_the_older() -> None:
    held = (FaultSpec("rpc.ack", hit=1, action=FaultAction.DELAY, delay_us=800_000),)
    spec = two_subtasks_job(store_ms=10, max_concurrent_checkpoints=2, tolerable_failed_checkpoints=0, plan=held)
    engine, records = _run(spec, until_ms=1_500)
    assert records[0].reason is FailureReason.SUBSUMED
    assert records[1].state is CheckpointState.COMPLETED
    assert records[0].failed_at_us == records[1].latest_ack_us
    # FP-3: a subsumed checkpoint does not count as a failure.
    assert engine.restart_count == 0


@pytest.mark.parametrize("retained", [1, 3])
def test_the_configured_number_of_completed_checkpoints_is_kept(retained: int) -> None:
    engine, records = _run(two_subtasks_job(store_ms=10, num_retained=retained))
    coordinator = engine.coordinator
    completed = [r.id for r in records if r.state is CheckpointState.COMPLETED]
    assert [c.record.id for c in coordinator.completed] == completed[-retained:]
    assert [r.id for r in records if r.is_discarded] == completed[:-retained]


def _failed_writes(*hits: int) -> tuple[FaultSpec, ...]:
    """Return faults that make writes to the store fail. A checkpoint writes twice, once per subtask.

    Each of ``hits`` is the number of writes since the previous fault, including the one that fails.
    """
    return tuple(FaultSpec("store.write", hit=hit, action=FaultAction.ERROR) for hit in hits)


def test_one_more_consecutive_failure_than_tolerable_fails_the_job() -> None:
    spec = two_subtasks_job(store_ms=10, tolerable_failed_checkpoints=2, plan=_failed_writes(5, 2, 2))
    engine, records = _run(spec)
    reasons = [r.reason for r in records[:6]]
    assert reasons[:2] == [None, None]
    assert reasons[2:5] == [FailureReason.ASYNC_FAILURE] * 3
    assert engine.restart_count == 1
    (failure,) = engine.exceptions
    assert failure.message.startswith("Exceeded checkpoint tolerable failure threshold.")
    assert failure.at_us == records[4].failed_at_us


def test_a_success_resets_the_count_of_failures() -> None:
    # Two checkpoints fail, one succeeds, and two fail. There are never three failures in a row.
    spec = two_subtasks_job(store_ms=10, tolerable_failed_checkpoints=2, plan=_failed_writes(3, 2, 4, 2))
    engine, records = _run(spec)
    states = [r.reason is None for r in records[:7]]
    assert states == [True, False, False, True, False, False, True]
    assert engine.restart_count == 0


def test_without_tolerable_failures_the_first_expiry_fails_the_job() -> None:
    engine, records = _run(
        two_subtasks_job(store_ms=150, timeout="90 ms", tolerable_failed_checkpoints=0), until_ms=220
    )
    assert engine.restart_count == 1
    assert engine.exceptions[0].at_us == records[0].failed_at_us
    assert "expired" in engine.exceptions[0].message


def test_a_failed_job_restarts_after_its_delay_from_the_newest_completed_checkpoint() -> None:
    spec = two_subtasks_job(store_ms=10, plan=(FaultSpec("task.before-sync", hit=9),), num_retained=3)
    engine = JobEngine(spec)
    while not engine.exceptions:
        engine.run_until(engine.now_us + 1_000)
    failed_at_us = engine.exceptions[0].at_us
    newest = engine.coordinator.newest
    assert newest is not None
    assert engine.status == "RESTARTING"
    assert {t.status for t in engine.tasks} == {TaskStatus.CANCELED}
    suspended = engine.coordinator.history[0]
    assert suspended.id == newest.record.id + 1
    assert suspended.reason is FailureReason.COORDINATOR_SUSPENDED
    engine.run_until(failed_at_us + 29_999)
    assert engine.status == "RESTARTING"
    engine.run_until(failed_at_us + 40_000)
    assert engine.status == "RUNNING"
    assert (engine.restored_id, engine.restored_at_us) == (newest.record.id, failed_at_us + 30_000)
    assert {t.attempt for t in engine.tasks} == {1}
    engine.run_until(failed_at_us + 500_000)
    # INV-10: the ids of completed checkpoints increase, and no checkpoint older than the restored one completes.
    completed = [r.id for r in engine.coordinator.all_completed]
    assert completed == sorted(completed)
    assert completed[-1] > suspended.id


def test_without_a_completed_checkpoint_the_job_restarts_with_empty_state() -> None:
    engine, _ = _run(two_subtasks_job(store_ms=10, plan=(FaultSpec("source.after-emit", hit=3),)), until_ms=60)
    assert engine.restart_count == 1
    assert engine.restored_id is None
    assert engine.coordinator.restored_count == 0
    # SNK-3: the failed attempt's transaction was aborted. Only the running attempt has an open transaction.
    oldest_us = oldest_open_us(engine.ledger)
    assert oldest_us is not None
    assert oldest_us > engine.exceptions[0].at_us


def test_a_trigger_while_a_task_still_restores_is_counted_but_not_listed() -> None:
    spec = two_subtasks_job(store_ms=1, plan=(FaultSpec("task.before-sync", hit=9),), interval="20 ms")
    slow = spec.with_config({"runtime.cost.recovery-bytes-per-s": 1_000})
    engine, records = _run(slow, until_ms=1_000)
    coordinator = engine.coordinator
    assert coordinator.failed_count > sum(r.failed_at_us is not None for r in records)
    assert coordinator.total_count == coordinator.completed_count + coordinator.failed_count


def test_the_counts_of_checkpoints_add_up_at_every_moment() -> None:
    plan = (
        *_failed_writes(3, 5),
        FaultSpec("task.after-ack", hit=20),
        FaultSpec("rpc.ack", hit=9, action=FaultAction.DROP),
    )
    engine = JobEngine(two_subtasks_job(store_ms=40, timeout="90 ms", plan=plan))
    for at_ms in range(0, 3_000, 7):
        engine.run_until(at_ms * 1000)
        coordinator = engine.coordinator
        parts = coordinator.completed_count + coordinator.failed_count + coordinator.in_progress_count
        assert coordinator.total_count == parts, at_ms
    assert engine.coordinator.failed_count > 2
    assert engine.restart_count == 1


def test_a_changed_interval_applies_from_the_next_checkpoint() -> None:
    engine = JobEngine(two_subtasks_job(store_ms=10))
    engine.run_until(500_000)
    engine.set_config({f"{_CP}interval": "250 ms"})
    engine.run_until(2_000_000)
    triggers = sorted(r.triggered_at_us for r in engine.coordinator.history)
    between = [round((b - a) / 1000) for a, b in pairwise(triggers)]
    assert set(between) == {100, 250}
    assert between == sorted(between)
