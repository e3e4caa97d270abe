"""Writes the channel state of one subtask: one port, and a writer for each way to write it (SP-1, SP-2, FM-1 to FM-5).

``OwnFile`` writes the in-flight data of a checkpoint as a part of it. ``Segments`` writes it into files that other
subtasks and other checkpoints use too, and can leave out what the last checkpoint wrote. ``SpillLogWriter``
(``spilling``) writes all output when it is sent. Savepoints never share files (FM-4), because they are aligned and have
no in-flight data.

Invariant: what a writer hands over has the same bytes for each channel as the in-flight data that it was given (INV-2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

from backend.domain.failure import FailureReason
from backend.runtime.core.elements import Barrier
from backend.runtime.measure.measures import ChannelState, ChannelWrite, Spilled
from backend.runtime.network.buffers import Data
from backend.runtime.network.channel import ChannelKey
from backend.runtime.network.emission import Output
from backend.runtime.network.segments import Segment
from backend.runtime.operators.operators import factor_of
from backend.runtime.operators.storage import Upload
from backend.runtime.snapshot.channel_files import SharedStream
from backend.runtime.snapshot.merging import LogicalFile
from backend.runtime.snapshot.metadata import INLINE_BELOW_BYTES
from backend.runtime.task.ports import TaskPort


@dataclass(frozen=True, slots=True)
class Written:
    """Channel state that is durable: what the snapshot contains of it, and how it was written."""

    channels: ChannelState
    figures: ChannelWrite
    spilled: Spilled | None = None


Done = Callable[[Written], None]
Failed = Callable[[FailureReason], None]


class ChannelStateWriter(Protocol):
    """Writes the channel state of one attempt of one subtask."""

    def attach(self, output: Output) -> None:
        """Handle a new output of the subtask, before anything is written to it."""
        ...

    def snapshot(self, barrier: Barrier) -> None:
        """Record the positions in the channels at which a snapshot is taken."""
        ...

    def write(self, checkpoint_id: int, channels: ChannelState, done: Done, failed: Failed) -> Written | None:
        """Write the in-flight data of a checkpoint.

        Return the result if nothing has to be written. Otherwise return None, and call ``done`` or ``failed`` later.
        """
        ...

    def cancel(self, checkpoint_id: int) -> None:
        """Give up a checkpoint. Neither ``done`` nor ``failed`` is called for it after this (TE-8)."""
        ...

    def confirm(self, checkpoint_id: int) -> None:
        """Handle the completion of a checkpoint."""
        ...

    def close(self) -> None:
        """End all writes, because the attempt has ended."""
        ...


class Positions(NamedTuple):
    """The positions of a snapshot in the channels of its subtask, in bytes since the attempt began.

    A position counts the bytes that the sender wrote to the channel, including the sender's recovered output.
    """

    sent: dict[ChannelKey, int]
    consumed: dict[ChannelKey, int]


def positions_of(task: TaskPort) -> Positions:
    """Return the present positions in all channels of a subtask.

    A receiver's recovered input is not part of what its sender wrote. It is processed before the first checkpoint
    (RC-5).
    """
    sent = {
        ChannelKey(output.edge, task.index, target): subpartition.written_bytes
        for output in task.outputs
        for subpartition, target in zip(output.pool.subpartitions, output.targets, strict=True)
    }
    consumed = {channel.key: channel.processed_bytes - channel.restored_bytes for channel in task.gate.channels}
    return Positions(sent, consumed)


def sizes_of(channels: ChannelState) -> list[int]:
    """Return the sizes of the input and the output in bytes, if they are not empty."""
    sides = (channels.inputs, channels.outputs)
    return [size for side in sides if (size := sum(len(chunk) for chunks in side.values() for chunk in chunks))]


class OwnFile:
    """Writes the in-flight data of each checkpoint as a part of this checkpoint (SP-1)."""

    def __init__(self, task: TaskPort) -> None:
        self._task = task
        self._uploads: dict[int, Upload] = {}

    def attach(self, output: Output) -> None:
        """Do nothing."""

    def snapshot(self, barrier: Barrier) -> None:
        """Do nothing."""

    def write(self, checkpoint_id: int, channels: ChannelState, done: Done, failed: Failed) -> Written | None:
        """Write the data, if there is any."""
        sizes = sizes_of(channels)
        if not sizes:
            return Written(channels, ChannelWrite())
        files = sum(size >= INLINE_BELOW_BYTES for size in sizes)
        written = Written(channels, ChannelWrite(sum(sizes), 0, len(sizes), files))
        factor = factor_of(self._task.spec.slow_upload_factors, self._task.index)
        upload = self._task.env.write(
            sum(sizes),
            partial(self._ended, checkpoint_id, partial(done, written)),
            partial(self._ended, checkpoint_id, partial(failed, FailureReason.ASYNC_FAILURE)),
            factor,
        )
        if upload is not None:
            self._uploads[checkpoint_id] = upload
        return None

    def _ended(self, checkpoint_id: int, tell: Callable[[], None], _: object) -> None:
        self._uploads.pop(checkpoint_id, None)
        tell()

    def cancel(self, checkpoint_id: int) -> None:
        """Cancel the write of a checkpoint."""
        upload = self._uploads.pop(checkpoint_id, None)
        if upload is not None:
            self._task.env.store.cancel(upload)

    def confirm(self, checkpoint_id: int) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing: the store forgets the writes of an attempt that has ended."""


