"""Map and keyed operators, and the chain of operators of a vertex.

An operator reads key, time and value of a record and passes its origin on; it never decides by the origin (DET-10).
A snapshot consists of bytes, and ``restore`` reads them back, so nothing of a failed attempt survives in memory. Every
snapshot is full (ST-3): it contains the whole state.

Sources are in ``sources.py``, sinks in ``sinks.py``, and operators that use event time in ``timed_operators.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from backend.runtime.core.elements import Record
from backend.runtime.core.provenance import Provenance
from backend.runtime.job.graph import VertexKind, VertexSpec
from backend.runtime.operators.sinks import Bulk, TransactionalSink, pass_on, sink_of
from backend.runtime.operators.sources import Source
from backend.runtime.operators.state import NO_STATE, KeyedStates, OperatorSnapshot
from backend.runtime.operators.storage import TransactionLedger
from backend.runtime.operators.timed_operators import TimerBuffer, WatermarkTag, Window


class Operator(Protocol):
    """One operator of a chain."""

    def process(self, record: Record) -> list[Record]:
        """Process one record, and return the output records."""
        ...

    def in_bulk(self) -> Bulk | None:
        """Return a function that processes many records as ``process`` would one by one, or None.

        It exists only if each input gives at most one output, of the same key and size, and the effects are not visible
        outside the operator before the next snapshot.
        """
        ...

    def flush(self) -> list[Record]:
        """Release and return the records that the operator holds back without keeping them as state (TE-2)."""
        ...

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        """Return the operator's state for a checkpoint."""
        ...

    def restore(self, snapshot: OperatorSnapshot, checkpoint_id: int) -> None:
        """Restore the state of a new operator."""
        ...

    def complete(self, checkpoint_id: int) -> None:
        """Called when a checkpoint is complete (CO-7)."""
        ...

    @property
    def state_bytes(self) -> int:
        """Size of the state in bytes, as the store counts it."""
        ...


class Map:
    """Passes each record on ``fan_out`` times, optionally in bundles.

    A bundle is not state. It is emitted when it is full, and before a watermark or a barrier (TE-2).
    """

    def __init__(self, spec: VertexSpec) -> None:
        self._fan_out = spec.fan_out
        self._bundle_size = spec.bundle
        self._bundle: list[Record] = []

    def process(self, record: Record) -> list[Record]:
        """Return the copies of the record, or the bundle if they fill it, or nothing."""
        out = [record] if self._fan_out == 1 else [record] * self._fan_out
        if not self._bundle_size:
            return out
        self._bundle += out
        return self.flush() if len(self._bundle) >= self._bundle_size else []

    def in_bulk(self) -> Bulk | None:
        """Return ``pass_on`` if the map neither copies records nor bundles them."""
        return pass_on if self._fan_out == 1 and not self._bundle_size else None

    def flush(self) -> list[Record]:
        """Return the records in the bundle, and begin a new one."""
        held, self._bundle = self._bundle, []
        return held

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        """No state."""
        return NO_STATE

    def restore(self, snapshot: OperatorSnapshot, checkpoint_id: int) -> None:
        """No state."""

    def complete(self, checkpoint_id: int) -> None:
        """Nothing to commit."""

    @property
    def state_bytes(self) -> int:
        """No state."""
        return 0


class Keyed:
    """Counts the records of each key and writes the count into the record, so losses and duplicates show downstream."""

    def __init__(self, spec: VertexSpec, subtask: int) -> None:
        self._states = KeyedStates(
            subtask=subtask, parallelism=spec.parallelism, max_parallelism=spec.effective_max_parallelism
        )
        self._value = self._states.value(spec.state_value_bytes)
        self.counts = self._value.held

    def process(self, record: Record) -> list[Record]:
        """Return the record with its key's count as its value."""
        key = record.key
        count = self.counts.get(key)
        if count is None:
            self._value.set(key, 1)
            count = 0
        else:
            self.counts[key] = count + 1
        return [Record(key, record.origin, record.event_time_us, count + 1, record.size_bytes)]

    def in_bulk(self) -> Bulk | None:
        """Bulk processing is possible because the counts are not visible outside."""
        return self._process_all

    def count(self, records: list[Record]) -> list[int]:
        """Count records. Return for each the count of its key, including the record."""
        counts, found = self.counts, []
        for record in records:
            key = record.key
            count = counts.get(key, 0) + 1
            if count == 1:
                self._value.set(key, 1)
            else:
                counts[key] = count
            found.append(count)
        return found

    def _process_all(self, records: list[Record]) -> list[Record]:
        return [
            Record(r.key, r.origin, r.event_time_us, count, r.size_bytes)
            for r, count in zip(records, self.count(records), strict=True)
        ]

    def flush(self) -> list[Record]:
        """Return nothing: the operator holds no records back."""
        return []

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        """Return the counts by key group."""
        return OperatorSnapshot(keyed=self._states.snapshot())

    def restore(self, snapshot: OperatorSnapshot, checkpoint_id: int) -> None:
        """Restore the counts."""
        self._states.restore(snapshot.keyed)

    def complete(self, checkpoint_id: int) -> None:
        """Nothing to commit."""

    @property
    def state_bytes(self) -> int:
        """Bytes of all keys and counts, and the declared size of the rest of each value."""
        return self._value.size_bytes


def in_bulk(operators: tuple[Operator, ...]) -> tuple[Bulk, ...] | None:
    """Return the bulk functions of a chain, in order; None if an operator has none."""
    match operators:
        case (Keyed() as keyed, TransactionalSink() as sink):
            # This avoids creating records that the sink would take apart again.
            return (lambda records: sink.write_all(records, keyed.count(records)),)
        case _:
            bulks = [operator.in_bulk() for operator in operators]
            return None if None in bulks else tuple(bulk for bulk in bulks if bulk is not None)


def chain_of(
    spec: VertexSpec,
    subtask: int,
    *,
    vertex: int,
    seed: int,
    attempt: int,
    ledger: TransactionLedger,
    provenance: Provenance,
) -> tuple[Operator, ...]:
    """Return the operators of one subtask, first to last."""
    operators: list[Operator] = [_first(spec, subtask, vertex=vertex, seed=seed, provenance=provenance)]
    if spec.kind.has_sink:
        operators.append(sink_of(spec, subtask, attempt=attempt, ledger=ledger))
    return tuple(operators)


def _first(spec: VertexSpec, subtask: int, *, vertex: int, seed: int, provenance: Provenance) -> Operator:
    match spec.kind:
        case VertexKind.SOURCE:
            return Source(spec, subtask, seed=seed, vertex=vertex)
        case VertexKind.KEYED | VertexKind.KEYED_SINK:
            return Keyed(spec, subtask)
        case VertexKind.WINDOW | VertexKind.WINDOW_SINK:
            return Window(spec, subtask, provenance)
        case VertexKind.TIMER | VertexKind.TIMER_SINK:
            return TimerBuffer(spec, subtask)
        case VertexKind.TAG | VertexKind.TAG_SINK:
            return WatermarkTag(spec, subtask)
        case VertexKind.MAP | VertexKind.MAP_SINK | VertexKind.SINK:
            return Map(spec)


def factor_of(factors: Mapping[int, float], subtask: int) -> float:
    """Return the factor of one subtask; 1 if none is set."""
    return factors.get(subtask, 1.0)
