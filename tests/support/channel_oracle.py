"""Every byte of every channel, as it was written and as it was read: INV-1, INV-2 and INV-3, byte by byte.

What was written to a subpartition is a stream; where its sender and its receiver take a snapshot are two places in it.
A receiver reads what was persisted of its own side, then the stream from its beginning, which after a restart is what
was persisted of the sender's side. That holds where a job goes on with the parallelism that it had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from backend.runtime.buffers import DataBuffer, Subpartition
from backend.runtime.channel import ChannelKey, InputChannel
from backend.runtime.completed import Completed
from backend.runtime.elements import Record
from backend.runtime.kernel import Engine
from backend.runtime.measures import SubtaskSnapshot, TaskKey
from backend.runtime.task import Task

_STREAMS: dict[int, bytearray] = {}
"""By the id of a subpartition of the attempt that runs."""
_TRIMMED_BYTES = 1 << 20


class _Recorded(Subpartition):
    """A subpartition whose bytes are kept."""

    __slots__ = ()

    def append(self, data: bytes, at: int = 0) -> int:
        end = super().append(data, at)
        _STREAMS[id(self)] += data[at:end]
        return end

    def extend(self, records: list[Record], size_bytes: int) -> None:
        super().extend(records, size_bytes)
        _STREAMS[id(self)] += b"".join(record.encode() for record in records)

    def append_recovered(self, data: bytes, at: int) -> int:
        end = super().append_recovered(data, at)
        _STREAMS[id(self)] += data[at:end]
        return end


class _Reader:
    """One channel at its receiver."""

    def __init__(self, channel: InputChannel, oracle: ChannelOracle, of_task: list[_Reader]) -> None:
        self.channel = channel
        self.stream = _STREAMS[id(channel.subpartition)]
        self.trimmed = 0
        """Bytes of the stream that are not kept any more."""
        self.fed = 0
        self.recovered: list[bytes] = []
        """What is to be read first (RC-1)."""
        self.recovered_bytes = 0
        """So much of the stream is what the sender recovered; nothing new is read before all of that (RC-2)."""
        self._oracle = oracle
        self._of_task = of_task
        self._feed, self._feed_recovered = channel.feed, channel.feed_recovered
        channel.feed = self._on_feed
        channel.feed_recovered = self._on_feed_recovered

    def _on_feed(self, buffer: DataBuffer) -> None:
        if any(each.recovered for each in self._of_task):
            self._oracle.found("INV-1", f"{self.channel.key}: new input before what was recovered")
        is_new = self.fed >= self.recovered_bytes
        if is_new and any(each.fed < each.recovered_bytes for each in self._of_task):
            self._oracle.found("INV-1", f"{self.channel.key}: new input before what the senders recovered")
        at = self.fed - self.trimmed
        if self.stream[at : at + len(buffer.data)] != buffer.data:
            self._oracle.found("INV-1", f"{self.channel.key}: other bytes than were sent, {self.fed} bytes on")
        self.fed += len(buffer.data)
        self._feed(buffer)

    def _on_feed_recovered(self) -> bool:
        waiting = self.channel.recovered
        if waiting:
            if not self.recovered or waiting[0] != self.recovered[0]:
                self._oracle.found("INV-1", f"{self.channel.key}: recovered bytes that were not persisted here next")
            else:
                del self.recovered[0]
        elif self.recovered:
            self._oracle.found("INV-1", f"{self.channel.key}: persisted bytes that were not recovered")
        return self._feed_recovered()

    def part(self, start: int, end: int) -> bytes:
        return bytes(self.stream[start - self.trimmed : end - self.trimmed])

    def trim(self, upto: int) -> None:
        if upto - self.trimmed > _TRIMMED_BYTES:
            del self.stream[: upto - self.trimmed]
            self.trimmed = upto


class ChannelOracle:
    """The channels of the attempt that runs."""

    def __init__(self, engine: Engine, report: Callable[[str, str], None]) -> None:
        self._engine = engine
        self._report = report
        self._readers: dict[ChannelKey, _Reader] = {}
        self._tasks: dict[tuple[str, int], Task] = {}
        self._sent: dict[int, dict[ChannelKey, int]] = {}
        self._done: dict[int, dict[ChannelKey, int]] = {}

    def found(self, rule: str, problem: str) -> None:
        """A breach."""
        self._report(rule, problem)

    def begin(self, tasks: list[Task]) -> None:
        """New attempts are connected, and nothing has been restored yet."""
        for reader in self._readers.values():
            _STREAMS.pop(id(reader.channel.subpartition), None)
        self._sent.clear()
        self._done.clear()
        self._tasks = {(task.spec.id, task.index): task for task in tasks}
        for task in tasks:
            for output in task.outputs:
                for subpartition in output.pool.subpartitions:
                    subpartition.__class__ = _Recorded
                    _STREAMS[id(subpartition)] = bytearray()
        self._readers = {}
        for task in tasks:
            of_task: list[_Reader] = []
            of_task += (_Reader(channel, self, of_task) for channel in task.gate.channels)
            self._readers |= {reader.channel.key: reader for reader in of_task}
        restored = self._restored()
        for key, chunks in _inputs(restored):
            if key in self._readers:
                self._readers[key].recovered = list(chunks)
        for key, chunks in _outputs(restored):
            if key in self._readers:
                self._readers[key].recovered_bytes = sum(map(len, chunks))

    def _restored(self) -> Mapping[TaskKey, SubtaskSnapshot]:
        engine = self._engine
        newest = engine.coordinator.newest
        if newest is not None:
            dropped = engine.config.drops_channel_state_of == newest.record.id
            return {} if dropped else newest.snapshots
        if engine._start_from is None or engine.config.drops_channel_state_of == engine._start_from.id:
            return {}
        vertices = engine.spec.graph.vertices
        rows = [(v, engine._start_from.vertices[vertex.id].subtasks) for v, vertex in enumerate(vertices)]
        return {(v, n): snapshot for v, subtasks in rows for n, snapshot in enumerate(subtasks)}

    def on_snapshot(self, checkpoint_id: int, name: tuple[str, int]) -> None:
        """A subtask takes its state: so many bytes are sent, and so many are done."""
        task = self._tasks[name]
        sent = self._sent.setdefault(checkpoint_id, {})
        for output in task.outputs:
            for target, subpartition in zip(output.targets, output.pool.subpartitions, strict=True):
                key = ChannelKey(output.edge, task.index, target)
                sent[key] = len(_STREAMS[id(subpartition)]) + self._readers[key].trimmed
        done = self._done.setdefault(checkpoint_id, {})
        for channel in task.gate.channels:
            done[channel.key] = channel.bytes_received - len(channel.unconsumed)

    def problems(self, completed: Completed, *, is_exact: bool) -> Iterator[tuple[str, str]]:
        """What is wrong with a checkpoint: INV-3 and INV-2, channel by channel."""
        k = completed.record.id
        inputs, outputs = dict(_inputs(completed.snapshots)), dict(_outputs(completed.snapshots))
        sent_by, done_by = self._sent.pop(k), self._done.pop(k)
        for key, reader in self._readers.items():
            sent, done = sent_by[key], done_by[key]
            if done > sent:
                if is_exact:
                    yield "INV-3", f"checkpoint {k}, {key}: {done - sent} bytes received before they were sent"
                continue
            persisted = b"".join(inputs.get(key, [])) + b"".join(outputs.get(key, []))
            if persisted != reader.part(done, sent):
                yield "INV-2", f"checkpoint {k}, {key}: {len(persisted)} bytes persisted, {sent - done} lie between"
            reader.trim(done)
        for older in [c for c in self._sent if c < k]:
            self.forget(older)

    def forget(self, checkpoint_id: int) -> None:
        """A checkpoint is over."""
        self._sent.pop(checkpoint_id, None)
        self._done.pop(checkpoint_id, None)


def _inputs(snapshots: Mapping[TaskKey, SubtaskSnapshot]) -> Iterator[tuple[ChannelKey, list[bytes]]]:
    return ((key, chunks) for s in snapshots.values() for key, chunks in s.channels.inputs.items())


def _outputs(snapshots: Mapping[TaskKey, SubtaskSnapshot]) -> Iterator[tuple[ChannelKey, list[bytes]]]:
    return ((key, chunks) for s in snapshots.values() for key, chunks in s.channels.outputs.items())
