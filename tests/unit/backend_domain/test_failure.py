"""Tests of the reasons that are found in an engine's failure messages."""

from __future__ import annotations

import pytest

from backend.domain.failure import FailureReason, reason_of_message


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        # Flink 1.13, and 1.14 to 2.3.
        ("Checkpoint was declined (task's operators partially closed)", FailureReason.DECLINED_TASK_CLOSING),
        ("Checkpoint was declined (task is closing)", FailureReason.DECLINED_TASK_CLOSING),
        (
            "TaskManager received a checkpoint request for unknown task 7_0. Failure reason: Task local checkpoint"
            " failure.",
            FailureReason.DECLINED_TASK_CLOSING,
        ),
        (
            "Task Source: in (2/5) was not running Failure reason: Checkpoint was declined (tasks not ready)",
            FailureReason.DECLINED_TASK_NOT_READY,
        ),
        ("Task is not running? Failure reason: Trigger checkpoint failure.", FailureReason.DECLINED_TASK_NOT_READY),
        ("The job has failed.", FailureReason.COORDINATOR_SUSPENDED),
        ("The maximum number of concurrent checkpoints is exceeded", FailureReason.TOO_MANY_REQUESTS),
        ("Task local checkpoint failure.", FailureReason.TASK_FAILURE),
        ("Checkpoint was declined.", FailureReason.DECLINED),
        (None, FailureReason.UNKNOWN),
    ],
)
def test_a_message_has_one_reason_in_every_version(message, reason):
    assert reason_of_message(message) is reason
