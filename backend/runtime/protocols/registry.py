"""All checkpoint protocols, and the one place that decides the mode of a checkpoint. Pure.

The settings choose the mode of a checkpoint, and with it the kind of barrier that is triggered (OPT-2). At a task, the
first barrier that arrives chooses the protocol. A savepoint never has in-flight data, whatever the mode of checkpoints
(SV-1).

To add a protocol: write its module with a ``MODE``, name it in ``MODES`` (and its keeper in ``KEEPERS`` if it needs
one), add its rules to PROTOCOL.md, and add its tests.
"""

from __future__ import annotations

from backend.runtime.core.elements import Barrier, SnapshotType
from backend.runtime.job.config import RuntimeConfig
from backend.runtime.protocols import (
    aligned,
    aligned_timeout,
    at_least_once,
    capped,
    concurrent,
    gatekeeper,
    unaligned,
)
from backend.runtime.protocols.base import CheckpointProtocol, Command, Keeper
from backend.runtime.protocols.mode import KeeperMode, Mode, TaskView

MODES: tuple[Mode, ...] = (
    at_least_once.MODE,
    capped.MODE,
    unaligned.MODE,
    aligned_timeout.MODE,
    aligned.MODE,
)
"""The first mode that the settings choose is used."""

KEEPERS: tuple[KeeperMode, ...] = (
    at_least_once.KEEPER,
    concurrent.KEEPER,
    gatekeeper.KEEPER,
)
"""The first keeper that the settings choose is used."""


def mode_of(config: RuntimeConfig, kind: SnapshotType = SnapshotType.CHECKPOINT) -> Mode:
    """The mode of a checkpoint or savepoint that is triggered under these settings."""
    return next(m for m in MODES if m.is_chosen(config) and not (kind.is_savepoint and m.has_channel_state))


def barrier_of(config: RuntimeConfig, checkpoint_id: int, now_us: int, kind: SnapshotType) -> Barrier:
    """The barrier with which a checkpoint or savepoint is triggered at the sources."""
    return mode_of(config, kind).barrier(config, checkpoint_id, now_us, kind)


def protocol_of(barrier: Barrier, open_channels: frozenset[int], view: TaskView) -> CheckpointProtocol:
    """The protocol of one checkpoint at one task. ``barrier`` is the first that arrived there."""
    make = _mode_at_task(barrier).make
    assert make is not None
    return make(barrier, open_channels, view)


def commands_at_source(barrier: Barrier, view: TaskView) -> list[Command]:
    """The commands of a source that is triggered with this barrier."""
    return _mode_at_task(barrier).at_source(barrier, view)


def keeper_of(channels: int, config: RuntimeConfig, view: TaskView) -> Keeper:
    """The keeper of all checkpoints of a task with this many input channels."""
    keeper = next(k for k in KEEPERS if k.is_chosen(config))
    return keeper.make(channels, lambda first, opened: protocol_of(first, opened, view), config.counts_ended_channels)


def _mode_at_task(barrier: Barrier) -> Mode:
    return next(m for m in MODES if m.handles(barrier))
