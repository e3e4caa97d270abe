"""A completed checkpoint, and the in-flight caps that depend on it. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from backend.runtime.job.config import UNLIMITED, RuntimeConfig
from backend.runtime.job.graph import Graph
from backend.runtime.measure.measures import CheckpointRecord, SubtaskSnapshot, TaskKey
from backend.runtime.snapshot.metadata import INLINE_BELOW_BYTES, StoredCheckpoint, write_checkpoint


@dataclass(frozen=True, slots=True)
class Completed:
    """A completed checkpoint or savepoint. It can be restored."""

    record: CheckpointRecord
    snapshots: Mapping[TaskKey, SubtaskSnapshot]

    @property
    def has_channel_state(self) -> bool:
        """Whether in-flight data is part of it."""
        return any(s.persisted_bytes for s in self.snapshots.values())

    def stored(self, graph: Graph, *, inline_below_bytes: int = INLINE_BELOW_BYTES) -> StoredCheckpoint:
        """The checkpoint as it is stored (CK-1, CK-2)."""
        return write_checkpoint(self.record, self.snapshots, graph, inline_below_bytes=inline_below_bytes)


def cap_share_bytes(config: RuntimeConfig, task: TaskKey, *, subtasks: int, newest: Completed | None) -> int:
    """CAP-6: a subtask's in-flight cap in bytes: the lower of the cap per subtask and its share of the job's cap.

    Half of the share depends on the bytes that the subtask persisted in the ``newest`` checkpoint.
    """
    if config.cap_job_bytes == UNLIMITED:
        return config.cap_bytes
    share = config.cap_job_bytes // max(1, subtasks)
    total = sum(s.persisted_bytes for s in newest.snapshots.values()) if newest else 0
    if newest is not None and total:
        own = newest.snapshots.get(task)
        # Half of the job's cap is shared evenly: a subtask that had no data in flight may have some now.
        weighted = config.cap_job_bytes * (own.persisted_bytes if own else 0) // total
        share = (share + weighted) // 2
    return share if config.cap_bytes == UNLIMITED else min(share, config.cap_bytes)
