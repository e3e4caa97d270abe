"""The receiving side of a channel: decodes records from bytes, and copies in-flight data for checkpoints.

A *local* channel (both subtasks on one task manager) reads the sender's queue directly, so it has no queue of its own.
A *remote* channel (``remote_channel.py``) receives buffers over a link. Both kinds copy data from ``start_persisting``
until the barrier arrives or ``stop_persisting`` is called (UC-2, UC-3, UC-10). The gate (``gate.py``) passes elements
to the task.

Invariant (INV-1): except for barriers that overtake, elements are received in the order in which they were sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from backend.domain.errors import ProtocolViolationError
from backend.runtime.core.elements import HEADER, LENGTH, Barrier, Element, Event, Record, VirtualChannel, decode
from backend.runtime.network.buffers import Data, DataBuffer, Subpartition

Write = Callable[[Data], None]
_HEADER_BYTES, _PREFIX_BYTES = HEADER.size, LENGTH.size
_unpack = HEADER.unpack_from


@dataclass(frozen=True, slots=True, order=True)
class ChannelKey:
    """Identifies a channel. The key stays the same as long as the job graph does (G-3)."""

    edge: int
    source_subtask: int
    target_subtask: int


class Gate(Protocol):
    """The receiver of a channel's notifications."""

    def on_ready(self, channel: InputChannel) -> None:
        """Handle the notification that a channel has something to poll."""
        ...

    def on_priority(self, channel: InputChannel) -> None:
        """Handle the notification that a channel has a priority event (Q-6)."""
        ...

    def on_announcement(self, channel: InputChannel, barrier: Barrier) -> None:
        """Handle the notification that a barrier has arrived but still waits in the queue (Q-4, CL-6)."""
        ...


class Decoder(Protocol):
    """Decodes the bytes of one channel into elements.

    ``left`` contains the decoded elements that the task has not processed yet, in reverse order.
    """

    record_bytes: int
    """The size of each element that the last ``take`` returned if all are records of one size, otherwise 0."""

    def take(self, data: Data, left: list[Element]) -> list[Element]:
        """Decode the unconsumed bytes, followed by ``data``. Return all complete elements in reverse order."""
        ...

    def unconsumed(self, left: list[Element]) -> Data:
        """Return the bytes of the elements in ``left``, followed by the bytes of an incomplete element."""
        ...

    def unconsumed_bytes(self, left: list[Element]) -> int:
        """Return the number of bytes that ``unconsumed`` would return."""
        ...


def bytes_of(left: list[Element], record_bytes: int) -> int:
    """Return the total size of elements. ``record_bytes`` is the size of each one, or 0 if the sizes may differ."""
    return len(left) * record_bytes if record_bytes else sum(element.size_bytes for element in left)


class ByteDecoder:
    """Decodes elements from bytes, one buffer at a time. The contents of a received buffer never change."""

    __slots__ = ("_data", "_whole", "record_bytes")

    def __init__(self) -> None:
        self.record_bytes = 0
        self._data = b""
        self._whole = 0
        """Number of bytes of the complete elements in ``_data``."""

    def take(self, data: Data, left: list[Element]) -> list[Element]:
        """Decode the unconsumed bytes, followed by ``data``. Return all complete elements in reverse order."""
        begun = self._data[self._at(left) :]
        self._data = whole = begun + bytes(data) if begun else bytes(data)
        end, at, one_size = len(whole), 0, -1
        elements: list[Element] = []
        while end - at >= _HEADER_BYTES:
            # ``decode`` is inlined because this runs for every record.
            length, tag, key, origin, event_time_us, value = _unpack(whole, at)
            size = length + _PREFIX_BYTES
            if tag:
                other = decode(whole, at)
                assert other is not None
                elements.append(other)
                one_size = 0
            elif end - at >= size:
                elements.append(Record(key, origin, event_time_us, value, size))
                if size != one_size:
                    one_size = size if one_size < 0 else 0
            else:
                break
            at += size
        self._whole = at
        self.record_bytes = max(0, one_size)
        elements.reverse()
        return elements

    def unconsumed(self, left: list[Element]) -> Data:
        """Return all bytes that are not processed yet, from the next element on."""
        return self._data[self._at(left) :]

    def unconsumed_bytes(self, left: list[Element]) -> int:
        """Return the number of bytes that ``unconsumed`` would return, without copying them."""
        return len(self._data) - self._at(left)

    def _at(self, left: list[Element]) -> int:
        return self._whole - bytes_of(left, self.record_bytes)


