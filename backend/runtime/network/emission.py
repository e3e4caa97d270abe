"""Writes the output of one subtask: records to their channels, watermarks and events to all (runtime.md 1.5, BP-4).

Data that finds no free buffer waits here, in order, and blocks the subtask until it is written. Actions that must
follow this data also wait, such as forwarding a barrier after the records that operators held back (TE-2). Recovered
output is written in the same way (RC-6).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from backend.runtime.core.elements import Event, Record, Watermark, WatermarkStatus
from backend.runtime.network.buffers import OutputPool
from backend.runtime.network.routes import Places, Route

Append = Callable[[int], int]
"""A function that writes data from an index on, and returns the end of the written part."""


@dataclass(slots=True)
class Output:
    """One output edge of a subtask."""

    edge: int
    pool: OutputPool
    route: Route
    targets: list[int]
    can_overtake: bool

    @property
    def queued(self) -> tuple[int, int]:
        """Number of buffers and number of bytes queued in the subpartitions of this edge."""
        return sum(s.data_count for s in self.pool.subpartitions), self.queued_bytes

    @property
    def queued_bytes(self) -> int:
        """Number of bytes queued in the subpartitions of this edge."""
        return sum([s.queued_bytes for s in self.pool.subpartitions])


class Emission:
    """The outputs of one subtask in one attempt, in the order of their edges."""

    def __init__(self) -> None:
        self.outputs: list[Output] = []
        self.records_out = 0
        self.bytes_out = 0
        self._unwritten: deque[tuple[Append, int, int]] = deque()
        self._behind: deque[Callable[[], None]] = deque()
        self.is_blocked = False
        """Whether the subtask is blocked: data waits for buffers, or actions wait that must follow this data (BP-4)."""

    def emit(self, record: Record) -> None:
        """Write a record to every output edge. Data that finds no buffer waits and blocks the subtask."""
        outputs = self.outputs
        if not outputs:
            return
        data = record.encode()
        size = len(data)
        self.records_out += 1
        for output in outputs:
            subpartitions = output.pool.subpartitions
            for target in output.route(record):
                self.bytes_out += size
                if self.is_blocked:
                    self.write(partial(subpartitions[target].append, data), size)
                    continue
                written = subpartitions[target].append(data)
                if written < size:
                    self._wait(partial(subpartitions[target].append, data), size, written)

    def places(self, records: list[Record]) -> list[Places]:
        """Return, for each output, the receivers of records that are to be written ahead of time."""
        return [output.route.places(records) for output in self.outputs]

    def fitting(self, places: list[Places], at: int, most: int, size: int) -> int:
        """Return how many of the next ``most`` records fit into the current segments without finishing a segment.

        The records begin at index ``at`` of ``places``. Each record has ``size`` bytes.
        """
        for output, of_output in zip(self.outputs, places, strict=True):
            room = [subpartition.room_bytes // size for subpartition in output.pool.subpartitions]
            most = output.route.fitting(of_output and of_output[at : at + most], most, room)
        return most

    def extend(self, records: list[Record], places: list[Places], at: int, size: int) -> None:
        """Write ``records``, which must be no more than ``fitting`` returned.

        ``places`` holds the receivers of the records from index ``at`` on.
        """
        if not self.outputs:
            return
        self.records_out += len(records)
        for output, of_output in zip(self.outputs, places, strict=True):
            subpartitions = output.pool.subpartitions
            for position, dealt in output.route.deal(records, of_output and of_output[at : at + len(records)]):
                size_bytes = len(dealt) * size
                self.bytes_out += size_bytes
                subpartitions[position].extend(dealt, size_bytes)

    def broadcast(self, element: Watermark | WatermarkStatus) -> None:
        """Write a watermark or a watermark status to every channel (WM-1)."""
        size = element.size_bytes
        for output in self.outputs:
            for subpartition in output.pool.subpartitions:
                self.bytes_out += size
                self.write(partial(subpartition.append_element, element), size)

    def broadcast_event(self, event: Event) -> None:
        """Add an event to every channel, after everything that was written before."""
        self.then(lambda: self._add_event(event))

    def _add_event(self, event: Event) -> None:
        for output in self.outputs:
            for subpartition in output.pool.subpartitions:
                subpartition.add_event(event)

    def write(self, append: Append, size: int) -> None:
        """Write ``size`` bytes now, or after the data that waits for buffers."""
        if self._unwritten:
            self._unwritten.append((append, size, 0))
            return
        written = append(0)
        if written < size:
            self._wait(append, size, written)

    def _wait(self, append: Append, size: int, at: int) -> None:
        self._unwritten.append((append, size, at))
        self.is_blocked = True

    def then(self, action: Callable[[], None]) -> None:
        """Run an action after everything written so far: now, or as soon as the waiting data is written."""
        if self.is_blocked:
            self._behind.append(action)
        else:
            action()

    def write_on(self) -> bool:
        """Write as much of the waiting data as possible. Return whether all of it is written."""
        unwritten = self._unwritten
        while unwritten:
            append, size, at = unwritten[0]
            at = append(at)
            if at < size:
                unwritten[0] = (append, size, at)
                return False
            unwritten.popleft()
        self.is_blocked = bool(self._behind)
        return True

    def behind(self) -> Callable[[], None] | None:
        """Remove and return the next action that waits, or None if there is none.

        It must be called only when all data is written.
        """
        if not self._behind:
            return None
        action = self._behind.popleft()
        self.is_blocked = bool(self._behind)
        return action


class SizedEmission(Emission):
    """Writes records without encoding them, in a run that tracks only sizes (``spans.py``)."""

    def emit(self, record: Record) -> None:
        """Write a record to every output edge. It occupies as many bytes of the buffers as an encoded record."""
        outputs = self.outputs
        if not outputs:
            return
        size = record.size_bytes
        self.records_out += 1
        for output in outputs:
            subpartitions = output.pool.subpartitions
            for target in output.route(record):
                self.bytes_out += size
                if self.is_blocked:
                    self.write(partial(subpartitions[target].append_element, record), size)
                    continue
                written = subpartitions[target].append_element(record)
                if written < size:
                    self._wait(partial(subpartitions[target].append_element, record), size, written)
