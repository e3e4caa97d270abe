"""The reasons for a failed checkpoint, as in Flink's ``CheckpointFailureReason``.

An engine reports the reason only in the text of its failure message, so this module finds the reason in the text. A
text without a known reason gives ``UNKNOWN``. The text is stored too, but is not interpreted again.
"""

from __future__ import annotations

from enum import StrEnum


class FailureReason(StrEnum):
    """The reason that the engine gave for a failed checkpoint."""

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
    ABORTED = "aborted"
    """Reference runtime only: a user aborted the checkpoint (CO-14)."""
    SHARED_STREAM_FAILURE = "shared-stream-failure"
    """Another subtask that writes its channel state to the same file failed (SP-6)."""
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
    """Spark only: the query ended with an error in this micro-batch. The message begins with Spark's error class."""
    UNKNOWN = "unknown"

    @property
    def is_counted(self) -> bool:
        """Whether the engine counts this failure towards its limit of tolerable failures (runtime.md FP-2, FP-3)."""
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

# Parts of the messages of Flink 1.13 to 2.3, from real clusters and from CheckpointFailureReason, in lower case. The
# first part that a message contains decides, so the order matters.
_MESSAGES: tuple[tuple[str, FailureReason], ...] = (
    ("checkpoint expired before completing", FailureReason.EXPIRED),
    ("checkpoint has been subsumed", FailureReason.SUBSUMED),
    ("checkpoint was aborted by a user", FailureReason.ABORTED),
    (
        "checkpoint was declined because one input stream is finished",
        FailureReason.DECLINED_INPUT_END_OF_STREAM,
    ),
    ("checkpoint was canceled because a barrier from newer checkpoint", FailureReason.DECLINED_SUBSUMED),
    ("task received cancellation from one of its inputs", FailureReason.DECLINED_ON_CANCELLATION),
    # The task had just finished. The words are those of Flink 1.13; later versions have the same reason as *closing*.
    ("checkpoint was declined (task's operators partially", FailureReason.DECLINED_TASK_CLOSING),
    # The TaskManager had already removed the task.
    ("received a checkpoint request for unknown task", FailureReason.DECLINED_TASK_CLOSING),
    ("task is not running?", FailureReason.DECLINED_TASK_NOT_READY),
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
    ("the maximum number of concurrent checkpoints", FailureReason.TOO_MANY_REQUESTS),
    ("the job has failed", FailureReason.COORDINATOR_SUSPENDED),
    # Unlike other failures to trigger a checkpoint, this one counts towards the limit of tolerable failures (FP-2).
    ("an exception occurred while triggering the checkpoint. io-problem detected", FailureReason.IO_FAILURE),
    ("an exception occurred while triggering the checkpoint", FailureReason.TRIGGER_FAILURE),
    ("trigger checkpoint failure", FailureReason.TRIGGER_FAILURE),
    ("an exception occurred while receiving", FailureReason.IO_FAILURE),
    ("an ioexception occurred", FailureReason.IO_FAILURE),
)


def reason_of_message(message: str | None) -> FailureReason:
    """Return the reason in an engine's failure message, or ``UNKNOWN`` if the message contains no known reason."""
    text = (message or "").lower()
    for fragment, reason in _MESSAGES:
        if fragment in text:
            return reason
    return FailureReason.UNKNOWN