class InputChannel:
    """One channel at its receiver. Subclasses define where buffers come from."""

    is_remote = False

    def __init__(
        self,
        key: ChannelKey,
        index: int,
        subpartition: Subpartition,
        gate: Gate,
        decoder: Decoder | None = None,
    ) -> None:
        self.key = key
        self.index = index
        self.subpartition = subpartition
        self.gate = gate
        self.recovered: deque[Data | VirtualChannel] = deque()
        """Restored in-flight data. After a rescale, each chunk is preceded by the name of its old channel."""
        self.virtual: VirtualChannel | None = None
        """The old channel whose data is being decoded, if this channel carries data of several old channels (RS-7)."""
        self.decoder_of: Callable[[VirtualChannel, Decoder], Decoder] | None = None
        """A function that turns a new plain decoder into the decoder of an old channel.

        None if the channel carries no data of old channels.
        """
        self._decoders: dict[VirtualChannel, Decoder] = {}
        self.is_ready = False
        self.is_attached = False
        self.is_closed = False
        """Whether reading stops after the barrier, because the in-flight data does not fit the cap yet (CAP-3)."""
        self.is_ended = False
        self.is_at_end_of_data = False
        self.is_drained = True
        self.watermark_us = -1
        self.is_idle = False
        """Whether the channel is idle. Its watermark then does not hold back the task's watermark (WM-1)."""
        self.is_behind = False
        """Whether the channel was idle and its watermark has not caught up with the task's. It does not count then."""
        self.elements: list[Element] = []
        """Elements of the current buffer that are not processed yet, in reverse order: the next element is the last."""
        self._decoder = self._own_decoder = decoder or ByteDecoder()
        self._owner: DataBuffer | None = None
        self._write: Write | None = None
        """Copies arriving buffers for all checkpoints that persist in-flight data (CC-4). None if no checkpoint does.
        """
        self._copies: dict[int, Write] = {}
        self.bytes_received = 0
        self.buffers_received = 0
        self.restored_bytes = 0
        """Number of bytes of recovered data that were decoded."""
        self._fed_bytes = 0

    # --- decoding -------------------------------------------------------------------------------------------------

    def next_element(self) -> Element | None:
        """Return the next complete element of the current buffer.

        If the buffer has no further complete element, give the buffer back to its owner, and return None.
        """
        if self.elements:
            return self.elements.pop()
        owner = self._owner
        if owner is not None:
            self._owner = None
            owner.owner.recycle()
        return None

    def feed(self, buffer: DataBuffer) -> None:
        """Decode the next buffer, which may begin with the rest of an element that the last buffer left incomplete."""
        self.elements = self._decoder.take(buffer.data, self.elements)
        self._owner = buffer
        self._fed_bytes += len(buffer.data)

    def feed_recovered(self) -> bool:
        """Decode the next chunk of recovered data. Return False if there is none."""
        if not self.recovered:
            return False
        item = self.recovered.popleft()
        if isinstance(item, VirtualChannel):
            self.turn_to(item)
        else:
            self.elements = self._decoder.take(item, self.elements)
            self.restored_bytes += len(item)
        return True

    def turn_to(self, virtual: VirtualChannel) -> None:
        """Decode the following data with the decoder of this old channel, which continues where it stopped (RS-8)."""
        if virtual not in self._decoders:
            assert self.decoder_of is not None
            self._decoders[virtual] = self.decoder_of(virtual, type(self._own_decoder)())
        self._decoder, self.virtual = self._decoders[virtual], virtual

    def end_virtual(self) -> None:
        """End the data of old channels. Everything that follows is new data.

        Raises:
            ProtocolViolationError: an old channel ended within a record (RS-8).
        """
        partial = [name for name, decoder in self._decoders.items() if decoder.unconsumed_bytes([])]
        if partial:
            raise ProtocolViolationError(f"a part of a record is left of {partial} in {self.key}", rule="RS-8")
        self._decoders.clear()
        self._decoder, self.virtual = self._own_decoder, None

    @property
    def record_bytes(self) -> int:
        """The size of each of ``elements`` if all are records of one size, otherwise 0."""
        return self._decoder.record_bytes

    @property
    def unconsumed(self) -> Data:
        """Bytes that were taken from the channel and whose elements are not processed yet."""
        return self._decoder.unconsumed(self.elements)

    @property
    def processed_bytes(self) -> int:
        """Number of bytes whose elements were processed since the subtask started, recovered data included."""
        return self._fed_bytes + self.restored_bytes - self._decoder.unconsumed_bytes(self.elements)

    # --- checkpoints ----------------------------------------------------------------------------------------------

    def start_persisting(self, barrier_arrived: bool, checkpoint_id: int, write: Write) -> None:
        """Copy the data that precedes the barrier of ``checkpoint_id`` (UC-2, UC-3).

        This is the data that has already arrived, and the data that arrives until the barrier arrives.
        """
        unconsumed = self.unconsumed
        if len(unconsumed):
            write(unconsumed)
        self._persist_queued(barrier_arrived, checkpoint_id, write)

    def stop_persisting(self, checkpoint_id: int | None = None) -> None:
        """Stop copying for a checkpoint that has all its barriers or has ended (UC-5). With None, stop all copying."""
        if checkpoint_id is None:
            self._copies.clear()
        else:
            self._copies.pop(checkpoint_id, None)
        self._copy()

    def _persist_arriving(self, checkpoint_id: int, write: Write) -> None:
        self._copies[checkpoint_id] = write
        self._copy()

    def _barrier_came(self, barrier: Barrier) -> None:
        """Stop copying for the barrier's checkpoint and for older ones (UC-3). Newer checkpoints continue copying."""
        for checkpoint_id in [k for k in self._copies if k <= barrier.checkpoint_id]:
            del self._copies[checkpoint_id]
        self._copy()

    def _copy(self) -> None:
        writes = tuple(self._copies.values())
        if len(writes) < 2:
            self._write = writes[0] if writes else None
            return

        def to_each(data: Data) -> None:
            for write in writes:
                write(data)

        self._write = to_each

    def _persist_queued(self, barrier_arrived: bool, checkpoint_id: int, write: Write) -> None:
        raise NotImplementedError

    # --- where buffers come from ----------------------------------------------------------------------------------

    def attach(self) -> None:
        """Start to read the subpartition (runtime.md 4.2, step 5)."""
        self.is_attached = True
        self.subpartition.reader = self
        if self.subpartition.is_readable:
            self.on_available()

    def on_available(self) -> None:
        """Handle the notification that the subpartition has more to read."""
        raise NotImplementedError

    def poll(self) -> DataBuffer | Event | None:
        """Return the next buffer or event, or None if there is none."""
        raise NotImplementedError

    def poll_priority(self) -> Barrier | None:
        """Return the next priority event, or None if there is none."""
        raise NotImplementedError

    @property
    def has_more(self) -> bool:
        """Whether ``poll`` would return a buffer or an event."""
        raise NotImplementedError

    def resume(self) -> None:
        """Let the sender continue after a blocking event."""
        raise NotImplementedError

    def acknowledge_end(self) -> None:
        """Report to the sender that all data of the channel is processed (FN-23)."""
        raise NotImplementedError

    def convert_to_priority(self, checkpoint_id: int) -> bool:
        """Move an announced barrier before all queued data (Q-5). Return whether the barrier was still queued."""
        raise NotImplementedError

    @property
    def queued(self) -> tuple[int, int]:
        """Number of buffers and number of bytes in the receiver's own queue."""
        return 0, 0

    @property
    def buffers_in_use(self) -> int:
        """Number of buffers queued at the sender and at the receiver, as far as the receiver knows (DB-2)."""
        return self.subpartition.queued_count

    def announce_buffer_bytes(self, size_bytes: int) -> None:
        """Set the number of bytes that the sender puts into each new buffer (DB-6)."""
        self.subpartition.buffer_bytes = size_bytes

    @property
    def has_front(self) -> bool:
        """Whether data that precedes the arrived barrier is still queued at the receiver."""
        return False

    def front_bytes(self, checkpoint_id: int) -> int:
        """Return how many unprocessed bytes before the barrier of ``checkpoint_id`` are to be persisted (CAP-1)."""
        return self._decoder.unconsumed_bytes(self.elements)


