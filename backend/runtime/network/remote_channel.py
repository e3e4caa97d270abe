"""A channel between two task managers. For each credit, it sends one buffer over a link (CR-1 to CR-6).

One object holds both halves of a channel, the sender's and the receiver's. Messages between the halves take the link's
latency. A timeoutable barrier is announced when it arrives (Q-4), and can then be moved to the front of the queue
(Q-5). A marker is announced because its arrival may end a log (CL-6).

Invariant (INV-8): every data buffer on the link has a receive buffer reserved for it, and each receive buffer is in
exactly one place.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from backend.domain.errors import ProtocolViolationError
from backend.runtime.core.elements import Barrier, Event, blocks_upstream
from backend.runtime.core.scheduler import EventClass, Scheduler
from backend.runtime.job.faults import Faults
from backend.runtime.job.graph import FaultAction
from backend.runtime.network.buffers import Data, DataBuffer, Subpartition
from backend.runtime.network.channel import ChannelKey, Decoder, Gate, InputChannel, Write


class _Backlog:
    """The message by which the sender reports that it has data but no credit (CR-4)."""


_BACKLOG = _Backlog()
_BARRIERS_KEPT = 128


@dataclass(frozen=True, slots=True)
class LinkCosts:
    """Latency and bandwidth of a link between two task managers (DET-7)."""

    latency_us: int
    bytes_per_s: int


class FloatingPool:
    """The floating buffers of one gate. Channels with a backlog take them (BUF-3, CR-2)."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.free = size
        self._waiting: deque[RemoteChannel] = deque()

    def take(self, channel: RemoteChannel) -> bool:
        """Take a buffer for a channel. If none is free, put the channel into the waiting queue and return False."""
        if self.free > 0:
            self.free -= 1
            return True
        if not channel.is_waiting:
            channel.is_waiting = True
            self._waiting.append(channel)
        return False

    def give_back(self) -> None:
        """Take a buffer back, and offer it to the waiting channels in order."""
        self.free += 1
        while self.free and self._waiting:
            channel = self._waiting.popleft()
            channel.is_waiting = False
            channel.on_floating()


class _Slot:
    """The owner of a receive buffer, which is either an exclusive or a floating buffer of a channel."""

    __slots__ = ("_channel", "_is_floating")

    def __init__(self, channel: RemoteChannel, *, is_floating: bool) -> None:
        self._channel = channel
        self._is_floating = is_floating

    def recycle(self) -> None:
        self._channel.recycled(is_floating=self._is_floating)


