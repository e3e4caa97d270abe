"""Operators whose state is not by key: broadcast state and union list state (ST-2).

Both kinds of state behave in their own way if a vertex has partly finished. A restore takes the broadcast copy of a
subtask that was running (FN-14). A checkpoint with a part of the union state fails (FN-15).
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from backend.runtime.core.elements import Record
from backend.runtime.job.graph import VertexSpec
from backend.runtime.operators.sinks import Bulk
from backend.runtime.operators.state import OperatorSnapshot, OperatorState, StateMode

_PAIR = struct.Struct("<qq")
_RULES = "rules"
_NUMBERS = "numbers"


class _WithOperatorState:
    """The base class: the parts of an operator that both kinds share."""

    def in_bulk(self) -> Bulk | None:
        """Return None: the operators process their records one by one."""
        return None

    def flush(self) -> list[Record]:
        """Return an empty list: the operator holds no records back."""
        return []

    def complete(self, checkpoint_id: int) -> None:
        """Do nothing, because the operator commits nothing."""


class BroadcastRules(_WithOperatorState):
    """Counts the rules of each key in broadcast state, and writes the count into each record of the other inputs.

    A record that arrives over a broadcast edge is a rule. Each subtask gets all rules, so all have the same state at a
    checkpoint. Rules are not passed on.
    """

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.is_rule: Callable[[], bool] = lambda: False
        """Tells whether the present record arrived over a broadcast edge. The task sets it."""

    def process(self, record: Record) -> list[Record]:
        """Count the record if it is a rule. Otherwise return it, with the number of rules of its key as its value."""
        count = self.counts.get(record.key, 0)
        if self.is_rule():
            self.counts[record.key] = count + 1
            return []
        return [Record(record.key, record.origin, record.event_time_us, count, record.size_bytes)]

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        """Return the counts by key, of which each subtask stores a whole copy."""
        entries = tuple(_PAIR.pack(key, count) for key, count in sorted(self.counts.items()))
        return OperatorSnapshot(states=(OperatorState(_RULES, StateMode.BROADCAST, entries),))

    def restore(self, snapshot: OperatorSnapshot, checkpoint_id: int) -> None:
        """Restore the copy that the restore chose for this subtask."""
        self.counts = dict(_PAIR.unpack(entry) for entry in snapshot.entries(_RULES))

    @property
    def state_bytes(self) -> int:
        """The size of the copy: 16 bytes for each key that has rules."""
        return _PAIR.size * len(self.counts)


class UnionNumbers(_WithOperatorState):
    """Numbers its records, and keeps the number of each old subtask in union list state.

    After a restore, each subtask reads the entries of all. It takes those of its share of the old subtasks, so that
    together they take each entry once at any parallelism.
    """

    def __init__(self, spec: VertexSpec, subtask: int) -> None:
        self._subtask = subtask
        self._parallelism = spec.parallelism
        self.count = 0

    def process(self, record: Record) -> list[Record]:
        """Return the record with its number as its value."""
        self.count += 1
        return [Record(record.key, record.origin, record.event_time_us, self.count, record.size_bytes)]

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        """Return one entry: the index of this subtask, and how many records it has numbered."""
        entry = _PAIR.pack(self._subtask, self.count)
        return OperatorSnapshot(states=(OperatorState(_NUMBERS, StateMode.UNION, (entry,)),))

    def restore(self, snapshot: OperatorSnapshot, checkpoint_id: int) -> None:
        """Take this subtask's share of all entries."""
        entries = (_PAIR.unpack(entry) for entry in snapshot.entries(_NUMBERS))
        self.count = sum(count for owner, count in entries if owner % self._parallelism == self._subtask)

    @property
    def state_bytes(self) -> int:
        """The size of the own entry."""
        return _PAIR.size
