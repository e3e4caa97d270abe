"""Storage that survives a failure: the snapshot store with its costs, and the ledger that sinks write to.

The snapshot store transfers one upload at a time, and other uploads wait: all share one bandwidth (DET-7). The ledger
models an external system. It has transactions with ids, commits that may be repeated, and a transaction timeout (SNK-2
to SNK-4). It counts and lists the transactions that were lost to the timeout (INV-15).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from backend.domain.errors import ProtocolViolationError
from backend.runtime.core.elements import Record
from backend.runtime.core.prng import LANES, mix64_pair, mix64_sum
from backend.runtime.core.scheduler import EventClass, Scheduler

_MASK = (1 << 64) - 1
# The number of committed transactions that the ledger remembers, so that a repeated commit has no effect. Only the
# commits of the last few checkpoints are ever repeated, and these have far fewer transactions.
_COMMITTED_KEPT = 100_000
_LOSSES_KEPT = 100


@dataclass(slots=True, eq=False)
class Upload:
    """One write to the store.

    ``round`` increases when the end of the upload is rescheduled, so that earlier events for its end are ignored.
    """

    done: Callable[[object], None]
    not_before_us: int
    start_us: int
    transfer_us: int
    own_transfer_us: int
    latency_us: int
    round: int = 0


class SnapshotStore:
    """Models the time that it takes to write snapshots. The bytes stay with the writer."""

    def __init__(
        self, scheduler: Scheduler, *, latency_us: int, bytes_per_s: int, upload_bytes_per_s: int | None = None
    ) -> None:
        self._scheduler = scheduler
        self._upload_bytes_per_s = upload_bytes_per_s
        self.latency_us = latency_us
        self.bytes_per_s = bytes_per_s
        self._free_us = 0
        self._still_until_us = 0
        self._uploads: deque[Upload] = deque()
        """The uploads whose transfer may not have finished, in order of their transfers."""

    def write(self, size_bytes: int, done: Callable[[object], None], *, factor: float = 1.0) -> Upload:
        """Start to write ``size_bytes``, and call ``done`` once they are durable.

        ``factor`` multiplies the time needed.
        """
        now = self._scheduler.now
        while self._uploads and self._uploads[0].start_us + self._uploads[0].transfer_us <= now:
            self._uploads.popleft()
        transfer_us = int(size_bytes * 1_000_000 * factor) // self.bytes_per_s
        # The bandwidth limit of a single upload delays only that upload: others may use the remaining bandwidth
        # (DET-7).
        own = self._upload_bytes_per_s
        own_us = 0 if own is None else int(size_bytes * 1_000_000 * factor) // own
        latency_us = self._scheduler.jitter(int(self.latency_us * factor))
        not_before_us = max(now, self._still_until_us)
        upload = Upload(done, not_before_us, max(now, self._free_us), transfer_us, own_us, latency_us)
        self._uploads.append(upload)
        self._free_us = upload.start_us + transfer_us
        self._schedule(upload)
        return upload

    def cancel(self, upload: Upload) -> None:
        """Cancel an upload.

        Later uploads start earlier, because the rest of the cancelled transfer is skipped (TE-8).
        """
        upload.round += 1
        if upload not in self._uploads:
            return
        free_us = max(self._scheduler.now, upload.start_us)
        later = list(self._uploads)[self._uploads.index(upload) + 1 :]
        self._uploads.remove(upload)
        if upload.start_us + upload.transfer_us <= self._scheduler.now:
            return
        for each in later:
            start_us = max(free_us, each.not_before_us)
            if start_us != each.start_us:
                each.start_us = start_us
                each.round += 1
                self._schedule(each)
            free_us = start_us + each.transfer_us
        self._free_us = max(free_us, self._still_until_us)

    def _schedule(self, upload: Upload) -> None:
        end_us = upload.start_us + max(upload.transfer_us, upload.own_transfer_us)
        self._scheduler.at(end_us + upload.latency_us, EventClass.STORAGE, self._end, (upload, upload.round))

    def _end(self, scheduled: tuple[Upload, int]) -> None:
        upload, of_round = scheduled
        if of_round == upload.round:
            upload.done(None)

    def stand_still(self, for_us: int) -> None:
        """Stop writing for ``for_us`` microseconds. Uploads wait in the meantime."""
        self._free_us = self._still_until_us = max(self._scheduler.now, self._free_us) + for_us

    def forget(self) -> None:
        """Drop all queued uploads, because the subtasks that wrote them no longer exist."""
        self._free_us = self._still_until_us = self._scheduler.now
        self._uploads.clear()


@dataclass(frozen=True, slots=True)
class Row:
    """One output record as the ledger stores it."""

    origin: int
    key: int
    value: int


@dataclass(frozen=True, slots=True)
class LostTransaction:
    """A transaction that was older than its timeout when it was committed, so that its rows were dropped (SNK-4)."""

    at_us: int
    name: str
    row_count: int

    @property
    def vertex(self) -> str:
        """The vertex of its sink."""
        return self.name.rsplit("/", 3)[0]

    @property
    def subtask(self) -> int:
        """The subtask of its sink."""
        return int(self.name.split("/")[-3])


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """A transaction that is pre-committed. ``folded`` is the hash of its rows."""

    name: str
    began_us: int
    count: int
    folded: int


@dataclass(frozen=True, slots=True)
class OutsideState:
    """What the external system holds when a run ends, as far as a run that continues it needs it.

    Output is counted and hashed, and not stored by row. Transactions that no checkpoint will commit are left out.
    """

    committed_count: int = 0
    folded: int = 0
    put_count: int = 0
    lost: tuple[str, ...] = ()
    lost_count: int = 0
    committed: tuple[str, ...] = ()
    """The transactions of the checkpoint that are committed already. A repeated commit of them has no effect."""
    prepared: tuple[PreparedTransaction, ...] = ()
    """The transactions of the checkpoint that the next run commits."""
    table: Mapping[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Transaction:
    began_us: int
    rows: list[Row] = field(default_factory=list)
    count: int = 0
    folded: int = 0
    values: list[int] = field(default_factory=list)
    origins: list[int] = field(default_factory=list)
    """``values`` and ``origins`` contain the rows that are not part of the hash ``folded`` yet.

    Rows are collected because hashing many of them together is faster.
    """
    is_prepared: bool = False

    def fold_lanes(self) -> None:
        """Add the waiting rows to the hash ``folded``, as far as they fill whole groups of ``LANES`` rows."""
        count = len(self.values) // LANES * LANES
        self.folded = (self.folded + mix64_sum(self.values[:count], self.origins[:count])) & _MASK
        del self.values[:count]
        del self.origins[:count]

    def fold(self) -> None:
        """Add all waiting rows to the hash ``folded``."""
        self.folded = (self.folded + mix64_sum(self.values, self.origins)) & _MASK
        self.values.clear()
        self.origins.clear()


class TransactionLedger:
    """The external system that sinks write to. It holds open transactions and the committed output.

    With ``keeps_rows``, the ledger stores every committed row. Otherwise it stores a count and a hash that does not
    depend on the order of the rows.
    """

    def __init__(self, now_us: Callable[[], int], *, keeps_rows: bool, timeout_us: int) -> None:
        self._now_us = now_us
        self._keeps_rows = keeps_rows
        self._timeout_us = timeout_us
        self._open: dict[str, _Transaction] = {}
        self._committed: dict[str, None] = {}
        self.rows: list[Row] = []
        self.table: dict[int, int] = {}
        """The last value that idempotent sinks wrote for each key."""
        self.put_count = 0
        self.committed_count = 0
        self.folded = 0
        self.lost: list[str] = []
        """Transactions that were committed after their timeout, so that their rows were dropped (SNK-4)."""
        self.lost_count = 0
        """The number of rows in the lost transactions."""
        self.losses: deque[LostTransaction] = deque(maxlen=_LOSSES_KEPT)
        """The last transactions with rows that were lost, oldest first."""
        self._lost_of: dict[tuple[str, int], list[int]] = {}
        self.committed: Callable[[], None] | None = None
        """A function that is called after each commit that made rows visible."""
        self._earlier_attempt = -1

    @property
    def newest_attempt(self) -> int:
        """The highest attempt number of earlier runs and in the names of the transactions, or -1 if there is none."""
        return max(self._earlier_attempt, *(int(t.rsplit("/", 2)[1]) for t in (*self._open, *self._committed)), -1)

    def state(self, held: Collection[str]) -> OutsideState:
        """Return the content of the external system. ``held`` are the transactions that a checkpoint names."""
        for name in held:
            if name in self._open:
                self._open[name].fold()
        return OutsideState(
            self.committed_count,
            self.folded,
            self.put_count,
            tuple(self.lost),
            self.lost_count,
            tuple(name for name in held if name not in self._open),
            tuple(
                PreparedTransaction(name, each.began_us, each.count, each.folded)
                for name in held
                if (each := self._open.get(name)) is not None
            ),
            dict(self.table),
        )

    def take_over(self, state: OutsideState, *, attempt: int) -> None:
        """Begin with what the external system holds after an earlier run, whose last attempt was ``attempt``."""
        self._earlier_attempt = attempt
        self.committed_count, self.folded, self.put_count = state.committed_count, state.folded, state.put_count
        self.lost, self.lost_count, self.table = list(state.lost), state.lost_count, dict(state.table)
        self._committed = dict.fromkeys(state.committed)
        self._open = {
            each.name: _Transaction(each.began_us, count=each.count, folded=each.folded, is_prepared=True)
            for each in state.prepared
        }

    def begin(self, transaction: str) -> None:
        """Open a transaction."""
        self._open[transaction] = _Transaction(self._now_us())

    def write(self, transaction: str, record: Record) -> None:
        """Write one row, which becomes visible when the transaction is committed."""
        held = self._open[transaction]
        if held.is_prepared:
            raise ProtocolViolationError(f"a write into the pre-committed {transaction}", rule="SNK-1")
        held.count += 1
        if self._keeps_rows:
            held.rows.append(Row(record.origin, record.key, record.value))
        else:
            held.values.append(record.value)
            held.origins.append(record.origin)
            if len(held.values) == LANES:
                held.fold()

    def write_all(self, transaction: str, records: list[Record], values: list[int] | None = None) -> None:
        """Write all records into the transaction. If ``values`` is set, it replaces the values of the records."""
        held = self._open[transaction]
        if values is None:
            values = [record.value for record in records]
        if self._keeps_rows or held.is_prepared:
            for record, value in zip(records, values, strict=True):
                self.write(transaction, replace(record, value=value))
            return
        held.count += len(records)
        held.values += values
        held.origins += [record.origin for record in records]
        if len(held.values) >= LANES:
            held.fold_lanes()

    def prepare(self, transaction: str) -> None:
        """Pre-commit a transaction. No further write to it is allowed."""
        self._open[transaction].fold()
        self._open[transaction].is_prepared = True

    def commit(self, transaction: str) -> None:
        """Make the rows of a transaction visible, unless it is past its timeout (SNK-4).

        A repeated commit has no effect (SNK-2).
        """
        if transaction in self._committed:
            return
        held = self._open.pop(transaction, None)
        if held is None:
            raise ProtocolViolationError(f"commit of {transaction}, which is neither open nor committed", rule="SNK-2")
        if not held.is_prepared:
            raise ProtocolViolationError(f"commit of {transaction}, which was not pre-committed", rule="SNK-1")
        self._committed[transaction] = None
        if len(self._committed) > _COMMITTED_KEPT:
            del self._committed[next(iter(self._committed))]
        if self._now_us() - held.began_us > self._timeout_us:
            self.lost.append(transaction)
            self.lost_count += held.count
            if held.count:
                self.losses.append(LostTransaction(self._now_us(), transaction, held.count))
                mine = self._lost_of.setdefault((self.losses[-1].vertex, self.losses[-1].subtask), [0, 0])
                mine[0], mine[1] = mine[0] + 1, mine[1] + held.count
            return
        self.rows.extend(held.rows)
        self.committed_count += held.count
        self.folded = (self.folded + held.folded) & _MASK
        if self.committed is not None:
            self.committed()

    def lost_of(self, vertex: str, subtask: int, *, parallelism: int) -> tuple[int, int]:
        """Return how many transactions with rows, and how many rows, this subtask lost since the job began.

        Transactions of subtasks that the vertex no longer has are divided among the others.
        """
        own = [lost for (of, s), lost in self._lost_of.items() if of == vertex and s % parallelism == subtask]
        return sum(transactions for transactions, _ in own), sum(rows for _, rows in own)

    @property
    def overdue(self) -> tuple[int, int]:
        """The number of open transactions that are past their timeout, and of the rows in them.

        They are lost as soon as a checkpoint commits them. Empty transactions do not count.
        """
        oldest_us = self._now_us() - self._timeout_us
        late = [t.count for t in self._open.values() if t.count and t.began_us < oldest_us]
        return len(late), sum(late)

    def open_of(self, vertex: str) -> list[str]:
        """Return the open transactions of all subtasks of a sink vertex, at any parallelism that it has had (SNK-3)."""
        return [t for t in self._open if t.rsplit("/", 3)[0] == vertex]

    def abort(self, transaction: str) -> None:
        """Drop an open transaction."""
        del self._open[transaction]

    def put(self, record: Record) -> None:
        """Store the record's value under its key, in place of the old one. It is visible immediately (SNK-6)."""
        self.table[record.key] = record.value
        self.put_count += 1

    def append(self, record: Record) -> None:
        """Write a row outside any transaction. The row is visible immediately (SNK-6)."""
        self.committed_count += 1
        if self._keeps_rows:
            self.rows.append(Row(record.origin, record.key, record.value))
        else:
            self.folded = (self.folded + mix64_pair(record.value, record.origin)) & _MASK
