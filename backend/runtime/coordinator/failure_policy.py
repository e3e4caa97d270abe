"""The failure policy: decides which failed checkpoints count, and when the job fails because of them (FP-1 to FP-6).

The module also holds the message of each failure reason. The reasons and messages are Flink's, except for two reasons
that this runtime adds (CAP-4, CO-14).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from backend.domain.failure import FailureReason
from backend.runtime.core.elements import SnapshotType
from backend.runtime.job.config import UNLIMITED

MESSAGES: Mapping[FailureReason, str] = {
    FailureReason.EXPIRED: "Checkpoint expired before completing.",
    FailureReason.DECLINED: "Checkpoint was declined.",
    FailureReason.DECLINED_SUBSUMED: "Checkpoint was canceled because a barrier from newer checkpoint was received.",
    FailureReason.DECLINED_ON_CANCELLATION: "Task received cancellation from one of its inputs",
    FailureReason.DECLINED_INPUT_END_OF_STREAM: "Checkpoint was declined because one input stream is finished",
    FailureReason.DECLINED_TASK_NOT_READY: "Checkpoint was declined (tasks not ready)",
    FailureReason.DECLINED_TASK_CLOSING: "Checkpoint was declined (task is closing)",
    FailureReason.INFLIGHT_LIMIT_EXCEEDED: "In-flight data limit exceeded.",
    FailureReason.ASYNC_FAILURE: "Asynchronous task checkpoint failed.",
    FailureReason.SHARED_STREAM_FAILURE: (
        "The checkpoint was aborted due to exception of other subtasks sharing the ChannelState file."
    ),
    FailureReason.SUBSUMED: "Checkpoint has been subsumed.",
    FailureReason.ABORTED: "Checkpoint was aborted by a user.",
    FailureReason.COORDINATOR_SUSPENDED: "Checkpoint Coordinator is suspending.",
    FailureReason.COORDINATOR_SHUTDOWN: "CheckpointCoordinator shutdown.",
    FailureReason.SCHEDULER_SHUTDOWN: "Periodic checkpoint scheduler is shut down.",
    FailureReason.REGION_RESTARTING: "FailoverRegion is restarting.",
    FailureReason.TASK_FAILURE: "Task has failed.",
    FailureReason.UNKNOWN_TASK: "Unknown task for the checkpoint to notify.",
    FailureReason.FINALIZE_FAILURE: "Failure to finalize checkpoint.",
    FailureReason.TRIGGER_FAILURE: "Trigger checkpoint failure.",
    FailureReason.IO_FAILURE: "An Exception occurred while triggering the checkpoint. IO-problem detected.",
    FailureReason.BLOCKING_OUTPUT: "Blocking output edge exists in running tasks.",
    FailureReason.TOO_MANY_REQUESTS: "The maximum number of queued checkpoint requests exceeded",
    FailureReason.MIN_PAUSE: (
        "The minimum time between checkpoints is still pending. Checkpoint will be triggered after the minimum time."
    ),
    FailureReason.NOT_ALL_TASKS_RUNNING: "Not all required tasks are currently running.",
}
"""The message for each failure reason that the runtime uses."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed checkpoint or savepoint.

    ``is_at_task`` is true if a task declined it, and false if the coordinator failed it.
    """

    checkpoint_id: int
    reason: FailureReason
    kind: SnapshotType
    is_at_task: bool


class FailurePolicy:
    """Counts failures since the last success, like Flink's ``CheckpointFailureManager``. A restart keeps the count."""

    def __init__(self) -> None:
        self._counted: set[int] = set()
        """Ids of the checkpoints that failed since the last success and whose failures count."""
        self._succeeded_id = 0

    def succeeded(self, checkpoint_id: int) -> None:
        """Reset the count of failures, unless a newer checkpoint has already succeeded (FP-1)."""
        if checkpoint_id > self._succeeded_id:
            self._succeeded_id = checkpoint_id
            self._counted.clear()

    def failed(self, failure: Failure, *, tolerable: int) -> bool:
        """Count a failure, and return whether the job fails because of it (FP-4).

        If the count exceeds ``tolerable``, the job fails and the count is reset. The failure of a savepoint counts only
        if a task declined it. The failure of a checkpoint that is older than the last success does not count. Every
        failure of the savepoint that stops the job fails the job (FP-6, FN-30): the sources have already stopped, so
        the job could not make progress otherwise.
        """
        if failure.kind.is_synchronous:
            return True
        is_ignored = failure.kind.is_savepoint and not failure.is_at_task
        if tolerable == UNLIMITED or is_ignored or failure.checkpoint_id <= self._succeeded_id:
            return False
        if failure.reason.is_counted:
            self._counted.add(failure.checkpoint_id)
        if len(self._counted) <= tolerable:
            return False
        self._counted.clear()
        return True
