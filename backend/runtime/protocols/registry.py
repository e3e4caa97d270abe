"""All checkpoint protocols, and the one place that decides the mode of a checkpoint.

The settings choose the mode of a checkpoint, and so the kind of barrier that the coordinator triggers (OPT-2). At a
task, the first barrier that arrives chooses the protocol. A savepoint never contains in-flight data, whatever the mode
of checkpoints (SV-1).

To add a protocol: write its module with a ``MODE``, add the mode to ``MODES``, add a keeper to ``KEEPERS`` if the
protocol needs one of its own, add its rules to PROTOCOL.md, and add its tests.
"""

from __future__ import annotations

from backend.domain.protocols import Protocol
from backend.runtime.core.elements import Barrier, SnapshotType
from backend.runtime.job.config import RuntimeConfig
from backend.runtime.protocols import (
    aligned,
    aligned_timeout,
    at_least_once,
    capped,
    chandy_lamport,
    concurrent,
    gatekeeper,
    last_barrier,
    unaligned,
)
from backend.runtime.protocols.base import CheckpointProtocol, Command, Keeper
from backend.runtime.protocols.mode import KeeperMode, ProtocolMode, TaskView

MODES: tuple[ProtocolMode, ...] = (
    at_least_once.MODE,
    chandy_lamport.MODE,
    capped.MODE,
    last_barrier.MODE,
    unaligned.MODE,
    aligned_timeout.MODE,
    aligned.MODE,
)
"""All modes. A checkpoint uses the first one that the settings choose."""

KEEPERS: tuple[KeeperMode, ...] = (
    at_least_once.KEEPER,
    concurrent.KEEPER,
    gatekeeper.KEEPER,
)
"""All keepers, which each handle all checkpoints of one task. A task uses the first one that the settings choose."""


def mode_of(config: RuntimeConfig, kind: SnapshotType = SnapshotType.CHECKPOINT) -> ProtocolMode:
    """Return the mode of a checkpoint or savepoint that is triggered under these settings."""
    return next(m for m in MODES if m.is_chosen(config) and not (kind.is_savepoint and m.has_channel_state))


def barrier_of(config: RuntimeConfig, checkpoint_id: int, now_us: int, kind: SnapshotType) -> Barrier:
    """Return the barrier that starts a checkpoint or savepoint at the sources."""
    return mode_of(config, kind).barrier(config, checkpoint_id, now_us, kind)


def other_protocol(config: RuntimeConfig) -> Protocol | None:
    """Return the protocol of checkpoints under these settings, if Flink does not have it."""
    return barrier_of(config, 0, 0, SnapshotType.CHECKPOINT).alignment.protocol


def triggers_every_task(config: RuntimeConfig, kind: SnapshotType) -> bool:
    """Return whether the coordinator triggers a checkpoint at every task, not only at sources (CL-7)."""
    return mode_of(config, kind).triggers_every_task(config)


def protocol_of(barrier: Barrier, open_channels: frozenset[int], view: TaskView) -> CheckpointProtocol:
    """Return a new protocol for one checkpoint at one task.

    ``barrier`` is the first barrier that arrived at the task.
    """
    make = _mode_at_task(barrier).make
    assert make is not None
    return make(barrier, open_channels, view)


def commands_at_source(barrier: Barrier, view: TaskView) -> list[Command]:
    """Return the commands for a source when the coordinator triggers a checkpoint with this barrier there."""
    return _mode_at_task(barrier).at_source(barrier, view)


def keeper_of(channels: int, config: RuntimeConfig, view: TaskView) -> Keeper:
    """Return a new keeper for a task with this number of input channels."""
    keeper = next(k for k in KEEPERS if k.is_chosen(config))
    return keeper.make(channels, lambda first, opened: protocol_of(first, opened, view), config.ends_count_as_barriers)


def _mode_at_task(barrier: Barrier) -> ProtocolMode:
    return next(m for m in MODES if m.handles(barrier))
