"""Stores the barrier events of the last checkpoints, such as "received on this channel" or "overtook 3 records".

Flink's REST API has no such events; only this runtime reports them (runtime.md, Appendix D).
"""

from __future__ import annotations

from collections.abc import Callable, Container

from backend.domain.barriers import BarrierEvent, BarrierEventKind, ChannelId
from backend.domain.ids import VertexId

_Row = tuple[BarrierEventKind, VertexId, int, int, int, ChannelId | None, int | None, int | None, str | None]
"""The fields of one event. The ``BarrierEvent`` itself is created only when it is read."""


class BarrierLog:
    """The barrier events of the last ``kept`` checkpoints, and of those in progress."""

    def __init__(self, *, kept: int) -> None:
        self._kept = kept
        self._events: dict[int, list[_Row]] = {}
        self._triggered_us: dict[int, int] = {}
        self.listener: Callable[[int, BarrierEvent], None] | None = None

    def open(self, checkpoint_id: int, triggered_at_us: int, *, in_progress: Container[int] = ()) -> None:
        """Start the log of a triggered checkpoint. Drop the oldest logs until ``kept`` are left.

        A checkpoint in progress keeps its log: many newer ones may fail while it waits.
        """
        self._events[checkpoint_id] = []
        self._triggered_us[checkpoint_id] = triggered_at_us
        surplus = len(self._events) - self._kept
        for ended in [k for k in self._events if k != checkpoint_id and k not in in_progress][: max(0, surplus)]:
            del self._events[ended]
            del self._triggered_us[ended]

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
        """Add one event to the log of its checkpoint. Do nothing if that log has been dropped."""
        events = self._events.get(checkpoint_id)
        if events is None:
            return
        at_us = now_us - self._triggered_us[checkpoint_id]
        row = (kind, VertexId(vertex), subtask, at_us, lamport, channel, size_bytes, records, reason)
        events.append(row)
        if self.listener is not None:
            self.listener(checkpoint_id, BarrierEvent(*row))

    def events(self, checkpoint_id: int) -> tuple[BarrierEvent, ...] | None:
        """Return the events of a checkpoint in order of time, or None if the checkpoint has no log."""
        events = self._events.get(checkpoint_id)
        return None if events is None else tuple(BarrierEvent(*row) for row in events)