class _Part(NamedTuple):
    """A piece of in-flight data: what is to be written, or what an earlier checkpoint wrote."""

    at: int
    """The offset in the channel at which the piece begins."""
    data: bytes
    """The bytes to write. Empty if they are already in the store."""
    logical: LogicalFile | None = None
    segment: Segment | None = None

    @property
    def end(self) -> int:
        return self.at + (len(self.data) if self.segment is None else self.segment.size_bytes)


_Place = tuple[bool, ChannelKey]
"""A channel, preceded by whether it is an input channel of the subtask."""


@dataclass(slots=True)
class _Write:
    parts: dict[_Place, list[_Part]]
    streams: int
    chunks: list[bytes] = field(default_factory=list)
    is_new_file: bool = False
    upload: Upload | None = None


class Segments:
    """Writes in-flight data into files that other subtasks and checkpoints share (FM-1, FM-2).

    With incremental channel state, a checkpoint refers to the pieces of data that the newest confirmed checkpoint
    contains, instead of writing them again (FM-5). A piece is identified by its channel and its offset.
    """

    def __init__(self, task: TaskPort, stream: SharedStream, *, is_incremental: bool) -> None:
        self._task = task
        self._stream = stream
        self._is_incremental = is_incremental
        self._positions: dict[int, Positions] = {}
        self._writing: dict[int, _Write] = {}
        self._ended: dict[int, dict[_Place, list[_Part]]] = {}
        """The data of the checkpoints that are written and not confirmed."""
        self._base: dict[_Place, list[_Part]] = {}
        """The data of the newest confirmed checkpoint."""

    def attach(self, output: Output) -> None:
        """Do nothing."""

    def snapshot(self, barrier: Barrier) -> None:
        """Record the positions, from which the offsets of in-flight data are computed."""
        self._positions[barrier.checkpoint_id] = positions_of(self._task)

    def write(self, checkpoint_id: int, channels: ChannelState, done: Done, failed: Failed) -> Written | None:
        """Write the data that no earlier checkpoint has."""
        positions = self._positions.pop(checkpoint_id)
        write = _Write({}, len(sizes_of(channels)))
        for key, data in channels.inputs.items():
            # INV-2: the persisted input begins where the processed data ends.
            self._plan(write, (True, key), positions.consumed[key], data, checkpoint_id)
        for key, data in channels.outputs.items():
            # The persisted output ends where the sent data ends.
            at = positions.sent[key] - sum(map(len, data))
            self._plan(write, (False, key), at, data, checkpoint_id)
        if not write.chunks:
            return self._end(checkpoint_id, write, None)
        self._writing[checkpoint_id] = write
        shared_failure = partial(self._fail, checkpoint_id, failed, FailureReason.SHARED_STREAM_FAILURE)
        self._stream.begin(self._task.key, checkpoint_id, shared_failure)
        write.upload = self._task.env.write(
            sum(map(len, write.chunks)),
            partial(self._on_written, checkpoint_id, done),
            partial(self._on_not_written, checkpoint_id, failed),
            factor_of(self._task.spec.slow_upload_factors, self._task.index),
        )
        return None

    def _plan(self, write: _Write, place: _Place, at: int, data: list[Data], checkpoint_id: int) -> None:
        """Divide the data of a channel into pieces to write and pieces that the base already contains."""
        parts = write.parts.setdefault(place, [])
        for chunk in data:
            content, end = bytes(chunk), at + len(chunk)
            for base in self._base.get(place, ()):
                assert base.segment is not None
                assert base.logical is not None
                first, last = max(at, base.at), min(end, base.end)
                if first < last and self._stream.merging.reuse(base.logical, checkpoint_id):
                    if at < first:
                        parts.append(_Part(at, content[len(content) - (end - at) : len(content) - (end - first)]))
                    segment = base.segment.part(first - base.at, last - base.at)
                    parts.append(_Part(first, b"", base.logical, segment))
                    at = last
            if at < end:
                parts.append(_Part(at, content[len(content) - (end - at) :]))
            at = end
        write.chunks += [part.data for part in parts if part.segment is None]

    def _end(self, checkpoint_id: int, write: _Write, logical: LogicalFile | None) -> Written:
        segments = iter(() if logical is None else logical.segments)
        written = {
            place: [p if p.segment is not None else _Part(p.at, b"", logical, next(segments)) for p in parts]
            for place, parts in write.parts.items()
        }
        if self._is_incremental:
            self._ended[checkpoint_id] = written
        sides: dict[bool, dict[ChannelKey, list[Data]]] = {True: {}, False: {}}
        for (is_input, key), parts in written.items():
            sides[is_input][key] = [part.segment for part in parts if part.segment is not None]
        new = 0 if logical is None else logical.size_bytes
        total = sum(part.segment.size_bytes for parts in written.values() for part in parts if part.segment)
        figures = ChannelWrite(new, total - new, write.streams, int(write.is_new_file))
        return Written(ChannelState(sides[True], sides[False]), figures)

    def _on_written(self, checkpoint_id: int, done: Done, _: object) -> None:
        write = self._writing.pop(checkpoint_id, None)
        if write is None:
            return
        key, merging, store = self._task.key, self._stream.merging, self._task.env.channel_files.store
        self._stream.end(key, checkpoint_id)
        # The write takes its file only when it ends. In Flink, a small write also stays in a buffer until it ends.
        # Therefore, simultaneous writes of several subtasks need only one file.
        before = store.created_count
        file = merging.begin(key, checkpoint_id)
        write.is_new_file = store.created_count > before
        done(self._end(checkpoint_id, write, merging.end(file, key, checkpoint_id, write.chunks)))

    def _on_not_written(self, checkpoint_id: int, failed: Failed, _: object) -> None:
        if checkpoint_id in self._writing:
            self._fail(checkpoint_id, failed, FailureReason.ASYNC_FAILURE)
            self._stream.fail_others(checkpoint_id)

    def _fail(self, checkpoint_id: int, failed: Failed, reason: FailureReason) -> None:
        self.cancel(checkpoint_id)
        failed(reason)

    def cancel(self, checkpoint_id: int) -> None:
        """Cancel the write of a checkpoint."""
        self._positions.pop(checkpoint_id, None)
        self._ended.pop(checkpoint_id, None)
        write = self._writing.pop(checkpoint_id, None)
        if write is None:
            return
        self._stream.end(self._task.key, checkpoint_id)
        if write.upload is not None:
            self._task.env.store.cancel(write.upload)

    def confirm(self, checkpoint_id: int) -> None:
        """Let the next checkpoint refer to the data of this one, which is possible only after its completion."""
        if checkpoint_id in self._ended:
            self._base = self._ended[checkpoint_id]
        for older in [k for k in self._ended if k <= checkpoint_id]:
            del self._ended[older]

    def close(self) -> None:
        """End all writes."""
        for checkpoint_id in list(self._writing):
            self.cancel(checkpoint_id)
