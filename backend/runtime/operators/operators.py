"""Map and keyed operators, and the chain of operators of a vertex.

An operator reads the key, time and value of a record. It passes the record's origin on but never bases a decision on it
(DET-10). A snapshot consists of bytes, and ``restore`` reads them back, so nothing of a failed attempt survives in
memory. The keyed state may have a backend that takes its snapshots (ST-3).

Sources are in ``sources.py``, sinks in ``sinks.py``, operators that use event time in ``timed_operators.py``, and those
with broadcast or union state in ``operator_state.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from backend.runtime.core.elements import Record
from backend.runtime.core.prng import mix64
from backend.runtime.core.provenance import Provenance
from backend.runtime.job.graph import VertexKind, VertexSpec
from backend.runtime.operators.operator_state import BroadcastRules, UnionNumbers
from backend.runtime.operators.sinks import Bulk, TransactionalSink, pass_on, sink_of
from backend.runtime.operators.sources import Source
from backend.runtime.operators.state import NO_STATE, KeyedBackend, KeyedStates, OperatorSnapshot
from backend.runtime.operators.storage import TransactionLedger
from backend.runtime.operators.timed_operators import TimerBuffer, WatermarkTag, Window


class Operator(Protocol):
    """One operator of a chain."""

    def process(self, record: Record) -> list[Record]:
        """Process one record, and return the output records."""
        ...

    def in_bulk(self) -> Bulk | None:
        """Return a function that processes many records as ``process`` would one by one, or None if there is none.

        The function exists only if each input record gives at most one output record, of the same key and size, and if
        the effects are not visible outside the operator before the next snapshot.
        """
        ...

    def flush(self) -> list[Record]:
        """Release and return the records that the operator holds back but does not keep in its state (TE-2)."""
        ...

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        """Return the operator's state for a checkpoint."""
        ...

    def restore(self, snapshot: OperatorSnapshot, checkpoint_id: int) -> None:
        """Restore the state of a newly created operator from a snapshot."""
        ...

    def complete(self, checkpoint_id: int) -> None:
        """Handle the completion of a checkpoint (CO-7), for example by committing a transaction."""
        ...

    @property
    def state_bytes(self) -> int:
        """Size of the state in bytes, as the store counts it."""
        ...


class Map:
    """Emits ``fan_out`` copies of each record, optionally in bundles.

    If ``fan_out`` is not a whole number, a hash of the record's origin decides between the two nearest whole numbers,
    so that ``fan_out`` is the mean. The decision is the same in every attempt.

    A bundle is not part of the state. It is emitted when it is full, and before each watermark and barrier (TE-2).
    """

    def __init__(self, spec: VertexSpec, vertex: int = 0) -> None:
        self._fan_out = int(spec.fan_out)
        self._more_below = int((spec.fan_out - self._fan_out) * (1 << 64))
        self._salt = mix64(~vertex)
        self._output_bytes = spec.output_bytes
        self._bundle_size = spec.bundle
        self._bundle: list[Record] = []

    def process(self, record: Record) -> list[Record]:
        """Return the copies of the record. With bundles, return the bundle if it is now full, otherwise nothing."""
        count = self._fan_out
        if self._more_below and mix64(record.origin ^ self._salt) < self._more_below:
            count += 1
        if self._output_bytes and count:
            record = Record(record.key, record.origin, record.event_time_us, record.value, self._output_bytes)
        out = [record] * count
        if not self._bundle_size:
            return out
        self._bundle += out
        return self.flush() if len(self._bundle) >= self._bundle_size else []

    def in_bulk(self) -> Bulk | None:
        """Return ``pass_on`` if the map neither copies records nor bundles them."""
        is_plain = self._fan_out == 1 and not self._more_below and not self._output_bytes
        return pass_on if is_plain and not self._bundle_size else None

    def flush(self) -> list[Record]:
        """Return the records in the bundle, and begin a new one."""
        held, self._bundle = self._bundle, []
        return held

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        """Return an empty state, because a map has no state."""
        return NO_STATE

    def restore(self, snapshot: OperatorSnapshot, checkpoint_id: int) -> None:
        """Do nothing, because a map has no state."""

    def complete(self, checkpoint_id: int) -> None:
        """Do nothing, because a map commits nothing."""

    @property
    def state_bytes(self) -> int:
        """Always 0, because a map has no state."""
        return 0


