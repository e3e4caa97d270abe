"""The port of a checkpoint protocol, the port of a task's keeper, and the commands that both give to the task.

A protocol decides for one checkpoint at one task. A keeper decides for all checkpoints of a task: which are new, over
or cancelled, and which protocol each gets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from backend.domain.failure import FailureReason
from backend.runtime.core.elements import Barrier


@dataclass(frozen=True, slots=True)
class Began:
    """The first barrier of the checkpoint is being processed (ME-1, start of ME-2)."""

    barrier: Barrier


@dataclass(frozen=True, slots=True)
class Block:
    """The channel delivered a blocking barrier; its sender waits until ``Resume``."""

    channel: int


@dataclass(frozen=True, slots=True)
class Close:
    """Process what is in front of the channel's cut and nothing behind it (CAP-3)."""

    channel: int


@dataclass(frozen=True, slots=True)
class Reopen:
    """Undo ``Close``."""

    channel: int


@dataclass(frozen=True, slots=True)
class Resume:
    """Let the channel's sender go on."""

    channel: int


@dataclass(frozen=True, slots=True)
class Convert:
    """Move the announced barrier of the channel before all queued data (Q-5)."""

    channel: int


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Report the timeout at this virtual time (AT-1)."""

    at_us: int


@dataclass(frozen=True, slots=True)
class SetStallTimer:
    """Report when nothing has moved for the cap's stall time (CAP-2)."""


@dataclass(frozen=True, slots=True)
class Persist:
    """Start to copy what is in front of the barriers (UC-2)."""


@dataclass(frozen=True, slots=True)
class Switched:
    """The checkpoint went from aligned to unaligned at this task (AT-3 to AT-5)."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Forward ``barrier``, then take the state (2.3).

    ``output_bytes_max``: the barrier overtakes at most that many bytes (CAP-5); None: all there are.
    """

    barrier: Barrier
    output_bytes_max: int | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """The last barrier was processed: end of the alignment and of the copies.

    ``checkpoint_id`` is None where it is the one that the event is of; at least once, it may be another.
    """

    checkpoint_id: int | None = None


@dataclass(frozen=True, slots=True)
class Forget:
    """A newer checkpoint was completed before this one, which nobody at this task waits for any more (ALO-2)."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The task gives the checkpoint up and says why; its receivers get a cancel marker."""

    checkpoint_id: int
    reason: FailureReason


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
    | Switched
    | Snapshot
    | Ended
    | Forget
    | GiveUp
)


class CheckpointProtocol(Protocol):
    """One checkpoint at one task."""

    @property
    def is_done(self) -> bool:
        """Whether all open channels delivered."""
        ...

    @property
    def held(self) -> frozenset[int]:
        """Channels that wait for this checkpoint to end."""
        ...

    def announcement(self, channel: int, barrier: Barrier, now_us: int) -> list[Command]:
        """A timeoutable barrier is queued on the channel (Q-4)."""
        ...

    def barrier(self, channel: int, barrier: Barrier, now_us: int) -> list[Command]:
        """A barrier came to its turn, or jumped the queue."""
        ...

    def end_of_partition(self, channel: int, now_us: int) -> list[Command]:
        """The channel ended: it counts as delivered (AL-7)."""
        ...

    def timer(self, now_us: int) -> list[Command]:
        """The alignment timeout, counted from the trigger, has passed."""
        ...

    def recheck(self, now_us: int) -> list[Command]:
        """Data moved: what waits for room looks again (CAP-3)."""
        ...


Make = Callable[[Barrier, frozenset[int]], CheckpointProtocol]


class Keeper(Protocol):
    """All checkpoints of one task: who hears of everything that comes, and says what is to be done about it."""

    current_id: int
    """The newest checkpoint that was heard of."""

    @property
    def pending_id(self) -> int | None:
        """The (newest) checkpoint in work."""
        ...

    def announcement(self, channel: int, barrier: Barrier, now_us: int) -> list[Command]:
        """A timeoutable barrier is queued on the channel (Q-4)."""
        ...

    def barrier(self, channel: int, barrier: Barrier, now_us: int) -> list[Command]:
        """A barrier came to its turn, or jumped the queue."""
        ...

    def end_of_partition(self, channel: int, now_us: int) -> list[Command]:
        """The channel ended."""
        ...

    def timer(self, checkpoint_id: int, now_us: int) -> list[Command]:
        """The timeout of one checkpoint has passed."""
        ...

    def recheck(self, now_us: int) -> list[Command]:
        """Data moved."""
        ...

    def cancel(self, checkpoint_id: int, channel: int) -> list[Command]:
        """A cancel marker came in its turn."""
        ...

    def aborted(self, checkpoint_id: int) -> list[Command]:
        """The coordinator gave the checkpoint up (CO-11)."""
        ...
