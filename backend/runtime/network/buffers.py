"""The sending side of channels: segments of bytes, the pool that provides them, and a queue for each receiver.

It implements the rules BUF-1 to BUF-4, Q-1 to Q-3, MB-3, UC-4, UC-9, AT-6 and AT-7 of runtime.md. A queue is called a
subpartition and has one reader. Once the reader has polled a blocking event, the subpartition holds data back until the
reader resumes it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from backend.domain.errors import ProtocolViolationError
from backend.runtime.core.elements import Barrier, Element, Event, Record, blocks_upstream
from backend.runtime.core.scheduler import EventClass, Scheduler


class Recycler(Protocol):
    """The owner of a segment. It takes the segment back when the segment's bytes are consumed."""

    def recycle(self) -> None:
        """Take one segment back."""
        ...


class Reader(Protocol):
    """The receiving end of a subpartition."""

    def on_available(self) -> None:
        """Handle the notification that the subpartition is now readable or has more to read."""
        ...


class Data(Protocol):
    """Bytes of a channel: actual ``bytes``, or a ``Span`` that stands for bytes in a run that tracks only sizes."""

    def __len__(self) -> int: ...

    def __bytes__(self) -> bytes: ...


class Ahead(Protocol):
    """Steps that the writing subtask has planned before their virtual time (``running_ahead.py``)."""

    def interrupt(self) -> None:
        """Apply the planned steps that are due, and cancel the others."""
        ...


class DataBuffer:
    """The bytes of one finished segment, and the owner to which the segment returns."""

    __slots__ = ("data", "owner")

    def __init__(self, data: Data, owner: Recycler) -> None:
        self.data = data
        self.owner = owner


Resolve = Callable[[list[Data]], None]


