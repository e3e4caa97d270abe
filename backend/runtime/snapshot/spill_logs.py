"""The logs of continuous spilling: their files, and the in-flight data of a checkpoint in them (SP-2 to SP-4).

A sender appends each finished buffer to its log. A checkpoint refers to parts of logs, so it copies nothing. The
sender's snapshot says how much was sent, and the receiver's snapshot how much was consumed (SP-3). The in-flight data
of a channel lies between the two, so no record is processed twice.

Invariant: the part of a log that a retained or pending checkpoint refers to exists (SP-4).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from backend.domain.errors import ProtocolViolationError
from backend.runtime.measure.measures import ChannelState, Finished, Spilled, SubtaskSnapshot, TaskKey
from backend.runtime.network.buffers import Data
from backend.runtime.network.channel import ChannelKey
from backend.runtime.network.segments import Segment, SegmentStore


@dataclass(slots=True, eq=False)
class _LogFile:
    path: str
    size_bytes: int = 0
    is_open: bool = True
    ends: dict[ChannelKey, int] = field(default_factory=dict)
    """The offset at which the part of each channel ends."""


class SpillLog:
    """The log of one attempt of one subtask, in files of limited size. All of its data is durable in the store."""

    def __init__(self, store: SegmentStore, name: str, *, key: TaskKey, attempt: int, file_bytes_max: int) -> None:
        self.key = key
        self.attempt = attempt
        self._store = store
        self._name = name
        self._file_bytes_max = file_bytes_max
        self._files: list[_LogFile] = []
        self._index: dict[ChannelKey, deque[tuple[int, Segment]]] = {}
        self.is_closed = False

    def append(self, key: ChannelKey, offset: int, data: bytes) -> None:
        """Add a buffer of a channel that begins at ``offset``.

        Do nothing if the log is closed. The write of a finished subtask's last buffers can end after the coordinator
        has closed its log, and a file that began then would never be deleted (SP-4).
        """
        if self.is_closed:
            return
        if not self._files or not self._files[-1].is_open:
            self._files.append(_LogFile(self._store.create(self._name)))
        file = self._files[-1]
        segment = self._store.append(file.path, data)
        file.size_bytes += len(data)
        file.is_open = file.size_bytes < self._file_bytes_max
        file.ends[key] = offset + len(data)
        self._index.setdefault(key, deque()).append((offset, segment))

    def up_to(self, sent: Mapping[ChannelKey, int]) -> dict[ChannelKey, tuple[tuple[int, Segment], ...]]:
        """Return the segments of each channel that begin before its sent offset."""
        return {
            key: tuple(entry for entry in self._index.get(key, ()) if entry[0] < offset) for key, offset in sent.items()
        }

    def truncate(self, floors: Mapping[ChannelKey, int]) -> None:
        """Forget the data below these offsets (SP-4)."""
        for key, floor in floors.items():
            entries = self._index.get(key)
            while entries and entries[0][0] + entries[0][1].size_bytes <= floor:
                entries.popleft()

    def sweep(self, floors: Mapping[ChannelKey, int], used: frozenset[str]) -> None:
        """Delete the files that lie below the floors. After the attempt, delete all files. Keep ``used`` files."""
        for file in list(self._files):
            is_below = not file.is_open and all(floors.get(key, -1) >= end for key, end in file.ends.items())
            if file.path not in used and (self.is_closed or is_below):
                self._files.remove(file)
                self._store.delete(file.path)

    @property
    def is_gone(self) -> bool:
        """Whether the attempt has ended and no file is left."""
        return self.is_closed and not self._files


class SpillLogs:
    """The logs of all subtasks of one job. They survive a restart of the job."""

    def __init__(self, store: SegmentStore) -> None:
        self._store = store
        self._logs: list[SpillLog] = []

    def open(self, name: str, *, key: TaskKey, attempt: int, file_bytes_max: int) -> SpillLog:
        """Begin the log of one attempt of one subtask."""
        log = SpillLog(self._store, f"spill/{name}", key=key, attempt=attempt, file_bytes_max=file_bytes_max)
        self._logs.append(log)
        return log

    def retain(self, retained: Iterable[Mapping[TaskKey, SubtaskSnapshot]]) -> None:
        """Delete what no checkpoint needs (SP-4). ``retained`` are the completed checkpoints, oldest first.

        A pending checkpoint is newer than the oldest retained one, so its consumed offsets are not smaller. A subtask
        that had finished before the oldest retained checkpoint of its attempt has no data in any of them, and its
        receivers may have finished too, so that they report no offsets: nothing needs its log. After a restart it sends
        the end of its data again, so checkpoints of earlier attempts do not count.
        """
        if not self._logs:
            return
        used: set[str] = set()
        floors: dict[int, dict[ChannelKey, int]] = {}
        finished: dict[int, set[TaskKey]] = {}
        for snapshots in retained:
            own_finished = {key for key, snapshot in snapshots.items() if snapshot.finished is Finished.TASK}
            for attempt in {s.spilled.attempt for s in snapshots.values() if s.spilled is not None}:
                finished[attempt] = own_finished & finished.get(attempt, own_finished)
            of_attempt: dict[ChannelKey, int] = {}
            for snapshot in snapshots.values():
                used.update(_paths(snapshot))
                if snapshot.spilled is not None:
                    of_attempt = floors.setdefault(snapshot.spilled.attempt, {})
                    for key, offset in snapshot.spilled.consumed.items():
                        of_attempt[key] = min(offset, of_attempt.get(key, offset))
        for log in self._logs:
            own = floors.get(log.attempt, {})
            log.is_closed |= log.key in finished.get(log.attempt, ())
            log.truncate(own)
            log.sweep(own, frozenset(used))
        self._logs = [log for log in self._logs if not log.is_gone]


def _paths(snapshot: SubtaskSnapshot) -> set[str]:
    chunks = (chunk for chunks in snapshot.channels.outputs.values() for chunk in chunks)
    return {chunk.path for chunk in chunks if isinstance(chunk, Segment)}


def resolved(snapshots: Mapping[TaskKey, SubtaskSnapshot]) -> dict[TaskKey, SubtaskSnapshot]:
    """Return the snapshots of a complete checkpoint with their in-flight data as output of the senders (SP-3, SP-7).

    Raises:
        ProtocolViolationError: the logs do not have all the data between the consumed and the sent offset of a channel.
    """
    consumed: dict[ChannelKey, int] = {}
    for snapshot in snapshots.values():
        if snapshot.spilled is not None:
            consumed |= snapshot.spilled.consumed
    return {
        key: snapshot if snapshot.spilled is None else _resolved(snapshot, snapshot.spilled, consumed)
        for key, snapshot in snapshots.items()
    }


def _resolved(snapshot: SubtaskSnapshot, spilled: Spilled, consumed: Mapping[ChannelKey, int]) -> SubtaskSnapshot:
    outputs: dict[ChannelKey, list[Data]] = {}
    for key, sent in spilled.sent.items():
        at = consumed.get(key, sent)
        parts: list[Data] = []
        for offset, segment in spilled.log.get(key, ()):
            end = offset + segment.size_bytes
            if offset <= at < min(end, sent):
                parts.append(segment.part(at - offset, min(end, sent) - offset))
                at = min(end, sent)
        if at < sent:
            raise ProtocolViolationError(f"the spill log of {key} lacks the bytes {at} to {sent}", rule="SP-3")
        if parts:
            outputs[key] = parts
    size_bytes = sum(len(part) for parts in outputs.values() for part in parts)
    kept = replace(spilled, log={})
    return replace(snapshot, channels=ChannelState({}, outputs), persisted_bytes=size_bytes, spilled=kept)
