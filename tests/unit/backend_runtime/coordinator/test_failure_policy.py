"""Tests of which failure reasons count, by kind of snapshot, at tasks and at the coordinator (T-18; FP-1 to FP-6)."""

from __future__ import annotations

import pytest

from backend.domain.failure import FailureReason
from backend.runtime.coordinator.failure_policy import MESSAGES, Failure, FailurePolicy
from backend.runtime.core.elements import SnapshotType
from tests.support.flink_reasons import FLINK_REASONS

_COUNTED = {
    "IO_EXCEPTION",
    "CHECKPOINT_ASYNC_EXCEPTION",
    "CHECKPOINT_DECLINED",
    "CHECKPOINT_EXPIRED",
    "FINALIZE_CHECKPOINT_FAILURE",
}
_IGNORED = {
    "PERIODIC_SCHEDULER_SHUTDOWN",
    "TOO_MANY_CHECKPOINT_REQUESTS",
    "MINIMUM_TIME_BETWEEN_CHECKPOINTS",
    "NOT_ALL_REQUIRED_TASKS_RUNNING",
    "BLOCKING_OUTPUT_EXIST",
    "CHANNEL_STATE_SHARED_STREAM_EXCEPTION",
    "CHECKPOINT_SUBSUMED",
    "CHECKPOINT_DECLINED_TASK_NOT_READY",
    "CHECKPOINT_DECLINED_TASK_CLOSING",
    "CHECKPOINT_DECLINED_SUBSUMED",
    "CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER",
    "CHECKPOINT_DECLINED_INPUT_END_OF_STREAM",
    "CHECKPOINT_COORDINATOR_SHUTDOWN",
    "CHECKPOINT_COORDINATOR_SUSPEND",
    "JOB_FAILOVER_REGION",
    "TASK_FAILURE",
    "TASK_CHECKPOINT_FAILURE",
    "UNKNOWN_TASK_CHECKPOINT_NOTIFICATION_FAILURE",
    "TRIGGER_CHECKPOINT_FAILURE",
}
_CHECKPOINT, _SAVEPOINT = SnapshotType.CHECKPOINT, SnapshotType.SAVEPOINT


def _fails(name: str, kind: SnapshotType, *, is_at_task: bool, tolerable: int = 0) -> bool:
    return FailurePolicy().failed(Failure(1, FLINK_REASONS[name], kind, is_at_task), tolerable=tolerable)


def test_the_reasons_are_flinks_and_each_is_counted_or_ignored() -> None:
    assert set(FLINK_REASONS) == _COUNTED | _IGNORED
    assert not _COUNTED & _IGNORED
    assert set(FLINK_REASONS.values()) <= set(MESSAGES)


@pytest.mark.parametrize("name", sorted(_COUNTED | _IGNORED))
def test_a_reason_counts_by_the_rules_for_its_snapshot_and_place(name: str) -> None:
    counts = name in _COUNTED
    # FP-2, FP-3: for a checkpoint, failures count in the same way at the coordinator and at a task.
    assert _fails(name, _CHECKPOINT, is_at_task=False) == counts
    assert _fails(name, _CHECKPOINT, is_at_task=True) == counts
    # FP-6: for a plain savepoint, only failures at tasks count. For a savepoint that stops the job, every failure
    # counts.
    assert not _fails(name, _SAVEPOINT, is_at_task=False)
    assert _fails(name, _SAVEPOINT, is_at_task=True) == counts
    for kind in (SnapshotType.SAVEPOINT_SUSPEND, SnapshotType.SAVEPOINT_TERMINATE):
        for is_at_task in (False, True):
            assert _fails(name, kind, is_at_task=is_at_task, tolerable=-1)
    # FP-4: if the number of tolerable failures is unlimited, no failure counts.
    assert not _fails(name, _CHECKPOINT, is_at_task=True, tolerable=-1)


def test_the_reason_of_the_cap_is_not_flinks_and_does_not_count() -> None:
    failure = Failure(1, FailureReason.INFLIGHT_LIMIT_EXCEEDED, _CHECKPOINT, is_at_task=True)
    assert FailureReason.INFLIGHT_LIMIT_EXCEEDED not in FLINK_REASONS.values()
    assert not FailurePolicy().failed(failure, tolerable=0)


def _expired(checkpoint_id: int) -> Failure:
    return Failure(checkpoint_id, FailureReason.EXPIRED, _CHECKPOINT, is_at_task=False)


@pytest.mark.parametrize(
    ("happened", "fails_the_job"),
    [
        # Two consecutive failures are tolerable. "-1" is the failure of checkpoint 1, and "+3" the success of
        # checkpoint 3. Here, the third consecutive failure is one too many.
        (["-1", "-2", "-3"], [False, False, True]),
        # A success resets the count.
        (["-1", "-2", "+3", "-4", "-5", "-6"], [False, False, False, False, False, True]),
        # A checkpoint that fails several times counts once.
        (["-1", "-1", "-1", "-2", "-3"], [False, False, False, False, True]),
        # If a checkpoint is older than the last success, its failure does not count, and its success resets nothing.
        (["+5", "-3", "-4", "-6", "-7", "+4", "-8"], [False, False, False, False, False, False, True]),
        # After the job has failed, the count begins again at zero.
        (["-1", "-2", "-3", "-4", "-5", "-6"], [False, False, True, False, False, True]),
    ],
)
def test_consecutive_failures_are_counted(happened: list[str], fails_the_job: list[bool]) -> None:
    policy = FailurePolicy()
    told = []
    for word in happened:
        if word[0] == "+":
            policy.succeeded(int(word[1:]))
            told.append(False)
        else:
            told.append(policy.failed(_expired(int(word[1:])), tolerable=2))
    assert told == fails_the_job