class OutputPool:
    """The segments of one result partition. All channels of one subtask over one edge share them."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        channels: int,
        segment_bytes: int,
        size: int,
        max_per_channel: int,
        max_overdraft: int,
        flush_timeout_us: int,
        flush_phase_us: int = 0,
        on_change: Callable[[], None],
        subpartition: Callable[[OutputPool], Subpartition] | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.segment_bytes = segment_bytes
        self.size = max(size, channels)
        self.max_per_channel = max_per_channel
        self._limit = self.size + max_overdraft
        self._flush_timeout_us = flush_timeout_us
        self._flush_phase_us = flush_phase_us
        self._is_flush_due = False
        self._on_change = on_change
        self.spill: Callable[[int, Data], None] | None = None
        """Called with the position of the subpartition and the data of each buffer that is finished (SP-2).

        None if spilling is not continuous. Recovered output is not passed, because the restored checkpoint contains it.
        """
        self.ahead: Ahead | None = None
        """The steps that the writer has planned ahead. None if the writer may not plan ahead."""
        self.requested = 0
        """Segments in use. Divided by ``size``, this is the output usage: above 1 while overdraft is in use (ME-21)."""
        self.finished_count = 0
        """Number of data buffers finished so far."""
        self.full_channels = 0
        self.is_available = True
        """Whether a segment is free and no channel is at its limit (MB-3). False while overdraft is in use (BUF-4)."""
        self.is_closed = False
        self.subpartitions: list[Subpartition] = [(subpartition or Subpartition)(self) for _ in range(channels)]

    def request(self, subpartition: Subpartition) -> bool:
        """Take a segment for a step that has begun, as overdraft if necessary (BP-4).

        Return False if the overdraft is used up too.
        """
        if self.requested >= self._limit:
            return False
        self._take(subpartition)
        if not self._is_flush_due:
            self._is_flush_due = True
            timeout_us, phase_us = self._flush_timeout_us, self._flush_phase_us
            due_us = ((self.scheduler.now - phase_us) // timeout_us + 1) * timeout_us + phase_us
            self.scheduler.at(due_us, EventClass.TIMER, self._flush)
        return True

    def request_recovered(self, subpartition: Subpartition) -> bool:
        """Take a segment for recovered output, without overdraft. Return False if none is free (RC-6)."""
        if self.requested >= self.size:
            return False
        self._take(subpartition)
        return True

    def _take(self, subpartition: Subpartition) -> None:
        self.requested += 1
        subpartition.in_use += 1
        if subpartition.in_use == self.max_per_channel:
            self.full_channels += 1
        self.is_available = self.requested < self.size and not self.full_channels

    def give_back(self, subpartition: Subpartition) -> None:
        """Take a segment back. Call ``on_change`` unless the pool is closed."""
        self.requested -= 1
        subpartition.in_use -= 1
        if subpartition.in_use == self.max_per_channel - 1:
            self.full_channels -= 1
        self.is_available = self.requested < self.size and not self.full_channels
        if not self.is_closed:
            self._on_change()

    def _flush(self, _: object) -> None:
        self._is_flush_due = False
        if not self.is_closed:
            for subpartition in self.subpartitions:
                subpartition.flush()


class Subpartition:
    """The queue from one sending subtask to one receiving subtask."""

    __slots__ = (
        "_builder",
        "_filled",
        "_is_flushed",
        "_limit",
        "_pool",
        "_resolve",
        "_waiting_barrier",
        "_when_sent",
        "buffer_bytes",
        "data_count",
        "in_use",
        "is_blocked",
        "polled_bytes",
        "priority",
        "queue",
        "queued_bytes",
        "reader",
        "when_processed",
    )

    def __init__(self, pool: OutputPool) -> None:
        self._pool = pool
        self.buffer_bytes = pool.segment_bytes
        """How many bytes to put into each new segment: the whole segment, or the size that debloating sets (DB-6)."""
        self._limit = pool.segment_bytes
        self.queue: deque[DataBuffer | Event] = deque()
        self.priority: deque[Barrier] = deque()
        self._builder: bytearray | None = None
        self._filled = 0
        """Number of bytes in the current segment, or 0 if there is no current segment."""
        self._is_flushed = False
        self.is_blocked = False
        self.in_use = 0
        self.data_count = 0
        self.queued_bytes = 0
        self.polled_bytes = 0
        self.reader: Reader | None = None
        self.when_processed: Callable[[], None] | None = None
        """Called when the reader has processed all data up to its end (FN-23)."""
        self._waiting_barrier: int | None = None
        self._resolve: Resolve | None = None
        self._when_sent: Callable[[int], None] | None = None

    # --- the writing task -----------------------------------------------------------------------------------------

    def append(self, data: bytes, at: int = 0) -> int:
        """Write ``data`` from index ``at`` on.

        Return the end of the written part. It is less than ``len(data)`` if no segment is free.
        """
        end = len(data)
        filled = self._filled
        if filled and filled + end - at < self._limit:
            assert self._builder is not None
            self._builder += data[at:] if at else data
            self._filled = filled + end - at
            self.queued_bytes += end - at
            return end
        while at < end:
            if self._builder is None:
                if not self._pool.request(self):
                    return at
                self._builder = bytearray()
                self._limit = self.buffer_bytes
            take = min(end - at, self._limit - self._filled)
            self._builder += data[at : at + take]
            self._filled += take
            self.queued_bytes += take
            at += take
            if self._filled == self._limit:
                self._finish()
                self._notify()
        return at

    @property
    def written_bytes(self) -> int:
        """Number of bytes that were written since the subtask started, recovered output included."""
        return self.polled_bytes + self.queued_bytes

    @property
    def room_bytes(self) -> int:
        """How many bytes fit into the current segment without finishing it. 0 if there is no current segment."""
        return self._limit - self._filled - 1 if self._filled else 0

    def extend(self, records: list[Record], size_bytes: int) -> None:
        """Write records of ``size_bytes`` in total, which must fit into ``room_bytes``."""
        assert self._builder is not None
        self._builder += b"".join([record.encode() for record in records])
        self._filled += size_bytes
        self.queued_bytes += size_bytes

    def append_element(self, element: Element, at: int = 0) -> int:
        """Write an element's bytes from index ``at`` on. Return the end of the written part, as ``append`` does."""
        return self.append(element.encode(), at)

    def add_event(self, event: Event) -> None:
        """Add an event after the data written so far (BUF-2)."""
        self._finish()
        self.queue.append(event)
        self._notify()

    def append_recovered(self, data: Data, at: int) -> int:
        """Write output that was restored from a checkpoint (RC-6). Return the end of the written part."""
        pool, size = self._pool, len(data)
        while at < size:
            if not pool.request_recovered(self):
                return at
            part = self._part(data, at, min(size, at + pool.segment_bytes))
            self.queue.append(DataBuffer(part, self))
            self.data_count += 1
            self.queued_bytes += len(part)
            at += len(part)
            self._notify()
        return at

    def _part(self, data: Data, at: int, end: int) -> Data:
        """Return the bytes of ``data`` from ``at`` to ``end``."""
        return bytes(data)[at:end]

    def overtake(self, barrier: Barrier, most_bytes: int | None = None) -> list[Data]:
        """Let a barrier overtake all queued data (UC-4), or at most ``most_bytes`` of it (CAP-5).

        Return the overtaken data, in order.
        """
        self._finish()
        if most_bytes is not None and self.queued_bytes > most_bytes:
            return self._overtake_tail(barrier, most_bytes)
        overtaken = [item.data for item in self.queue if isinstance(item, DataBuffer)]
        self.priority.append(barrier)
        self._notify()
        return overtaken

    def _overtake_tail(self, barrier: Barrier, most_bytes: int) -> list[Data]:
        at, overtaken = len(self.queue), list[Data]()
        for item in reversed(self.queue):
            if isinstance(item, DataBuffer):
                most_bytes -= len(item.data)
                if most_bytes < 0:
                    break
                overtaken.append(item.data)
            at -= 1
        self.queue.insert(at, barrier)
        self._notify()
        overtaken.reverse()
        return overtaken

    def add_waiting(
        self, barrier: Barrier, resolve: Resolve, *, when_sent: Callable[[int], None] | None = None
    ) -> None:
        """Add a barrier that keeps its place in the queue, and that may overtake later (AT-7, CAP-3).

        ``resolve`` is called with the data that the barrier overtook, or with no data if the barrier did not overtake
        any. ``when_sent`` is called with the size of each buffer that leaves from in front of the barrier.

        Raises:
            ProtocolViolationError: another such barrier is unresolved.
        """
        if self._resolve is not None:
            raise ProtocolViolationError("a second barrier that may overtake while one is unresolved", rule="AT-7")
        self._waiting_barrier = barrier.checkpoint_id
        self._resolve = resolve
        self._when_sent = when_sent
        self.add_event(barrier)

    def let_overtake(self, checkpoint_id: int) -> list[Data] | None:
        """Let the waiting barrier overtake the data that is still in front of it (AT-6, CAP-3).

        Return the overtaken data, or None if the barrier was already read.
        """
        if self._waiting_barrier != checkpoint_id:
            return None
        overtaken: list[Data] = []
        for item in self.queue:
            if isinstance(item, DataBuffer):
                overtaken.append(item.data)
            elif isinstance(item, Barrier) and item.checkpoint_id == checkpoint_id:
                self.queue.remove(item)
                self.priority.append(item.as_unaligned())
                break
        self._resolved(overtaken)
        self._notify()
        return overtaken

    def forget_waiting(self, checkpoint_id: int) -> None:
        """Keep the barrier of an aborted checkpoint in its place in the queue. It can no longer overtake."""
        if self._waiting_barrier == checkpoint_id:
            self._waiting_barrier = None
            self._resolve = None
            self._when_sent = None

    def flush(self) -> None:
        """Let the reader read the current segment although it is not full (BUF-2)."""
        if self._filled and not self._is_flushed:
            self._is_flushed = True
            self._notify()

    # --- the reader -----------------------------------------------------------------------------------------------

    @property
    def is_readable(self) -> bool:
        """Whether ``poll`` would return a buffer or an event."""
        if self.priority:
            return True
        return not self.is_blocked and bool(self.queue or (self._is_flushed and self._filled))

    @property
    def backlog(self) -> int:
        """Number of data buffers queued for the reader. The current segment counts only after a flush (CR-1)."""
        return self.data_count + bool(self._is_flushed and self._filled)

    @property
    def queued_count(self) -> int:
        """Number of queued buffers and events, including the current segment, as counted by a local receiver (DB-2)."""
        return len(self.queue) + len(self.priority) + bool(self._filled)

    @property
    def is_event_next(self) -> bool:
        """Whether the next poll returns an event, which needs no credit (CR-3)."""
        if self.priority:
            return True
        return bool(not self.is_blocked and self.queue and not isinstance(self.queue[0], DataBuffer))

    def poll(self) -> DataBuffer | Event | None:
        """Return the next priority event, or else the next item in FIFO order.

        Return None if the subpartition is blocked or empty.
        """
        if self.priority:
            return self.priority.popleft()
        if self.is_blocked:
            return None
        if not self.queue and self._is_flushed:
            self._finish()
        if not self.queue:
            return None
        item = self.queue.popleft()
        if isinstance(item, DataBuffer):
            size = len(item.data)
            self.data_count -= 1
            self.queued_bytes -= size
            self.polled_bytes += size
            if self._when_sent is not None:
                self._when_sent(size)
            return item
        if blocks_upstream(item):
            self.is_blocked = True
        if isinstance(item, Barrier) and item.checkpoint_id == self._waiting_barrier:
            self._resolved([])
        return item

    def resume(self) -> None:
        """Let the reader read on after a blocking event. The receiver requests this (Q-3)."""
        if self.is_blocked:
            self.is_blocked = False
            if self.is_readable:
                self._notify()

    def processed(self) -> None:
        """Notify the writer that the reader has processed all data up to its end (FN-23)."""
        if self.when_processed is not None:
            self.when_processed()

    def recycle(self) -> None:
        """Return a segment of this subpartition to the pool."""
        self._pool.give_back(self)

    def _finish(self) -> None:
        ahead = self._pool.ahead
        if ahead is not None:
            ahead.interrupt()
        if self._filled:
            pool = self._pool
            buffer = DataBuffer(self._taken(), self)
            self.queue.append(buffer)
            self.data_count += 1
            pool.finished_count += 1
            self._filled = 0
            self._is_flushed = False
            if pool.spill is not None:
                pool.spill(pool.subpartitions.index(self), buffer.data)

    def _taken(self) -> Data:
        """End the current segment, and return its contents."""
        builder = self._builder
        assert builder is not None
        self._builder = None
        return bytes(builder)

    def _resolved(self, overtaken: list[Data]) -> None:
        resolve = self._resolve
        self._waiting_barrier = None
        self._resolve = None
        self._when_sent = None
        if resolve is not None:
            resolve(overtaken)

    def _notify(self) -> None:
        if self.reader is not None:
            self.reader.on_available()
