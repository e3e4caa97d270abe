"""The keeper of a task that may have several pending unaligned checkpoints, if the settings allow them (CC-4).

This keeper handles all checkpoints of one task. It replaces the gatekeeper, which handles only one pending checkpoint
at a time. Barriers keep their order on each channel (Q-1). After the barrier of checkpoint k, a channel can therefore
deliver no older barrier, so older checkpoints whose barrier has not arrived on that channel are given up (UC-3).

Invariant: data in front of barrier k on a channel is copied for k, and for every newer pending checkpoint whose barrier
has not arrived on the channel. The channel determines which bytes these are.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from backend.domain.failure import FailureReason
from backend.runtime.core.elements import Barrier
from backend.runtime.protocols.base import CheckpointProtocol, Command, Ended, GiveUp, Make, Resume
from backend.runtime.protocols.mode import KeeperMode

_CANCELLED_KEPT = 128


@dataclass(slots=True)
class _Pending:
    protocol: CheckpointProtocol
    arrived: set[int] = field(default_factory=set)


class Concurrent:
    """Handles all checkpoints of one task. Each checkpoint begins once, in order of ids, and ends independently."""

    def __init__(self, channels: int, make: Make, *, counts_ended: bool = True) -> None:
        self._open = frozenset(range(channels))
        self._make = make
        self._counts_ended = counts_ended
        self._pending: dict[int, _Pending] = {}
        self._cancelled: dict[int, None] = {}
        self.current_id = 0

    @property
    def pending_id(self) -> int | None:
        """The id of the newest pending checkpoint, or None if no checkpoint is pending."""
        return max(self._pending, default=None)

    def announcement(self, channel: int, barrier: Barrier, now_us: int) -> list[Command]:
        """Do nothing: only barriers with a timeout are announced, and checkpoints with a timeout run one at a time."""
        return []

    def barrier(self, channel: int, barrier: Barrier, now_us: int) -> list[Command]:
        """Pass the barrier to its checkpoint (CC-4).

        If that checkpoint has finished, only resume the channel (AL-5).
        """
        k = barrier.checkpoint_id
        commands = self._missed(channel, k)
        if k not in self._pending:
            if k <= self.current_id or k in self._cancelled:
                commands += [Resume(channel)] if barrier.is_blocking else []
                if k > self.current_id:
                    self.current_id = k
                    # The cancel marker lets downstream tasks stop waiting for this checkpoint (TE-1).
                    commands.append(GiveUp(k, FailureReason.DECLINED_ON_CANCELLATION))
                return commands
            self.current_id = k
            self._pending[k] = _Pending(self._make(barrier, self._open))
        pending = self._pending[k]
        pending.arrived.add(channel)
        return commands + self._settled(k, pending.protocol.barrier(channel, barrier, now_us))

    def end_of_partition(self, channel: int, now_us: int) -> list[Command]:
        """Handle the end of the channel (AL-7).

        Depending on the settings, the ended channel counts as if its barrier had arrived, or all pending checkpoints
        are given up.
        """
        self._open -= {channel}
        commands: list[Command] = []
        for k, pending in list(self._pending.items()):
            if not self._counts_ended:
                commands += self._give_up(k, FailureReason.DECLINED_INPUT_END_OF_STREAM)
                continue
            commands += self._settled(k, pending.protocol.end_of_partition(channel, now_us))
        return commands

    def timer(self, checkpoint_id: int, now_us: int) -> list[Command]:
        """Do nothing: there is no timeout."""
        return []

    def recheck(self, now_us: int) -> list[Command]:
        """Do nothing: these checkpoints have no cap."""
        return []

    def cancel(self, checkpoint_id: int, channel: int) -> list[Command]:
        """Give up the checkpoint, and the older checkpoints whose barrier this channel will not deliver (AL-6)."""
        commands = self._missed(channel, checkpoint_id)
        if checkpoint_id in self._pending:
            return [*commands, *self._give_up(checkpoint_id, FailureReason.DECLINED_ON_CANCELLATION)]
        if checkpoint_id > self.current_id:
            self.current_id = checkpoint_id
            commands.append(GiveUp(checkpoint_id, FailureReason.DECLINED_ON_CANCELLATION))
        return commands

    def aborted(self, checkpoint_id: int) -> list[Command]:
        """End the checkpoint without declining it, because the coordinator aborted it (CO-11).

        If the checkpoint has not begun at this task, remember that it is aborted.
        """
        if checkpoint_id in self._pending:
            return self._release(checkpoint_id)
        if checkpoint_id > self.current_id:
            self._cancelled[checkpoint_id] = None
            while len(self._cancelled) > _CANCELLED_KEPT:
                del self._cancelled[next(iter(self._cancelled))]
        return []

    def _missed(self, channel: int, checkpoint_id: int) -> list[Command]:
        """Give up the older checkpoints whose barrier has not arrived on this channel, because it no longer can."""
        missed = [k for k, p in self._pending.items() if k < checkpoint_id and channel not in p.arrived]
        return [each for k in missed for each in self._give_up(k, FailureReason.DECLINED_SUBSUMED)]

    def _give_up(self, checkpoint_id: int, reason: FailureReason) -> list[Command]:
        return [*self._release(checkpoint_id), GiveUp(checkpoint_id, reason)]

    def _release(self, checkpoint_id: int) -> list[Command]:
        held = self._pending.pop(checkpoint_id).protocol.held
        return [Ended(checkpoint_id), *(Resume(c) for c in sorted(held))]

    def _settled(self, checkpoint_id: int, commands: list[Command]) -> list[Command]:
        """Remove the checkpoint if it is done. Return the commands with the checkpoint's id in ``Ended``.

        The id is needed because other checkpoints may be pending.
        """
        if self._pending[checkpoint_id].protocol.is_done:
            del self._pending[checkpoint_id]
        return [replace(c, checkpoint_id=checkpoint_id) if isinstance(c, Ended) else c for c in commands]


KEEPER = KeeperMode(
    is_chosen=lambda config: config.is_unaligned_concurrent,
    make=lambda channels, make, counts_ended: Concurrent(channels, make, counts_ended=counts_ended),
)
