"""Aligned until the checkpoint is older than its timeout, then unaligned (runtime.md 2.7).

The age counts from the trigger (AT-1), or, if the settings choose a clock per task, from the first announcement or
barrier at the task (AT-14). A barrier handled exactly at the timeout still aligns (AT-5). Channels that were blocked
before the switch stay blocked (AT-4). A checkpoint that aligns in time persists no in-flight data (AT-12).
"""

from __future__ import annotations

from backend.runtime.core.elements import Alignment, Barrier, SnapshotType
from backend.runtime.job.config import RuntimeConfig
from backend.runtime.protocols.base import (
    Began,
    Block,
    Command,
    Convert,
    Ended,
    Resume,
    SetTimer,
    Snapshot,
    Switched,
)
from backend.runtime.protocols.mode import ProtocolMode
from backend.runtime.protocols.unaligned import Unaligned


class AlignedTimeout:
    """One checkpoint at one task, which starts aligned and may switch to unaligned once."""

    def __init__(self, barrier: Barrier, open_channels: frozenset[int], *, counts_from_us: int | None = None) -> None:
        assert barrier.aligned_timeout_us is not None
        self._open = open_channels
        clock_us = barrier.triggered_at_us if counts_from_us is None else counts_from_us
        self._switch_after_us = clock_us + barrier.aligned_timeout_us
        self._announced: set[int] = set()
        self._arrived: set[int] = set()
        self._barrier: Barrier | None = None
        self._has_timer = False
        self._unaligned: Unaligned | None = None
        self._is_done = False

    @property
    def is_done(self) -> bool:
        """Whether the barriers of all open channels have arrived."""
        return self._is_done if self._unaligned is None else self._unaligned.is_done

    @property
    def held(self) -> frozenset[int]:
        """The channels that are blocked until this checkpoint ends."""
        return frozenset(self._arrived) if self._unaligned is None else self._unaligned.held

    def announcement(self, channel: int, barrier: Barrier, now_us: int) -> list[Command]:
        """Remember the announcement. After the switch, convert the announced barrier to priority instead (AT-2)."""
        if self._unaligned is not None:
            return self._unaligned.announcement(channel, barrier, now_us)
        self._announced.add(channel)
        return self._first_sign()

    def barrier(self, channel: int, barrier: Barrier, now_us: int) -> list[Command]:
        """Block the channel and snapshot after the last barrier, or switch to unaligned (AT-5).

        This method implements the rows Bal (aligned barrier) and Bun (unaligned barrier) in Appendix A of runtime.md.
        """
        if self._unaligned is not None:
            return self._unaligned.barrier(channel, barrier, now_us)
        commands = self._first_sign()
        if not barrier.is_blocking:
            commands += self._switch()
            assert self._unaligned is not None
            return commands + self._unaligned.barrier(channel, barrier, now_us)
        if self._barrier is None:
            self._barrier = barrier
            commands.append(Began(barrier))
        self._announced.discard(channel)
        self._arrived.add(channel)
        commands.append(Block(channel))
        if self._arrived >= self._open:
            return commands + self._complete()
        if now_us > self._switch_after_us:
            commands += self._switch_collecting()
        return commands

    def end_of_partition(self, channel: int, now_us: int) -> list[Command]:
        """Stop expecting a barrier from the ended channel (AL-7).

        Then snapshot if all other barriers have arrived, or switch to unaligned if the timeout has passed.
        """
        if self._unaligned is not None:
            return self._unaligned.end_of_partition(channel, now_us)
        self._open -= {channel}
        self._announced.discard(channel)
        self._arrived.discard(channel)
        if self._barrier is None:
            return []
        if self._arrived >= self._open:
            return self._complete()
        return self._switch_collecting() if now_us > self._switch_after_us else []

    def timer(self, now_us: int) -> list[Command]:
        """Switch to unaligned, unless the checkpoint has finished or has already switched (AT-3, AT-4)."""
        if self._unaligned is not None or self._is_done:
            return []
        return self._switch() if self._barrier is None else self._switch_collecting()

    def recheck(self, now_us: int) -> list[Command]:
        """Do nothing: this checkpoint has no cap."""
        return []

    def _first_sign(self) -> list[Command]:
        if self._has_timer:
            return []
        self._has_timer = True
        return [SetTimer(self._switch_after_us)]

    def _switch(self) -> list[Command]:
        self._unaligned = Unaligned(
            self._open, arrived=self._arrived, blocked=self._arrived, has_begun=self._barrier is not None
        )
        return [Switched(), *(Convert(c) for c in sorted(self._announced))]

    def _switch_collecting(self) -> list[Command]:
        commands = self._switch()
        assert self._unaligned is not None
        assert self._barrier is not None
        return commands + self._unaligned.start(self._barrier)

    def _complete(self) -> list[Command]:
        assert self._barrier is not None
        self._is_done = True
        held = sorted(self._arrived)
        self._arrived.clear()
        return [Ended(), Snapshot(self._barrier), *(Resume(c) for c in held)]


def _barrier(config: RuntimeConfig, checkpoint_id: int, now_us: int, _: SnapshotType) -> Barrier:
    return Barrier(checkpoint_id, now_us, Alignment.ALIGNED, config.aligned_timeout_us)


MODE = ProtocolMode(
    name="aligned with timeout",
    is_chosen=lambda config: config.is_unaligned,
    has_channel_state=True,
    barrier=_barrier,
    handles=lambda barrier: barrier.is_timeoutable,
    make=lambda barrier, open_channels, view: AlignedTimeout(
        barrier, open_channels, counts_from_us=view.clock_us(barrier)
    ),
)
