"""Unaligned checkpoints that a task starts at the last barrier (runtime.md 2.9, UL-1).

Barriers overtake queued data, as in unaligned checkpoints. The arrival of a barrier sets the cut of its channel: the
task still processes the data that arrived on the channel before the barrier, and none behind it (UL-2). With the last
barrier, the task snapshots and persists the data that is still in front of a cut, or it first processes this data
(UL-3). Either way, it persists at most as much input as an unaligned checkpoint (UL-4). Therefore, operators that emit
many records for each input record do not inflate the checkpoint (UL-5).
"""

from __future__ import annotations

from backend.runtime.core.elements import Alignment, Barrier, SnapshotType
from backend.runtime.job.config import FrontInput, RuntimeConfig
from backend.runtime.protocols.base import (
    Began,
    Block,
    Close,
    Command,
    Ended,
    Persist,
    Reopen,
    Resume,
    SetStallTimer,
    Snapshot,
)
from backend.runtime.protocols.mode import ProtocolMode, TaskView


class LastBarrier:
    """One checkpoint at one task, which starts at the last barrier."""

    def __init__(self, open_channels: frozenset[int], view: TaskView) -> None:
        self._open = open_channels
        self._view = view
        self._arrived: set[int] = set()
        self._closed: set[int] = set()
        self._blocked: set[int] = set()
        self._barrier: Barrier | None = None
        self.is_done = False

    @property
    def held(self) -> frozenset[int]:
        """The channels that are blocked after an aligned barrier."""
        return frozenset(self._blocked)

    def announcement(self, channel: int, barrier: Barrier, now_us: int) -> list[Command]:
        """Do nothing: barriers of these checkpoints are not announced."""
        return []

    def barrier(self, channel: int, barrier: Barrier, now_us: int) -> list[Command]:
        """Close the channel, or block it if the barrier is aligned (UL-2). Start with the last barrier (UL-3)."""
        commands: list[Command] = []
        if self._barrier is None:
            self._barrier = barrier
            commands += [Began(barrier), SetStallTimer()]
        self._arrived.add(channel)
        if barrier.is_blocking:
            self._blocked.add(channel)
            commands.append(Block(channel))
        else:
            self._closed.add(channel)
            commands.append(Close(channel))
        return commands + self._advance()

    def end_of_partition(self, channel: int, now_us: int) -> list[Command]:
        """Stop expecting a barrier from the ended channel (AL-7)."""
        self._open -= {channel}
        for channels in (self._arrived, self._closed, self._blocked):
            channels.discard(channel)
        return self._advance()

    def timer(self, now_us: int) -> list[Command]:
        """Do nothing: a missing barrier lets the checkpoint expire."""
        return []

    def recheck(self, now_us: int) -> list[Command]:
        """Start if the data in front of the cuts has been processed now (UL-3)."""
        return [] if self.is_done else self._advance()

    def _advance(self) -> list[Command]:
        if self._barrier is None or not self._open <= self._arrived:
            return []
        if self._view.front_input() is FrontInput.DRAIN and self._view.has_front():
            return []
        self.is_done = True
        closed, blocked = sorted(self._closed), sorted(self._blocked)
        self._closed.clear()
        self._blocked.clear()
        snapshot = Snapshot(self._barrier.restored())
        return [Persist(), snapshot, *(Reopen(c) for c in closed), Ended(), *(Resume(c) for c in blocked)]


def _barrier(_: RuntimeConfig, checkpoint_id: int, now_us: int, __: SnapshotType) -> Barrier:
    return Barrier(checkpoint_id, now_us, Alignment.UNALIGNED_LAST)


MODE = ProtocolMode(
    name="unaligned on the last barrier",
    is_chosen=lambda config: config.is_unaligned and config.starts_with_last,
    has_channel_state=True,
    barrier=_barrier,
    handles=lambda barrier: barrier.alignment is Alignment.UNALIGNED_LAST,
    make=lambda _, open_channels, view: LastBarrier(open_channels, view),
)
