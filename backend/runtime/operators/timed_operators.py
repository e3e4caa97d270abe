"""Operators that use event time: windows, timers, and one that writes the watermark into records (1.6, 1.7).

All keep their state by key group. Their task sets the watermark and fires their timers. A restore does not bring the
watermark back, except for an operator that stores it itself (WM-3, RC-9).
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
    """The base of these operators. ``watermark_us`` is -1 before the first watermark."""

    def __init__(self, spec: VertexSpec, subtask: int) -> None:
        self.states = KeyedStates(
            subtask=subtask, parallelism=spec.parallelism, max_parallelism=spec.effective_max_parallelism
        )
        self.timers = self.states.timers()
        self.watermark_us = -1
        self.late_count = 0
        """Number of records dropped because their window had already fired (INV-15)."""

    def process(self, record: Record) -> list[Record]:
        """Process one record, and return the records that it emits at once."""
        raise NotImplementedError

    def in_bulk(self) -> Bulk | None:
        """Return None, because one record may give several output records."""
        return None

    def fire(self, at_us: int, key: int) -> list[Record]:
        """Fire one timer, and return the output records."""
        raise NotImplementedError

    def flush(self) -> list[Record]:
        """Return nothing, because records held back are state."""
        return []

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        """Return the keyed state and the timers."""
        return OperatorSnapshot(keyed=self.states.snapshot())

    def restore(self, snapshot: OperatorSnapshot, checkpoint_id: int) -> None:
        """Restore keyed state and timers. A timer fires with the next watermark that reaches its time (RC-7)."""
        self.states.restore(snapshot.keyed)

    def complete(self, checkpoint_id: int) -> None:
        """Nothing to commit."""

    @property
    def state_bytes(self) -> int:
        """Bytes of state and timers."""
        return self.states.size_bytes


class Window(TimedOperator):
    """Tumbling windows: one output per key and window when the watermark passes its end. Late records are dropped."""

    def __init__(self, spec: VertexSpec, subtask: int, provenance: Provenance) -> None:
        super().__init__(spec, subtask)
        self._window_us = spec.window_us
        self._counts_records = spec.aggregate is Aggregate.COUNT
        self._size = spec.record_bytes
        self._results = self.states.reducing(_REDUCE[spec.aggregate])
        self._nodes = self.states.map()
        self._provenance = provenance

    def process(self, record: Record) -> list[Record]:
        """Aggregate the record into its window, or drop it if it is late."""
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
        """Return the window's result. Its event time is the last microsecond of the window."""
        result, node = self._results.pop(key, at_us), self._nodes.pop(key, at_us)
        assert result is not None
        assert node is not None
        return [Record(key, node, at_us, result, self._size)]


class TimerBuffer(TimedOperator):
    """Holds each record until the watermark reaches its event time plus ``hold``, and emits in event-time order.

    It numbers the output records of each key, so losses and duplicates show downstream.
    """

    def __init__(self, spec: VertexSpec, subtask: int) -> None:
        super().__init__(spec, subtask)
        self._hold_us = spec.hold_us
        self._held = self.states.list()
        self._counts = self.states.value(spec.state_value_bytes)

    def process(self, record: Record) -> list[Record]:
        """Hold the record, and register its timer."""
        self._held.extend(record.key, (record.event_time_us, record.origin, record.value, record.size_bytes))
        self.timers.register(record.event_time_us + self._hold_us, record.key)
        return []

    def fire(self, at_us: int, key: int) -> list[Record]:
        """Return the key's records that are due at ``at_us``, numbered."""
        held = self._held.held.get(key, [])
        rows = sorted(tuple(held[i : i + _FIELDS]) for i in range(0, len(held), _FIELDS))
        due = [row for row in rows if row[0] + self._hold_us <= at_us]
        self._held.replace(key, [number for row in rows[len(due) :] for number in row])
        count = self._counts.held.get(key, 0)
        if due:
            self._counts.set(key, count + len(due))
        return [Record(key, row[1], row[0], count + n, row[3]) for n, row in enumerate(due, 1)]


class WatermarkTag(TimedOperator):
    """Writes the current watermark into each record's value. Recovery from unaligned checkpoints gets it wrong (RC-9).

    With ``stores_watermark`` it keeps the watermark of each key group in union state and restores it.
    """

    def __init__(self, spec: VertexSpec, subtask: int) -> None:
        super().__init__(spec, subtask)
        self._is_stored = spec.stores_watermark

    def process(self, record: Record) -> list[Record]:
        """Return the record with the watermark as its value; -1 before the first watermark."""
        return [Record(record.key, record.origin, record.event_time_us, self.watermark_us, record.size_bytes)]

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        """Return the watermark of each key group, if the operator stores it."""
        if not self._is_stored:
            return super().snapshot(checkpoint_id)
        entries = tuple(_GROUP_WATERMARK.pack(group, self.watermark_us) for group in self.states.groups)
        return OperatorSnapshot(states=(OperatorState(_WATERMARKS, StateMode.UNION, entries),))

    def restore(self, snapshot: OperatorSnapshot, checkpoint_id: int) -> None:
        """Restore the lowest stored watermark of this subtask's key groups."""
        entries = (_GROUP_WATERMARK.unpack(entry) for entry in snapshot.entries(_WATERMARKS))
        self.watermark_us = min((at_us for group, at_us in entries if group in self.states.groups), default=-1)

    @property
    def state_bytes(self) -> int:
        """Bytes of one entry per key group, if the watermark is stored."""
        return _GROUP_WATERMARK.size * len(self.states.groups) if self._is_stored else 0
