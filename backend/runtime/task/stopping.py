"""Stopping one subtask with a savepoint: its data ends, it waits for that savepoint, and ends itself (6.6, SV-3).

A source takes no more records and says so behind the last one: with drain behind the last watermark, which fires every
timer downstream; without, nothing fires and what is open stays in the savepoint (FN-19, FN-21). The barrier follows the
end of the data, so that the savepoint holds everything. Only that savepoint lets a subtask end (FN-22), and all but
sources wait besides until every input has ended.
"""

from __future__ import annotations

from typing import Protocol

from backend.runtime.core.elements import Barrier, EndOfPartition
from backend.runtime.core.scheduler import EventClass
from backend.runtime.operators.sinks import TransactionalSink
from backend.runtime.task.messages import FinishedMessage
from backend.runtime.task.ports import TaskPort
from backend.runtime.task.sourcing import Sourcing


class StoppingTask(TaskPort, Protocol):
    """What stopping asks of the task."""

    sourcing: Sourcing | None

    def finish(self) -> None:
        """End in order: nothing runs here any more, and what was sent is still delivered."""
        ...


class Stopping:
    """How far one attempt of one subtask is with stopping."""

    def __init__(self, task: StoppingTask) -> None:
        self._task = task
        self._savepoint_id: int | None = None
        self._is_complete = False

    def triggered(self, barrier: Barrier) -> None:
        """The coordinator asks this source for a snapshot; where it is to stop, its data ends before the barrier."""
        kind = barrier.snapshot_type
        if kind.is_synchronous:
            assert self._task.sourcing is not None
            self._task.sourcing.end(is_drained=kind.drains)

    def snapshotting(self, barrier: Barrier) -> None:
        """A snapshot is taken."""
        if barrier.snapshot_type.is_synchronous:
            self._savepoint_id = barrier.checkpoint_id

    def completed(self, checkpoint_id: int) -> None:
        """A checkpoint or savepoint is complete, and what it commits is committed."""
        if checkpoint_id == self._savepoint_id:
            self._is_complete = True
            self.advance()

    def advance(self) -> None:
        """End, if nothing is left to wait for; who is told again by then hears of nothing more."""
        task = self._task
        if self._is_complete and all(channel.is_ended for channel in task.gate.channels):
            task.emission.broadcast_event(EndOfPartition())
            task.emission.then(self._finish)

    def _finish(self) -> None:
        task, env = self._task, self._task.env
        for operator in task.operators:
            if isinstance(operator, TransactionalSink):
                operator.close()
        task.finish()
        message = FinishedMessage(task.key, task.attempt)
        env.scheduler.after(env.config.rpc_latency_us, EventClass.RPC, env.coordinator.on_finished, message)
