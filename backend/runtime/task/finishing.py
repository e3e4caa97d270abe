"""Ends one subtask: finishes its operators, waits for its final checkpoint, and closes (runtime.md 6.6, SV-3).

A source ends when it has no more records, or when the job stops with a savepoint. A subtask with inputs ends when all
its inputs have ended. In the revised protocol, the end has two parts. At the end of the data, the subtask finishes its
operators and sends END_OF_DATA downstream. It then waits, and still takes part in checkpoints. Once a checkpoint after
the end of its data is complete, it closes, and sends END_OF_PARTITION downstream. In the legacy protocol, a subtask
closes as soon as its inputs have ended, so that its last transactions stay uncommitted.

With drain, the operators finish and every timer fires. Without drain, neither happens, and open windows stay in the
savepoint (FN-19, FN-21). ``ending`` decides when the subtask may close. The final snapshot holds only transactions to
commit, and a failure before the end restarts the job from its last checkpoint (FN-26 to FN-29).
"""

from __future__ import annotations

from typing import Protocol

from backend.runtime.core.elements import WATERMARK_MAX, Barrier, EndOfData, EndOfPartition, Watermark
from backend.runtime.core.scheduler import EventClass
from backend.runtime.job.config import FinishProtocol
from backend.runtime.job.faults import FinishStep
from backend.runtime.network.channel import InputChannel
from backend.runtime.operators.sinks import TransactionalSink
from backend.runtime.task.ending import Ending
from backend.runtime.task.messages import EndOfDataMessage, FinishedMessage
from backend.runtime.task.ports import TaskPort
from backend.runtime.task.sourcing import Sourcing


class PendingCheckpoints(Protocol):
    """The part of a subtask's checkpoints that ``Finishing`` uses."""

    @property
    def is_pending(self) -> bool:
        """Whether a checkpoint is in progress at this subtask."""
        ...


class FinishingTask(TaskPort, Protocol):
    """The part of a task's interface that ``Finishing`` uses."""

    sourcing: Sourcing | None
    is_finished_on_restore: bool

    @property
    def checkpointing(self) -> PendingCheckpoints:
        """The checkpoints of the subtask."""
        ...

    def finish(self) -> None:
        """End the attempt: the subtask runs no more steps, but its queued output is still sent."""
        ...


