"""The descriptions of protocols and keepers, from which the registry chooses.

Tasks and the coordinator do not depend on single protocols: they use the mode, the barrier or the keeper.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from backend.runtime.core.elements import Barrier, SnapshotType
from backend.runtime.job.config import OnCap, RuntimeConfig
from backend.runtime.measure.cap_decisions import CapDecision
from backend.runtime.protocols.base import CheckpointProtocol, Command, Keeper, Make, Snapshot


@dataclass(frozen=True, slots=True)
class InFlight:
    """The bytes that a checkpoint would persist at this task if it started now."""

    input_bytes: int
    output_bytes: int


@dataclass(frozen=True, slots=True)
class Cap:
    """A capped checkpoint's view of its task (CAP-1). Each call reads the settings then in force."""

    cap_bytes: Callable[[], int]
    in_flight: Callable[[], InFlight]
    on_cap: Callable[[], OnCap]
    decided: Callable[[CapDecision], None]


def _trigger_us(barrier: Barrier) -> int:
    return barrier.triggered_at_us


@dataclass(frozen=True, slots=True)
class TaskView:
    """A protocol's view of its task."""

    clock_us: Callable[[Barrier], int] = _trigger_us
    """The instant from which the alignment timeout counts (AT-1, AT-14), in virtual microseconds."""
    cap: Cap | None = None


def take_at_once(barrier: Barrier, _: TaskView) -> list[Command]:
    """Take the snapshot at once: a source has no input to align."""
    return [Snapshot(barrier)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """One kind of checkpoint: when the settings choose it, its first barrier, and its protocol."""

    name: str
    is_chosen: Callable[[RuntimeConfig], bool]
    """Whether checkpoints use this mode under these settings. The first registered mode that returns True is used."""
    has_channel_state: bool
    """Whether its checkpoints may have in-flight data. If so, savepoints do not use this mode (SV-1), and do not run
    at the same time as its checkpoints (CC-3)."""
    barrier: Callable[[RuntimeConfig, int, int, SnapshotType], Barrier]
    """Make the barrier, given settings, checkpoint id, instant of the trigger and snapshot type."""
    handles: Callable[[Barrier], bool]
    """Whether a task uses this mode for a checkpoint if this barrier is the first to arrive."""
    make: Callable[[Barrier, frozenset[int], TaskView], CheckpointProtocol] | None
    """Make the protocol, given the first barrier, the open channels and the task. None if the keeper needs none."""
    at_source: Callable[[Barrier, TaskView], list[Command]] = take_at_once
    """The commands of a source when it is triggered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperMode:
    """One kind of keeper, and when the settings choose it. Changing a setting of a running job keeps the keeper."""

    is_chosen: Callable[[RuntimeConfig], bool]
    """As ``Mode.is_chosen``."""
    make: Callable[[int, Make, bool], Keeper]
    """Make a task's keeper, given the number of channels, the protocol factory, and whether ended channels count as
    delivered."""
