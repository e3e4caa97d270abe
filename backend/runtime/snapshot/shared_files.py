"""The immutable files of incremental checkpoints, as the store keeps them.

A file belongs to the subtask that wrote it until an acknowledgement hands it over to the registry. Only its owner
deletes it. Invariant (IN-19): no file is deleted twice, and no file without an owner remains.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import replace

from backend.domain.errors import CorruptCheckpointError, ProtocolViolationError
from backend.runtime.measure.measures import SubtaskSnapshot
from backend.runtime.operators.state import FileHandle, OperatorSnapshot
from backend.runtime.snapshot.registry import SharedStateRegistry


class SharedFiles:
    """The files of one job. They survive a restart of the job."""

    def __init__(self) -> None:
        self._contents: dict[str, bytes] = {}
        self._written = 0
        self.registry = SharedStateRegistry(self._delete)
        self.deleted_count = 0

    def new_path(self, key: str) -> str:
        """Return a path that no file of the job has ever had."""
        self._written += 1
        return f"shared/{key}-{self._written}"

    def write(self, path: str, content: bytes) -> None:
        """Add a file that is written completely."""
        self._contents[path] = content

    def adopt(self, handles: Mapping[str, FileHandle], contents: Mapping[str, bytes], checkpoint_id: int) -> None:
        """Own the files of a claimed checkpoint of an earlier run. They are deleted when nothing uses them (IN-16)."""
        self._contents |= {path: contents[path] for path in handles}
        self.registry.restored(handles.values(), checkpoint_id, is_claimed=True)

    def release(self, handle: FileHandle) -> None:
        """Delete a file that its subtask no longer needs, unless the registry owns it."""
        if handle in self and not self.registry.owns(handle):
            self._delete(handle)

    def _delete(self, handle: FileHandle) -> None:
        if self._contents.pop(handle.path, None) is None:
            raise ProtocolViolationError(f"the shared file {handle.path} is deleted twice", rule="IN-19")
        self.deleted_count += 1

    def __contains__(self, handle: FileHandle) -> bool:
        return handle.path in self._contents

    def __len__(self) -> int:
        return len(self._contents)

    @property
    def paths(self) -> frozenset[str]:
        """The paths of all files."""
        return frozenset(self._contents)

    def content(self, handle: FileHandle) -> bytes:
        """Return the bytes of a file.

        Raises:
            CorruptCheckpointError: the file is missing.
        """
        content = self._contents.get(handle.path)
        if content is None:
            raise CorruptCheckpointError(f"the shared file {handle.path} is missing", part=handle.path)
        return content


def groups_in(handle: FileHandle, contents: Mapping[str, bytes], *, place: str) -> dict[int, bytes]:
    """Return the key groups of a file. ``contents`` are the files by path, ``place`` the operator that wrote it.

    Raises:
        CorruptCheckpointError: the file is missing or damaged.
    """
    content = contents.get(handle.path)
    if content is None:
        raise CorruptCheckpointError(f"the shared file {handle.path} of {place} is missing", part=handle.path)
    if zlib.crc32(content) != handle.crc:
        raise CorruptCheckpointError(f"the shared file {handle.path} of {place} is damaged", part=handle.path)
    return {group: content[at : at + size] for group, at, size in handle.spans}


def registered(snapshot: SubtaskSnapshot, checkpoint_id: int, files: SharedFiles) -> SubtaskSnapshot:
    """Register the files of an acknowledgement. Return the snapshot with the handles that a restore uses (IN-18)."""
    if all(operator.increment is None for operator in snapshot.operators):
        return snapshot
    return replace(snapshot, operators=tuple(_registered(o, checkpoint_id, files) for o in snapshot.operators))


def _registered(operator: OperatorSnapshot, checkpoint_id: int, files: SharedFiles) -> OperatorSnapshot:
    if operator.increment is None:
        return operator
    known = tuple(files.registry.register(file, checkpoint_id) for file in operator.increment.files)
    return replace(operator, increment=replace(operator.increment, files=known))


def register_late(snapshot: SubtaskSnapshot, checkpoint_id: int, files: SharedFiles) -> None:
    """Register the files of an acknowledgement of a checkpoint that is no longer pending (IN-18).

    The next subsumption deletes these files. Files that the subtask has already deleted are not registered.
    """
    for operator in snapshot.operators:
        for file in () if operator.increment is None else operator.increment.files:
            if file in files and (not file.is_placeholder or file.key in files.registry):
                files.registry.register(file, checkpoint_id)