class Finishing:
    """Carries out the end of one attempt of one subtask."""

    def __init__(self, task: FinishingTask) -> None:
        self._task = task
        config = task.env.config
        self._is_legacy = config.finish_protocol is FinishProtocol.LEGACY
        self._waits_for_final = config.checkpoints_after_end
        self._ending = Ending(has_input=task.sourcing is None, waits_for_final=self._waits_for_final)
        self._is_drained = True
        self._ended_inputs: set[int] = set()
        self._is_closing = False
        self._unprocessed = 0

    @property
    def is_at_end(self) -> bool:
        """Whether the subtask has sent the end of its data, so that its operators have finished (FN-12)."""
        return self._ending.is_at_end

    # --- the end of the data --------------------------------------------------------------------------------------

    def triggered(self, barrier: Barrier) -> None:
        """If the triggered savepoint is to stop the job, end this source's data before the barrier."""
        kind = barrier.snapshot_type
        if kind.is_synchronous:
            self._ending.stops_with(barrier.checkpoint_id)
            sourcing = self._task.sourcing
            if sourcing is not None:
                sourcing.end(is_drained=kind.drains)

    def end_source(self, *, is_drained: bool) -> None:
        """End the data of this source (runtime.md 6.6, step 1)."""
        if is_drained:
            self._task.emission.broadcast(Watermark(WATERMARK_MAX))
            self.note(FinishStep.MAX_WATERMARK)
        self._is_drained = is_drained
        if self._is_legacy:
            # A source that stops with a savepoint ends after the savepoint, because the barrier must precede the end
            # of the data.
            if not self._ending.is_stopping:
                self._end()
            return
        if is_drained:
            self._end_input(0)
        self._end_data()

    def on_end_of_data(self, channel: InputChannel, event: EndOfData) -> None:
        """Handle the end of the data on one channel. After the last channel, end the data of this subtask (FN-20)."""
        channel.is_at_end_of_data = True
        channel.is_drained = event.is_drained
        channel.acknowledge_end()
        channels = self._task.gate.channels
        own = [c for c in channels if c.key.edge == channel.key.edge]
        if all(c.is_at_end_of_data for c in own) and all(c.is_drained for c in own):
            self._end_input(channel.key.edge)
        if not self.is_at_end and all(c.is_at_end_of_data for c in channels):
            self._is_drained = all(c.is_drained for c in channels)
            self._end_data()

    def _end_input(self, edge: int) -> None:
        if edge not in self._ended_inputs:
            self._ended_inputs.add(edge)
            if not self._task.is_finished_on_restore:
                self.note(FinishStep.END_INPUT, edge)

    def _end_data(self) -> None:
        task = self._task
        # Records that operators hold back are emitted with and without drain, because no record may follow END_OF_DATA
        # (TE-2).
        task.flush()
        if self._is_drained and not task.is_finished_on_restore:
            self.note(FinishStep.FINISH)
        self._ending.ended_data()
        subpartitions = [s for output in task.outputs for s in output.pool.subpartitions]
        self._unprocessed = len(subpartitions)
        for subpartition in subpartitions:
            subpartition.when_processed = self._on_processed
        if not subpartitions:
            self._ending.processed()
        task.emission.broadcast_event(EndOfData(self._is_drained))
        self.note(FinishStep.END_OF_DATA)
        if task.sourcing is not None:
            task.sourcing.end_backlog()
        self._tell(EndOfDataMessage(task.key, task.attempt))
        task.mail(self._advance)

    def _tell(self, message: EndOfDataMessage | FinishedMessage) -> None:
        env = self._task.env
        tell = env.coordinator.on_finished if isinstance(message, FinishedMessage) else env.coordinator.on_end_of_data
        env.scheduler.after(env.config.rpc_latency_us, EventClass.RPC, tell, message)

    # --- waiting --------------------------------------------------------------------------------------------------

    def snapshotting(self, barrier: Barrier) -> None:
        """Remember which checkpoint is the final one, or stops the job. Called when the snapshot is taken."""
        kind = barrier.snapshot_type
        if kind.is_synchronous:
            self._ending.stops_with(barrier.checkpoint_id)
            if self._is_legacy:
                self._is_drained = kind.drains
        self._ending.snapshotting(barrier.checkpoint_id)

    def completed(self, checkpoint_id: int) -> None:
        """Close if this was the final checkpoint or the savepoint that stops the job, and nothing else is missing.

        Called when a checkpoint or savepoint is complete and its transactions are committed.
        """
        self._ending.completed(checkpoint_id)
        is_source = self._task.sourcing is not None
        if self._is_legacy and is_source and self._ending.is_final_complete and not self.is_at_end:
            self._end()
        self._advance()

    def on_checkpoint_over(self) -> None:
        """Close if this was the last checkpoint in progress here, and nothing else is missing."""
        if self._ending.is_at_end:
            self._task.mail(self._advance)

    def on_end_of_partition(self) -> None:
        """Close if all channels have ended and nothing else is missing."""
        if all(channel.is_ended for channel in self._task.gate.channels):
            self._ending.ended_inputs()
            if self._is_legacy and not self.is_at_end:
                self._end()
            self._advance()

    def _on_processed(self) -> None:
        self._unprocessed -= 1
        if not self._unprocessed:
            self._ending.processed()
            self._task.mail(self._advance)

    # --- the end --------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """End the data in the legacy protocol: end every input, and send no END_OF_DATA."""
        task = self._task
        if self._is_drained:
            for edge in sorted({channel.key.edge for channel in task.gate.channels}) or [0]:
                self._end_input(edge)
        task.flush()
        self._ending.ended_data()
        task.mail(self._advance)

    def _advance(self, _: object = None) -> None:
        # If a snapshot has begun, close only after it is written and acknowledged.
        is_writing = self._waits_for_final and self._task.checkpointing.is_pending
        if self._ending.may_close and not is_writing and not self._is_closing:
            self._is_closing = True
            self._task.emission.then(self._close)

    def _close(self) -> None:
        task = self._task
        for operator in task.operators:
            if isinstance(operator, TransactionalSink):
                operator.close()
        self.note(FinishStep.CLOSE)
        task.emission.broadcast_event(EndOfPartition())
        self.note(FinishStep.END_OF_PARTITION)
        task.finish()
        self.note(FinishStep.CLEANUP)
        self._tell(FinishedMessage(task.key, task.attempt))

    def note(self, step: FinishStep, which: int | None = None) -> None:
        """Record that this subtask has taken one step of the finish protocol. A fault can strike there."""
        env = self._task.env
        env.finish_steps.append((env.now, self._task.key, step, which))
        env.faults.passed(step, self._task.name)
