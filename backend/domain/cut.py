"""The result of checking whether the snapshots of a checkpoint form a consistent cut."""

from __future__ import annotations

from enum import StrEnum


class CutState(StrEnum):
    """The result of the check."""

    CONSISTENT = "consistent"
    """Every channel was checked, and none has an error."""
    INCONSISTENT = "inconsistent"
    """At least one channel has an error."""
    INCOMPLETE = "incomplete"
    """The checkpoint has not completed, so some channels have no cut. The other channels have no error."""
    UNCHECKED = "unchecked"
    """The trace does not contain what the check needs."""


class CutError(StrEnum):
    """How the cut of a channel is inconsistent."""

    BACKWARDS = "backwards"
    """The receiver's state contains data that the sender wrote after its snapshot."""
    REPEATED = "repeated"
    """Data is in the receiver's state and in the channel state, so a restore would process it twice."""
    LOST = "lost"
    """Data is neither in the receiver's state nor in the channel state, so a restore would lose it."""
