"""What a subtask reads while it recovers at another parallelism: several old channels in each of its new ones (4.4).

Every restored chunk follows a descriptor that names its old channel (RS-7). Each old channel is decoded for itself, its
watermark and its idleness count for themselves (RS-8, RS-10), and where its records may belong to someone else they are
kept only if the edge would send them here now (RS-9). Invariant: when a channel's recovered data ends, no old channel
in it holds a part of a record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from backend.domain.errors import ProtocolViolationError
from backend.runtime.channel import InputChannel
from backend.runtime.elements import (
    Element,
    Event,
    Record,
    RecoveryCompletion,
    VirtualChannel,
    Watermark,
    WatermarkStatus,
)
from backend.runtime.gate import InputGate
from backend.runtime.rescaling import EdgeRescale

Keeps = Callable[[Record], bool]
"""Whether the edge would send a record to this subtask now."""


@dataclass(slots=True)
class _Old:
    """One old channel: what its own watermark and status are, and which of its records are kept (None: all)."""

    keeps: Keeps | None
    watermark_us: int | None = None
    is_idle: bool = False


class Demultiplexer:
    """Reads a gate whose channels carry old channels; ``on_filtered`` is told of each record that is not kept."""

    def __init__(
        self,
        gate: InputGate,
        edges: Mapping[int, tuple[EdgeRescale, Keeps]],
        on_filtered: Callable[[], None],
    ) -> None:
        self._gate = gate
        self._on_filtered = on_filtered
        self._old: dict[int, dict[VirtualChannel, _Old]] = {}
        for channel in gate.channels:
            if channel.key.edge in edges:
                rescale, keeps = edges[channel.key.edge]
                self._old[channel.index] = _old_channels(channel, rescale, keeps)

    def next_element(self) -> tuple[InputChannel, Element | Event] | None:
        """The next element that is this subtask's to process; None where there is none."""
        while True:
            found = self._gate.next_element()
            if found is None:
                return None
            channel, element = found
            if isinstance(element, VirtualChannel):
                channel.turn_to(element)
                continue
            if channel.virtual is None:
                return found
            old = self._of(channel)
            if isinstance(element, Record):
                if old.keeps is None or old.keeps(element):
                    return found
                self._on_filtered()
            elif isinstance(element, Watermark | WatermarkStatus):
                combined = self._combined(channel, old, element)
                if combined is not None:
                    return channel, combined
            else:
                if isinstance(element, RecoveryCompletion):
                    channel.end_virtual()
                return found

    def _of(self, channel: InputChannel) -> _Old:
        virtual = channel.virtual
        assert virtual is not None
        old = self._old.get(channel.index, {}).get(virtual)
        if old is None:
            raise ProtocolViolationError(f"{virtual} in {channel.key}, which does not carry it", rule="RS-6")
        return old

    def _combined(
        self, channel: InputChannel, old: _Old, element: Watermark | WatermarkStatus
    ) -> Watermark | WatermarkStatus | None:
        """What the whole channel has reached; None where that is nothing new (RS-10)."""
        every = self._old[channel.index].values()
        if isinstance(element, WatermarkStatus):
            old.is_idle = element.is_idle
            return WatermarkStatus(is_idle=all(each.is_idle for each in every))
        old.watermark_us = max(element.at_us, -1 if old.watermark_us is None else old.watermark_us)
        known = [each.watermark_us for each in every if each.watermark_us is not None]
        return Watermark(min(known)) if len(known) == len(every) else None


def _old_channels(channel: InputChannel, rescale: EdgeRescale, keeps: Keeps) -> dict[VirtualChannel, _Old]:
    ambiguous = rescale.ambiguous
    pairs = rescale.channels(channel.key.source_subtask, channel.key.target_subtask)
    return {VirtualChannel(i, j): _Old(keeps if j in ambiguous else None) for i, j in pairs}
