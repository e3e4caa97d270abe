"""At-least-once (runtime.md 2.5): blocks no channel, and counts the barriers of all pending checkpoints.

This keeper handles all checkpoints of one task. It replaces the gatekeeper, which handles only one pending checkpoint
at a time. For each checkpoint, this keeper counts the channels whose barrier has arrived. The last barrier triggers the
snapshot. Records that arrive on a fast channel behind its barrier are part of that snapshot, and are processed again
after a restore (ALO-5). No record is lost, because the snapshot contains all records in front of the barriers.

The order in which checkpoints complete, and the limit on tracked checkpoints, are those of Flink's
``CheckpointBarrierTracker``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from backend.domain.failure import FailureReason
from backend.runtime.core.elements import Alignment, Barrier, SnapshotType
from backend.runtime.job.config import RuntimeConfig
from backend.runtime.protocols.base import Began, Command, Ended, Forget, GiveUp, Snapshot
from backend.runtime.protocols.mode import KeeperMode, ProtocolMode

TRACKED_MAX = 50
_ABORTED_KEPT = 128


@dataclass(slots=True)
class _Count:
    """Counts the barriers of one checkpoint. ``barrier`` is None if a cancel marker arrived before any barrier."""

    id: int
    barrier: Barrier | None
    target: int
    arrived: set[int] = field(default_factory=set)
    is_given_up: bool = False
    is_aborted: bool = False
    """Whether the coordinator aborted the checkpoint.

    When the last barrier arrives, the task then sends a cancel marker instead of the barrier (TE-1).
    """


class AtLeastOnce:
    """The keeper that handles all checkpoints of one task in at-least-once mode."""

    def __init__(self, channels: int, *, counts_ended: bool = True) -> None:
        self._open = channels
        self._counts_ended = counts_ended
        self._counts: list[_Count] = []
        self._aborted: dict[int, None] = {}
        self.current_id = 0

    @property
    def pending_id(self) -> int | None:
        """The id of the newest checkpoint that waits for barriers and is not given up, or None."""
        return next((c.id for c in reversed(self._counts) if not c.is_given_up), None)

    def announcement(self, channel: int, barrier: Barrier, now_us: int) -> list[Command]:
        """Do nothing: these checkpoints do not time out."""
        return []

    def barrier(self, channel: int, barrier: Barrier, now_us: int) -> list[Command]:
        """Count the barrier (ALO-1, ALO-2, ALO-4). A barrier of a finished checkpoint is ignored."""
        k = barrier.checkpoint_id
        if k > self.current_id and self._open == 1:
            # With one open channel, the checkpoint completes immediately. Flink still tracks older checkpoints here.
            # This keeper drops them: otherwise the end of the channel would complete one of them out of order.
            self._counts.append(_Count(k, barrier, 1, {channel}, is_aborted=k in self._aborted))
            return [Began(barrier), *self._complete(len(self._counts) - 1)]
        place = next((i for i, count in enumerate(self._counts) if count.id == k), None)
        if place is not None:
            return self._complete(place) if self._is_complete(place, channel) else []
        if k <= self.current_id:
            return []
        self.current_id = k
        self._counts.append(_Count(k, barrier, self._open, {channel}, is_aborted=k in self._aborted))
        return [Began(barrier), *self._keep_few()]

    def end_of_partition(self, channel: int, now_us: int) -> list[Command]:
        """Count the ended channel as if its barrier had arrived, for every tracked checkpoint (AL-7).

        The newest checkpoint that becomes complete takes its snapshot. If the settings do not allow checkpoints after a
        channel ended, all tracked checkpoints are given up instead.
        """
        self._open -= 1
        if not self._counts_ended:
            counts, self._counts = self._counts, []
            reason = FailureReason.DECLINED_INPUT_END_OF_STREAM
            return [GiveUp(count.id, reason) for count in counts if not count.is_given_up]
        for place in reversed(range(len(self._counts))):
            if self._is_complete(place, channel):
                return self._complete(place)
        return []

    def timer(self, checkpoint_id: int, now_us: int) -> list[Command]:
        """Do nothing: there is no timeout."""
        return []

    def recheck(self, now_us: int) -> list[Command]:
        """Do nothing: these checkpoints have no cap."""
        return []

    def cancel(self, checkpoint_id: int, channel: int) -> list[Command]:
        """Give up this checkpoint and all older ones (ALO-3). Their later barriers and markers are only counted."""
        if checkpoint_id > self.current_id and self._open == 1:
            # Drop the older checkpoints, as ``barrier`` does, because the end of this channel must not complete one
            # of them.
            older, self._counts = self._counts, []
            return [*(Forget(count.id) for count in older if not count.is_given_up), _cancelled(checkpoint_id)]
        commands: list[Command] = []
        while self._counts and self._counts[0].id < checkpoint_id:
            commands += self._give_up(self._counts.pop(0))
        first = self._counts[0] if self._counts else None
        if first is not None and first.id == checkpoint_id:
            commands += self._give_up(first)
            first.arrived.add(channel)
            if len(first.arrived) == first.target:
                self._counts.pop(0)
        elif checkpoint_id > self.current_id:
            self.current_id = checkpoint_id
            count = _Count(checkpoint_id, None, self._open, {channel})
            commands += self._give_up(count)
            self._counts.insert(0, count)
        return commands

    def aborted(self, checkpoint_id: int) -> list[Command]:
        """Mark the checkpoint as aborted by the coordinator (CO-11). Its barriers still arrive and are counted."""
        self._aborted[checkpoint_id] = None
        while len(self._aborted) > _ABORTED_KEPT:
            del self._aborted[next(iter(self._aborted))]
        for count in self._counts:
            if count.id == checkpoint_id:
                count.is_aborted = True
        return []

    def _is_complete(self, place: int, channel: int) -> bool:
        count = self._counts[place]
        count.arrived.add(channel)
        return len(count.arrived) == count.target

    def _complete(self, place: int) -> list[Command]:
        count = self._counts[place]
        older, self._counts = self._counts[:place], self._counts[place + 1 :]
        commands: list[Command] = [Forget(each.id) for each in older if not each.is_given_up]
        return commands if count.is_given_up else commands + self._snapshot(count)

    def _snapshot(self, count: _Count) -> list[Command]:
        assert count.barrier is not None
        if count.is_aborted:
            return [_cancelled(count.id)]
        return [Ended(count.id), Snapshot(count.barrier)]

    def _keep_few(self) -> list[Command]:
        if len(self._counts) <= TRACKED_MAX:
            return []
        oldest = self._counts.pop(0)
        return [] if oldest.is_given_up else [Forget(oldest.id)]

    def _give_up(self, count: _Count) -> list[Command]:
        was_given_up, count.is_given_up = count.is_given_up, True
        return [] if was_given_up else [_cancelled(count.id)]


def _cancelled(checkpoint_id: int) -> GiveUp:
    return GiveUp(checkpoint_id, FailureReason.DECLINED_ON_CANCELLATION)


def _barrier(_: RuntimeConfig, checkpoint_id: int, now_us: int, kind: SnapshotType) -> Barrier:
    return Barrier(checkpoint_id, now_us, Alignment.AT_LEAST_ONCE, snapshot_type=kind)


MODE = ProtocolMode(
    name="at least once",
    is_chosen=lambda config: not config.is_exactly_once,
    has_channel_state=False,
    barrier=_barrier,
    handles=lambda barrier: barrier.alignment is Alignment.AT_LEAST_ONCE,
    make=None,
)
KEEPER = KeeperMode(
    is_chosen=MODE.is_chosen,
    make=lambda channels, _, counts_ended: AtLeastOnce(channels, counts_ended=counts_ended),
)
