"""Aligned exactly-once (runtime.md 2.4): a channel that delivered its barrier waits until all channels have done so.

Invariant (AL-8): when ``Snapshot`` is returned, the task has processed exactly the records in front of the barrier on
each channel. There is no in-flight data to persist (AL-9).
"""

from __future__ import annotations

from backend.runtime.core.elements import Alignment, Barrier, SnapshotType
from backend.runtime.job.config import RuntimeConfig
from backend.runtime.protocols.base import Began, Block, Command, Ended, Resume, Snapshot
from backend.runtime.protocols.mode import Mode


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
        """Blocked channels."""
        return frozenset(self._blocked)

    def announcement(self, channel: int, barrier: Barrier, now_us: int) -> list[Command]:
        """Do nothing: an aligned checkpoint does not time out."""
        return []

    def barrier(self, channel: int, barrier: Barrier, now_us: int) -> list[Command]:
        """Block the channel, and snapshot if it was the last one (AL-1 to AL-4)."""
        commands: list[Command] = []
        if self._barrier is None:
            self._barrier = barrier
            commands.append(Began(barrier))
        elif barrier.restored_alignment is Alignment.UNALIGNED:
            # An upstream task has switched: the barrier that is forwarded after this alignment is unaligned (OPT-6).
            self._barrier = barrier
        self._arrived.add(channel)
        self._blocked.add(channel)
        commands.append(Block(channel))
        return commands + self._complete()

    def end_of_partition(self, channel: int, now_us: int) -> list[Command]:
        """The channel ended: its barrier is no longer expected (AL-7)."""
        self._open -= {channel}
        self._arrived.discard(channel)
        self._blocked.discard(channel)
        return self._complete()

    def timer(self, now_us: int) -> list[Command]:
        """Do nothing: there is no timeout."""
        return []

    def recheck(self, now_us: int) -> list[Command]:
        """Do nothing: an aligned checkpoint does not wait for room."""
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


MODE = Mode(
    name="aligned",
    is_chosen=lambda _: True,
    has_channel_state=False,
    barrier=_barrier,
    handles=lambda _: True,
    make=lambda _, open_channels, __: Aligned(open_channels),
)
