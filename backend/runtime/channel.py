"""The receiving side: channels that poll or are sent buffers, and the gate that hands their elements to the task.

A *local* channel (both subtasks on one task manager) reads the sender's queue itself, so it has no queue of its own. A
*remote* channel is sent buffers over a link, one for each credit it announced (CR-1 to CR-6). Both decode records
from bytes, and both copy what belongs to a checkpoint while they are told to persist (UC-2, UC-3, UC-10).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from backend.domain.errors import ProtocolViolationError
from backend.runtime.buffers import DataBuffer, Subpartition
from backend.runtime.elements import HEADER, Barrier, Event, Record, Watermark, decode
from backend.runtime.scheduler import EventClass, Scheduler

Write = Callable[[bytes], None]


@dataclass(frozen=True, slots=True, order=True)
class ChannelKey:
    """G-3: stable for the life of a plan."""

    edge: int
    source_subtask: int
    target_subtask: int


@dataclass(frozen=True, slots=True)
class LinkCosts:
    """What a link between two task managers costs (DET-7)."""

    latency_us: int
    bytes_per_s: int


class InputChannel:
    """One logical channel at its receiver. Subclasses say where buffers come from."""

    def __init__(self, key: ChannelKey, index: int, subpartition: Subpartition, gate: InputGate) -> None:
        self.key = key
        self.index = index
        self.subpartition = subpartition
        self.gate = gate
        self.recovered: deque[bytes] = deque()
        self.is_ready = False
        self.is_attached = False
        self.is_closed = False
        """Closed behind its cut while an in-flight cap makes its checkpoint wait (CAP-3)."""
        self.is_ended = False
        self.watermark_us = -1
        self._data = b""
        self._at = 0
        self._owner: DataBuffer | None = None
        self._write: Write | None = None
        self._persisting_id = 0
        self.bytes_received = 0

    # --- decoding -------------------------------------------------------------------------------------------------

    def next_element(self) -> Record | Watermark | None:
        """The next whole element of the bytes fed so far; None when more bytes are needed."""
        element = decode(self._data, self._at)
        if element is not None:
            self._at += element.size_bytes if isinstance(element, Record) else HEADER.size
            return element
        owner = self._owner
        if owner is not None:
            self._data = self._data[self._at :]
            self._at = 0
            self._owner = None
            owner.owner.recycle()
        return None

    def feed(self, buffer: DataBuffer) -> None:
        """Decode on from here: what was left of the last buffer, then this one."""
        self._data = self._data[self._at :] + buffer.data if self._at < len(self._data) else buffer.data
        self._at = 0
        self._owner = buffer

    def feed_recovered(self) -> bool:
        """Take up the next recovered bytes; False where none are left."""
        if not self.recovered:
            return False
        self._data = self._data[self._at :] + self.recovered.popleft()
        self._at = 0
        return True

    @property
    def unconsumed(self) -> bytes:
        """Bytes taken from the channel that no processed record came from yet."""
        return self._data[self._at :]

    # --- checkpoints ----------------------------------------------------------------------------------------------

    def start_persisting(self, barrier_arrived: bool, checkpoint_id: int, write: Write) -> None:
        """Copy what is in front of the barrier of ``checkpoint_id`` (UC-2, UC-3)."""
        unconsumed = self.unconsumed
        if unconsumed:
            write(unconsumed)
        self._persisting_id = checkpoint_id
        self._persist_queued(barrier_arrived, checkpoint_id, write)

    def stop_persisting(self) -> None:
        """The barrier is there, or the checkpoint is over (UC-5)."""
        self._write = None

    def _barrier_came(self, barrier: Barrier) -> None:
        """What comes behind it is not of its checkpoint (UC-3); the barrier of an older one ends nothing."""
        if barrier.checkpoint_id >= self._persisting_id:
            self._write = None

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
    def has_front(self) -> bool:
        """Whether data in front of the arrived barrier is still queued here."""
        return False

    def front_bytes(self, checkpoint_id: int) -> int:
        """Bytes in front of the barrier of ``checkpoint_id``, which has arrived: what is persisted of it (CAP-1)."""
        return len(self._data) - self._at


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
            self._write = write


class FloatingPool:
    """The buffers of one gate that go to whichever channel has a backlog (BUF-3, CR-2)."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.free = size
        self._waiting: deque[RemoteChannel] = deque()

    def take(self, channel: RemoteChannel) -> bool:
        """One buffer, or a place in the line."""
        if self.free > 0:
            self.free -= 1
            return True
        if not channel.is_waiting:
            channel.is_waiting = True
            self._waiting.append(channel)
        return False

    def give_back(self) -> None:
        """One buffer is free; the next in line that still wants it gets it."""
        self.free += 1
        while self.free and self._waiting:
            channel = self._waiting.popleft()
            channel.is_waiting = False
            channel.on_floating()