class RemoteChannel(InputChannel):
    """Receives buffers over its own link, one for each credit that it has announced."""

    is_remote = True

    def __init__(
        self,
        key: ChannelKey,
        index: int,
        subpartition: Subpartition,
        gate: Gate,
        *,
        scheduler: Scheduler,
        costs: LinkCosts,
        exclusive: int,
        floating: FloatingPool,
        faults: Faults | None = None,
        decoder: Decoder | None = None,
    ) -> None:
        """Create both halves of the channel.

        ``faults`` is the fault plan, or None if the plan has no faults at links.
        """
        super().__init__(key, index, subpartition, gate, decoder)
        self._scheduler = scheduler
        self._costs = costs
        self._faults = faults
        self._still_until_us = 0
        self._initial_credit = exclusive
        self._pool = floating
        self._exclusive_slot = _Slot(self, is_floating=False)
        self._floating_slot = _Slot(self, is_floating=True)
        # The sender's half.
        self._credit = exclusive
        self._link_free_us = 0
        self._wire: deque[tuple[DataBuffer | Event | _Backlog, int]] = deque()
        self._is_backlog_announced = False
        self._sender_round = 0
        self._last_arrival_us = 0
        # The receiver's half.
        self._queue: deque[tuple[int, DataBuffer | Event]] = deque()
        self._priority: deque[tuple[int, Barrier]] = deque()
        self._arrivals = 0
        self._barrier_arrivals: tuple[int, int] = (0, 0)
        """Checkpoint id of the newest barrier, and the number of arrivals up to and including this barrier."""
        self._arrived_at: dict[int, int] = {}
        """The number of arrivals up to and including each of the last barriers, by checkpoint id (CC-4)."""
        self._exclusive_free = exclusive
        self._floating_free = 0
        self._required = exclusive
        self._queued_bytes = 0
        self._front_bytes = 0
        """Number of the queued bytes that arrived before the newest barrier (CAP-1)."""
        self._queued_count = 0
        self._last_announcement_us = 0
        self._round = 0
        """The current round of credits. Releasing unused buffers starts a new round and voids earlier credits (CR-4).
        """
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
            self._send(item, size, subpartition.data_count if self._initial_credit else subpartition.backlog)
        if not self._initial_credit and subpartition.is_readable and not self._is_backlog_announced:
            # Without exclusive buffers, the sender must report its backlog to get a floating buffer.
            self._is_backlog_announced = True
            self._send(_BACKLOG, 0, subpartition.backlog)

    def _send(self, item: DataBuffer | Event | _Backlog, size_bytes: int, backlog: int) -> None:
        start_us = max(self._scheduler.now, self._link_free_us)
        self._link_free_us = start_us + size_bytes * 1_000_000 // self._costs.bytes_per_s
        arrival_us = self._link_free_us + self._latency_us()
        if self._faults is not None:
            arrival_us += self._induced_us(self._faults)
        # The link is FIFO (CR-6): with jitter, a message still arrives after the messages sent before it.
        self._last_arrival_us = max(arrival_us, self._last_arrival_us)
        self._wire.append((item, backlog))
        self._scheduler.at(self._last_arrival_us, EventClass.NETWORK, self._arrive)

    def _latency_us(self) -> int:
        """Return the latency of a message sent now, in either direction."""
        latency_us = self._scheduler.jitter(self._costs.latency_us)
        return latency_us + max(0, self._still_until_us - self._scheduler.now)

    def _induced_us(self, faults: Faults) -> int:
        fault = faults.message("link.send")
        if fault is None:
            return 0
        if fault.action == FaultAction.STALL:
            self._still_until_us = max(self._still_until_us, self._scheduler.now + fault.delay_us)
        return fault.delay_us

    def _add_credit(self, granted: tuple[int, int]) -> None:
        count, of_round = granted
        if not self.is_dead and of_round == self._sender_round:
            self._is_backlog_announced = False
            self._credit += count
            self.on_available()

    def _set_buffer_bytes(self, size_bytes: int) -> None:
        if not self.is_dead:
            self.subpartition.buffer_bytes = size_bytes

    def _resume_sender(self, of_round: int) -> None:
        if self.is_dead:
            return
        if of_round > self._sender_round:
            self._sender_round = of_round
            self._credit = 0
            self._is_backlog_announced = False
        self.subpartition.resume()

    def _end_acknowledged(self, _: object) -> None:
        if not self.is_dead:
            self.subpartition.processed()

    # --- receiver -------------------------------------------------------------------------------------------------

    def _arrive(self, _: object) -> None:
        if self.is_dead:
            return
        item, backlog = self._wire.popleft()
        if isinstance(item, DataBuffer):
            item.owner.recycle()
            self._on_data(item.data, backlog)
        elif isinstance(item, _Backlog):
            self._required = backlog
            self._grow()
        else:
            self._on_event(item)
            if not self._initial_credit and blocks_upstream(item):
                self._let_go()

    def _on_data(self, data: Data, backlog: int) -> None:
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
            if event.checkpoint_id > self._barrier_arrivals[0]:
                # A newer barrier may overtake an older one. When the older one arrives later, the boundary of the
                # in-flight data stays at the newer one (UC-3, CAP-3).
                self._barrier_arrivals = (event.checkpoint_id, self._arrivals)
                self._front_bytes = self._queued_bytes
                self._arrived_at[event.checkpoint_id] = self._arrivals
                if len(self._arrived_at) > _BARRIERS_KEPT:
                    del self._arrived_at[next(iter(self._arrived_at))]
            self._barrier_came(event)
        if isinstance(event, Barrier) and event.is_priority:
            self._priority.append((self._arrivals, event))
            self.gate.on_priority(self)
            return
        self._queue.append((self._arrivals, event))
        if isinstance(event, Barrier) and event.is_announced:
            self.gate.on_announcement(self, event)
        self.gate.on_ready(self)

    def poll(self) -> DataBuffer | Event | None:
        if self._priority:
            return self._priority.popleft()[1]
        if not self._queue:
            return None
        number, item = self._queue.popleft()
        if isinstance(item, DataBuffer):
            if number < self._barrier_arrivals[1]:
                self._front_bytes -= len(item.data)
            self._queued_bytes -= len(item.data)
            self._queued_count -= 1
            self.bytes_received += len(item.data)
            self.buffers_received += 1
        return item

    def poll_priority(self) -> Barrier | None:
        return self._priority.popleft()[1] if self._priority else None

    @property
    def has_more(self) -> bool:
        return bool(self._priority or self._queue)

    def resume(self) -> None:
        self._scheduler.after(self._latency_us(), EventClass.NETWORK, self._resume_sender, self._round)

    def acknowledge_end(self) -> None:
        self._scheduler.after(self._latency_us(), EventClass.NETWORK, self._end_acknowledged)

    def convert_to_priority(self, checkpoint_id: int) -> bool:
        for at, (number, item) in enumerate(self._queue):
            if isinstance(item, Barrier) and item.checkpoint_id == checkpoint_id:
                del self._queue[at]
                self._priority.append((number, item))
                self.gate.on_priority(self)
                return True
        return False

    def _persist_queued(self, barrier_arrived: bool, checkpoint_id: int, write: Write) -> None:
        limit = self._arrived_at.get(checkpoint_id)
        for number, item in self._queue:
            if (limit is None or number < limit) and isinstance(item, DataBuffer):
                write(item.data)
        if limit is None:
            self._persist_arriving(checkpoint_id, write)

    @property
    def queued(self) -> tuple[int, int]:
        return self._queued_count, self._queued_bytes

    @property
    def buffers_in_use(self) -> int:
        return self._queued_count + max(0, self._required - self._initial_credit)

    def announce_buffer_bytes(self, size_bytes: int) -> None:
        arrival_us = self._scheduler.now + self._latency_us()
        # The announcement that was sent last takes effect last, even with jitter.
        self._last_announcement_us = max(arrival_us, self._last_announcement_us + 1)
        self._scheduler.at(self._last_announcement_us, EventClass.NETWORK, self._set_buffer_bytes, size_bytes)

    @property
    def has_front(self) -> bool:
        return bool(self._queue) and self._queue[0][0] < self._barrier_arrivals[1]

    def front_bytes(self, checkpoint_id: int) -> int:
        has_arrived = self._barrier_arrivals[0] == checkpoint_id
        return super().front_bytes(checkpoint_id) + (self._front_bytes if has_arrived else self._queued_bytes)

    @property
    def exclusive_size(self) -> int:
        """Number of exclusive buffers of the channel."""
        return self._initial_credit

    @property
    def exclusive_in_use(self) -> int:
        """Number of exclusive buffers that hold data."""
        return self._initial_credit - self._exclusive_free

    # --- credits --------------------------------------------------------------------------------------------------

    def recycled(self, *, is_floating: bool) -> None:
        """Take back a receive buffer whose data was consumed."""
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
        """Take floating buffers for the backlog. The pool calls this when a floating buffer is free."""
        if not self.is_dead:
            self._grow()

    def _let_go(self) -> None:
        """Release unused floating buffers while the sender is blocked, because other channels may need them (CR-4)."""
        self._round += 1
        self._required = 0
        while self._floating_free:
            self._floating_free -= 1
            self._pool.give_back()

    def _grow(self) -> None:
        gained = 0
        while self._exclusive_free + self._floating_free < self._required and self._pool.take(self):
            self._floating_free += 1
            gained += 1
        if gained:
            self._announce(gained)

    def _announce(self, count: int) -> None:
        self._scheduler.after(self._latency_us(), EventClass.NETWORK, self._add_credit, (count, self._round))
