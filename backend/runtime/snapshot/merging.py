"""Merges the channel state of several subtasks, and of several checkpoints, into few files (runtime.md 5.6).

It behaves as Flink's file merging managers. A *logical file* is what one subtask writes for one checkpoint. It is a
part of a physical file, which has one writer at a time. After a write, the physical file waits in a pool for the next
write, which may be restricted to the same checkpoint (FM-2). A physical file is deleted when it is closed and none of
its logical files is needed any more (FM-3). A logical file is needed until the newest checkpoint that uses it is
subsumed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from backend.runtime.network.segments import Segment, SegmentStore

_ENDED_KEPT = 16
"""The number of ended checkpoints that are remembered, as in Flink."""


@dataclass(slots=True, eq=False)
class PhysicalFile:
    """A file, and the number of logical files in it that are still needed."""

    path: str
    size_bytes: int = 0
    needed: int = 0
    needed_bytes: int = 0
    is_open: bool = True
    is_deleted: bool = False


@dataclass(slots=True, eq=False)
class LogicalFile:
    """What one subtask wrote for one checkpoint."""

    file: PhysicalFile
    segments: tuple[Segment, ...]
    size_bytes: int
    subtask: Hashable
    last_used_by: int
    is_discarded: bool = False


class FilePool:
    """The open physical files that wait for their next write. ``owner`` is None for files that all subtasks share."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, deque[PhysicalFile]] = {None: deque()}

    def take(self, owner: Hashable) -> PhysicalFile | None:
        """Remove and return the file that has waited longest. Return None if no file waits."""
        waiting = self._waiting.setdefault(owner, deque())
        return waiting.popleft() if waiting else None

    def put(self, owner: Hashable, file: PhysicalFile) -> None:
        """Let a file wait for its next write."""
        self._waiting.setdefault(owner, deque()).append(file)

    def drain(self, owner: Hashable) -> list[PhysicalFile]:
        """Remove and return the waiting files of an owner, and those that all subtasks share."""
        files = [*self._waiting.pop(owner, ()), *self._waiting[None]]
        self._waiting[None] = deque()
        return files

    def drain_all(self) -> list[PhysicalFile]:
        """Remove and return all waiting files."""
        files = [file for waiting in self._waiting.values() for file in waiting]
        self._waiting = {None: deque()}
        return files

    @property
    def is_empty(self) -> bool:
        """Whether no file waits, and no single subtask has a queue of waiting files."""
        return len(self._waiting) == 1 and not self._waiting[None]


