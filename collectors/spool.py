"""A bounded queue of observations on disk, for the time in which PostgreSQL is slow or unreachable.

A record is its length and checksum, followed by the target's id and the compressed observation. Records are appended
to segment files. A segment is deleted once all of its records were removed. So after ``kill -9`` at any moment, every
record whose ``append`` returned is still there, and a record that was written only in part is cut off. After a
restart, records that were removed from a segment that still exists are in the queue again. This does no harm, because
storing an observation twice changes nothing.

Records are written with one system call, so a killed process loses none. They are forced to the disk at most once per
second, so a power failure may lose the records of the last second.
"""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog
from pydantic import TypeAdapter, ValidationError

from backend.domain.errors import HostError
from backend.domain.ids import TargetId
from backend.domain.observation import Observation

_log = structlog.get_logger(__name__)

_SUFFIX = ".spool"
_HEAD: Final = struct.Struct("<II")
_TARGET_HEAD: Final = struct.Struct("<H")
_SEGMENT_MAX_BYTES = 4 * 2**20
_RECORD_MAX_BYTES = 256 * 2**20
_SYNC_EVERY_S = 1.0
_OBSERVATION: TypeAdapter[Observation] = TypeAdapter(Observation)


@dataclass(frozen=True, slots=True)
class _Record:
    segment: int
    offset: int
    size: int
    target_id: TargetId


