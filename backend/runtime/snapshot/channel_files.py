"""The files of the channel state of one job, and when they are deleted (SP-2 to SP-6, FM-1 to FM-3).

By default, the channel state of a subtask is a part of its checkpoint, and this module has no files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from backend.runtime.job.config import RuntimeConfig
from backend.runtime.measure.measures import SubtaskSnapshot, TaskKey
from backend.runtime.network.segments import SegmentStore
from backend.runtime.snapshot.merging import FileMerging
from backend.runtime.snapshot.spill_logs import SpillLogs


class SharedStream:
    """The subtasks that write into the same files. If one fails to write, the others' writes fail too (SP-6)."""

    def __init__(self, merging: FileMerging) -> None:
        self.merging = merging
        self._writing: dict[int, dict[TaskKey, Callable[[], None]]] = {}

    def begin(self, key: TaskKey, checkpoint_id: int, fail: Callable[[], None]) -> None:
        """Record that a subtask writes for a checkpoint. ``fail`` is called if the write of another subtask fails."""
        self._writing.setdefault(checkpoint_id, {})[key] = fail

    def end(self, key: TaskKey, checkpoint_id: int) -> None:
        """Record that the write of a subtask has ended."""
        writing = self._writing.get(checkpoint_id, {})
        writing.pop(key, None)
        if not writing:
            self._writing.pop(checkpoint_id, None)

    def fail_others(self, checkpoint_id: int) -> None:
        """Let the writes of all subtasks for a checkpoint fail."""
        for fail in list(self._writing.pop(checkpoint_id, {}).values()):
            fail()


class ChannelFiles:
    """The files of channel state of one job. They survive a restart of the job."""

    def __init__(self) -> None:
        self.store = SegmentStore()
        self.logs = SpillLogs(self.store)
        self._streams: dict[tuple[int, ...], SharedStream] = {}

    def stream(self, config: RuntimeConfig, key: TaskKey) -> SharedStream:
        """Return the files that a subtask writes into.

        If files are merged, a number of subtasks of a vertex on the same task manager share them. Otherwise, each
        write of a subtask gets a file of its own.
        """
        vertex, index = key
        manager, nth = index % config.task_managers, index // config.task_managers
        group = (vertex, manager, nth // config.merged_subtasks_max) if config.merges_files else key
        if group not in self._streams:
            self._streams[group] = SharedStream(
                FileMerging(
                    self.store,
                    name="merged/" + "-".join(map(str, group)),
                    is_across=config.merges_across,
                    file_bytes_max=config.merged_bytes_max if config.merges_files else 0,
                    amplification_max=config.amplification_percent_max / 100,
                )
            )
        stream = self._streams[group]
        stream.merging.add(key)
        return stream

    def completed(self, checkpoint_id: int) -> None:
        """Close the files of a complete checkpoint, unless later checkpoints may append to them."""
        for stream in self._streams.values():
            stream.merging.all_completed(checkpoint_id)

    def aborted(self, checkpoint_id: int) -> None:
        """Delete what was written for a checkpoint that does not complete (CC-5)."""
        for stream in self._streams.values():
            stream.merging.all_aborted(checkpoint_id)

    def retain(self, lowest_id: int, retained: Iterable[Mapping[TaskKey, SubtaskSnapshot]]) -> None:
        """Delete what no retained checkpoint needs. ``lowest_id`` is the id of the first checkpoint in ``retained``."""
        for stream in self._streams.values():
            stream.merging.all_subsumed(lowest_id - 1)
        self.logs.retain(retained)

    def close(self) -> None:
        """Close the files, because the job has ended. The files of the retained checkpoints stay."""
        for stream in self._streams.values():
            stream.merging.close()
