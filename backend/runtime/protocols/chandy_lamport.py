"""Chandy-Lamport checkpoints: the markers keep their place among the data (runtime.md 2.8).

A task snapshots and forwards the marker at the first trigger, which is a marker on any channel or the coordinator's
message (CL-1, CL-2). It then logs the data of every other channel up to the marker of that channel (CL-3). No channel
is blocked, and the task goes on processing all channels (CL-4), also while the log is written (CL-10). The snapshot is
not taken later than at the first trigger, because the state would then contain the effect of logged records (CL-9).

The log of a channel is closed when its marker arrives at the receiver, or when the receiver reads the marker (CL-6). In
both cases, the log contains the same bytes, because nothing overtakes on the channel. Only the time at which the
checkpoint ends differs. A channel without a queue at the receiver has no arrival of its own, so its log always ends
when the marker is read.

Markers may also overtake queued data (CL-8). The checkpoint is then an unaligned checkpoint.

Block-then-process is a variant of the thread (CL-11): a channel whose marker was read is blocked, and the task goes on
with the logged data of the other channels. It reads the blocked channels again when it has processed all of that data.
The checkpoint does not wait for this.
"""

from __future__ import annotations

from backend.runtime.core.elements import Alignment, Barrier, SnapshotType
from backend.runtime.job.config import MarkedChannels, RuntimeConfig
from backend.runtime.protocols.base import Command, Ended, LogClosed, Persist, Resume, Snapshot
from backend.runtime.protocols.mode import ProtocolMode, TaskView
from backend.runtime.protocols.unaligned import Unaligned

_MARKERS = (Alignment.MARKER, Alignment.BLOCKING_MARKER, Alignment.OVERTAKING_MARKER)


class ChandyLamport(Unaligned):
    """One Chandy-Lamport checkpoint at one task.

    It differs from an unaligned checkpoint in the barrier that it forwards and in the end of each channel's log.
    """

    def __init__(self, open_channels: frozenset[int], *, closes_logs_on_arrival: bool) -> None:
        super().__init__(open_channels)
        self._closes_logs_on_arrival = closes_logs_on_arrival
        self._unread: set[int] = set()
        """The channels whose marker has arrived but is not read yet."""

    def announcement(self, channel: int, barrier: Barrier, now_us: int) -> list[Command]:
        """Close the log of the channel, whose marker has arrived but is not read yet (CL-6).

        If the checkpoint has not begun at this task, its log of the channel will end at this marker.
        """
        if not self._closes_logs_on_arrival:
            return []
        self._arrived.add(channel)
        self._unread.add(channel)
        return [LogClosed(channel), *self._complete()] if self._is_snapshot_taken else []

    def barrier(self, channel: int, barrier: Barrier, now_us: int) -> list[Command]:
        """Start the checkpoint with the first trigger (CL-1), and end it with the last marker (CL-5)."""
        self._unread.discard(channel)
        return super().barrier(channel, barrier, now_us)

    def start(self, barrier: Barrier) -> list[Command]:
        """Start to log, then forward the marker behind the records sent so far and snapshot (CL-2)."""
        self._is_snapshot_taken = True
        return [Persist(), *(LogClosed(c) for c in sorted(self._unread)), Snapshot(barrier)]


class BlockThenProcess(ChandyLamport):
    """One Chandy-Lamport checkpoint at one task, which blocks each channel whose marker it has read (CL-11)."""

    _has_ended = False

    def end_of_partition(self, channel: int, now_us: int) -> list[Command]:
        """Stop expecting a marker from the ended channel (AL-7)."""
        self._unread.discard(channel)
        return super().end_of_partition(channel, now_us)

    def _complete(self) -> list[Command]:
        if not self._is_snapshot_taken or not self._open <= self._arrived:
            return []
        commands: list[Command] = [] if self._has_ended else [Ended()]
        self._has_ended = True
        if self._unread:
            return commands
        self.is_done = True
        held = sorted(self._blocked)
        self._blocked.clear()
        return [*commands, *(Resume(c) for c in held)]


def _barrier(config: RuntimeConfig, checkpoint_id: int, now_us: int, _: SnapshotType) -> Barrier:
    alignment = Alignment.OVERTAKING_MARKER if config.markers_overtake else Alignment.MARKER
    if config.marked_channels is MarkedChannels.BLOCK:
        alignment = Alignment.BLOCKING_MARKER
    return Barrier(checkpoint_id, now_us, alignment)


def _make(barrier: Barrier, open_channels: frozenset[int], view: TaskView) -> ChandyLamport:
    kind = BlockThenProcess if barrier.is_blocking else ChandyLamport
    return kind(open_channels, closes_logs_on_arrival=view.closes_logs_on_arrival())


MODE = ProtocolMode(
    name="Chandy-Lamport",
    is_chosen=lambda config: config.is_exactly_once and config.is_chandy_lamport,
    has_channel_state=True,
    barrier=_barrier,
    handles=lambda barrier: barrier.alignment in _MARKERS,
    make=_make,
    triggers_every_task=lambda config: config.triggers_every_task,
)
