"""Unaligned checkpoints, which a task starts at the first barrier (runtime.md 2.6).

The task forwards the first barrier, snapshots, and then copies the data in front of the other barriers. It blocks no
channel on its own (UC-11). An aligned barrier that arrives meanwhile keeps its channel blocked until the checkpoint
ends (UC-7). An announced barrier is converted to priority (AT-2).

Aligned-with-timeout checkpoints use this protocol after their switch (the ``_U`` states of Appendix A).
"""

from __future__ import annotations

from collections.abc import Iterable

from backend.runtime.core.elements import Alignment, Barrier, SnapshotType
from backend.runtime.job.config import RuntimeConfig
from backend.runtime.protocols.base import (
    COORDINATOR,
    Began,
    Block,
    Command,
    Convert,
    Ended,
    Persist,
    Resume,
    Snapshot,
)
from backend.runtime.protocols.mode import ProtocolMode


class Unaligned:
    """One unaligned checkpoint at one task."""

    def __init__(
        self,
        open_channels: frozenset[int],
        *,
        arrived: Iterable[int] = (),
        blocked: Iterable[int] = (),
        has_begun: bool = False,
    ) -> None:
        self._open = open_channels
        self._arrived = set(arrived)
        self._blocked = set(blocked)
        self._has_begun = has_begun
        self._is_snapshot_taken = False
        self.is_done = False

    @property
    def held(self) -> frozenset[int]:
        """The channels that are blocked after an aligned barrier."""
        return frozenset(self._blocked)

    def announcement(self, channel: int, barrier: Barrier, now_us: int) -> list[Command]:
        """Convert the announced barrier to priority (AT-2), unless the channel's barrier has already arrived."""
        return [] if channel in self._arrived else [Convert(channel)]

    def barrier(self, channel: int, barrier: Barrier, now_us: int) -> list[Command]:
        """Start the snapshot with the first barrier, and end the checkpoint with the last (UC-1, UC-2, UC-5, UC-7)."""
        commands: list[Command] = []
        if not self._has_begun:
            self._has_begun = True
            commands.append(Began(barrier))
        self._arrived.add(channel)
        if barrier.is_blocking and channel != COORDINATOR:
            self._blocked.add(channel)
            commands.append(Block(channel))
        if not self._is_snapshot_taken:
            commands += self.start(barrier)
        return commands + self._complete()

    def start(self, barrier: Barrier) -> list[Command]:
        """Start to copy input, then forward the barrier and snapshot (the order F-S-L: forward, snapshot, log)."""
        self._is_snapshot_taken = True
        return [Persist(), Snapshot(barrier.as_unaligned())]

    def end_of_partition(self, channel: int, now_us: int) -> list[Command]:
        """Stop expecting a barrier from the ended channel (AL-7).

        End the checkpoint at this task if all other barriers have arrived.
        """
        self._open -= {channel}
        self._arrived.discard(channel)
        self._blocked.discard(channel)
        return self._complete()

    def timer(self, now_us: int) -> list[Command]:
        """Do nothing: the checkpoint is already unaligned."""
        return []

    def recheck(self, now_us: int) -> list[Command]:
        """Do nothing: this checkpoint has no cap."""
        return []

    def _complete(self) -> list[Command]:
        if not self._is_snapshot_taken or not self._open <= self._arrived:
            return []
        self.is_done = True
        held = sorted(self._blocked)
        self._blocked.clear()
        return [Ended(), *(Resume(c) for c in held)]


def _barrier(_: RuntimeConfig, checkpoint_id: int, now_us: int, __: SnapshotType) -> Barrier:
    return Barrier(checkpoint_id, now_us, Alignment.UNALIGNED)


MODE = ProtocolMode(
    name="unaligned",
    # With a timeout of 0, checkpoints are unaligned from the start (AT-10).
    is_chosen=lambda config: config.is_unaligned and config.aligned_timeout_us == 0,
    has_channel_state=True,
    barrier=_barrier,
    handles=lambda barrier: barrier.alignment is Alignment.UNALIGNED,
    make=lambda _, open_channels, __: Unaligned(open_channels),
)
