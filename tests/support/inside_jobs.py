"""Functions that read or change the internals of a job's ledger and subtasks, for tests only."""

from __future__ import annotations

from backend.runtime.engine.kernel import JobEngine
from backend.runtime.operators.storage import TransactionLedger
from backend.runtime.task.task import Task


def take_over(ledger: TransactionLedger, other: TransactionLedger) -> None:
    """Add the content of ``other`` to ``ledger``, because the external system outlives a run of the job."""
    ledger._open |= {name: held for name, held in other._open.items() if name not in ledger._open}
    ledger._committed = other._committed | ledger._committed
    ledger.rows = [*other.rows, *ledger.rows]
    ledger.table = other.table | ledger.table
    ledger.committed_count += other.committed_count
    ledger.put_count += other.put_count
    ledger.folded = (ledger.folded + other.folded) % (1 << 64)


def give_rows(ledger: TransactionLedger, before: TransactionLedger) -> None:
    """Give a run that continues an earlier one the rows of that one, which a saved checkpoint only counts and hashes.

    Raises:
        AssertionError: what the run took over by number is not what the earlier one had written.
    """
    assert ledger.committed_count == before.committed_count == len(before.rows)
    assert (ledger.put_count, ledger.table) == (before.put_count, before.table)
    ledger.rows = [*before.rows]
    for name, held in ledger._open.items():
        assert (held.count, held.began_us) == (before._open[name].count, before._open[name].began_us), name
        held.rows = [*before._open[name].rows]


def oldest_open_us(ledger: TransactionLedger) -> int | None:
    """Return the virtual time in microseconds at which the oldest open transaction began, or None if none is open."""
    return min((transaction.began_us for transaction in ledger._open.values()), default=None)


def pending_ids(task: Task) -> tuple[int, ...]:
    """Return the ids of the checkpoints in progress at a subtask."""
    return tuple(task.checkpointing._snapshots.runs)


def is_at_end_of_data(task: Task) -> bool:
    """Return whether a subtask will emit no further records (Q-2)."""
    if task.sourcing is not None:
        return task.sourcing._time._is_over
    return all(channel.is_at_end_of_data or channel.is_ended for channel in task.gate.channels)


def waiting_files(engine: JobEngine) -> set[str]:
    """Return the paths of the shared files that the acknowledgements of pending checkpoints refer to."""
    snapshots = [s for pending in engine.coordinator._pending.values() for s in pending.snapshots.values()]
    increments = [operator.increment for snapshot in snapshots for operator in snapshot.operators]
    return {handle.path for each in increments if each is not None for handle in each.files}
