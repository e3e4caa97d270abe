"""Operators that live by event time: windows, timers, and one that puts the watermark into records (1.6, 1.7).

All keep their state by key group. They learn of the watermark from their task, which also fires their timers; none
restores the watermark unless it stores it itself (WM-3, RC-9).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from backend.runtime.core.elements import Record
from backend.runtime.core.provenance import NOTHING, Provenance
from backend.runtime.job.graph import Aggregate, VertexSpec
from backend.runtime.operators.sinks import Bulk
from backend.runtime.operators.state import KeyedStates, OperatorSnapshot, OperatorState, StateMode

_FIELDS = 4
_GROUP_WATERMARK = struct.Struct("<qq")
_WATERMARKS = "watermarks"
_REDUCE: Mapping[Aggregate, Callable[[int, int], int]] = {
    Aggregate.COUNT: lambda a, b: a + b,
    Aggregate.SUM: lambda a, b: a + b,
    Aggregate.MAX: max,
}


class TimedOperator:
    """What these operators share. ``watermark_us`` is -1 until one came."""

    def __init__(self, spec: VertexSpec, subtask: int) -> None:
        self.states = KeyedStates(
            subtask=subtask, parallelism=spec.parallelism, max_parallelism=spec.effective_max_parallelism
        )
        self.timers = self.states.timers()
        self.watermark_us = -1
        self.late_count = 0
        """Records dropped because their window had fired (INV-15)."""

    def process(self, record: Record) -> list[Record]:
        """The records that come out of one record at once."""
        raise NotImplementedError

    def in_bulk(self) -> Bulk | None:
        """What comes out of a record may be none or several."""
        return None

    def fire(self, at_us: int, key: int) -> list[Record]:
        """The records that come out of one timer."""
        raise NotImplementedError

    def flush(self) -> list[Record]:
        """What it holds back is state."""
        return []

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        """Its keyed state and its timers."""
        return OperatorSnapshot(keyed=self.states.snapshot())

    def restore(self, snapshot: OperatorSnapshot, checkpoint_id: int) -> None:
        """Take both up; timers fire with the next watermark that reaches them (RC-7)."""
        self.states.restore(snapshot.keyed)

    def complete(self, checkpoint_id: int) -> None:
        """Nothing to commit."""

    @property
    def state_bytes(self) -> int:
        """State and timers."""
        return self.states.size_bytes


class Window(TimedOperator):
    """Tumbling windows: one record a key and window, once the watermark has passed its end; later ones are dropped."""

    def __init__(self, spec: VertexSpec, subtask: int, provenance: Provenance) -> None:
        super().__init__(spec, subtask)
        self._window_us = spec.window_us
        self._counts_records = spec.aggregate is Aggregate.COUNT
        self._size = spec.record_bytes
        self._results = self.states.reducing(_REDUCE[spec.aggregate])
        self._nodes = self.states.map()
        self._provenance = provenance

    def process(self, record: Record) -> list[Record]:
        """Fold the record into its window."""
        last_us = record.event_time_us // self._window_us * self._window_us + self._window_us - 1
        if last_us <= self.watermark_us:
            self.late_count += 1
            return []
        key = record.key
        self._results.add(key, last_us, 1 if self._counts_records else record.value)
        node = self._nodes.get(key, last_us)
        self._nodes.set(key, last_us, self._provenance.merge(NOTHING if node is None else node, record.origin))
        self.timers.register(last_us, key)
        return []

    def fire(self, at_us: int, key: int) -> list[Record]:
        """The window's result, dated by its last instant."""
        result, node = self._results.pop(key, at_us), self._nodes.pop(key, at_us)
        assert result is not None
        assert node is not None
        return [Record(key, node, at_us, result, self._size)]


class TimerBuffer(TimedOperator):
    """Holds each record back until the watermark has passed its time by ``hold``; passes them on in event time's order.

    Each key's records are numbered as they leave: a record lost or doubled shows downstream.
    """

    def __init__(self, spec: VertexSpec, subtask: int) -> None:
        super().__init__(spec, subtask)
        self._hold_us = spec.hold_us
        self._held = self.states.list()
        self._counts = self.states.value(spec.state_value_bytes)

    def process(self, record: Record) -> list[Record]:
        """Keep it, and set the timer."""
        self._held.extend(record.key, (record.event_time_us, record.origin, record.value, record.size_bytes))
        self.timers.register(record.event_time_us + self._hold_us, record.key)
        return []

    def fire(self, at_us: int, key: int) -> list[Record]:
        """The key's records of that time or before, numbered."""
        held = self._held.held.get(key, [])
        rows = sorted(tuple(held[i : i + _FIELDS]) for i in range(0, len(held), _FIELDS))
        due = [row for row in rows if row[0] + self._hold_us <= at_us]
        self._held.replace(key, [number for row in rows[len(due) :] for number in row])
        count = self._counts.held.get(key, 0)
        if due:
            self._counts.set(key, count + len(due))
        return [Record(key, row[1], row[0], count + n, row[3]) for n, row in enumerate(due, 1)]


class WatermarkTag(TimedOperator):
    """Puts the current watermark into each record's value: what unaligned recovery gets wrong (RC-9).

    With ``stores_watermark`` it keeps the watermark of each key group in union state and takes it up again.
    """

    def __init__(self, spec: VertexSpec, subtask: int) -> None:
        super().__init__(spec, subtask)
        self._is_stored = spec.stores_watermark

    def process(self, record: Record) -> list[Record]:
        """The record with the watermark as its value; -1 where none is known."""
        return [Record(record.key, record.origin, record.event_time_us, self.watermark_us, record.size_bytes)]

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        """The watermark of each of its key groups, where it is to be stored."""
        if not self._is_stored:
            return super().snapshot(checkpoint_id)
        entries = tuple(_GROUP_WATERMARK.pack(group, self.watermark_us) for group in self.states.groups)
        return OperatorSnapshot(states=(OperatorState(_WATERMARKS, StateMode.UNION, entries),))

    def restore(self, snapshot: OperatorSnapshot, checkpoint_id: int) -> None:
        """The lowest stored watermark of its key groups; the entries of others are theirs."""
        entries = (_GROUP_WATERMARK.unpack(entry) for entry in snapshot.entries(_WATERMARKS))
        self.watermark_us = min((at_us for group, at_us in entries if group in self.states.groups), default=-1)

    @property
    def state_bytes(self) -> int:
        """One entry a key group, where it is stored."""
        return _GROUP_WATERMARK.size * len(self.states.groups) if self._is_stored else 0
