"""What a protocol and a keeper state about themselves, so that the registry can choose them.

Tasks and the coordinator do not ask for a certain protocol. They ask the mode, the barrier or the keeper.
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
    """What a checkpoint that starts now would persist at this task, in bytes."""

    input_bytes: int
    output_bytes: int


@dataclass(frozen=True, slots=True)
class Cap:
    """What a capped checkpoint asks its task (CAP-1). Settings are those in force when it asks."""

    cap_bytes: Callable[[], int]
    in_flight: Callable[[], InFlight]
    on_cap: Callable[[], OnCap]
    decided: Callable[[CapDecision], None]


def _trigger_us(barrier: Barrier) -> int:
    return barrier.triggered_at_us


@dataclass(frozen=True, slots=True)
class TaskView:
    """What a protocol may ask its task."""

    clock_us: Callable[[Barrier], int] = _trigger_us
    """The instant from which the alignment timeout counts (AT-1, AT-14), in virtual microseconds."""
    cap: Cap | None = None


def take_at_once(barrier: Barrier, _: TaskView) -> list[Command]:
    """A source has no input to align: it takes its snapshot when it is triggered."""
    return [Snapshot(barrier)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """One kind of checkpoint: when the settings choose it, the barrier that it starts with, and what handles it."""

    name: str
    is_chosen: Callable[[RuntimeConfig], bool]
    """Whether checkpoints use this mode under these settings; the first registered mode that says so is used."""
    has_channel_state: bool
    """Whether in-flight data may be part of it. If so, savepoints do not use it (SV-1) or run beside it (CC-3)."""
    barrier: Callable[[RuntimeConfig, int, int, SnapshotType], Barrier]
    """The barrier for settings, checkpoint id, instant of the trigger and snapshot type."""
    handles: Callable[[Barrier], bool]
    """Whether a checkpoint is of this mode at a task if this barrier is the first to arrive there."""
    make: Callable[[Barrier, frozenset[int], TaskView], CheckpointProtocol] | None
    """The protocol at a task with these open channels; None if the keeper of this mode needs none."""
    at_source: Callable[[Barrier, TaskView], list[Command]] = take_at_once
    """What a source does when it is triggered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperMode:
    """One kind of keeper, and when the settings choose it. Settings that change live do not change the keeper."""

    is_chosen: Callable[[RuntimeConfig], bool]
    """As ``Mode.is_chosen``."""
    make: Callable[[int, Make, bool], Keeper]
    """The keeper of a task from the number of channels, the protocol's factory, and whether ended channels count."""
