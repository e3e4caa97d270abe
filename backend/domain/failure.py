"""The reasons for a failed checkpoint, as in Flink's ``CheckpointFailureReason``.

``is_counted``: whether the engine counts it as a tolerable failure (runtime.md FP-2, FP-3). A message without a known
reason gives ``UNKNOWN``. The text of the message is stored too, and not interpreted again.
"""

from __future__ import annotations

from enum import StrEnum


class FailureReason(StrEnum):
    """The reason that an engine gave for a failed checkpoint."""

    EXPIRED = "expired"
    DECLINED = "declined"
    DECLINED_SUBSUMED = "declined-subsumed"
    DECLINED_ON_CANCELLATION = "declined-on-cancellation"
    DECLINED_INPUT_END_OF_STREAM = "declined-input-end-of-stream"
    DECLINED_TASK_NOT_READY = "declined-task-not-ready"
    DECLINED_TASK_CLOSING = "declined-task-closing"
    INFLIGHT_LIMIT_EXCEEDED = "inflight-limit-exceeded"
    ASYNC_FAILURE = "async-failure"
    TASK_FAILURE = "task-failure"
    FINALIZE_FAILURE = "finalize-failure"
    IO_FAILURE = "io-failure"
    SUBSUMED = "subsumed"
    SHARED_STREAM_FAILURE = "shared-stream-failure"
    """Another subtask that writes its channel state into the same file failed (SP-6)."""
    COORDINATOR_SUSPENDED = "coordinator-suspended"
    COORDINATOR_SHUTDOWN = "coordinator-shutdown"
    SCHEDULER_SHUTDOWN = "scheduler-shutdown"
    REGION_RESTARTING = "region-restarting"
    BLOCKING_OUTPUT = "blocking-output"
    UNKNOWN_TASK = "unknown-task"
    NOT_ALL_TASKS_RUNNING = "not-all-tasks-running"
    MIN_PAUSE = "min-pause"
    TOO_MANY_REQUESTS = "too-many-requests"
    TRIGGER_FAILURE = "trigger-failure"
    QUERY_FAILURE = "query-failure"
    """Spark: the query ended with an error in this micro-batch. The message begins with Spark's error class."""
    UNKNOWN = "unknown"

    @property
    def is_counted(self) -> bool:
        """Whether the engine counts it as a tolerable failure."""
        return self in _COUNTED


_COUNTED = frozenset(
    {
        FailureReason.EXPIRED,
        FailureReason.DECLINED,
        FailureReason.ASYNC_FAILURE,
        FailureReason.FINALIZE_FAILURE,
        FailureReason.IO_FAILURE,
    }
)

# Messages of Flink 1.20 and 2.3, seen on real clusters and in CheckpointFailureReason. The first match is used.
_MESSAGES: tuple[tuple[str, FailureReason], ...] = (
    ("checkpoint expired before completing", FailureReason.EXPIRED),
    ("checkpoint has been subsumed", FailureReason.SUBSUMED),
    (
        "checkpoint was declined because one input stream is finished",
        FailureReason.DECLINED_INPUT_END_OF_STREAM,
    ),
    ("checkpoint was canceled because a barrier from newer checkpoint", FailureReason.DECLINED_SUBSUMED),
    ("task received cancellation from one of its inputs", FailureReason.DECLINED_ON_CANCELLATION),
    ("checkpoint was declined (task's operators partially finished)", FailureReason.DECLINED),
    ("checkpoint was declined (tasks not ready)", FailureReason.DECLINED_TASK_NOT_READY),
    ("checkpoint was declined (task not ready)", FailureReason.DECLINED_TASK_NOT_READY),
    ("checkpoint was declined (task is closing)", FailureReason.DECLINED_TASK_CLOSING),
    ("in-flight data limit exceeded", FailureReason.INFLIGHT_LIMIT_EXCEEDED),
    ("checkpoint was declined", FailureReason.DECLINED),
    ("asynchronous task checkpoint failed", FailureReason.ASYNC_FAILURE),
    ("task has failed", FailureReason.TASK_FAILURE),
    ("task local checkpoint failure", FailureReason.TASK_FAILURE),
    ("failure to finalize checkpoint", FailureReason.FINALIZE_FAILURE),
    ("checkpoint coordinator is suspending", FailureReason.COORDINATOR_SUSPENDED),
    ("checkpoint coordinator is shut", FailureReason.COORDINATOR_SHUTDOWN),
    ("checkpointcoordinator shutdown", FailureReason.COORDINATOR_SHUTDOWN),
    ("periodic checkpoint scheduler is shut down", FailureReason.SCHEDULER_SHUTDOWN),
    ("failoverregion is restarting", FailureReason.REGION_RESTARTING),
    ("blocking output edge exists", FailureReason.BLOCKING_OUTPUT),
    ("other subtasks sharing the channelstate file", FailureReason.SHARED_STREAM_FAILURE),
    ("unknown task for the checkpoint to notify", FailureReason.UNKNOWN_TASK),
    ("not all required tasks are currently running", FailureReason.NOT_ALL_TASKS_RUNNING),
    ("the minimum time between checkpoints", FailureReason.MIN_PAUSE),
    ("the maximum number of queued checkpoint requests", FailureReason.TOO_MANY_REQUESTS),
    # The message with an input/output problem is counted (FP-2), the other is not.
    ("an exception occurred while triggering the checkpoint. io-problem detected", FailureReason.IO_FAILURE),
    ("an exception occurred while triggering the checkpoint", FailureReason.TRIGGER_FAILURE),
    ("trigger checkpoint failure", FailureReason.TRIGGER_FAILURE),
    ("an exception occurred while receiving", FailureReason.IO_FAILURE),
    ("an ioexception occurred", FailureReason.IO_FAILURE),
)


def reason_of_message(message: str | None) -> FailureReason:
    """The reason in an engine's failure message; ``UNKNOWN`` if it has no known reason."""
    text = (message or "").lower()
    for fragment, reason in _MESSAGES:
        if fragment in text:
            return reason
    return FailureReason.UNKNOWN
