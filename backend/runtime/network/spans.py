"""Buffers for a run that tracks only sizes: records are queued without being encoded, and their bytes are only counted.

Buffers fill, split records and are persisted at the same byte as with encoded records, so times, bytes and events are
the same. Records keep their key, origin, event time and value, because routing, state and windows need them; only the
encoding is left out. The spans of a checkpoint can be encoded at any time, and give the same bytes (CK-3).

Invariant: the spans of a channel, in order, stand for the bytes that the channel would have carried.
"""

from __future__ import annotations

from backend.domain.errors import ProtocolViolationError
from backend.runtime.core.elements import RECORD_BYTES_MIN, Element, Record
from backend.runtime.network.buffers import Data, OutputPool, Subpartition
from backend.runtime.network.channel import bytes_of


class Span:
    """Stands for ``size_bytes`` bytes of a channel. It holds the elements that lie in these bytes, in full or in part.

    ``first_at`` bytes of the first element lie before the span, and ``behind`` bytes of the last element lie after it.
    ``record_bytes`` is the size of each element if all are known to be records of one size, otherwise 0.
    """

    __slots__ = ("behind", "elements", "first_at", "record_bytes", "size_bytes")

    def __init__(
        self, elements: list[Element], first_at: int, size_bytes: int, *, behind: int, record_bytes: int = 0
    ) -> None:
        self.elements = elements
        self.first_at = first_at
        self.size_bytes = size_bytes
        self.behind = behind
        self.record_bytes = record_bytes

    def __len__(self) -> int:
        return self.size_bytes

    def __bytes__(self) -> bytes:
        whole = b"".join(element.encode() for element in self.elements)
        return whole[self.first_at : self.first_at + self.size_bytes]

    def part(self, at: int, end: int) -> Span:
        """Return the part of this span from byte ``at`` to byte ``end``."""
        start_at, stop_at = self.first_at + at, self.first_at + end
        elements: list[Element] = []
        first_at = begin = behind = 0
        for element in self.elements:
            after = begin + element.size_bytes
            if after > start_at and begin < stop_at:
                if not elements:
                    first_at = start_at - begin
                elements.append(element)
                behind = max(0, after - stop_at)
            begin = after
        return Span(elements, first_at, end - at, behind=behind, record_bytes=self.record_bytes)


class SizedSubpartition(Subpartition):
    """The queue to one receiver. Its segments contain spans instead of bytes."""

    __slots__ = ("_behind", "_elements", "_first_at", "_record_bytes")

    def __init__(self, pool: OutputPool) -> None:
        super().__init__(pool)
        self._elements: list[Element] = []
        self._first_at = 0
        self._behind = 0
        self._record_bytes = 0
        """The ``Span.record_bytes`` of the current segment."""

    def append_element(self, element: Element, at: int = 0) -> int:
        """Write an element from its byte ``at`` on. Return the end of the written part, as ``append`` does."""
        end = element.size_bytes
        filled = self._filled
        if filled and filled + end - at < self._limit:
            if end != self._record_bytes:
                self._record_bytes = 0
            self._elements.append(element)
            self._filled = filled + end - at
            self.queued_bytes += end - at
            return end
        while at < end:
            if not self._filled:
                if not self._pool.request(self):
                    return at
                self._elements = []
                self._first_at = at
                self._limit = self.buffer_bytes
                # Watermarks and statuses have the minimum size of a record, so an element of this size need not be a
                # record.
                self._record_bytes = end if end > RECORD_BYTES_MIN else 0
            elif end != self._record_bytes:
                self._record_bytes = 0
            take = min(end - at, self._limit - self._filled)
            self._elements.append(element)
            self._filled += take
            self.queued_bytes += take
            at += take
            self._behind = end - at
            if self._filled == self._limit:
                self._finish()
                self._notify()
        return at

    def extend(self, records: list[Record], size_bytes: int) -> None:
        if len(records) * self._record_bytes != size_bytes:
            self._record_bytes = 0
        self._elements += records
        self._filled += size_bytes
        self.queued_bytes += size_bytes

    def _taken(self) -> Data:
        return Span(self._elements, self._first_at, self._filled, behind=self._behind, record_bytes=self._record_bytes)

    def _part(self, data: Data, at: int, end: int) -> Data:
        assert isinstance(data, Span)
        return data.part(at, end)


class SpanDecoder:
    """Returns the elements of spans. An element is returned with the span that contains its last byte."""

    __slots__ = ("_begun", "_begun_bytes", "record_bytes")

    def __init__(self) -> None:
        self.record_bytes = 0
        self._begun: Element | None = None
        """The element that is incomplete at the end of the last span, or None if there is none."""
        self._begun_bytes = 0

    def take(self, data: Data, left: list[Element]) -> list[Element]:
        """Return the elements whose last byte lies in this span, in reverse order."""
        assert isinstance(data, Span)
        if left or data.first_at != self._begun_bytes:
            raise ProtocolViolationError(f"a span from byte {data.first_at} of {self._begun_bytes}", rule="CR-6")
        elements = data.elements[::-1]
        self.record_bytes = data.record_bytes
        if data.behind:
            self._begun = elements[0]
            self._begun_bytes = self._begun.size_bytes - data.behind
            del elements[0]
        else:
            self._begun = None
            self._begun_bytes = 0
        return elements

    def unconsumed(self, left: list[Element]) -> Data:
        """Return the unconsumed bytes as a span that begins with the first byte of an element."""
        elements, behind = left[::-1], 0
        if self._begun is not None:
            elements.append(self._begun)
            behind = self._begun.size_bytes - self._begun_bytes
        return Span(elements, 0, self.unconsumed_bytes(left), behind=behind)

    def unconsumed_bytes(self, left: list[Element]) -> int:
        """Return the number of bytes that ``unconsumed`` would return."""
        return bytes_of(left, self.record_bytes) + self._begun_bytes
