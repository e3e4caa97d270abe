"""What kind of barrier a checkpoint is triggered with: that follows from the settings alone (OPT-2). Pure."""

from __future__ import annotations

from backend.runtime.core.elements import Alignment, Barrier, SnapshotType
from backend.runtime.job.config import RuntimeConfig


def barrier_of(config: RuntimeConfig, checkpoint_id: int, now_us: int, kind: SnapshotType) -> Barrier:
    """OPT-2, the first match; with a timeout of 0 it is unaligned from the start (AT-10).

    SV-1: a savepoint is aligned for good, whatever the checkpoints are.
    """
    if not config.is_exactly_once:
        return Barrier(checkpoint_id, now_us, Alignment.AT_LEAST_ONCE, snapshot_type=kind)
    if kind.is_savepoint or not config.is_unaligned:
        return Barrier(checkpoint_id, now_us, Alignment.ALIGNED, snapshot_type=kind)
    if config.has_cap:
        return Barrier(checkpoint_id, now_us, Alignment.UNALIGNED, is_capped=True)
    if config.aligned_timeout_us == 0:
        return Barrier(checkpoint_id, now_us, Alignment.UNALIGNED)
    return Barrier(checkpoint_id, now_us, Alignment.ALIGNED, config.aligned_timeout_us)
