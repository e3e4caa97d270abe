"""What each protocol and each keeper declares about itself, so that the registry can choose between them.

Tasks and the coordinator do not depend on single protocols. They use the mode, the barrier or the keeper.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from backend.runtime.core.elements import Barrier, SnapshotType
from backend.runtime.job.config import FrontInput, OnCap, RuntimeConfig
from backend.runtime.measure.cap_decisions import CapDecision
from backend.runtime.protocols.base import CheckpointProtocol, Command, Keeper, Make, Snapshot


@dataclass(frozen=True, slots=True)
class InFlight:
    """The bytes of in-flight input and output that a checkpoint would persist at this task if it started now."""

    input_bytes: int
    output_bytes: int


@dataclass(frozen=True, slots=True)
class Cap:
    """What a checkpoint with a cap on in-flight data can read about its task, by the current settings (CAP-1)."""

    cap_bytes: Callable[[], int]
    in_flight: Callable[[], InFlight]
    on_cap: Callable[[], OnCap]
    decided: Callable[[CapDecision], None]
    begun_bytes_max: Callable[[], int]
    """The most that a receiver of the task may hold of records whose ends have not arrived (``Capping``)."""


def _trigger_us(barrier: Barrier) -> int:
    return barrier.triggered_at_us


@dataclass(frozen=True, slots=True)
class TaskView:
    """What a protocol can read of its task."""

    clock_us: Callable[[Barrier], int] = _trigger_us
    """Returns the time from which the alignment timeout counts (AT-1, AT-14), in virtual microseconds."""
    cap: Cap | None = None
    closes_logs_on_arrival: Callable[[], bool] = lambda: True
    """Returns whether a marker closes the log of its channel when it arrives, not when it is read (CL-6)."""
    front_input: Callable[[], FrontInput] = lambda: FrontInput.OVERTAKE
    """Returns what happens to the input in front of the cuts when the last barrier has arrived (UL-3)."""
    has_front: Callable[[], bool] = lambda: False
    """Returns whether the task has records in front of the cuts of its channels that it has not processed (UL-3)."""


def take_at_once(barrier: Barrier, _: TaskView) -> list[Command]:
    """Return the command to take the snapshot immediately. This suits a source, which has no input to align."""
    return [Snapshot(barrier)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolMode:
    """One kind of checkpoint: the settings that choose it, the barrier that starts it, and its protocol."""

    name: str
    is_chosen: Callable[[RuntimeConfig], bool]
    """Returns whether checkpoints use this mode under these settings. The first mode that returns True is used."""
    has_channel_state: bool
    """Whether checkpoints of this mode may contain in-flight data.

    If so, savepoints use another mode (SV-1), and do not run at the same time as these checkpoints (CC-3).
    """
    barrier: Callable[[RuntimeConfig, int, int, SnapshotType], Barrier]
    """Creates the barrier from the settings, the checkpoint id, the time of the trigger and the snapshot type."""
    handles: Callable[[Barrier], bool]
    """Returns whether a task uses this mode for a checkpoint whose first barrier at the task is this one."""
    make: Callable[[Barrier, frozenset[int], TaskView], CheckpointProtocol] | None
    """Creates the protocol from the first barrier, the open channels and the task.

    None if the keeper of a task handles the barriers of this mode itself.
    """
    at_source: Callable[[Barrier, TaskView], list[Command]] = take_at_once
    """Returns the commands for a source when the coordinator triggers a checkpoint with this barrier there."""
    triggers_every_task: Callable[[RuntimeConfig], bool] = lambda _: False
    """Returns whether the coordinator triggers these checkpoints at every task, not only at sources (CL-7)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperMode:
    """One kind of keeper, and the settings that choose it.

    A task keeps its keeper even if a setting changes while the task runs.
    """

    is_chosen: Callable[[RuntimeConfig], bool]
    """Returns whether tasks use this keeper under these settings. The first keeper that returns True is used."""
    make: Callable[[int, Make, bool], Keeper]
    """Creates the keeper of a task.

    The arguments are the number of channels, the function that creates protocols, and whether an ended channel counts
    as if its barrier had arrived.
    """
