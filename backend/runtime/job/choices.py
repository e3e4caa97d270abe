"""The settings of the runtime whose values are words, each with its words."""

from __future__ import annotations

from enum import StrEnum


class OnCap(StrEnum):
    """What a checkpoint with a cap on in-flight data does if the data exceeds the cap (CAP-3 to CAP-5)."""

    WAIT = "wait"
    DECLINE = "decline"
    PARTIAL = "partial"


class LogUntil(StrEnum):
    """The event that closes the log of a channel in a Chandy-Lamport checkpoint (CL-6)."""

    ARRIVAL = "arrival"
    CONSUMPTION = "consumption"


class Initiation(StrEnum):
    """The tasks at which the coordinator triggers a Chandy-Lamport checkpoint (CL-7)."""

    SOURCES = "sources"
    ALL_TASKS = "all-tasks"


class MarkedChannels(StrEnum):
    """What a task does with a channel whose marker it has read, until the last marker is read (CL-4, CL-11)."""

    PROCESS = "process"
    BLOCK = "block"


class StartsWith(StrEnum):
    """The barrier with which a task starts an unaligned checkpoint (UC-1, UL-1)."""

    FIRST_BARRIER = "first-barrier"
    LAST_BARRIER = "last-barrier"


class FrontInput(StrEnum):
    """What a task does with the input in front of the cuts when the last barrier has arrived (UL-3)."""

    OVERTAKE = "overtake"
    DRAIN = "drain"


class OnStopFailure(StrEnum):
    """What happens if the job fails while it stops with a savepoint, after the savepoint has completed (FN-30)."""

    RECOVER = "recover"
    FAIL = "fail"


class StateBackend(StrEnum):
    """How keyed state is written to a checkpoint (ST-3)."""

    FULL = "full"
    """The whole state, in every checkpoint."""
    CHANGELOG = "changelog"
    """The changes since the last checkpoint, as the states record them (IN-6)."""
    DIFF = "diff"
    """The difference to the state of the last confirmed checkpoint (IN-11)."""
    SST = "sst"
    """Sorted immutable files of changed rows, which are merged from time to time (IN-13)."""


class Spilling(StrEnum):
    """When in-flight data is written (SP-1, SP-2)."""

    AD_HOC = "ad-hoc"
    """In-flight data is written when a checkpoint overtakes it."""
    CONTINUOUS = "continuous"
    """All data is written into a log of the sender when it is sent."""


class FinishProtocol(StrEnum):
    """What a subtask does after its input has ended (runtime.md 6.6)."""

    NONE = "none"
    """The subtask stays and takes part in checkpoints. It finishes only if the job stops with a savepoint."""
    REVISED = "revised"
    """The subtask ends its data, waits for a final checkpoint, and finishes."""
    LEGACY = "legacy"
    """The subtask finishes at once, as in Flink before 1.14, so its last transactions stay uncommitted."""
