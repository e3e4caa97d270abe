"""The interface of a checkpoint protocol, the interface of a task's keeper, and the commands that both return.

A protocol handles one checkpoint at one task. A keeper handles all checkpoints of a task: it decides which are new,
ended or cancelled, and which protocol each gets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from backend.domain.failure import FailureReason
from backend.runtime.core.elements import Barrier


@dataclass(frozen=True, slots=True)
class Began:
    """The first barrier of the checkpoint has arrived (ME-1, start of ME-2)."""

    barrier: Barrier


@dataclass(frozen=True, slots=True)
class Block:
    """The channel delivered a blocking barrier; its sender waits until ``Resume``."""

    channel: int


@dataclass(frozen=True, slots=True)
class Close:
    """Process the channel's data in front of its cut, and none after it (CAP-3)."""

    channel: int


@dataclass(frozen=True, slots=True)
class Reopen:
    """Undo ``Close``."""

    channel: int


@dataclass(frozen=True, slots=True)
class Resume:
    """Let the channel's sender continue."""

    channel: int


@dataclass(frozen=True, slots=True)
class Convert:
    """Move the channel's announced barrier in front of all queued data (Q-5)."""

    channel: int


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Call ``timer`` at this virtual time (AT-1)."""

    at_us: int


@dataclass(frozen=True, slots=True)
class SetStallTimer:
    """Call ``timer`` when no data has moved for the cap's stall time (CAP-2)."""


@dataclass(frozen=True, slots=True)
class Persist:
    """Start to copy the input data in front of the barriers (UC-2)."""


@dataclass(frozen=True, slots=True)
class Switched:
    """The checkpoint switched from aligned to unaligned at this task (AT-3 to AT-5)."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Forward ``barrier``, then take the state (2.3).

    ``output_bytes_max``: the barrier overtakes at most this many bytes (CAP-5); None: all queued output.
    """

    barrier: Barrier
    output_bytes_max: int | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """The alignment and the copying of input ended, because the last barrier arrived or the checkpoint was given up.

    ``checkpoint_id``: None if the task has only one pending checkpoint at a time.
    """

    checkpoint_id: int | None = None


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop this checkpoint, because a newer one has completed at this task (ALO-2)."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Decline the checkpoint with a reason, and send a cancel marker to all receivers."""

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
        """Whether the checkpoint needs no more events at this task."""
        ...

    @property
    def held(self) -> frozenset[int]:
        """The channels that are blocked until this checkpoint ends."""
        ...

    def announcement(self, channel: int, barrier: Barrier, now_us: int) -> list[Command]:
        """A timeoutable barrier is queued on the channel (Q-4)."""
        ...

    def barrier(self, channel: int, barrier: Barrier, now_us: int) -> list[Command]:
        """A barrier was read in its turn, or ahead of queued data."""
        ...

    def end_of_partition(self, channel: int, now_us: int) -> list[Command]:
        """The channel ended: its barrier is no longer expected (AL-7)."""
        ...

    def timer(self, now_us: int) -> list[Command]:
        """A timer that this protocol set has fired."""
        ...

    def recheck(self, now_us: int) -> list[Command]:
        """Data moved: check again whether a capped checkpoint fits (CAP-3)."""
        ...


Make = Callable[[Barrier, frozenset[int]], CheckpointProtocol]


class Keeper(Protocol):
    """All checkpoints of one task: receives every event, and returns the commands for the task."""

    current_id: int
    """The id of the newest checkpoint that has been seen."""

    @property
    def pending_id(self) -> int | None:
        """The newest pending checkpoint; None if there is none."""
        ...

    def announcement(self, channel: int, barrier: Barrier, now_us: int) -> list[Command]:
        """A timeoutable barrier is queued on the channel (Q-4)."""
        ...

    def barrier(self, channel: int, barrier: Barrier, now_us: int) -> list[Command]:
        """A barrier was read in its turn, or ahead of queued data."""
        ...

    def end_of_partition(self, channel: int, now_us: int) -> list[Command]:
        """The channel ended."""
        ...

    def timer(self, checkpoint_id: int, now_us: int) -> list[Command]:
        """A timer of one checkpoint has fired."""
        ...

    def recheck(self, now_us: int) -> list[Command]:
        """Data moved: check again whether a capped checkpoint fits (CAP-3)."""
        ...

    def cancel(self, checkpoint_id: int, channel: int) -> list[Command]:
        """A cancel marker was read."""
        ...

    def aborted(self, checkpoint_id: int) -> list[Command]:
        """The coordinator aborted the checkpoint (CO-11)."""
        ...
