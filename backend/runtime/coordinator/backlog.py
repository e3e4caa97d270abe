"""Tracks which sources work off a backlog, and the checkpoint interval that follows from it (SRC-5)."""

from __future__ import annotations

from backend.runtime.job.config import RuntimeConfig
from backend.runtime.measure.measures import TaskKey
from backend.runtime.task.messages import BacklogMessage


class Backlogs:
    """The source subtasks that work off a backlog, by the messages that the coordinator has received."""

    def __init__(self) -> None:
        self._tasks: set[TaskKey] = set()

    def clear(self) -> None:
        """Forget all backlogs, because new attempts report their own."""
        self._tasks.clear()

    def tell(self, message: BacklogMessage) -> None:
        """Note a subtask's message."""
        if message.is_processing:
            self._tasks.add(message.task)
        else:
            self._tasks.discard(message.task)

    def interval_us(self, config: RuntimeConfig) -> int | None:
        """The checkpoint interval in force, in microseconds; None if no checkpoints are taken during the backlog."""
        if not self._tasks or config.backlog_interval_us < 0:
            return config.effective_interval_us
        return max(config.backlog_interval_us, config.min_pause_us) if config.backlog_interval_us else None
