"""Tracks which sources are working off a backlog, because the checkpoint interval depends on them (SRC-5)."""

from __future__ import annotations

from backend.runtime.job.config import RuntimeConfig
from backend.runtime.measure.measures import TaskKey
from backend.runtime.task.messages import BacklogMessage


class Backlogs:
    """The source subtasks that are working off a backlog, as reported to the coordinator."""

    def __init__(self) -> None:
        self._tasks: set[TaskKey] = set()

    def clear(self) -> None:
        """Forget all backlogs. Called when new attempts start, because they report their own backlogs."""
        self._tasks.clear()

    def note(self, message: BacklogMessage) -> None:
        """Record a subtask's report that its backlog begins or ends."""
        if message.is_processing:
            self._tasks.add(message.task)
        else:
            self._tasks.discard(message.task)

    def interval_us(self, config: RuntimeConfig) -> int | None:
        """Return the checkpoint interval that applies now, in microseconds.

        Return None if a source is working off a backlog and the settings allow no checkpoints during a backlog.
        """
        if not self._tasks or config.backlog_interval_us < 0:
            return config.effective_interval_us
        return max(config.backlog_interval_us, config.min_pause_us) if config.backlog_interval_us else None