class Spool:
    """The queue in one folder. Only one process may use a folder at a time."""

    def __init__(
        self,
        folder: Path,
        *,
        size_max_bytes: int,
        monotonic_s: Callable[[], float],
        segment_max_bytes: int = _SEGMENT_MAX_BYTES,
    ) -> None:
        """Open the queue, and keep the records that an earlier process left.

        Raises:
            HostError: another process uses the folder, or it is not writable.
        """
        self._folder = folder
        self._size_max_bytes = size_max_bytes
        self._segment_max_bytes = segment_max_bytes
        self._monotonic_s = monotonic_s
        self._synced_at_s = monotonic_s()
        self._records: deque[_Record] = deque()
        self._waiting: Counter[TargetId] = Counter()
        self._in_segment: Counter[int] = Counter()
        self._sizes: dict[int, int] = {}
        self._file: int | None = None
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise HostError(f"{folder} is not writable ({error.strerror})", fix="name another folder") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._recover()
        except OSError as error:
            os.close(self._lock)
            raise HostError(f"another process uses {folder}", fix="name another folder") from error

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self._records)

    @property
    def size_bytes(self) -> int:
        """The bytes of all segments."""
        return sum(self._sizes.values())

    def holds(self, target_id: TargetId) -> bool:
        """Return whether an observation of this target waits."""
        return self._waiting[target_id] > 0

    def waiting(self, target_id: TargetId) -> Iterator[Observation]:
        """Yield the observations of this target, the oldest first. Those that cannot be read are left out."""
        if self.holds(target_id):
            for record in [r for r in self._records if r.target_id == target_id]:
                observation = self._read(record)
                if observation is not None:
                    yield observation

    def append(self, observation: Observation) -> bool:
        """Add an observation at the end. Return False if the queue or the disk is full."""
        record = _encoded(observation)
        if self.size_bytes + len(record) > self._size_max_bytes:
            return False
        number = max(self._sizes, default=0)
        if self._file is None or self._sizes[number] >= self._segment_max_bytes:
            number += 1
        try:
            self._write(number, record)
        except OSError as error:
            _log.warning("observation not spooled", reason=error.strerror, folder=str(self._folder))
            return False
        self._add(_Record(number, self._sizes[number], len(record), observation.target_id))
        self._sizes[number] += len(record)
        return True

    def oldest(self, count_max: int) -> list[Observation]:
        """Return the oldest observations, at most ``count_max`` and at most one of each target.

        Records that cannot be read any more are removed.
        """
        observations: list[Observation] = []
        seen: set[TargetId] = set()
        while len(observations) < min(count_max, len(self._records)):
            record = self._records[len(observations)]
            if record.target_id in seen:
                break
            observation = self._read(record)
            if observation is None:
                self._remove(len(observations))
                continue
            seen.add(record.target_id)
            observations.append(observation)
        return observations

    def remove(self, count: int) -> None:
        """Remove the ``count`` oldest observations, because they are stored."""
        for _ in range(count):
            self._remove(0)

    def close(self) -> None:
        """Force the records to the disk, and let other processes use the folder."""
        self._close_segment()
        os.close(self._lock)

    # --- files ----------------------------------------------------------------------------------------------------

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:012d}{_SUFFIX}"

    def _write(self, number: int, record: bytes) -> None:
        if number not in self._sizes:
            self._close_segment()
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._file = os.open(self._path(number), flags, 0o600)
            self._sizes[number] = 0
        assert self._file is not None
        offset = self._sizes[number]
        try:
            written = os.write(self._file, record)
            if written < len(record):
                raise OSError(0, "the disk is full")
            if self._monotonic_s() - self._synced_at_s >= _SYNC_EVERY_S:
                os.fsync(self._file)
                self._synced_at_s = self._monotonic_s()
        except OSError:
            # The incomplete record is cut off, so that the segment can be used further.
            os.ftruncate(self._file, offset)
            raise

    def _close_segment(self) -> None:
        if self._file is not None:
            os.fsync(self._file)
            os.close(self._file)
            self._file = None

    def _add(self, record: _Record) -> None:
        self._records.append(record)
        self._waiting[record.target_id] += 1
        self._in_segment[record.segment] += 1

    def _remove(self, index: int) -> None:
        record = self._records[index]
        del self._records[index]
        self._waiting[record.target_id] -= 1
        if not self._waiting[record.target_id]:
            del self._waiting[record.target_id]
        self._in_segment[record.segment] -= 1
        if self._in_segment[record.segment]:
            return
        del self._in_segment[record.segment]
        if self._file is not None and record.segment == max(self._sizes):
            self._close_segment()
        del self._sizes[record.segment]
        self._path(record.segment).unlink(missing_ok=True)

    def _read(self, record: _Record) -> Observation | None:
        try:
            with self._path(record.segment).open("rb") as file:
                file.seek(record.offset + _HEAD.size)
                body = file.read(record.size - _HEAD.size)
            skipped = _TARGET_HEAD.size + len(record.target_id.encode())
            return _OBSERVATION.validate_json(zlib.decompress(body[skipped:]))
        except (OSError, zlib.error, ValidationError) as error:
            # The record cannot be read, for example because another version of this program wrote it.
            _log.warning("spooled observation not readable", target=record.target_id, reason=type(error).__name__)
            return None

    def _recover(self) -> None:
        for path in sorted(self._folder.glob(f"*{_SUFFIX}")):
            number = int(path.stem)
            end = 0
            for offset, size, target_id in _records_of(path):
                self._add(_Record(number, offset, size, target_id))
                end = offset + size
            if end < path.stat().st_size:
                _log.warning("incomplete end of the spool cut off", file=path.name, bytes=path.stat().st_size - end)
                os.truncate(path, end)
            if end:
                self._sizes[number] = end
            else:
                path.unlink()


def _encoded(observation: Observation) -> bytes:
    target = observation.target_id.encode()
    body = _TARGET_HEAD.pack(len(target)) + target + zlib.compress(_OBSERVATION.dump_json(observation), 1)
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


def _records_of(path: Path) -> Iterator[tuple[int, int, TargetId]]:
    """Yield offset, size and target of each complete record of a segment, up to the first one that is broken."""
    offset = 0
    with path.open("rb") as file:
        while len(head := file.read(_HEAD.size)) == _HEAD.size:
            length, checksum = _HEAD.unpack(head)
            body = file.read(length) if _TARGET_HEAD.size <= length <= _RECORD_MAX_BYTES else b""
            if not body or len(body) < length or zlib.crc32(body) != checksum:
                return
            (target_length,) = _TARGET_HEAD.unpack_from(body)
            target = body[_TARGET_HEAD.size : _TARGET_HEAD.size + target_length]
            yield offset, _HEAD.size + length, TargetId(target.decode(errors="replace"))
            offset += _HEAD.size + length
