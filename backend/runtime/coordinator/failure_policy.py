"""The messages of failed checkpoints, which failures count, and when the job fails because of them (FP-1 to FP-6).

The reasons are a closed set: Flink's, in Flink's words, and one of our own (CAP-4).
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
"""What the runtime says of each reason that it can give."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed checkpoint or savepoint; ``is_at_task``: a task declined it, and not the coordinator."""

    checkpoint_id: int
    reason: FailureReason
    kind: SnapshotType
    is_at_task: bool


class FailurePolicy:
    """Counts failures in a row, as Flink's ``CheckpointFailureManager`` does; a restart of the job is no success."""

    def __init__(self) -> None:
        self._counted: set[int] = set()
        """Checkpoints since the last success, each once."""
        self._succeeded_id = 0

    def succeeded(self, checkpoint_id: int) -> None:
        """FP-1: counting begins anew, unless something newer has succeeded already."""
        if checkpoint_id > self._succeeded_id:
            self._succeeded_id = checkpoint_id
            self._counted.clear()

    def failed(self, failure: Failure, *, tolerable: int) -> bool:
        """Whether the job fails over it; then counting begins again (FP-4).

        What fails a savepoint at a task counts, what fails it at the coordinator does not, and nothing that is older
        than a success. One that stops the job has stopped its sources: whatever fails it fails the job, which would
        stand still otherwise (FP-6, FN-30).
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
