"""Decodes the data of several old channels from one new channel, after a change of parallelism (runtime.md 4.4).

This happens while a subtask recovers. A descriptor before each restored chunk names its old channel (RS-7). Each old
channel has its own decoder, watermark and idleness (RS-8, RS-10). If the records of an old channel may belong to
several subtasks, a record is kept only if the edge would now send it to this subtask (RS-9). PROTOCOL.md, RS-15, gives
the reasons. Invariant: a record that is not kept never reaches the task, and takes none of its time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from backend.domain.errors import ProtocolViolationError
from backend.runtime.core.elements import Element, Record, VirtualChannel, Watermark
from backend.runtime.network.buffers import Data
from backend.runtime.network.channel import ChannelKey, Decoder
from backend.runtime.network.rescaling import EdgeRescale

Keeps = Callable[[Record], bool]
"""Returns whether the edge would send a record to this subtask now."""


@dataclass(slots=True)
class _Old:
    """One old channel: the filter of its records (None keeps all records), its watermark and whether it is idle."""

    keeps: Keeps | None
    watermark_us: int | None = None
    is_idle: bool = False


class OldChannels:
    """The old channels whose data one new channel carries. ``on_filtered`` is called for each dropped record."""

    def __init__(self, key: ChannelKey, rescale: EdgeRescale, keeps: Keeps, on_filtered: Callable[[], None]) -> None:
        ambiguous = rescale.ambiguous
        pairs = rescale.channels(key.source_subtask, key.target_subtask)
        self._key = key
        self._on_filtered = on_filtered
        self._old = {VirtualChannel(i, j): _Old(keeps if j in ambiguous else None) for i, j in pairs}

    def decoder(self, virtual: VirtualChannel, plain: Decoder) -> Decoder:
        """Return the decoder of one old channel, built on the new decoder ``plain``.

        Raises:
            ProtocolViolationError: this channel does not carry the old channel, so sender and receiver used different
                mappings (RS-6).
        """
        old = self._old.get(virtual)
        if old is None:
            raise ProtocolViolationError(f"{virtual} in {self._key}, which does not carry it", rule="RS-6")
        return _OldDecoder(plain, lambda element: self._seen(old, element))

    def _seen(self, old: _Old, element: Element) -> Element | None:
        """Return the element to pass to the task, or None if nothing is to be passed."""
        if isinstance(element, Record):
            if old.keeps is None or old.keeps(element):
                return element
            self._on_filtered()
            return None
        every = self._old.values()
        if isinstance(element, Watermark):
            # The task receives the lowest watermark of all old channels, once each of them has one (RS-10).
            old.watermark_us = max(element.at_us, -1 if old.watermark_us is None else old.watermark_us)
            known = [each.watermark_us for each in every if each.watermark_us is not None]
            return Watermark(min(known)) if len(known) == len(every) else None
        old.is_idle = element.is_idle
        return type(element)(is_idle=all(each.is_idle for each in every))


class _OldDecoder:
    """Decodes one old channel. ``seen`` decides which element, if any, the task receives for each decoded element."""

    __slots__ = ("_plain", "_seen", "record_bytes")

    def __init__(self, plain: Decoder, seen: Callable[[Element], Element | None]) -> None:
        self.record_bytes = 0
        self._plain = plain
        self._seen = seen

    def take(self, data: Data, left: list[Element]) -> list[Element]:
        """Decode ``data``, and return the elements for the task in reverse order. ``left`` must be empty."""
        assert not left
        elements = [self._seen(element) for element in reversed(self._plain.take(data, []))]
        return [element for element in reversed(elements) if element is not None]

    def unconsumed(self, left: list[Element]) -> Data:
        """Return the bytes of the incomplete element at the end of the data."""
        return self._plain.unconsumed([])

    def unconsumed_bytes(self, left: list[Element]) -> int:
        """Return the number of bytes of the incomplete element at the end of the data."""
        return self._plain.unconsumed_bytes([])
