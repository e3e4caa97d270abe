"""Stops one subtask with a savepoint if tasks finish in no other way: ``finish_protocol`` is ``none`` (SV-3).

A source stops reading, and sends end-of-data after its last record. With drain, it first sends the final watermark,
which fires every timer downstream. Without drain, no timer fires, and open windows stay in the savepoint (FN-19,
FN-21). The barrier follows the end of the data, so the savepoint contains the effect of every record. A subtask
finishes once that savepoint is complete (FN-22) and all inputs of the subtask have ended.

A source that has no more records sends the final watermark and end-of-data as well, but no subtask finishes.
"""

from __future__ import annotations

from typing import Protocol

from backend.runtime.core.elements import WATERMARK_MAX, Barrier, EndOfData, EndOfPartition, Watermark
from backend.runtime.core.scheduler import EventClass
from backend.runtime.job.faults import FinishStep
from backend.runtime.network.channel import InputChannel
from backend.runtime.operators.sinks import TransactionalSink
from backend.runtime.task.messages import FinishedMessage
from backend.runtime.task.ports import TaskPort
from backend.runtime.task.sourcing import Sourcing


class StoppingTask(TaskPort, Protocol):
    """The part of a task's interface that ``Stopping`` uses."""

    sourcing: Sourcing | None

    def finish(self) -> None:
        """End the attempt: the subtask runs no more steps, but its queued output is still sent."""
        ...


class Stopping:
    """Tracks the progress of stopping one attempt of one subtask."""

    is_at_end = False
    """The operators never finish."""

    def __init__(self, task: StoppingTask) -> None:
        self._task = task
        self._savepoint_id: int | None = None
        self._is_complete = False

    def triggered(self, barrier: Barrier) -> None:
        """If the triggered savepoint is to stop the job, end this source's data before the barrier."""
        kind = barrier.snapshot_type
        if kind.is_synchronous:
            assert self._task.sourcing is not None
            self._task.sourcing.end(is_drained=kind.drains)

    def end_source(self, *, is_drained: bool) -> None:
        """Send the end of this source's data. With drain, send the final watermark first."""
        if is_drained:
            self._task.emission.broadcast(Watermark(WATERMARK_MAX))
        self._end_data(is_drained=is_drained)

    def on_end_of_data(self, channel: InputChannel, event: EndOfData) -> None:
        """Handle the end of the data on one channel. After the last channel, send the end of the data downstream."""
        channel.is_at_end_of_data = True
        channel.is_drained = event.is_drained
        channels = self._task.gate.channels
        if all(c.is_at_end_of_data or c.is_ended for c in channels):
            self._end_data(is_drained=all(c.is_drained for c in channels))

    def _end_data(self, *, is_drained: bool) -> None:
        """Send end-of-data to every receiver. After it, only events follow (Q-2, SRC-4)."""
        self._task.flush()
        self._task.emission.broadcast_event(EndOfData(is_drained))

    def snapshotting(self, barrier: Barrier) -> None:
        """Remember the savepoint's id if it is to stop the job. Called when its snapshot is taken."""
        if barrier.snapshot_type.is_synchronous:
            self._savepoint_id = barrier.checkpoint_id

    def completed(self, checkpoint_id: int) -> None:
        """Finish if this was the savepoint that stops the job and every input has ended.

        Called when a checkpoint or savepoint is complete and its transactions are committed.
        """
        if checkpoint_id == self._savepoint_id:
            self._is_complete = True
            self.on_end_of_partition()

    def on_end_of_partition(self) -> None:
        """Finish if the savepoint is complete and every input has ended."""
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

    def on_checkpoint_over(self) -> None:
        """Do nothing: only a complete savepoint lets the subtask finish."""

    def note(self, step: FinishStep, which: int | None = None) -> None:
        """Do nothing: these steps exist only if tasks finish."""