class Keyed:
    """Counts the records of each key, and writes the count into each record to make losses and duplicates visible."""

    def __init__(self, spec: VertexSpec, subtask: int, backend: KeyedBackend | None = None) -> None:
        self._states = KeyedStates(
            subtask=subtask,
            parallelism=spec.parallelism,
            max_parallelism=spec.effective_max_parallelism,
            backend=backend,
        )
        self._value = self._states.value(spec.state_value_bytes)
        self.counts = self._value.held

    def process(self, record: Record) -> list[Record]:
        """Count the record, and return it with a new value, which is the count of its key."""
        key = record.key
        count = self.counts.get(key)
        if count is None:
            self._value.set(key, 1)
            count = 0
        else:
            self.counts[key] = count + 1
        return [Record(key, record.origin, record.event_time_us, count + 1, record.size_bytes)]

    def in_bulk(self) -> Bulk | None:
        """Return ``_process_all``: processing in bulk is possible, because the counts are not visible outside."""
        return self._process_all

    def count(self, records: list[Record]) -> list[int]:
        """Count records by key. Return, for each record, the count of its key up to and including this record."""
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
        """Restore the counts from a snapshot."""
        self._states.restore(snapshot.keyed)

    def complete(self, checkpoint_id: int) -> None:
        """Do nothing, because a keyed operator commits nothing."""

    @property
    def state_bytes(self) -> int:
        """Size of all keys and counts, plus the declared size of the rest of each value, in bytes."""
        return self._value.size_bytes


def in_bulk(operators: tuple[Operator, ...]) -> tuple[Bulk, ...] | None:
    """Return the bulk functions of a chain of operators, in order, or None if an operator has none."""
    match operators:
        case (Keyed() as keyed, TransactionalSink() as sink):
            # This avoids creating records that the sink would only take apart again.
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
    backend: KeyedBackend | None = None,
) -> tuple[Operator, ...]:
    """Return the chain of operators of one subtask, first to last.

    ``backend`` takes the snapshots of the keyed state. Without it, each snapshot contains the whole state.
    """
    operators: list[Operator] = [_first(spec, subtask, backend, vertex=vertex, seed=seed, provenance=provenance)]
    if spec.kind.has_sink:
        operators.append(sink_of(spec, subtask, attempt=attempt, ledger=ledger))
    return tuple(operators)


def _first(
    spec: VertexSpec, subtask: int, backend: KeyedBackend | None, *, vertex: int, seed: int, provenance: Provenance
) -> Operator:
    match spec.kind:
        case VertexKind.SOURCE:
            return Source(spec, subtask, seed=seed, vertex=vertex)
        case VertexKind.KEYED | VertexKind.KEYED_SINK:
            return Keyed(spec, subtask, backend)
        case VertexKind.WINDOW | VertexKind.WINDOW_SINK:
            return Window(spec, subtask, provenance, backend)
        case VertexKind.TIMER | VertexKind.TIMER_SINK:
            return TimerBuffer(spec, subtask, backend)
        case VertexKind.TAG | VertexKind.TAG_SINK:
            return WatermarkTag(spec, subtask, backend)
        case VertexKind.BROADCAST | VertexKind.BROADCAST_SINK:
            return BroadcastRules()
        case VertexKind.UNION | VertexKind.UNION_SINK:
            return UnionNumbers(spec, subtask)
        case VertexKind.MAP | VertexKind.MAP_SINK | VertexKind.SINK:
            return Map(spec, vertex)


def factor_of(factors: Mapping[int, float], subtask: int) -> float:
    """Return the factor of one subtask, or 1 if no factor is set for it."""
    return factors.get(subtask, 1.0)
