"""Compute the records that a run intentionally loses or repeats, without the runtime's own counts (INV-6, INV-15).

There are three causes. Under at-least-once, a restore repeats records that were processed after a barrier (ALO-5). A
restore without channel state loses in-flight data (RC-8). A transaction that times out is lost (SNK-4). For each
cause, the runtime must count and report exactly the same records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from backend.runtime.core.elements import Record
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.network.channel import ChannelKey
from backend.runtime.operators.storage import Row
from tests.support.channel_oracle import by_key, records_in_flight
from tests.support.restored_channels import InFlight


class IntendedLosses:
    """The intended losses and repetitions of one run.

    ``ahead`` has, by checkpoint, the records that a restore from this checkpoint repeats.
    """

    def __init__(self, engine: JobEngine, ahead: dict[int, list[Record]]) -> None:
        self.doubled: list[Record] = []
        self.lost: list[Record] = []
        self._engine = engine
        self._ahead = ahead
        self._restored: set[int] = set()
        self._last: tuple[int, int] = (0, 0)
        """(repeated records, lost bytes) of the newest restart."""
        self._began_us: dict[str, int] = {}
        self._late: dict[str, tuple[int, list[Row]]] = {}
        """For each lost transaction: the number of rows committed before it, and the transaction's own rows."""

    def take_over(self, before: IntendedLosses) -> None:
        """Continue after the run of ``before``, whose external system and checkpoint this run has taken over."""
        self.doubled, self.lost = [*before.doubled], [*before.lost]
        self._restored |= before._restored
        self._ahead |= before._ahead
        self._began_us |= before._began_us
        self._late |= before._late

    # --- restarts -------------------------------------------------------------------------------------------------

    def restored(self, found: InFlight | None) -> InFlight | None:
        """Record that the job starts from the checkpoint ``found``. Return the channel state that is restored, or None.

        The first restore of a checkpoint repeats its records. A further restore of the same checkpoint discards the
        results of the earlier one, so the records still count as repeated once.
        """
        self._last = (0, 0)
        if found is None:
            return None
        is_first = found.checkpoint_id not in self._restored
        self._restored.add(found.checkpoint_id)
        ahead = self._ahead.get(found.checkpoint_id, [])
        self.doubled += ahead if is_first else []
        if found.checkpoint_id != self._engine.config.drops_channel_state_of:
            self._last = (len(ahead), 0)
            return found
        self.lost += records_in_flight(found.snapshots) if is_first else []
        self._last = (len(ahead), sum(_persisted(found)))
        return None

    def problems_of_the_restart(self) -> Iterator[str]:
        """Yield a problem if the repeated records or lost bytes that the last restart reported differ from ours.

        If there was none, the start from a checkpoint of another run reports them.
        """
        restart = self._engine.restarts[-1] if self._engine.restarts else self._engine.start
        if restart is None:
            return
        told = restart.repeated_records, restart.lost_channel_bytes
        if restart.deployed_at_us is not None and told != self._last:
            yield f"the restart reports {told} repeated records and lost bytes, not {self._last}"

    def by_key(self, checkpoint_id: int) -> tuple[Counter[int], Counter[int]]:
        """Return (repeated, lost) records by key, as intended in the state of a checkpoint that just completed."""
        return by_key([*self.doubled, *self._ahead.get(checkpoint_id, [])]), by_key(self.lost)

    # --- transactions ---------------------------------------------------------------------------------------------

    def began(self, transaction: str) -> None:
        """Record the time at which a transaction was opened."""
        self._began_us[transaction] = self._engine.now_us

    def committing(self, transaction: str) -> None:
        """Record the first attempt to commit a transaction. If the transaction has timed out, its rows are lost."""
        ledger, now = self._engine.ledger, self._engine.now_us
        began_us = self._began_us.get(transaction, now)
        if now - began_us > self._engine.config.transaction_timeout_us:
            self._late[transaction] = (len(ledger.rows), list(ledger._open[transaction].rows))

    def problems_of_transactions(self) -> Iterator[str]:
        """Yield a problem if the transactions or rows that the ledger reports as lost differ from those we computed."""
        ledger = self._engine.ledger
        if [*self._late] != ledger.lost:
            yield f"{ledger.lost} are reported as timed out, not {[*self._late]}"
        if self.late_count != ledger.lost_count:
            yield f"{ledger.lost_count} rows are counted as timed out, not {self.late_count}"

    @property
    def late_count(self) -> int:
        """The number of rows in lost transactions."""
        return sum(len(rows) for _, rows in self._late.values())

    def rows(self) -> list[Row]:
        """Return the committed rows.

        The rows of each lost transaction are inserted where it should have been committed.
        """
        rows: list[Row] = []
        done = 0
        committed = self._engine.ledger.rows
        for at, lost in self._late.values():
            rows += committed[done:at] + lost
            done = at
        return rows + committed[done:]


def _persisted(found: InFlight) -> Iterator[int]:
    for snapshot in found.snapshots:
        sides: tuple[dict[ChannelKey, list[bytes]], ...] = (snapshot.channels.inputs, snapshot.channels.outputs)
        yield from (len(chunk) for side in sides for chunks in side.values() for chunk in chunks)
