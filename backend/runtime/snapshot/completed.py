"""A completed checkpoint: what can be restored of it, and what a cap learns from it. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from backend.runtime.job.config import UNLIMITED, RuntimeConfig
from backend.runtime.job.graph import Graph
from backend.runtime.measure.measures import CheckpointRecord, SubtaskSnapshot, TaskKey
from backend.runtime.snapshot.metadata import INLINE_BELOW_BYTES, StoredCheckpoint, write_checkpoint


@dataclass(frozen=True, slots=True)
class Completed:
    """A checkpoint that can be restored."""

    record: CheckpointRecord
    snapshots: Mapping[TaskKey, SubtaskSnapshot]

    @property
    def has_channel_state(self) -> bool:
        """Whether in-flight data is part of it."""
        return any(s.persisted_bytes for s in self.snapshots.values())

    def stored(self, graph: Graph, *, inline_below_bytes: int = INLINE_BELOW_BYTES) -> StoredCheckpoint:
        """As it lies in the store (CK-1, CK-2)."""
        return write_checkpoint(self.record, self.snapshots, graph, inline_below_bytes=inline_below_bytes)


def cap_share_bytes(config: RuntimeConfig, task: TaskKey, *, subtasks: int, newest: Completed | None) -> int:
    """CAP-6: the cap per subtask, and its share of the job's by what it persisted last."""
    if config.cap_job_bytes == UNLIMITED:
        return config.cap_bytes
    share = config.cap_job_bytes // max(1, subtasks)
    total = sum(s.persisted_bytes for s in newest.snapshots.values()) if newest else 0
    if newest is not None and total:
        own = newest.snapshots.get(task)
        # Half by what was persisted, half evenly: a subtask that had nothing in flight may have some now.
        weighted = config.cap_job_bytes * (own.persisted_bytes if own else 0) // total
        share = (share + weighted) // 2
    return share if config.cap_bytes == UNLIMITED else min(share, config.cap_bytes)