class LocalChannel(InputChannel):
    """A channel within one task manager, which reads the sender's queue directly.

    Resuming takes no time, and no barrier is announced (UC-10).
    """

    def on_available(self) -> None:
        if self.subpartition.priority:
            self.gate.on_priority(self)
        self.gate.on_ready(self)

    def poll(self) -> DataBuffer | Event | None:
        item = self.subpartition.poll()
        if isinstance(item, DataBuffer):
            self.bytes_received += len(item.data)
            self.buffers_received += 1
            if self._write is not None:
                self._write(item.data)
        elif isinstance(item, Barrier):
            self._barrier_came(item)
        return item

    def poll_priority(self) -> Barrier | None:
        if not self.subpartition.priority:
            return None
        item = self.subpartition.poll()
        assert isinstance(item, Barrier)
        self._barrier_came(item)
        return item

    @property
    def has_more(self) -> bool:
        return self.subpartition.is_readable

    def resume(self) -> None:
        self.subpartition.resume()

    def acknowledge_end(self) -> None:
        self.subpartition.processed()

    def convert_to_priority(self, checkpoint_id: int) -> bool:
        return False

    def _persist_queued(self, barrier_arrived: bool, checkpoint_id: int, write: Write) -> None:
        if not barrier_arrived:
            self._persist_arriving(checkpoint_id, write)
