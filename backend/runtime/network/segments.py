"""The files of channel state that hold several pieces of data, and the segments in which the pieces lie.

A file belongs to the component that writes it: the merging of files (``snapshot.merging``) or a spill log
(``snapshot.spill_logs``). Only its owner deletes it. Invariant: no file is deleted twice, and a segment that a retained
checkpoint refers to can be read.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from backend.domain.errors import CorruptCheckpointError, ProtocolViolationError


class SegmentStore:
    """The contents of the files of one job. They survive a restart of the job."""

    def __init__(self) -> None:
        self._contents: dict[str, bytearray] = {}
        self.created_count = 0
        self.deleted_count = 0
        self.written_bytes = 0
        """Number of bytes that were written to files so far."""

    def create(self, name: str) -> str:
        """Create an empty file. Return its path, which no file of the job has ever had."""
        self.created_count += 1
        path = f"{name}-{self.created_count}"
        self._contents[path] = bytearray()
        return path

    def append(self, path: str, data: bytes) -> Segment:
        """Append data to a file, and return its segment."""
        content = self._contents[path]
        segment = Segment(path, len(content), len(data), zlib.crc32(data), self)
        content += data
        self.written_bytes += len(data)
        return segment

    def delete(self, path: str) -> None:
        """Delete a file.

        Raises:
            ProtocolViolationError: the file does not exist.
        """
        if self._contents.pop(path, None) is None:
            raise ProtocolViolationError(f"the file {path} is deleted twice", rule="FM-3")
        self.deleted_count += 1

    def content(self, path: str) -> bytes | None:
        """Return the bytes of a file, or None if it does not exist."""
        found = self._contents.get(path)
        return None if found is None else bytes(found)

    def read(self, path: str) -> bytearray | None:
        """Return the bytes of a file without a copy, or None if it does not exist."""
        return self._contents.get(path)

    @property
    def paths(self) -> frozenset[str]:
        """The paths of all files."""
        return frozenset(self._contents)

    @property
    def stored_bytes(self) -> int:
        """The size of all files."""
        return sum(map(len, self._contents.values()))


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a file. It can be used in place of its bytes (``network.buffers.Data``)."""

    path: str
    at: int
    size_bytes: int
    crc: int
    store: SegmentStore = field(repr=False, compare=False)

    def __len__(self) -> int:
        return self.size_bytes

    def __bytes__(self) -> bytes:
        return segment_in({self.path: self.store.read(self.path)}, self.path, self.at, self.size_bytes, self.crc)

    def part(self, at: int, end: int) -> Segment:
        """Return the part of this segment from byte ``at`` to byte ``end``."""
        if at == 0 and end == self.size_bytes:
            return self
        return Segment(self.path, self.at + at, end - at, zlib.crc32(bytes(self)[at:end]), self.store)


def segment_in(
    files: Mapping[str, bytes | bytearray | None], path: str, at: int, size: int, crc: int, *, place: str = ""
) -> bytes:
    """Return the bytes of a segment. ``files`` are the files by path, ``place`` the subtask that wrote the segment.

    Raises:
        CorruptCheckpointError: the file is missing, or the segment is damaged or beyond the end of the file.
    """
    of = f" of {place}" if place else ""
    content = files.get(path)
    if content is None:
        raise CorruptCheckpointError(f"the file {path} with in-flight data{of} is missing", part=path)
    data = bytes(content[at : at + size])
    if len(data) < size or zlib.crc32(data) != crc:
        where = f"the bytes {at} to {at + size} of the file {path} with in-flight data{of}"
        raise CorruptCheckpointError(f"{where} are {'missing' if len(data) < size else 'damaged'}", part=path)
    return data
