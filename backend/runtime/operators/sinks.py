"""The sinks: transactional, idempotent by key, and plain append (SNK-1 to SNK-6).

Sinks write to an external system, a ``TransactionLedger``. The transactional sink makes each output visible exactly
once. The idempotent sink may write an output twice, which does not change the final content. The append sink loses no
output but may write an output twice.

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
"""A function that processes records in order, and returns the output records."""


def pass_on(records: list[Record]) -> list[Record]:
    """Return the records unchanged. This is the bulk function of operators that emit each input record as it is."""
    return records


def held_transactions(snapshot: OperatorSnapshot) -> list[str]:
    """Return the names of the transactions that a restore of this snapshot of a sink commits."""
    return [entry.decode() for entry in snapshot.entries(_STATE)]


class TransactionalSink:
    """Writes into a ledger transaction, and commits it once its checkpoint is complete (SNK-1 to SNK-5)."""

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
        """Return the method that writes many records at once, which nobody outside sees before the commit."""
        return self.write_all

    def write_all(self, records: list[Record], values: list[int] | None = None) -> list[Record]:
        """Write all records into the open transaction. If ``values`` is set, it replaces the values of the records."""
        self._ledger.write_all(self._open, records, values)
        return []

    def flush(self) -> list[Record]:
        """Return an empty list, because the sink writes every record immediately."""
        return []

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        """Pre-commit the open transaction for this checkpoint, and begin the next transaction (SNK-1).

        Return the names of all transactions that are not committed yet.
        """
        self._ledger.prepare(self._open)
        self._prepared[checkpoint_id] = [self._open]
        self._open = self._begin()
        uncommitted = tuple(t.encode() for ids in self._prepared.values() for t in ids)
        # The entries are in union mode: after a restore, each subtask reads all transactions, and commits or aborts
        # its share at any parallelism (SNK-3).
        return OperatorSnapshot(states=(OperatorState(_STATE, StateMode.UNION, uncommitted),))

    def restore(self, snapshot: OperatorSnapshot, checkpoint_id: int) -> None:
        """Commit this subtask's share of the stored transactions, and abort its share of older open ones (SNK-3)."""
        held = held_transactions(snapshot)
        for transaction in held:
            if self._is_own(transaction):
                self._ledger.commit(transaction)
        keep = {self._open, *held}
        for transaction in self._ledger.open_of(self._vertex):
            # Abort transactions of earlier attempts only: other subtasks of this attempt may already have begun
            # theirs.
            is_older = int(transaction.split("/")[-2]) < self._attempt
            if is_older and transaction not in keep and self._is_own(transaction):
                self._ledger.abort(transaction)

    def complete(self, checkpoint_id: int) -> None:
        """Commit every transaction that was pre-committed for this or an earlier checkpoint, in order (SNK-2)."""
        for remembered in sorted(k for k in self._prepared if k <= checkpoint_id):
            for transaction in self._prepared[remembered]:
                self._ledger.commit(transaction)
            del self._prepared[remembered]

    def close(self) -> None:
        """Abort the open transaction, which is empty after an orderly stop of the job."""
        self._ledger.abort(self._open)

    @property
    def state_bytes(self) -> int:
        """The state's size: 40 bytes for each transaction that is not committed yet."""
        return 40 * (1 + sum(map(len, self._prepared.values())))

    def _is_own(self, transaction: str) -> bool:
        """Return whether this subtask commits or aborts a transaction after a restore.

        The subtask number in the transaction's name may exceed the present parallelism, so it is taken modulo the
        parallelism.
        """
        return int(transaction.split("/")[-3]) % self._parallelism == self._subtask

    def _begin(self) -> str:
        self._opened += 1
        transaction = f"{self._vertex}/{self._subtask}/{self._attempt}/{self._opened}"
        self._ledger.begin(transaction)
        return transaction


class IdempotentSink:
    """Writes each record immediately under its key, so that a repeated record has no effect in the end (SNK-6)."""

    def __init__(self, ledger: TransactionLedger) -> None:
        self._ledger = ledger

    def process(self, record: Record) -> list[Record]:
        """Write the record's value under its key."""
        self._ledger.put(record)
        return []

    def in_bulk(self) -> Bulk | None:
        """Return None: bulk writes are not possible, because each write is visible immediately."""
        return None

    def flush(self) -> list[Record]:
        """Return an empty list, because the sink writes every record immediately."""
        return []

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        """Return no state: every record is already in the external system."""
        return NO_STATE

    def restore(self, snapshot: OperatorSnapshot, checkpoint_id: int) -> None:
        """Do nothing, because this sink has no state."""

    def complete(self, checkpoint_id: int) -> None:
        """Do nothing, because this sink has nothing to commit."""

    @property
    def state_bytes(self) -> int:
        """The size of the state: 0, because this sink has none."""
        return 0


class AppendSink(IdempotentSink):
    """Appends each record immediately. Records after a checkpoint are appended again after its restore (SNK-6)."""

    def process(self, record: Record) -> list[Record]:
        """Append the record as a row."""
        self._ledger.append(record)
        return []


Sink = TransactionalSink | IdempotentSink


def sink_of(spec: VertexSpec, subtask: int, *, attempt: int, ledger: TransactionLedger) -> Sink:
    """Return one subtask's sink, of the kind that the vertex declares."""
    if spec.sink is SinkKind.IDEMPOTENT:
        return IdempotentSink(ledger)
    if spec.sink is SinkKind.APPEND:
        return AppendSink(ledger)
    return TransactionalSink(ledger, vertex=spec.id, subtask=subtask, parallelism=spec.parallelism, attempt=attempt)
