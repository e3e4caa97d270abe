"""Check every byte of every channel, as it was written and as it was read: INV-1, INV-2 and INV-3.

The bytes written to a subpartition form a stream. The snapshots of the sender and of the receiver are two positions in
this stream, and the bytes between the positions are in flight. After a restart, a receiver first reads the bytes that
it persisted itself, and then the stream, which begins with the bytes that the sender persisted. If the parallelism
changed, this holds for each old channel that a new channel carries; ``restored_channels.py`` lists the old channels.
Under at-least-once, the receiver's position may be ahead of the sender's; a restore repeats the records in between.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import ClassVar

from backend.runtime.core.elements import Event, Record, RecoveryCompletion, VirtualChannel, decode
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.measure.measures import SubtaskSnapshot, TaskKey
from backend.runtime.network.buffers import Data, DataBuffer, Subpartition
from backend.runtime.network.channel import ChannelKey, InputChannel
from backend.runtime.snapshot.completed import Completed
from backend.runtime.task.task import Task
from tests.support.restored_channels import InFlight, Old, Restored, restored_channels

_TRIMMED_BYTES = 1 << 20
_append = Subpartition.append


class _Recorded(Subpartition):
    """A subpartition that records the bytes written to it."""

    __slots__ = ()
    readers: ClassVar[dict[int, _Reader]]
    """The readers of the running attempt, by the ``id()`` of their subpartition."""

    def append(self, data: bytes, at: int = 0) -> int:
        end = _append(self, data, at)
        self.readers[id(self)].stream += data[at:end]
        return end

    def extend(self, records: list[Record], size_bytes: int) -> None:
        super().extend(records, size_bytes)
        self.readers[id(self)].stream += b"".join(record.encode() for record in records)

    def append_recovered(self, data: Data, at: int) -> int:
        end = super().append_recovered(data, at)
        self.readers[id(self)].on_recovered_output(bytes(data)[at:end])
        return end

    def add_event(self, event: Event) -> None:
        if isinstance(event, VirtualChannel | RecoveryCompletion):
            self.readers[id(self)].on_section(event if isinstance(event, VirtualChannel) else None)
        super().add_event(event)


class _Reader:
    """One channel: the bytes that its sender wrote, and how far its receiver has read them."""

    def __init__(self, channel: InputChannel, oracle: ChannelOracle, of_task: list[_Reader]) -> None:
        self.channel = channel
        self.stream = bytearray()
        self.trimmed = 0
        """Number of bytes that were discarded from the beginning of the stream."""
        self.fed = 0
        self.is_recovering = True
        """True until the receiver reads new input from this channel."""
        self.restored = Restored()
        """The persisted data that the receiver must read first (RC-1) and that the sender must send first (RC-2)."""
        self.recovered_bytes = 0
        """Number of bytes at the start of the stream that the sender recovered. New input is read after them (RC-2)."""
        self._sent_recovered: defaultdict[Old, bytes] = defaultdict(bytes)
        self._sections: list[tuple[int, Old]] = [(0, None)]
        """Positions in the stream at which the old channel changes, each with the old channel to which the following
        data belongs.
        """
        self._oracle = oracle
        self._of_task = of_task
        self._feed, self._feed_recovered = channel.feed, channel.feed_recovered
        channel.feed = self._on_feed
        channel.feed_recovered = self._on_feed_recovered

    @property
    def written(self) -> int:
        """Length of the stream so far in bytes, including the discarded part."""
        return len(self.stream) + self.trimmed

    # --- the sender -----------------------------------------------------------------------------------------------

    def on_section(self, old: Old) -> None:
        """Record that the following data belongs to the old channel ``old``.

        If ``old`` is None, the following data is new.
        """
        self._sections.append((self.written, old))
        if old is None:
            self._demand_all_sent()

    def on_recovered_output(self, data: bytes) -> None:
        """Record bytes that the sender restored from a checkpoint and appended to the stream."""
        self.stream += data
        self._sent_recovered[self._sections[-1][1]] += data

    def _demand_all_sent(self) -> None:
        found, wanted = (
            {old: held for old, held in side.items() if held} for side in (self._sent_recovered, self.restored.outputs)
        )
        if found != wanted:
            told = f"restored output bytes by old channel: {_sizes(found)}, persisted: {_sizes(wanted)}"
            self._oracle.found("INV-1", f"{self.channel.key}: {told}")

    # --- the receiver ---------------------------------------------------------------------------------------------

    def _on_feed(self, buffer: DataBuffer) -> None:
        data = bytes(buffer.data)
        if self.is_recovering:
            self._check_recovery()
        if not self.stream.startswith(data, self.fed - self.trimmed):
            self._oracle.found("INV-1", f"{self.channel.key}: the bytes at {self.fed} differ from those sent")
        self.fed += len(data)
        self._feed(buffer)

    def _check_recovery(self) -> None:
        if any(chunks for each in self._of_task for chunks in each.restored.inputs.values()):
            self._oracle.found("INV-1", f"{self.channel.key}: new input before the recovered input")
        old = next(old for start, old in reversed(self._sections) if start <= self.fed)
        if self.channel.virtual != old:
            self._oracle.found("INV-1", f"{self.channel.key}: bytes of {old} are read as {self.channel.virtual}")
        if self.fed < self.recovered_bytes:
            return
        self._demand_all_sent()
        if any(each.fed < each.recovered_bytes for each in self._of_task):
            self._oracle.found("INV-1", f"{self.channel.key}: new input before the senders' recovered output")
        self.is_recovering = False

    def _on_feed_recovered(self) -> bool:
        waiting = self.channel.recovered
        if waiting and not isinstance(waiting[0], VirtualChannel):
            persisted = self.restored.inputs[self.channel.virtual]
            if not persisted or bytes(waiting[0]) != persisted[0]:
                self._oracle.found("INV-1", f"{self.channel.key}: recovered bytes differ from the next persisted chunk")
            else:
                del persisted[0]
        return self._feed_recovered()

    def part(self, start: int, end: int) -> bytes:
        return bytes(self.stream[start - self.trimmed : end - self.trimmed])

    def trim(self, upto: int) -> None:
        if upto - self.trimmed > _TRIMMED_BYTES:
            del self.stream[: upto - self.trimmed]
            self.trimmed = upto


def _sizes(held: Mapping[Old, bytes]) -> dict[str, int]:
    return {str(old): len(data) for old, data in held.items()}


class ChannelOracle:
    """The channels of the running attempt, and the checks of their bytes."""

    def __init__(self, engine: JobEngine, report: Callable[[str, str], None]) -> None:
        self.ahead: dict[int, list[Record]] = {}
        """Under at-least-once, by completed checkpoint: the records in its state that a restore would repeat."""
        self._engine = engine
        self._report = report
        self._readers: dict[ChannelKey, _Reader] = {}
        self.tasks: dict[tuple[str, int], Task] = {}
        """The tasks of the running attempt, by vertex and subtask index."""
        self._sent: dict[int, dict[ChannelKey, int]] = {}
        self._done: dict[int, dict[ChannelKey, int]] = {}

        class Recorded(_Recorded):
            __slots__ = ()
            readers: ClassVar[dict[int, _Reader]] = {}

        self._recorded = Recorded

    def found(self, rule: str, problem: str) -> None:
        """Report a broken invariant."""
        self._report(rule, problem)

    def begin(self, tasks: list[Task], restored: InFlight | None) -> None:
        """Begin a new attempt, which will restore the channel state ``restored``.

        Call this when the attempt's channels are connected and nothing is restored yet.
        """
        self._sent.clear()
        self._done.clear()
        self.tasks = {(task.spec.id, task.index): task for task in tasks}
        self._readers = {}
        for task in tasks:
            of_task: list[_Reader] = []
            of_task += (_Reader(channel, self, of_task) for channel in task.gate.channels)
            self._readers |= {reader.channel.key: reader for reader in of_task}
        self._recorded.readers = {id(reader.channel.subpartition): reader for reader in self._readers.values()}
        for reader in self._readers.values():
            reader.channel.subpartition.__class__ = self._recorded
        if restored is not None:
            for key, channel in restored_channels(restored, self._engine.env.graph).items():
                reader = self._readers[key]
                reader.restored = channel
                reader.recovered_bytes = sum(map(len, channel.outputs.values()))

    def on_snapshot(self, checkpoint_id: int, name: tuple[str, int]) -> None:
        """Record the number of bytes sent and received on each channel of a subtask that is taking its state."""
        task = self.tasks[name]
        sent = self._sent.setdefault(checkpoint_id, {})
        for output in task.outputs:
            for target in output.targets:
                key = ChannelKey(output.edge, task.index, target)
                sent[key] = self._readers[key].written
        done = self._done.setdefault(checkpoint_id, {})
        for channel in task.gate.channels:
            done[channel.key] = channel.bytes_received - len(channel.unconsumed)

    def problems(self, completed: Completed, *, is_exact: bool) -> Iterator[tuple[str, str]]:
        """Check INV-3 and INV-2 for each channel of a completed checkpoint. Yield (rule, problem) per violation."""
        k = completed.record.id
        inputs, outputs = dict(_inputs(completed.snapshots)), dict(_outputs(completed.snapshots))
        sent_by, done_by = self._sent.pop(k, {}), self._done.pop(k, {})
        ahead: list[Record] = []
        edges = completed.record.graph.edges
        finished = {self._named(task) for task in completed.record.finished}
        for key, reader in self._readers.items():
            # A subtask that had finished took no snapshot: it has sent and processed everything (FN-23).
            sender, receiver = (
                (edges[key.edge].source, key.source_subtask),
                (edges[key.edge].target, key.target_subtask),
            )
            sent = reader.written if sender in finished else sent_by[key]
            done = reader.written if receiver in finished else done_by[key]
            if done > sent:
                if is_exact:
                    yield "INV-3", f"checkpoint {k}, {key}: {done - sent} bytes received before they were sent"
                ahead += _records(reader.part(sent, done))
                continue
            parts = (*inputs.get(key, []), *outputs.get(key, []))
            persisted = b"".join(map(bytes, parts))
            if persisted != reader.part(done, sent):
                yield "INV-2", f"checkpoint {k}, {key}: {len(persisted)} bytes persisted, {sent - done} lie between"
            reader.trim(done)
        if not is_exact:
            self.ahead[k] = ahead

    def _named(self, task: TaskKey) -> tuple[str, int]:
        return self._engine.env.graph.vertices[task[0]].id, task[1]

    def forget(self, checkpoint_id: int) -> None:
        """Discard the positions of a checkpoint that did not complete."""
        self._sent.pop(checkpoint_id, None)
        self._done.pop(checkpoint_id, None)


def records_in_flight(snapshots: Iterable[SubtaskSnapshot]) -> list[Record]:
    """Return the records in the persisted in-flight data.

    The receiver's part of a channel comes before the sender's part.
    """
    by_channel: defaultdict[ChannelKey, bytes] = defaultdict(bytes)
    snapshots = tuple(snapshots)
    for side in ("inputs", "outputs"):
        for snapshot in snapshots:
            for key, chunks in getattr(snapshot.channels, side).items():
                by_channel[key] += b"".join(map(bytes, chunks))
    return [record for data in by_channel.values() for record in _records(data)]


def _records(data: bytes) -> Iterator[Record]:
    at = 0
    while (element := decode(data, at)) is not None:
        at += element.size_bytes
        if isinstance(element, Record):
            yield element


def by_key(records: list[Record]) -> Counter[int]:
    """Return the number of records per key."""
    return Counter(record.key for record in records)


def _inputs(snapshots: Mapping[TaskKey, SubtaskSnapshot]) -> Iterator[tuple[ChannelKey, list[bytes]]]:
    return ((key, chunks) for s in snapshots.values() for key, chunks in s.channels.inputs.items())


def _outputs(snapshots: Mapping[TaskKey, SubtaskSnapshot]) -> Iterator[tuple[ChannelKey, list[bytes]]]:
    return ((key, chunks) for s in snapshots.values() for key, chunks in s.channels.outputs.items())
