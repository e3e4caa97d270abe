"""Per-channel barrier events of the last checkpoints: only this runtime reports them (runtime.md, Appendix D)."""

from __future__ import annotations

from collections.abc import Callable

from backend.domain.barriers import BarrierEvent, BarrierEventKind, ChannelId
from backend.domain.ids import VertexId

_Row = tuple[BarrierEventKind, VertexId, int, int, int, ChannelId | None, int | None, int | None, str | None]
"""The fields of an event: one is made of them when somebody looks."""


class BarrierLog:
    """Events by checkpoint, for as many checkpoints as the history holds."""

    def __init__(self, *, kept: int) -> None:
        self._kept = kept
        self._events: dict[int, list[_Row]] = {}
        self._triggered_us: dict[int, int] = {}
        self.listener: Callable[[int, BarrierEvent], None] | None = None

    def open(self, checkpoint_id: int, triggered_at_us: int) -> None:
        """A checkpoint was triggered; the oldest one's events are dropped."""
        self._events[checkpoint_id] = []
        self._triggered_us[checkpoint_id] = triggered_at_us
        while len(self._events) > self._kept:
            oldest = next(iter(self._events))
            del self._events[oldest]
            del self._triggered_us[oldest]

    def add(
        self,
        checkpoint_id: int,
        kind: BarrierEventKind,
        *,
        vertex: str,
        subtask: int,
        now_us: int,
        lamport: int,
        channel: ChannelId | None = None,
        size_bytes: int | None = None,
        records: int | None = None,
        reason: str | None = None,
    ) -> None:
        """One event, if its checkpoint is still kept."""
        events = self._events.get(checkpoint_id)
        if events is None:
            return
        at_us = now_us - self._triggered_us[checkpoint_id]
        row = (kind, VertexId(vertex), subtask, at_us, lamport, channel, size_bytes, records, reason)
        events.append(row)
        if self.listener is not None:
            self.listener(checkpoint_id, BarrierEvent(*row))

    def events(self, checkpoint_id: int) -> tuple[BarrierEvent, ...] | None:
        """The events of a checkpoint in order of time; None where it is not kept."""
        events = self._events.get(checkpoint_id)
        return None if events is None else tuple(BarrierEvent(*row) for row in events)
