"""Operators that use event time: windows, timers, and one that writes watermarks into records (runtime.md 1.6, 1.7).

All of them keep their state by key group. The task sets an operator's watermark and fires its timers. The watermark is
not restored, except for an operator that stores it in its own state (WM-3, RC-9).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from backend.runtime.core.elements import Record
from backend.runtime.core.provenance import NOTHING, Provenance
from backend.runtime.job.graph import Aggregate, VertexSpec
from backend.runtime.operators.sinks import Bulk
from backend.runtime.operators.state import KeyedBackend, KeyedStates, OperatorSnapshot, OperatorState, StateMode

_FIELDS = 4
_GROUP_WATERMARK = struct.Struct("<qq")
_WATERMARKS = "watermarks"
_REDUCE: Mapping[Aggregate, Callable[[int, int], int]] = {
    Aggregate.COUNT: lambda a, b: a + b,
    Aggregate.SUM: lambda a, b: a + b,
    Aggregate.MAX: max,
}


class TimedOperator:
    """The base class of operators that use event time. ``watermark_us`` is -1 before the first watermark."""

    def __init__(self, spec: VertexSpec, subtask: int, backend: KeyedBackend | None = None) -> None:
        self.states = KeyedStates(
            subtask=subtask,
            parallelism=spec.parallelism,
            max_parallelism=spec.effective_max_parallelism,
            backend=backend,
        )
        self.timers = self.states.timers()
        self.watermark_us = -1
        self.late_count = 0
        """The number of records that were dropped because their window had already fired (INV-15)."""

    def process(self, record: Record) -> list[Record]:
        """Process one record, and return the records that the operator emits immediately."""
        raise NotImplementedError

    def in_bulk(self) -> Bulk | None:
        """Return None: bulk processing is not possible, because one record may produce several output records."""
        return None

    def fire(self, at_us: int, key: int) -> list[Record]:
        """Fire one timer, and return the records that it emits."""
        raise NotImplementedError

    def flush(self) -> list[Record]:
        """Return an empty list, because records that the operator holds back are part of its state."""
        return []

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        """Return the keyed state, which includes the timers."""
        return OperatorSnapshot(keyed=self.states.snapshot())

    def restore(self, snapshot: OperatorSnapshot, checkpoint_id: int) -> None:
        """Restore keyed state and timers. A restored timer fires at the next watermark that reaches its time (RC-7)."""
        self.states.restore(snapshot.keyed)

    def complete(self, checkpoint_id: int) -> None:
        """Do nothing, because there is nothing to commit."""

    @property
    def state_bytes(self) -> int:
        """The size of keyed state and timers in bytes."""
        return self.states.size_bytes


class Window(TimedOperator):
    """Tumbling windows. A window emits one record per key once the watermark reaches its last microsecond.

    A record is late, and is dropped, if the watermark has already reached the end of its window.
    """

    def __init__(
        self, spec: VertexSpec, subtask: int, provenance: Provenance, backend: KeyedBackend | None = None
    ) -> None:
        super().__init__(spec, subtask, backend)
        self._window_us = spec.window_us
        self._counts_records = spec.aggregate is Aggregate.COUNT
        self._size = spec.record_bytes
        self._results = self.states.reducing(_REDUCE[spec.aggregate])
        self._nodes = self.states.map()
        self._provenance = provenance

    def process(self, record: Record) -> list[Record]:
        """Add the record to the aggregate of its window, or drop the record if it is late."""
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
        """Return the window's result as one record. Its event time is the last microsecond of the window."""
        result, node = self._results.pop(key, at_us), self._nodes.pop(key, at_us)
        assert result is not None
        assert node is not None
        return [Record(key, node, at_us, result, self._size)]


class TimerBuffer(TimedOperator):
    """Holds each record until the watermark reaches its event time plus ``hold``. Emits in order of event time.

    The output records of each key are numbered, so that losses and duplicates are visible downstream.
    """

    def __init__(self, spec: VertexSpec, subtask: int, backend: KeyedBackend | None = None) -> None:
        super().__init__(spec, subtask, backend)
        self._hold_us = spec.hold_us
        self._held = self.states.list()
        self._counts = self.states.value(spec.state_value_bytes)

    def process(self, record: Record) -> list[Record]:
        """Store the record, and register its timer."""
        self._held.extend(record.key, (record.event_time_us, record.origin, record.value, record.size_bytes))
        self.timers.register(record.event_time_us + self._hold_us, record.key)
        return []

    def fire(self, at_us: int, key: int) -> list[Record]:
        """Return the records of ``key`` that are due at ``at_us``. Their values are consecutive numbers."""
        held = self._held.held.get(key, [])
        rows = sorted(tuple(held[i : i + _FIELDS]) for i in range(0, len(held), _FIELDS))
        due = [row for row in rows if row[0] + self._hold_us <= at_us]
        self._held.replace(key, [number for row in rows[len(due) :] for number in row])
        count = self._counts.held.get(key, 0)
        if due:
            self._counts.set(key, count + len(due))
        return [Record(key, row[1], row[0], count + n, row[3]) for n, row in enumerate(due, 1)]


class WatermarkTag(TimedOperator):
    """Writes the current watermark into the value of each record.

    After recovery from an unaligned checkpoint, the values of in-flight records are wrong, because the watermark is not
    restored (RC-9). With ``stores_watermark``, the operator keeps the watermark of each key group in union state and
    restores it.
    """

    def __init__(self, spec: VertexSpec, subtask: int, backend: KeyedBackend | None = None) -> None:
        super().__init__(spec, subtask, backend)
        self._is_stored = spec.stores_watermark

    def process(self, record: Record) -> list[Record]:
        """Return the record with the current watermark as its value, which is -1 before the first watermark."""
        return [Record(record.key, record.origin, record.event_time_us, self.watermark_us, record.size_bytes)]

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        """Return the watermark of each key group if the operator stores it, otherwise only the keyed state."""
        if not self._is_stored:
            return super().snapshot(checkpoint_id)
        entries = tuple(_GROUP_WATERMARK.pack(group, self.watermark_us) for group in self.states.groups)
        return OperatorSnapshot(states=(OperatorState(_WATERMARKS, StateMode.UNION, entries),))

    def restore(self, snapshot: OperatorSnapshot, checkpoint_id: int) -> None:
        """Restore the watermark: the lowest of those stored for this subtask's key groups."""
        entries = (_GROUP_WATERMARK.unpack(entry) for entry in snapshot.entries(_WATERMARKS))
        self.watermark_us = min((at_us for group, at_us in entries if group in self.states.groups), default=-1)

    @property
    def state_bytes(self) -> int:
        """The size of the stored watermarks, one per key group; 0 if the operator does not store the watermark."""
        return _GROUP_WATERMARK.size * len(self.states.groups) if self._is_stored else 0
