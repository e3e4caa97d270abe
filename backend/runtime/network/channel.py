"""The receiving side of one channel: it decodes records from bytes and copies what belongs to a checkpoint.

A *local* channel (both subtasks on one task manager) reads the sender's queue itself, so it has no queue of its own. A
*remote* channel (``remote_channel.py``) is sent buffers over a link. Both copy while they are told to persist (UC-2,
UC-3, UC-10); the gate (``gate.py``) hands their elements to the task.

Invariant (INV-1): but for what is told to overtake, elements come out in the order in which they were sent.
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
    """G-3: stable for the life of a plan."""

    edge: int
    source_subtask: int
    target_subtask: int


class Gate(Protocol):
    """Whom a channel tells of what came."""

    def on_ready(self, channel: InputChannel) -> None:
        """A channel has something to poll."""
        ...

    def on_priority(self, channel: InputChannel) -> None:
        """A channel has a priority event (Q-6)."""
        ...

    def on_announcement(self, channel: InputChannel, barrier: Barrier) -> None:
        """A timeoutable barrier is announced ahead of its turn (Q-4)."""
        ...


class Decoder(Protocol):
    """The bytes that one channel was fed, as elements."""

    record_bytes: int
    """The size of all that ``take`` gave last, where they are records of one size; otherwise 0."""

    def take(self, data: Data, left: list[Element]) -> list[Element]:
        """Go on with ``data`` behind what is not consumed yet; all whole elements, the next one last."""
        ...

    def unconsumed(self, left: list[Element]) -> Data:
        """The bytes of the elements ``left``, and what lies behind them of one that is not whole."""
        ...

    def unconsumed_bytes(self, left: list[Element]) -> int:
        """How many they are."""
        ...


class ByteDecoder:
    """Reads elements from their bytes, a buffer at a time: what is in a buffer does not change any more."""

    __slots__ = ("_data", "_whole", "record_bytes")

    def __init__(self) -> None:
        self.record_bytes = 0
        self._data = b""
        self._whole = 0
        """How many of the bytes whole elements take."""

    def take(self, data: Data, left: list[Element]) -> list[Element]:
        """Decode on."""
        begun = self._data[self._at(left) :]
        self._data = whole = begun + bytes(data) if begun else bytes(data)
        end, at, one_size = len(whole), 0, -1
        elements: list[Element] = []
        while end - at >= _HEADER_BYTES:
            # ``decode`` without its calls: every record comes through here.
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
        """The bytes from the next element on."""
        return self._data[self._at(left) :]

    def unconsumed_bytes(self, left: list[Element]) -> int:
        """Counted, not copied."""
        return len(self._data) - self._at(left)

    def _at(self, left: list[Element]) -> int:
        return self._whole - sum(element.size_bytes for element in left)


class InputChannel:
    """One logical channel at its receiver. Subclasses say where buffers come from."""

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
        """Bytes restored from a checkpoint; at another parallelism each chunk behind the name of its old channel."""
        self.virtual: VirtualChannel | None = None
        """Whose bytes are decoded at the moment, while several old channels come through this one (RS-7)."""
        self.decoder_of: Callable[[VirtualChannel, Decoder], Decoder] | None = None
        """What decodes an old channel, given a decoder that has decoded nothing; None: there are no old channels."""
        self._decoders: dict[VirtualChannel, Decoder] = {}
        self.is_ready = False
        self.is_attached = False
        self.is_closed = False
        """Closed behind its cut while an in-flight cap makes its checkpoint wait (CAP-3)."""
        self.is_ended = False
        self.is_at_end_of_data = False
        self.is_drained = True
        self.watermark_us = -1
        self.is_idle = False
        """Whether its watermark holds nobody up for now (WM-1)."""
        self.elements: list[Element] = []
        """Of the buffer in work what is to be processed yet, the next one last."""
        self._decoder = self._own_decoder = decoder or ByteDecoder()
        self._owner: DataBuffer | None = None
        self._write: Write | None = None
        """What copies a buffer as it comes; of several checkpoints at once it does so for each (CC-4)."""
        self._copies: dict[int, Write] = {}
        self.bytes_received = 0
        self.buffers_received = 0

    # --- decoding -------------------------------------------------------------------------------------------------

    def next_element(self) -> Element | None:
        """The next whole element of the bytes fed so far; None when more bytes are needed."""
        if self.elements:
            return self.elements.pop()
        owner = self._owner
        if owner is not None:
            self._owner = None
            owner.owner.recycle()
        return None

    def feed(self, buffer: DataBuffer) -> None:
        """Decode on from here: what was left of the last buffer, then this one."""
        self.elements = self._decoder.take(buffer.data, self.elements)
        self._owner = buffer

    def feed_recovered(self) -> bool:
        """Take up the next recovered bytes; False where none are left."""
        if not self.recovered:
            return False
        item = self.recovered.popleft()
        if isinstance(item, VirtualChannel):
            self.turn_to(item)
        else:
            self.elements = self._decoder.take(item, self.elements)
        return True

    def turn_to(self, virtual: VirtualChannel) -> None:
        """What comes next is of this old channel, whose own decoder goes on where it was (RS-8)."""
        if virtual not in self._decoders:
            assert self.decoder_of is not None
            self._decoders[virtual] = self.decoder_of(virtual, type(self._own_decoder)())
        self._decoder, self.virtual = self._decoders[virtual], virtual

    def end_virtual(self) -> None:
        """What comes next is new.

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
        """The size of all ``elements``, where they are records of one size; otherwise 0."""
        return self._decoder.record_bytes

    @property
    def unconsumed(self) -> Data:
        """Bytes taken from the channel that no processed record came from yet."""
        return self._decoder.unconsumed(self.elements)

    # --- checkpoints ----------------------------------------------------------------------------------------------

    def start_persisting(self, barrier_arrived: bool, checkpoint_id: int, write: Write) -> None:
        """Copy what is in front of the barrier of ``checkpoint_id`` (UC-2, UC-3)."""
        unconsumed = self.unconsumed
        if len(unconsumed):
            write(unconsumed)
        self._persist_queued(barrier_arrived, checkpoint_id, write)

    def stop_persisting(self, checkpoint_id: int | None = None) -> None:
        """The checkpoint has all its barriers, or is over (UC-5); None: whichever there are."""
        if checkpoint_id is None:
            self._copies.clear()
        else:
            self._copies.pop(checkpoint_id, None)
        self._copy()

    def _persist_arriving(self, checkpoint_id: int, write: Write) -> None:
        self._copies[checkpoint_id] = write
        self._copy()

    def _barrier_came(self, barrier: Barrier) -> None:
        """What comes behind it is not of its checkpoint (UC-3); the barrier of an older one ends no newer one's."""
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
        """Begin to read the subpartition (4.2, step 5)."""
        self.is_attached = True
        self.subpartition.reader = self
        if self.subpartition.is_readable:
            self.on_available()

    def on_available(self) -> None:
        """The subpartition has something it had not."""
        raise NotImplementedError

    def poll(self) -> DataBuffer | Event | None:
        """The next buffer or event."""
        raise NotImplementedError

    def poll_priority(self) -> Barrier | None:
        """The next priority event."""
        raise NotImplementedError

    @property
    def has_more(self) -> bool:
        """Whether ``poll`` would yield something."""
        raise NotImplementedError

    def resume(self) -> None:
        """Let the sender go on behind a blocking event."""
        raise NotImplementedError

    def convert_to_priority(self, checkpoint_id: int) -> bool:
        """Move the announced barrier before all queued data (Q-5)."""
        raise NotImplementedError

    @property
    def queued(self) -> tuple[int, int]:
        """(buffers, bytes) in the receiver's own queue."""
        return 0, 0

    @property
    def buffers_in_use(self) -> int:
        """Buffers queued on both sides, as far as the receiver knows (DB-2)."""
        return self.subpartition.queued_count

    def announce_buffer_bytes(self, size_bytes: int) -> None:
        """Tell the sender how much to put into a buffer from now on (DB-6)."""
        self.subpartition.buffer_bytes = size_bytes

    @property
    def has_front(self) -> bool:
        """Whether data in front of the arrived barrier is still queued here."""
        return False

    def front_bytes(self, checkpoint_id: int) -> int:
        """Bytes in front of the barrier of ``checkpoint_id``, which has arrived: what is persisted of it (CAP-1)."""
        return self._decoder.unconsumed_bytes(self.elements)


class LocalChannel(InputChannel):
    """Reads the sender's queue; resuming takes no time, and there is nothing to announce (UC-10)."""

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

    def convert_to_priority(self, checkpoint_id: int) -> bool:
        return False

    def _persist_queued(self, barrier_arrived: bool, checkpoint_id: int, write: Write) -> None:
        if not barrier_arrived:
            self._persist_arriving(checkpoint_id, write)