class _Slot:
    """Whose buffer holds a segment of received data."""

    __slots__ = ("_channel", "_is_floating")

    def __init__(self, channel: RemoteChannel, *, is_floating: bool) -> None:
        self._channel = channel
        self._is_floating = is_floating

    def recycle(self) -> None:
        self._channel.recycled(is_floating=self._is_floating)


class RemoteChannel(InputChannel):
    """Is sent one buffer a credit over a link of its own."""

    def __init__(
        self,
        key: ChannelKey,
        index: int,
        subpartition: Subpartition,
        gate: InputGate,
        *,
        scheduler: Scheduler,
        costs: LinkCosts,
        exclusive: int,
        floating: FloatingPool,
    ) -> None:
        super().__init__(key, index, subpartition, gate)
        self._scheduler = scheduler
        self._costs = costs
        self._initial_credit = exclusive
        self._pool = floating
        self._exclusive_slot = _Slot(self, is_floating=False)
        self._floating_slot = _Slot(self, is_floating=True)
        # The sender's half.
        self._credit = exclusive
        self._link_free_us = 0
        self._wire: deque[tuple[DataBuffer | Event, int]] = deque()
        self._last_arrival_us = 0
        # The receiver's half.
        self._queue: deque[tuple[int, DataBuffer | Event]] = deque()
        self._priority: deque[tuple[int, Barrier]] = deque()
        self._arrivals = 0
        self._barrier_arrivals: tuple[int, int] = (0, 0)
        self._exclusive_free = exclusive
        self._floating_free = 0
        self._required = exclusive
        self._queued_bytes = 0
        self._queued_count = 0
        self.is_waiting = False
        self.is_dead = False

    # --- sender ---------------------------------------------------------------------------------------------------

    def on_available(self) -> None:
        subpartition = self.subpartition
        while subpartition.is_readable and (self._credit > 0 or subpartition.is_event_next):
            item = subpartition.poll()
            assert item is not None
            size = 0
            if isinstance(item, DataBuffer):
                self._credit -= 1
                size = len(item.data)
            start_us = max(self._scheduler.now, self._link_free_us)
            self._link_free_us = start_us + size * 1_000_000 // self._costs.bytes_per_s
            arrival_us = self._link_free_us + self._scheduler.jitter(self._costs.latency_us)
            # Wire order is FIFO (CR-6), whatever the jitter.
            self._last_arrival_us = max(arrival_us, self._last_arrival_us)
            self._wire.append((item, subpartition.data_count))
            self._scheduler.at(self._last_arrival_us, EventClass.NETWORK, self._arrive)

    def _add_credit(self, count: int) -> None:
        if not self.is_dead:
            self._credit += count
            self.on_available()

    def _resume_sender(self, _: object) -> None:
        if not self.is_dead:
            self.subpartition.resume()

    # --- receiver -------------------------------------------------------------------------------------------------

    def _arrive(self, _: object) -> None:
        if self.is_dead:
            return
        item, backlog = self._wire.popleft()
        if isinstance(item, DataBuffer):
            item.owner.recycle()
            self._on_data(item.data, backlog)
        else:
            self._on_event(item)

    def _on_data(self, data: bytes, backlog: int) -> None:
        if self._floating_free:
            self._floating_free -= 1
            slot = self._floating_slot
        elif self._exclusive_free:
            self._exclusive_free -= 1
            slot = self._exclusive_slot
        else:
            raise ProtocolViolationError(f"data without a buffer on {self.key}", rule="CR-5")
        self._arrivals += 1
        self._queue.append((self._arrivals, DataBuffer(data, slot)))
        self._queued_bytes += len(data)
        self._queued_count += 1
        if self._write is not None:
            self._write(data)
        self._required = backlog + self._initial_credit
        self._grow()
        self.gate.on_ready(self)

    def _on_event(self, event: Event) -> None:
        self._arrivals += 1
        if isinstance(event, Barrier):
            self._barrier_arrivals = (event.checkpoint_id, self._arrivals)
            self._barrier_came(event)
        if isinstance(event, Barrier) and not event.is_blocking:
            self._priority.append((self._arrivals, event))
            self.gate.on_priority(self)
            return
        self._queue.append((self._arrivals, event))
        if isinstance(event, Barrier) and event.is_timeoutable:
            self.gate.on_announcement(self, event)
        self.gate.on_ready(self)

    def poll(self) -> DataBuffer | Event | None:
        if self._priority:
            return self._priority.popleft()[1]
        if not self._queue:
            return None
        item = self._queue.popleft()[1]
        if isinstance(item, DataBuffer):
            self._queued_bytes -= len(item.data)
            self._queued_count -= 1
            self.bytes_received += len(item.data)
        return item

    def poll_priority(self) -> Barrier | None:
        return self._priority.popleft()[1] if self._priority else None

    @property
    def has_more(self) -> bool:
        return bool(self._priority or self._queue)

    def resume(self) -> None:
        self._scheduler.after(self._scheduler.jitter(self._costs.latency_us), EventClass.NETWORK, self._resume_sender)

    def convert_to_priority(self, checkpoint_id: int) -> bool:
        for at, (number, item) in enumerate(self._queue):
            if isinstance(item, Barrier) and item.checkpoint_id == checkpoint_id:
                del self._queue[at]
                self._priority.append((number, item))
                self.gate.on_priority(self)
                return True
        return False

    def _persist_queued(self, barrier_arrived: bool, checkpoint_id: int, write: Write) -> None:
        arrived_id, arrived_at = self._barrier_arrivals
        limit = arrived_at if arrived_id == checkpoint_id else self._arrivals + 1
        for number, item in self._queue:
            if number < limit and isinstance(item, DataBuffer):
                write(item.data)
        if arrived_id != checkpoint_id:
            self._write = write

    @property
    def queued(self) -> tuple[int, int]:
        return self._queued_count, self._queued_bytes

    @property
    def has_front(self) -> bool:
        return bool(self._queue) and self._queue[0][0] < self._barrier_arrivals[1]

    def front_bytes(self, checkpoint_id: int) -> int:
        arrived_id, arrived_at = self._barrier_arrivals
        limit = arrived_at if arrived_id == checkpoint_id else self._arrivals + 1
        queued = sum(len(item.data) for number, item in self._queue if number < limit and isinstance(item, DataBuffer))
        return super().front_bytes(checkpoint_id) + queued

    @property
    def exclusive_size(self) -> int:
        """Exclusive buffers the channel has."""
        return self._initial_credit

    @property
    def exclusive_in_use(self) -> int:
        """Exclusive buffers that hold data."""
        return self._initial_credit - self._exclusive_free

    # --- credits --------------------------------------------------------------------------------------------------

    def recycled(self, *, is_floating: bool) -> None:
        """A buffer's data was consumed."""
        if self.is_dead:
            return
        if is_floating:
            self._pool.give_back()
            return
        self._exclusive_free += 1
        if self._exclusive_free + self._floating_free > self._required and self._floating_free:
            self._floating_free -= 1
            self._pool.give_back()
        else:
            self._announce(1)

    def on_floating(self) -> None:
        """A floating buffer may be had again."""
        if not self.is_dead:
            self._grow()

    def _grow(self) -> None:
        gained = 0
        while self._exclusive_free + self._floating_free < self._required and self._pool.take(self):
            self._floating_free += 1
            gained += 1
        if gained:
            self._announce(gained)

    def _announce(self, count: int) -> None:
        delay_us = self._scheduler.jitter(self._costs.latency_us)
        self._scheduler.after(delay_us, EventClass.NETWORK, self._add_credit, count)


