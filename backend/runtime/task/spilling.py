"""Continuous spilling: one subtask writes all its output to a log when it is sent (SP-2).

Buffers are written in the order in which they were finished, one write at a time. A checkpoint waits until the log is
written up to the barrier, and then refers to the log. The buffers of a failed write stay in memory, and are written
again with the next buffer or the next checkpoint. Spilling does not hold back the subtask.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from backend.domain.failure import FailureReason
from backend.runtime.core.elements import Barrier
from backend.runtime.measure.measures import ChannelState, ChannelWrite, Spilled
from backend.runtime.network.buffers import Data
from backend.runtime.network.channel import ChannelKey
from backend.runtime.network.emission import Output
from backend.runtime.operators.operators import factor_of
from backend.runtime.task.channel_writing import (
    ChannelStateWriter,
    Done,
    Failed,
    OwnFile,
    Positions,
    Segments,
    Written,
    positions_of,
    sizes_of,
)
from backend.runtime.task.ports import TaskPort


@dataclass(slots=True)
class _Waiting:
    mark: int
    channels: ChannelState
    done: Done
    failed: Failed


class SpillLogWriter:
    """Writes the spill log of one attempt of one subtask, and the checkpoints that refer to it."""

    def __init__(self, task: TaskPort) -> None:
        config = task.env.config
        self._task = task
        self._env = task.env
        name = f"{task.spec.id}-{task.index}"
        self._log = self._env.channel_files.logs.open(
            name, key=task.key, attempt=task.attempt, file_bytes_max=config.merged_bytes_max
        )
        self._pending: deque[tuple[ChannelKey, int, Data]] = deque()
        """The buffers that are not durable yet, each with its channel and offset."""
        self._is_writing = False
        self._durable = 0
        """The number of buffers that are durable."""
        self._positions: dict[int, Positions] = {}
        self._waiting: dict[int, _Waiting] = {}
        self._is_closed = False

    def attach(self, output: Output) -> None:
        """Spill the output of one edge."""
        output.pool.spill = partial(self._add, output)

    def _add(self, output: Output, position: int, data: Data) -> None:
        key = ChannelKey(output.edge, self._task.index, output.targets[position])
        self._pending.append((key, output.pool.subpartitions[position].written_bytes - len(data), data))
        self._write_on()

    def _write_on(self) -> None:
        if self._is_writing or not self._pending or self._is_closed:
            return
        self._is_writing = True
        count, size_bytes = len(self._pending), sum(len(data) for _, _, data in self._pending)
        factor = factor_of(self._task.spec.slow_upload_factors, self._task.index)
        self._env.write(size_bytes, partial(self._on_written, count), self._on_not_written, factor)

    def _on_written(self, count: int, _: object) -> None:
        if self._is_closed:
            return
        self._is_writing = False
        for _ in range(count):
            key, offset, data = self._pending.popleft()
            self._log.append(key, offset, bytes(data))
        self._durable += count
        for checkpoint_id in [k for k, waiting in self._waiting.items() if waiting.mark <= self._durable]:
            waiting = self._waiting.pop(checkpoint_id)
            waiting.done(self._refer(checkpoint_id, waiting.channels))
        self._write_on()

    def _on_not_written(self, _: object) -> None:
        if self._is_closed:
            return
        self._is_writing = False
        waiting, self._waiting = self._waiting, {}
        for each in waiting.values():
            each.failed(FailureReason.ASYNC_FAILURE)

    # --- checkpoints ----------------------------------------------------------------------------------------------

    def snapshot(self, barrier: Barrier) -> None:
        """Record how much was sent and consumed (SP-3). Do nothing for a savepoint: it has no in-flight data (FM-4)."""
        if not barrier.snapshot_type.is_savepoint:
            self._positions[barrier.checkpoint_id] = positions_of(self._task)

    def write(self, checkpoint_id: int, channels: ChannelState, done: Done, failed: Failed) -> Written | None:
        """Wait until the log is written up to the barrier. The in-flight data itself is not written."""
        if checkpoint_id not in self._positions:
            return Written(channels, ChannelWrite())
        mark = self._mark(self._positions[checkpoint_id].sent)
        if mark <= self._durable:
            return self._refer(checkpoint_id, channels)
        self._waiting[checkpoint_id] = _Waiting(mark, channels, done, failed)
        self._write_on()
        return None

    def _mark(self, sent: Mapping[ChannelKey, int]) -> int:
        """Return how many buffers must be durable for the log to reach these offsets.

        The buffers may have been finished after the snapshot, if the barrier is forwarded after it (PH-1).
        """
        before = [n for n, (key, offset, _) in enumerate(self._pending) if offset < sent[key]]
        return self._durable + (before[-1] + 1 if before else 0)

    def _refer(self, checkpoint_id: int, channels: ChannelState) -> Written:
        sent, consumed = self._positions.pop(checkpoint_id)
        spilled = Spilled(self._task.attempt, sent, consumed, self._log.up_to(sent))
        return Written(ChannelState(), ChannelWrite(0, sum(sizes_of(channels)), len(sizes_of(channels)), 0), spilled)

    def cancel(self, checkpoint_id: int) -> None:
        """Give up a checkpoint. The log goes on, because the next checkpoint refers to the same data."""
        self._positions.pop(checkpoint_id, None)
        self._waiting.pop(checkpoint_id, None)

    def confirm(self, checkpoint_id: int) -> None:
        """Do nothing: the coordinator truncates the log (SP-4)."""

    def close(self) -> None:
        """End the log. Its files stay as long as checkpoints refer to them."""
        self._is_closed = True
        self._log.is_closed = True


def writer_of(task: TaskPort) -> ChannelStateWriter:
    """Return the writer of a subtask's channel state that the settings select."""
    config = task.env.config
    if config.spills_continuously:
        return SpillLogWriter(task)
    if config.merges_files or config.are_buffers_incremental:
        stream = task.env.channel_files.stream(config, task.key)
        return Segments(task, stream, is_incremental=config.are_buffers_incremental)
    return OwnFile(task)
