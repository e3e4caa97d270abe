"""A completed checkpoint, and the in-flight cap of a subtask, which depends on the newest completed checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from backend.runtime.job.config import UNLIMITED, RuntimeConfig
from backend.runtime.job.graph import Graph
from backend.runtime.measure.measures import MeasuredCheckpoint, SubtaskSnapshot, TaskKey
from backend.runtime.operators.state import FileHandle
from backend.runtime.snapshot.metadata import INLINE_BELOW_BYTES, StoredCheckpoint, write_checkpoint
from backend.runtime.snapshot.shared_files import SharedFiles


@dataclass(frozen=True, slots=True)
class Completed:
    """A completed checkpoint or savepoint, which can be restored."""

    record: MeasuredCheckpoint
    snapshots: Mapping[TaskKey, SubtaskSnapshot]
    shared: SharedFiles
    """The files that checkpoints of the job share."""

    @property
    def shared_files(self) -> dict[str, FileHandle]:
        """The shared files that the checkpoint refers to, by path."""
        operators = (operator for snapshot in self.snapshots.values() for operator in snapshot.operators)
        increments = (operator.increment for operator in operators if operator.increment is not None)
        return {file.path: file for increment in increments for file in increment.files}

    @property
    def has_channel_state(self) -> bool:
        """Whether the checkpoint contains in-flight data."""
        return any(s.persisted_bytes for s in self.snapshots.values())

    def stored(self, graph: Graph, *, inline_below_bytes: int = INLINE_BELOW_BYTES) -> StoredCheckpoint:
        """Return the checkpoint in the form in which it is stored (CK-1, CK-2)."""
        return write_checkpoint(self.record, self.snapshots, graph, self.shared, inline_below_bytes=inline_below_bytes)


def cap_share_bytes(config: RuntimeConfig, task: TaskKey, *, subtasks: int, newest: Completed | None) -> int:
    """Return a subtask's in-flight cap in bytes (CAP-6).

    The cap is the lower of the cap per subtask and the subtask's share of the job's cap. Half of the job's cap is
    divided evenly, and half in proportion to the bytes that the subtasks persisted in ``newest``. If they persisted
    none, all of it is divided evenly.
    """
    if config.cap_job_bytes == UNLIMITED:
        return config.cap_bytes
    share = config.cap_job_bytes // max(1, subtasks)
    total = sum(s.persisted_bytes for s in newest.snapshots.values()) if newest else 0
    if newest is not None and total:
        own = newest.snapshots.get(task)
        # Half of the cap is divided evenly, because a subtask that persisted nothing in ``newest`` may have data in
        # flight now.
        weighted = config.cap_job_bytes * (own.persisted_bytes if own else 0) // total
        share = (share + weighted) // 2
    return share if config.cap_bytes == UNLIMITED else min(share, config.cap_bytes)