class InputGate:
    """All channels of one subtask, over all its input edges; one barrier handler spans them (G-5)."""

    def __init__(self, *, on_data: Callable[[], None], on_priority: Callable[[], None]) -> None:
        self.channels: list[InputChannel] = []
        self.polled_bytes = 0
        self.is_recovering = False
        self.announced: Callable[[InputChannel, Barrier], None] = _ignore
        self.may_poll: Callable[[InputChannel], bool] | None = None
        self._ready: deque[InputChannel] = deque()
        self._current: InputChannel | None = None
        self._on_data = on_data
        self._on_priority = on_priority
        self._priority: deque[InputChannel] = deque()

    def on_ready(self, channel: InputChannel) -> None:
        """A channel has something to poll."""
        if not channel.is_ready:
            channel.is_ready = True
            self._ready.append(channel)
        self._on_data()

    def on_priority(self, channel: InputChannel) -> None:
        """A channel has a priority event: it is drained by a mail (Q-6)."""
        if not self._priority:
            self._on_priority()
        if channel not in self._priority:
            self._priority.append(channel)

    def on_announcement(self, channel: InputChannel, barrier: Barrier) -> None:
        """A timeoutable barrier arrived; it is announced ahead of its turn (Q-4)."""
        self.announced(channel, barrier)

    def next_priority(self) -> tuple[InputChannel, Barrier] | None:
        """The next priority event of any channel, in order of arrival."""
        while self._priority:
            channel = self._priority[0]
            barrier = channel.poll_priority()
            if barrier is not None:
                return channel, barrier
            self._priority.popleft()
        return None

    def next_element(self) -> tuple[InputChannel, Record | Watermark | Event] | None:
        """The next element of any channel, buffer by buffer in turn; None where there is none."""
        while True:
            channel = self._current
            if channel is not None:
                element = channel.next_element()
                if element is not None:
                    return channel, element
                if self.is_recovering and channel.feed_recovered():
                    continue
                self._current = None
            if self.is_recovering:
                self._current = next((c for c in self.channels if c.recovered), None)
                if self._current is None:
                    return None
                continue
            found = self._poll()
            if found is None:
                return None
            channel, item = found
            if not isinstance(item, DataBuffer):
                return channel, item
            self.polled_bytes += len(item.data)
            channel.feed(item)
            self._current = channel

    def reopen(self, channel: InputChannel) -> None:
        """Read a channel again that was closed behind its cut."""
        channel.is_closed = False
        if channel.has_more:
            self.on_ready(channel)

    def recheck(self) -> None:
        """What held channels back may have changed."""
        for channel in self.channels:
            if channel.is_attached and not channel.is_ready and channel.has_more:
                self.on_ready(channel)

    def _poll(self) -> tuple[InputChannel, DataBuffer | Event] | None:
        ready = self._ready
        may_poll = self.may_poll
        while ready:
            channel = ready.popleft()
            if may_poll is not None and not may_poll(channel):
                channel.is_ready = False
                continue
            item = channel.poll()
            if channel.has_more:
                ready.append(channel)
            else:
                channel.is_ready = False
            if item is not None:
                return channel, item
        return None


def _ignore(_: InputChannel, __: Barrier) -> None:
    return None