class FileMerging:
    """The files of some subtasks, which write into the same files."""

    def __init__(
        self,
        store: SegmentStore,
        *,
        name: str,
        is_across: bool,
        file_bytes_max: int,
        amplification_max: float | None = None,
    ) -> None:
        """``is_across``: whether a checkpoint may append to a file of an earlier one (FM-2).

        ``file_bytes_max``: a file of this size is closed (FM-1). ``amplification_max``: a file whose size is more than
        this multiple of what is still needed of it is neither appended to nor used again (FM-3); None for no limit.
        """
        self._store = store
        self._name = name
        self._is_across = is_across
        self._file_bytes_max = file_bytes_max
        self._amplification_max = amplification_max
        self._pool_of_all = FilePool()
        self._pools: dict[int, FilePool] = {}
        self._written: dict[int, list[LogicalFile]] = {}
        self._subtasks: set[Hashable] = set()
        self._told: dict[int, set[Hashable]] = {}
        self._ended: list[int] = []

    def add(self, subtask: Hashable) -> None:
        """Let a subtask write into these files."""
        self._subtasks.add(subtask)

    # --- writing --------------------------------------------------------------------------------------------------

    def begin(self, subtask: Hashable, checkpoint_id: int, *, is_private: bool = False) -> PhysicalFile:
        """Take a file for a write. Until the write ends, nothing else is written to this file.

        ``is_private``: the file takes only writes of this subtask.
        """
        pool, owner = self._pool(checkpoint_id), subtask if is_private else None
        while (file := pool.take(owner)) is not None:
            if self._is_dense(file):
                return file
            self._close(file)
        return PhysicalFile(self._store.create(self._name))

    def end(
        self,
        file: PhysicalFile,
        subtask: Hashable,
        checkpoint_id: int,
        chunks: Sequence[bytes],
        *,
        is_private: bool = False,
    ) -> LogicalFile:
        """End a write: append what was written, and let the file wait for its next write, unless it is full.

        Each chunk becomes one segment of the logical file.
        """
        size_bytes = sum(map(len, chunks))
        segments = tuple(self._store.append(file.path, chunk) for chunk in chunks)
        logical = LogicalFile(file, segments, size_bytes, subtask, checkpoint_id)
        file.needed += 1
        file.needed_bytes += size_bytes
        file.size_bytes += size_bytes
        self._written.setdefault(checkpoint_id, []).append(logical)
        if file.size_bytes < self._file_bytes_max:
            self._pool(checkpoint_id).put(subtask if is_private else None, file)
        else:
            self._close(file)
        return logical

    def fail(self, file: PhysicalFile) -> None:
        """End a write that failed or was cancelled. Nothing more is written to the file."""
        self._close(file)

    def reuse(self, logical: LogicalFile, checkpoint_id: int) -> bool:
        """Let a checkpoint use a logical file of an earlier one. Return False if the file may not be used again."""
        if logical.is_discarded or not self._is_dense(logical.file):
            return False
        logical.last_used_by = max(logical.last_used_by, checkpoint_id)
        return True

    def _is_dense(self, file: PhysicalFile) -> bool:
        most = self._amplification_max
        return most is None or file.size_bytes <= most * file.needed_bytes

    def _pool(self, checkpoint_id: int) -> FilePool:
        return self._pool_of_all if self._is_across else self._pools.setdefault(checkpoint_id, FilePool())

    # --- the ends of checkpoints ----------------------------------------------------------------------------------

    def completed(self, subtask: Hashable, checkpoint_id: int) -> None:
        """Handle the completion of a checkpoint: nothing more is written for it."""
        self._close_pool(subtask, checkpoint_id)

    def aborted(self, subtask: Hashable, checkpoint_id: int) -> None:
        """Drop what the subtask wrote for a checkpoint that does not complete."""
        if checkpoint_id in self._written:
            if self._discard(subtask, checkpoint_id, self._written[checkpoint_id]):
                del self._written[checkpoint_id]
            self._note_end(subtask, checkpoint_id)
        self._close_pool(subtask, checkpoint_id)

    def subsumed(self, subtask: Hashable, checkpoint_id: int) -> None:
        """Drop what the subtask wrote for this checkpoint and for older ones, unless a newer one uses it."""
        for older in sorted(k for k in self._written if k <= checkpoint_id):
            if self._discard(subtask, checkpoint_id, self._written[older]):
                del self._written[older]
        self._note_end(subtask, checkpoint_id)

    def all_subsumed(self, checkpoint_id: int) -> None:
        """Handle the subsumption of a checkpoint for all subtasks.

        A write that ended after its checkpoint was aborted left an open file, which is closed here.
        """
        for subtask in self._subtasks:
            self.subsumed(subtask, checkpoint_id)
        for older in [k for k in self._pools if k <= checkpoint_id]:
            self._close_all(self._pools.pop(older).drain_all())

    def all_completed(self, checkpoint_id: int) -> None:
        """Handle the completion of a checkpoint for all subtasks."""
        for subtask in self._subtasks:
            self.completed(subtask, checkpoint_id)

    def all_aborted(self, checkpoint_id: int) -> None:
        """Handle the end of a checkpoint that does not complete, for all subtasks."""
        for subtask in self._subtasks:
            self.aborted(subtask, checkpoint_id)

    def _note_end(self, subtask: Hashable, checkpoint_id: int) -> None:
        """When all subtasks know that a checkpoint is over, close the files in its pool."""
        if checkpoint_id in self._ended:
            return
        told = self._told.setdefault(checkpoint_id, set())
        told.add(subtask)
        if told >= self._subtasks:
            self._end_checkpoint(checkpoint_id)
        if len(self._told) > _ENDED_KEPT:
            del self._told[min(self._told)]

    def _end_checkpoint(self, checkpoint_id: int) -> None:
        if checkpoint_id in self._ended:
            return
        self._ended.append(checkpoint_id)
        self._told.pop(checkpoint_id, None)
        if checkpoint_id in self._pools:
            self._close_all(self._pools[checkpoint_id].drain_all())
        if len(self._ended) > _ENDED_KEPT:
            self._ended.remove(min(self._ended))

    def _discard(self, subtask: Hashable, checkpoint_id: int, written: list[LogicalFile]) -> bool:
        """Drop the logical files of a subtask that no newer checkpoint uses. Return whether none is left."""
        for logical in [f for f in written if f.subtask == subtask and f.last_used_by <= checkpoint_id]:
            written.remove(logical)
            logical.is_discarded = True
            logical.file.needed -= 1
            logical.file.needed_bytes -= logical.size_bytes
            self._delete_if_unused(logical.file)
        if not written:
            self._end_checkpoint(checkpoint_id)
        return not written

    def _close_pool(self, subtask: Hashable, checkpoint_id: int) -> None:
        pool = self._pools.get(checkpoint_id)
        if pool is not None:
            self._close_all(pool.drain(subtask))
            if pool.is_empty:
                del self._pools[checkpoint_id]

    def close(self) -> None:
        """Close all files that wait, because the job has ended. Files with data that is needed stay."""
        for pool in (self._pool_of_all, *self._pools.values()):
            self._close_all(pool.drain_all())
        self._pools.clear()

    def _close_all(self, files: Iterable[PhysicalFile]) -> None:
        for file in files:
            self._close(file)

    def _close(self, file: PhysicalFile) -> None:
        file.is_open = False
        self._delete_if_unused(file)

    def _delete_if_unused(self, file: PhysicalFile) -> None:
        if not file.is_open and not file.is_deleted and file.needed <= 0:
            file.is_deleted = True
            self._store.delete(file.path)
