"""The keeper of a task that has one pending checkpoint at a time.

The keeper handles each checkpoint id once, in increasing order. It decides which checkpoints are new, obsolete or
cancelled (TE-1, AL-1, AL-5, AL-6, AL-7, AT-11, UC-12). The protocol of the checkpoint decides the rest.
"""

from __future__ import annotations

from collections.abc import Callable

from backend.domain.failure import FailureReason
from backend.runtime.core.elements import Barrier
from backend.runtime.protocols.base import COORDINATOR, CheckpointProtocol, Command, Ended, GiveUp, Make, Resume
from backend.runtime.protocols.mode import KeeperMode

_CANCELLED_KEPT = 128


class Gatekeeper:
    """Handles all checkpoints of one task: each checkpoint once, in increasing order of ids."""

    def __init__(self, channels: int, make: Make, *, counts_ended: bool = True) -> None:
        self._open = frozenset(range(channels))
        self._make = make
        self._counts_ended = counts_ended
        self.current_id = 0
        self._current: CheckpointProtocol | None = None
        self._has_arrived = False
        self._cancelled: dict[int, None] = {}

    @property
    def pending_id(self) -> int | None:
        """The id of the pending checkpoint, or None if no checkpoint is pending."""
        return self.current_id if self._current is not None else None

    def announcement(self, channel: int, barrier: Barrier, now_us: int) -> list[Command]:
        """Pass the announcement to the protocol. Ignore the announcement of an obsolete checkpoint."""
        if self._is_obsolete(barrier.checkpoint_id):
            return []
        return self._newer(barrier) + self._run(lambda p: p.announcement(channel, barrier, now_us))

    def barrier(self, channel: int, barrier: Barrier, now_us: int) -> list[Command]:
        """Pass the barrier to the protocol. If the barrier is obsolete and blocking, only resume its channel (AL-5)."""
        if self._is_obsolete(barrier.checkpoint_id):
            is_held = barrier.is_blocking and channel != COORDINATOR
            commands: list[Command] = [Resume(channel)] if is_held else []
            if barrier.checkpoint_id > self.current_id:
                commands += self._close(barrier.checkpoint_id, FailureReason.DECLINED_SUBSUMED)
                # The cancel marker lets downstream tasks stop waiting for this checkpoint (TE-1).
                commands.append(GiveUp(barrier.checkpoint_id, FailureReason.DECLINED_ON_CANCELLATION))
            return commands
        commands = self._newer(barrier)
        self._has_arrived = True
        return commands + self._run(lambda p: p.barrier(channel, barrier, now_us))

    def end_of_partition(self, channel: int, now_us: int) -> list[Command]:
        """Handle the end of the channel (AL-7).

        Depending on the settings, the ended channel counts as if its barrier had arrived, or the pending checkpoint is
        given up.
        """
        self._open -= {channel}
        if self._current is None:
            return []
        if not self._counts_ended:
            return [*self._release(), GiveUp(self.current_id, FailureReason.DECLINED_INPUT_END_OF_STREAM)]
        self._has_arrived = True
        return self._settled(self._current.end_of_partition(channel, now_us))

    def timer(self, checkpoint_id: int, now_us: int) -> list[Command]:
        """Pass the timer to the protocol. Timers of finished checkpoints do nothing (AT-11)."""
        if self._current is None or checkpoint_id != self.current_id:
            return []
        return self._settled(self._current.timer(now_us))

    def recheck(self, now_us: int) -> list[Command]:
        """Let the protocol check its cap again, because data has moved."""
        return [] if self._current is None else self._settled(self._current.recheck(now_us))

    def cancel(self, checkpoint_id: int, channel: int) -> list[Command]:
        """Give up the checkpoint that a cancel marker names (AL-6), on whichever channel the marker arrives.

        As in Flink, a marker is ignored if its checkpoint has only been announced. A marker of a newer checkpoint ends
        the pending checkpoint without declining it, so the pending checkpoint expires at the coordinator.
        """
        is_pending = self._current is not None and self._has_arrived
        if checkpoint_id < self.current_id or (checkpoint_id == self.current_id and not is_pending):
            return []
        commands = self._release() if self._current is not None else []
        self.current_id = checkpoint_id
        return [*commands, GiveUp(checkpoint_id, FailureReason.DECLINED_ON_CANCELLATION)]

    def aborted(self, checkpoint_id: int) -> list[Command]:
        """End the checkpoint without declining it, because the coordinator aborted it (CO-11).

        If the checkpoint has not begun at this task, remember that it is aborted.
        """
        if self._current is not None and checkpoint_id == self.current_id:
            return self._release()
        if checkpoint_id > self.current_id:
            self._cancelled[checkpoint_id] = None
            while len(self._cancelled) > _CANCELLED_KEPT:
                del self._cancelled[next(iter(self._cancelled))]
        return []

    def _is_obsolete(self, checkpoint_id: int) -> bool:
        if checkpoint_id in self._cancelled or checkpoint_id < self.current_id:
            return True
        return checkpoint_id == self.current_id and self._current is None

    def _newer(self, barrier: Barrier) -> list[Command]:
        """If the barrier's checkpoint is newer than the current one, begin it and give up the pending checkpoint."""
        if barrier.checkpoint_id <= self.current_id:
            return []
        commands = self._close(barrier.checkpoint_id, FailureReason.DECLINED_SUBSUMED)
        self._current = self._make(barrier, self._open)
        self._has_arrived = False
        return commands

    def _run(self, call: Callable[[CheckpointProtocol], list[Command]]) -> list[Command]:
        assert self._current is not None
        # Pass only the commands of this call. The caller may also hold a ``GiveUp`` of an older checkpoint, which must
        # not end the current one.
        return self._settled(call(self._current))

    def _settled(self, commands: list[Command]) -> list[Command]:
        current = self._current
        if current is not None and (current.is_done or any(isinstance(c, GiveUp) for c in commands)):
            if not current.is_done:
                commands += [Resume(c) for c in sorted(current.held)]
            self._current = None
        return commands

    def _close(self, new_id: int, reason: FailureReason) -> list[Command]:
        """Give up the pending checkpoint, because checkpoint ``new_id`` supersedes it."""
        commands: list[Command] = []
        if self._current is not None:
            old_id = self.current_id
            commands = [*self._release(), GiveUp(old_id, reason)]
        self.current_id = new_id
        return commands

    def _release(self) -> list[Command]:
        current = self._current
        self._current = None
        assert current is not None
        return [Ended(), *(Resume(c) for c in sorted(current.held))]


KEEPER = KeeperMode(
    is_chosen=lambda _: True,
    make=lambda channels, make, counts_ended: Gatekeeper(channels, make, counts_ended=counts_ended),
)
