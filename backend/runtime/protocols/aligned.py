"""Aligned exactly-once (runtime.md 2.4): a channel is blocked after its barrier until all barriers have arrived.

Invariant (AL-8): when ``Snapshot`` is returned, the task has processed exactly the records in front of the barrier on
each channel. There is no in-flight data to persist (AL-9).
"""

from __future__ import annotations

from backend.runtime.core.elements import Alignment, Barrier, SnapshotType
from backend.runtime.job.config import RuntimeConfig
from backend.runtime.protocols.base import Began, Block, Command, Ended, Resume, Snapshot
from backend.runtime.protocols.mode import ProtocolMode


class Aligned:
    """One aligned checkpoint at one task."""

    def __init__(self, open_channels: frozenset[int]) -> None:
        self._open = open_channels
        self._arrived: set[int] = set()
        self._blocked: set[int] = set()
        self._barrier: Barrier | None = None
        self.is_done = False

    @property
    def held(self) -> frozenset[int]:
        """The channels that are blocked until this checkpoint ends."""
        return frozenset(self._blocked)

    def announcement(self, channel: int, barrier: Barrier, now_us: int) -> list[Command]:
        """Do nothing: an aligned checkpoint does not time out."""
        return []

    def barrier(self, channel: int, barrier: Barrier, now_us: int) -> list[Command]:
        """Block the channel. If this was the last missing barrier, snapshot and resume all channels (AL-1 to AL-4)."""
        commands: list[Command] = []
        if self._barrier is None:
            self._barrier = barrier
            commands.append(Began(barrier))
        elif barrier.restored_alignment is not None and barrier.restored_alignment.overtakes:
            # An upstream task has switched to unaligned, so the barrier that this task forwards is unaligned too
            # (OPT-6).
            self._barrier = barrier
        self._arrived.add(channel)
        self._blocked.add(channel)
        commands.append(Block(channel))
        return commands + self._complete()

    def end_of_partition(self, channel: int, now_us: int) -> list[Command]:
        """Stop expecting a barrier from the ended channel (AL-7). Snapshot if all other barriers have arrived."""
        self._open -= {channel}
        self._arrived.discard(channel)
        self._blocked.discard(channel)
        return self._complete()

    def timer(self, now_us: int) -> list[Command]:
        """Do nothing: there is no timeout."""
        return []

    def recheck(self, now_us: int) -> list[Command]:
        """Do nothing: an aligned checkpoint has no cap."""
        return []

    def _complete(self) -> list[Command]:
        if self._barrier is None or self._arrived < self._open:
            return []
        self.is_done = True
        held = sorted(self._blocked)
        self._blocked.clear()
        snapshot = Snapshot(self._barrier.restored())
        return [Ended(), snapshot, *(Resume(c) for c in held)]


def _barrier(_: RuntimeConfig, checkpoint_id: int, now_us: int, kind: SnapshotType) -> Barrier:
    return Barrier(checkpoint_id, now_us, Alignment.ALIGNED, snapshot_type=kind)


MODE = ProtocolMode(
    name="aligned",
    is_chosen=lambda _: True,
    has_channel_state=False,
    barrier=_barrier,
    handles=lambda _: True,
    make=lambda _, open_channels, __: Aligned(open_channels),
)
