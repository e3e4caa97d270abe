"""The sinks: transactional, idempotent by key, and plain append (SNK-1 to SNK-6).

The external system is a ``TransactionLedger``.

Only the transactional one shows an output once and only once; the idempotent one shows the same content in the end,
whatever was written twice on the way; the plain one loses nothing and may double.

Invariant: what is committed is of a checkpoint that is complete (INV-14), and shows once (INV-5).
"""

from __future__ import annotations

from collections.abc import Callable

from backend.runtime.core.elements import Record
from backend.runtime.job.graph import SinkKind, VertexSpec
from backend.runtime.operators.state import NO_STATE, OperatorSnapshot, OperatorState, StateMode
from backend.runtime.operators.storage import TransactionLedger

_STATE = "transactions"

Bulk = Callable[[list[Record]], list[Record]]
"""What comes out of records one after the other."""


def pass_on(records: list[Record]) -> list[Record]:
    """The bulk of an operator that does nothing to them."""
    return records


class TransactionalSink:
    """Writes into a transaction of an external ledger; commits once a checkpoint with it is complete (SNK-1 to 5)."""

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
        """Into the open transaction."""
        self._ledger.write(self._open, record)
        return []

    def in_bulk(self) -> Bulk | None:
        """Nobody sees what is in the open transaction."""
        return self.write_all

    def write_all(self, records: list[Record], values: list[int] | None = None) -> list[Record]:
        """The same as one by one; ``values`` in the place of the records' own."""
        self._ledger.write_all(self._open, records, values)
        return []

    def flush(self) -> list[Record]:
        """It holds no record back."""
        return []

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        """Flush, pre-commit, remember under the checkpoint, open the next (SNK-1)."""
        self._ledger.prepare(self._open)
        self._prepared[checkpoint_id] = [self._open]
        self._open = self._begin()
        uncommitted = tuple(t.encode() for ids in self._prepared.values() for t in ids)
        # All subtasks read all of them: each settles its own share, also of a parallelism that was (SNK-3).
        return OperatorSnapshot(states=(OperatorState(_STATE, StateMode.UNION, uncommitted),))

    def restore(self, snapshot: OperatorSnapshot, checkpoint_id: int) -> None:
        """Commit what the checkpoint holds, abort every other transaction of this subtask's share (SNK-3)."""
        held = [entry.decode() for entry in snapshot.entries(_STATE)]
        for transaction in held:
            if self._is_own(transaction):
                self._ledger.commit(transaction)
        keep = {self._open, *held}
        for transaction in self._ledger.open_of(self._vertex):
            # Of the attempts before: what another subtask of this attempt has just opened is its own.
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
        """The job stopped in order: nothing is in the transaction that was opened last."""
        self._ledger.abort(self._open)

    @property
    def state_bytes(self) -> int:
        """One line a transaction not yet committed."""
        return 40 * (1 + sum(map(len, self._prepared.values())))

    def _is_own(self, transaction: str) -> bool:
        """Whether a transaction, of whatever parallelism, is this subtask's to settle."""
        return int(transaction.split("/")[-3]) % self._parallelism == self._subtask

    def _begin(self) -> str:
        self._opened += 1
        transaction = f"{self._vertex}/{self._subtask}/{self._attempt}/{self._opened}"
        self._ledger.begin(transaction)
        return transaction


class IdempotentSink:
    """Writes each record at once, under its key: a record written again changes nothing in the end (SNK-6)."""

    def __init__(self, ledger: TransactionLedger) -> None:
        self._ledger = ledger

    def process(self, record: Record) -> list[Record]:
        """Put the key's value."""
        self._ledger.put(record)
        return []

    def in_bulk(self) -> Bulk | None:
        """What it writes is visible at once."""
        return None

    def flush(self) -> list[Record]:
        """It holds no record back."""
        return []

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        """Everything is written already."""
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
    """Appends each record at once: at least once, since what follows the restored checkpoint comes again (SNK-6)."""

    def process(self, record: Record) -> list[Record]:
        """One more row."""
        self._ledger.append(record)
        return []


Sink = TransactionalSink | IdempotentSink


def sink_of(spec: VertexSpec, subtask: int, *, attempt: int, ledger: TransactionLedger) -> Sink:
    """The sink that a vertex asks for."""
    if spec.sink is SinkKind.IDEMPOTENT:
        return IdempotentSink(ledger)
    if spec.sink is SinkKind.APPEND:
        return AppendSink(ledger)
    return TransactionalSink(ledger, vertex=spec.id, subtask=subtask, parallelism=spec.parallelism, attempt=attempt)
