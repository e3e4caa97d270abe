"""Sources that work off a backlog, and the interval of checkpoints meanwhile (SRC-5)."""

from __future__ import annotations

from backend.runtime.job.config import RuntimeConfig
from backend.runtime.measure.measures import TaskKey
from backend.runtime.task.messages import BacklogMessage


class Backlogs:
    """Which source subtasks work off a backlog, as far as the coordinator was told."""

    def __init__(self) -> None:
        self._tasks: set[TaskKey] = set()

    def clear(self) -> None:
        """New attempts tell anew."""
        self._tasks.clear()

    def tell(self, message: BacklogMessage) -> None:
        """Remember what a subtask says."""
        if message.is_processing:
            self._tasks.add(message.task)
        else:
            self._tasks.discard(message.task)

    def interval_us(self, config: RuntimeConfig) -> int | None:
        """The interval in force; None where no checkpoint is to be taken now."""
        if not self._tasks or config.backlog_interval_us < 0:
            return config.effective_interval_us
        return max(config.backlog_interval_us, config.min_pause_us) if config.backlog_interval_us else None
