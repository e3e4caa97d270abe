"""The registry of the files that checkpoints share (runtime.md 5.5). It behaves as Flink's ``SharedStateRegistryImpl``.

For each key, the registry knows the file, the checkpoint that created the entry, and the newest checkpoint that uses
this file. A file is deleted when no retained checkpoint can use it any more (IN-17 is an example).

Invariant (IN-19): a file that a retained checkpoint refers to is not deleted, and no file is deleted twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from backend.domain.errors import ProtocolViolationError
from backend.runtime.operators.state import FileHandle


@dataclass(slots=True)
class _Entry:
    handle: FileHandle
    created_by: int
    last_used_by: int


class SharedStateRegistry:
    """The shared files of one job. ``delete`` deletes a file that is no longer needed."""

    def __init__(self, delete: Callable[[FileHandle], None]) -> None:
        self._delete = delete
        self._entries: dict[str, _Entry] = {}
        self._highest_not_claimed = -1

    def register(self, handle: FileHandle, checkpoint_id: int) -> FileHandle:
        """Record that a checkpoint uses a file. Return the handle that the checkpoint must use (IN-15).

        Raises:
            ProtocolViolationError: a placeholder names a key that is not registered, or another file is registered
                under the key.
        """
        entry = self._entries.get(handle.key)
        if entry is None:
            if handle.is_placeholder:
                raise ProtocolViolationError(
                    f"checkpoint {checkpoint_id} refers to {handle.key}, which is not registered", rule="IN-15"
                )
            self._entries[handle.key] = _Entry(handle, checkpoint_id, checkpoint_id)
            return handle
        if not handle.is_placeholder and handle != entry.handle:
            raise ProtocolViolationError(
                f"checkpoint {checkpoint_id} has {handle.path} as {handle.key}, which is {entry.handle.path}",
                rule="IN-15",
            )
        entry.last_used_by = max(entry.last_used_by, checkpoint_id)
        return entry.handle

    def unregister_unused(self, lowest_id: int) -> None:
        """Drop the entries that no checkpoint from ``lowest_id`` on uses, and delete their files (IN-16).

        Files that the job does not own are not deleted.
        """
        for key in [key for key, entry in self._entries.items() if entry.last_used_by < lowest_id]:
            entry = self._entries.pop(key)
            if entry.created_by > self._highest_not_claimed:
                self._delete(entry.handle)

    def restored(self, handles: Iterable[FileHandle], checkpoint_id: int, *, is_claimed: bool) -> None:
        """Register the files of a checkpoint from which the job begins.

        Unless the checkpoint ``is_claimed``, its files belong to the user, and are never deleted (IN-16).
        """
        for handle in handles:
            self.register(handle, checkpoint_id)
        if not is_claimed:
            self._highest_not_claimed = max(self._highest_not_claimed, checkpoint_id)

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def owns(self, handle: FileHandle) -> bool:
        """Return whether this file is the one that is registered under its key."""
        entry = self._entries.get(handle.key)
        return entry is not None and entry.handle.path == handle.path

    def last_used_by(self, path: str) -> int:
        """Return the newest checkpoint that uses a registered file."""
        return next(entry.last_used_by for entry in self._entries.values() if entry.handle.path == path)

    @property
    def paths(self) -> frozenset[str]:
        """The paths of all registered files."""
        return frozenset(entry.handle.path for entry in self._entries.values())
