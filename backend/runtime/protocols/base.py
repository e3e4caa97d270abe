"""The interfaces of a checkpoint protocol and of a task's keeper, and the commands that both return.

A protocol handles one checkpoint at one task. A keeper handles all checkpoints of a task. The keeper decides which
checkpoints are new, finished or cancelled, and creates the protocol of each new checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from backend.domain.failure import FailureReason
from backend.runtime.core.elements import Barrier


@dataclass(frozen=True, slots=True)
class Began:
    """The first barrier of the checkpoint has arrived: its measurements start (ME-1, ME-2)."""

    barrier: Barrier


@dataclass(frozen=True, slots=True)
class Block:
    """A blocking barrier has arrived on the channel. The channel's sender waits until ``Resume``."""

    channel: int


@dataclass(frozen=True, slots=True)
class Close:
    """Process only the data that arrived on the channel before its barrier, and none behind it (CAP-3)."""

    channel: int


@dataclass(frozen=True, slots=True)
class Reopen:
    """Undo ``Close``: process the data that arrived on the channel behind its barrier as well."""

    channel: int


@dataclass(frozen=True, slots=True)
class Resume:
    """Let the sender of the channel continue."""

    channel: int


@dataclass(frozen=True, slots=True)
class Convert:
    """Move the announced barrier of the channel in front of all queued data (Q-5)."""

    channel: int


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Call the protocol's ``timer`` at the virtual time ``at_us`` (AT-1)."""

    at_us: int


@dataclass(frozen=True, slots=True)
class SetStallTimer:
    """Call the protocol's ``timer`` once no data has moved for the stall time of the cap (CAP-2).

    ``input_bytes_max``: the snapshot cannot start while more input than this is in front of the cuts, so ``recheck``
    would do nothing. None if there is no such bound.
    """

    input_bytes_max: int | None = None


@dataclass(frozen=True, slots=True)
class Persist:
    """Start to copy the input data in front of the barriers (UC-2)."""


@dataclass(frozen=True, slots=True)
class LogClosed:
    """The marker of the channel has arrived: the copy of the channel's data is complete (CL-6)."""

    channel: int


@dataclass(frozen=True, slots=True)
class Switched:
    """The checkpoint switched from aligned to unaligned at this task (AT-3 to AT-5)."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Forward ``barrier``, then take the snapshot of the state (runtime.md 2.3).

    ``output_bytes_max``: the barrier overtakes at most this many bytes of queued output (CAP-5), or all of it if None.
    ``overtakes_later``: the barrier keeps its place behind the queued output until at most ``output_bytes_max`` bytes
    are left in front of it, and overtakes these then (CAP-3).
    """

    barrier: Barrier
    output_bytes_max: int | None = None
    overtakes_later: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """The alignment and the copying of input end: the last barrier arrived, or the checkpoint was given up.

    ``checkpoint_id``: None if the task has only one pending checkpoint at a time.
    """

    checkpoint_id: int | None = None


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop this checkpoint without declining it, because a newer one supersedes it at this task (ALO-2)."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Decline the checkpoint with ``reason``, and send a cancel marker to all receivers."""

    checkpoint_id: int
    reason: FailureReason


COORDINATOR = -1
"""Stands for the channel of a barrier that the coordinator's trigger message delivered (CL-1)."""

Command = (
    Began
    | Block
    | Close
    | Reopen
    | Resume
    | Convert
    | SetTimer
    | SetStallTimer
    | Persist
    | LogClosed
    | Switched
    | Snapshot
    | Ended
    | Forget
    | GiveUp
)


class CheckpointProtocol(Protocol):
    """The state machine that handles one checkpoint at one task.

    Its methods for events return commands for the task.
    """

    @property
    def is_done(self) -> bool:
        """Whether the checkpoint needs no more barriers or timers at this task."""
        ...

    @property
    def held(self) -> frozenset[int]:
        """The channels that stay blocked until this checkpoint ends."""
        ...

    def announcement(self, channel: int, barrier: Barrier, now_us: int) -> list[Command]:
        """Handle the announcement of a barrier that has arrived on the channel, but is not read yet (Q-4, CL-6)."""
        ...

    def barrier(self, channel: int, barrier: Barrier, now_us: int) -> list[Command]:
        """Handle a barrier that was read from the channel, either in order or ahead of queued data.

        ``channel`` is ``COORDINATOR`` if the coordinator triggered the checkpoint at this task.
        """
        ...

    def end_of_partition(self, channel: int, now_us: int) -> list[Command]:
        """Handle the end of the channel: no barrier is expected from it any more (AL-7)."""
        ...

    def timer(self, now_us: int) -> list[Command]:
        """Handle the timer that this protocol requested by ``SetTimer`` or ``SetStallTimer``."""
        ...

    def recheck(self, now_us: int) -> list[Command]:
        """Check again whether a capped checkpoint fits its cap, because data has moved (CAP-3)."""
        ...


Make = Callable[[Barrier, frozenset[int]], CheckpointProtocol]


class Keeper(Protocol):
    """Handles all checkpoints of one task. Its methods for events return commands for the task."""

    current_id: int
    """The id of the newest checkpoint that has reached the task."""

    @property
    def pending_id(self) -> int | None:
        """The id of the newest pending checkpoint, or None if no checkpoint is pending."""
        ...

    def announcement(self, channel: int, barrier: Barrier, now_us: int) -> list[Command]:
        """Handle the announcement of a barrier that has arrived on the channel, but is not read yet (Q-4, CL-6)."""
        ...

    def barrier(self, channel: int, barrier: Barrier, now_us: int) -> list[Command]:
        """Handle a barrier that was read from the channel, either in order or ahead of queued data.

        ``channel`` is ``COORDINATOR`` if the coordinator triggered the checkpoint at this task.
        """
        ...

    def end_of_partition(self, channel: int, now_us: int) -> list[Command]:
        """Handle the end of the channel."""
        ...

    def timer(self, checkpoint_id: int, now_us: int) -> list[Command]:
        """Handle a timer that one checkpoint requested."""
        ...

    def recheck(self, now_us: int) -> list[Command]:
        """Check again whether a capped checkpoint fits its cap, because data has moved (CAP-3)."""
        ...

    def cancel(self, checkpoint_id: int, channel: int) -> list[Command]:
        """Handle a cancel marker that was read from the channel."""
        ...

    def aborted(self, checkpoint_id: int) -> list[Command]:
        """Handle the coordinator's report that it aborted the checkpoint (CO-11)."""
        ...
