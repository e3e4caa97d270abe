"""The sinks: transactional, idempotent by key, and plain append (SNK-1 to SNK-6).

They write to an external system, a ``TransactionLedger``. The transactional sink makes each output visible exactly
once. The idempotent sink may write an output twice, which does not change the final content. The append sink loses no
output but may repeat it.

Invariant: a committed transaction belongs to a completed checkpoint (INV-14), and its output is visible once (INV-5).
"""

from __future__ import annotations

from collections.abc import Callable

from backend.runtime.core.elements import Record
from backend.runtime.job.graph import SinkKind, VertexSpec
from backend.runtime.operators.state import NO_STATE, OperatorSnapshot, OperatorState, StateMode
from backend.runtime.operators.storage import TransactionLedger

_STATE = "transactions"

Bulk = Callable[[list[Record]], list[Record]]
"""Processes records in order, and returns the output records."""


def pass_on(records: list[Record]) -> list[Record]:
    """Return the records unchanged: the bulk function of an operator that passes them on."""
    return records


class TransactionalSink:
    """Writes into a transaction of an external ledger; commits it after its checkpoint completed (SNK-1 to SNK-5)."""

    def __init__(self, ledger: TransactionLedger, *, vertex: str, subtask: int, parallelism: int, attempt: int) -> None:
        self._ledger = ledger
        self._vertex = vertex
        self._subtask = subtask
        self._parallelism = parallelism
        self._attempt = attempt
        self._opened = 0
        self._open = self._begin()
        self._prepared: dict[int, list[str]] = {}

    def process(self, record: Record) -> list[Record]:
        """Write the record into the open transaction."""
        self._ledger.write(self._open, record)
        return []

    def in_bulk(self) -> Bulk | None:
        """Bulk processing is possible because an open transaction is not visible outside."""
        return self.write_all

    def write_all(self, records: list[Record], values: list[int] | None = None) -> list[Record]:
        """Write all records, with ``values`` in place of their own if given."""
        self._ledger.write_all(self._open, records, values)
        return []

    def flush(self) -> list[Record]:
        """Return nothing: the sink holds no records back."""
        return []

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        """Pre-commit the open transaction, remember it under the checkpoint, and open the next one (SNK-1)."""
        self._ledger.prepare(self._open)
        self._prepared[checkpoint_id] = [self._open]
        self._open = self._begin()
        uncommitted = tuple(t.encode() for ids in self._prepared.values() for t in ids)
        # After a restore, each subtask reads all of them and settles its share, at any parallelism (SNK-3).
        return OperatorSnapshot(states=(OperatorState(_STATE, StateMode.UNION, uncommitted),))

    def restore(self, snapshot: OperatorSnapshot, checkpoint_id: int) -> None:
        """Commit this subtask's share of the transactions in the checkpoint, and abort its other old ones (SNK-3)."""
        held = [entry.decode() for entry in snapshot.entries(_STATE)]
        for transaction in held:
            if self._is_own(transaction):
                self._ledger.commit(transaction)
        keep = {self._open, *held}
        for transaction in self._ledger.open_of(self._vertex):
            # Only those of earlier attempts: other subtasks of this attempt may have opened theirs already.
            is_older = int(transaction.split("/")[-2]) < self._attempt
            if is_older and transaction not in keep and self._is_own(transaction):
                self._ledger.abort(transaction)

    def complete(self, checkpoint_id: int) -> None:
        """Commit every transaction remembered under this or an earlier checkpoint, in order (SNK-2)."""
        for remembered in sorted(k for k in self._prepared if k <= checkpoint_id):
            for transaction in self._prepared[remembered]:
                self._ledger.commit(transaction)
            del self._prepared[remembered]

    def close(self) -> None:
        """Abort the open transaction, which is empty after an orderly stop of the job."""
        self._ledger.abort(self._open)

    @property
    def state_bytes(self) -> int:
        """40 bytes for each transaction that is not committed yet."""
        return 40 * (1 + sum(map(len, self._prepared.values())))

    def _is_own(self, transaction: str) -> bool:
        """Return whether this subtask settles a transaction. Its subtask may come from another parallelism."""
        return int(transaction.split("/")[-3]) % self._parallelism == self._subtask

    def _begin(self) -> str:
        self._opened += 1
        transaction = f"{self._vertex}/{self._subtask}/{self._attempt}/{self._opened}"
        self._ledger.begin(transaction)
        return transaction


class IdempotentSink:
    """Writes each record at once under its key, so that a repeated record has no effect in the end (SNK-6)."""

    def __init__(self, ledger: TransactionLedger) -> None:
        self._ledger = ledger

    def process(self, record: Record) -> list[Record]:
        """Write the key's value."""
        self._ledger.put(record)
        return []

    def in_bulk(self) -> Bulk | None:
        """Return None, because each write is visible at once."""
        return None

    def flush(self) -> list[Record]:
        """Return nothing: the sink holds no records back."""
        return []

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        """Return no state, because everything is written already."""
        return NO_STATE

    def restore(self, snapshot: OperatorSnapshot, checkpoint_id: int) -> None:
        """No state."""

    def complete(self, checkpoint_id: int) -> None:
        """Nothing to commit."""

    @property
    def state_bytes(self) -> int:
        """No state."""
        return 0


class AppendSink(IdempotentSink):
    """Appends each record at once. Records that follow the restored checkpoint are appended again (SNK-6)."""

    def process(self, record: Record) -> list[Record]:
        """Append a row."""
        self._ledger.append(record)
        return []


Sink = TransactionalSink | IdempotentSink


def sink_of(spec: VertexSpec, subtask: int, *, attempt: int, ledger: TransactionLedger) -> Sink:
    """Return the sink of a vertex for one subtask."""
    if spec.sink is SinkKind.IDEMPOTENT:
        return IdempotentSink(ledger)
    if spec.sink is SinkKind.APPEND:
        return AppendSink(ledger)
    return TransactionalSink(ledger, vertex=spec.id, subtask=subtask, parallelism=spec.parallelism, attempt=attempt)
