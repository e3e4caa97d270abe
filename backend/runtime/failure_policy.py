"""What a failed checkpoint is said to have failed of, which ones count, and when patience ends (FP-1 to FP-6)."""

from __future__ import annotations

from collections.abc import Mapping

from backend.domain.failure import FailureReason
from backend.runtime.config import UNLIMITED

MESSAGES: Mapping[FailureReason, str] = {
    FailureReason.EXPIRED: "Checkpoint expired before completing.",
    FailureReason.DECLINED: "Checkpoint was declined.",
    FailureReason.DECLINED_SUBSUMED: "Checkpoint was canceled because a barrier from newer checkpoint was received.",
    FailureReason.DECLINED_ON_CANCELLATION: "Task received cancellation from one of its inputs.",
    FailureReason.INFLIGHT_LIMIT_EXCEEDED: "In-flight data limit exceeded.",
    FailureReason.ASYNC_FAILURE: "Asynchronous task checkpoint failed.",
    FailureReason.SUBSUMED: "Checkpoint has been subsumed.",
    FailureReason.COORDINATOR_SUSPENDED: "Checkpoint Coordinator is suspending.",
    FailureReason.FINALIZE_FAILURE: "Failure to finalize checkpoint.",
    FailureReason.IO_FAILURE: "An Exception occurred while triggering the checkpoint. IO-problem detected.",
    FailureReason.TOO_MANY_REQUESTS: "The maximum number of queued checkpoint requests exceeded",
    FailureReason.NOT_ALL_TASKS_RUNNING: "Not all required tasks are currently running.",
}
_AT_COORDINATOR = frozenset({FailureReason.EXPIRED, FailureReason.FINALIZE_FAILURE, FailureReason.IO_FAILURE})


class FailurePolicy:
    """Counts failures in a row."""

    def __init__(self) -> None:
        self._in_a_row = 0

    def succeeded(self) -> None:
        """FP-1."""
        self._in_a_row = 0

    def failed(self, reason: FailureReason, *, is_savepoint: bool, tolerable: int) -> bool:
        """Whether the job fails over it; then counting begins again (FP-4)."""
        if tolerable == UNLIMITED or not reason.is_counted:
            return False
        if is_savepoint and reason in _AT_COORDINATOR:
            return False  # FP-6: what fails a savepoint at a task counts, what fails it at the coordinator does not.
        self._in_a_row += 1
        if self._in_a_row <= tolerable:
            return False
        self._in_a_row = 0
        return True
