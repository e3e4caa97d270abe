"""Reads the files of an event log as they arrive, in bounded memory: unpacks them, and finds the lines about queries.

A file is plain, or compressed by zstd (the default since Spark 4). Its end may be missing, because the driver still
writes it. What was read before is passed over without a look at it.
"""

from __future__ import annotations

import io
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

from backend.contracts import spark as wire
from backend.domain.text import clean
from collectors.spark.log_events import LogParser, run_of, wanted
from collectors.spark.stage_events import is_of_work
from collectors.spark.works import Works
from collectors.spark.zip_stream import PIECE_BYTES, ZipRefusedError, ZipStream

EVENTS_KEPT: Final = 2_000
"""So many events of a run are kept in one reading, the newest."""
ALL_EVENTS_KEPT: Final = 5_000
LINE_BYTES: Final = 16 << 20
"""A longer line is left out."""
RATIO_MAX: Final = 500
"""A log that unpacks to more than this many times its size is refused, after the first ``RATIO_FREE_BYTES``."""
RATIO_FREE_BYTES: Final = 256 << 20
_INDEX: Final = re.compile(r"events_(\d{1,9})_")
_COMPACTED: Final = ".compact"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_UNREADABLE: Final = {b"LZ4Block": "lz4", b"\x82SNAPPY": "snappy", b"ZV\x00": "lzf", b"ZV\x01": "lzf"}
_BLOCK_BYTES: Final = 1 << 20
# A read that comes upon a damaged end loses all that it has read.
_ZSTD_PIECE_BYTES: Final = 16 << 10
_SHOWN_MAX: Final = 100

Read = Callable[[int], bytes]
"""Returns up to so many of the next bytes, b"" at the end."""


class LogRefusedError(Exception):
    """A log cannot be read. ``reason`` is the end of a sentence about it."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


@dataclass(slots=True)
class LogRead:
    """What one reading of a log has found so far. It is filled while the log is read, and stays valid after an error.

    ``positions`` has for each file the bytes that were read of its unpacked content, up to the end of a line. The key
    is the file's number in a rolling log, and 0 for a log of one file. ``left_out`` counts the events of each run that
    were too many.
    """

    parser: LogParser
    positions: dict[int, int] = field(default_factory=dict)
    events: dict[int, deque[wire.SparkEvent]] = field(default_factory=dict)
    left_out: dict[tuple[str, str], int] = field(default_factory=dict)
    packed_bytes: int = 0
    unpacked_bytes: int = 0
    begins: set[int] = field(default_factory=set)
    """The numbers of files before which the log has no other. A compacted file has what was kept of those before."""
    works: Works = field(default_factory=Works)
    last: int | None = None
    """The number of the file that was read last, in this reading or in one before."""

    def add(self, index: int, event: wire.SparkEvent) -> None:
        """Keep an event of a file. If there are too many, the oldest one of its file is left out."""
        kept = self.events.setdefault(index, deque())
        kept.append(event)
        if sum(map(len, self.events.values())) > ALL_EVENTS_KEPT:
            oldest = min(i for i, of_file in self.events.items() if of_file)
            self.leave_out(self.events[oldest].popleft())

    def leave_out(self, event: wire.SparkEvent) -> None:
        """Count an event that is left out, if it is that of a micro-batch."""
        if isinstance(event, wire.ProgressEventIn):
            self.left_out[run_of(event)] = self.left_out.get(run_of(event), 0) + 1


def index_of(name: str) -> int | None:
    """Return the number of a file in its log. Return None for a folder, a checksum or the status of a rolling log."""
    base = name.rpartition("/")[2]
    if not base or base.startswith((".", "_", "appstatus")) or base.endswith(".crc"):
        return None
    found = _INDEX.match(base)
    return int(found[1]) if found else 0


def read_archive(read: Read, found: LogRead, before: Mapping[int, int]) -> None:
    """Read the zip that a history server sends, into ``found``. ``before`` are the positions of the last reading.

    Files with a number below the largest in ``before`` are finished, and not unpacked again.

    Raises:
        LogRefusedError: the bytes are not such a zip, or its files cannot be read.
    """

    def counted(size: int) -> bytes:
        piece = read(size)
        found.packed_bytes += len(piece)
        return piece

    try:
        for entry in ZipStream(counted).entries():
            index = index_of(entry.name)
            if index is not None and not is_finished(entry.name, index, before):
                if is_compacted(entry.name):
                    found.begins.add(index)
                read_file(entry.read, found, index, before.get(index, 0), is_compacted=is_compacted(entry.name))
    except ZipRefusedError as error:
        raise LogRefusedError(error.reason) from None


def is_compacted(name: str) -> bool:
    """Return whether a file has what was kept of those before it, without most events of Spark jobs."""
    return name.endswith(_COMPACTED)


def is_finished(name: str, index: int, before: Mapping[int, int]) -> bool:
    """Return whether a file was read to its end: a later one follows it, or it repeats what compaction has kept."""
    return bool(before) and (index < max(before) or (is_compacted(name) and index <= max(before)))


def read_file(read: Read, found: LogRead, index: int, skip: int, *, begin: int = 0, is_compacted: bool = False) -> None:
    """Read one file of a log, from the position ``skip`` of its unpacked content. This raises as ``read_archive``.

    ``begin`` is the position at which ``read`` begins.
    """
    position = skip
    works = found.works
    read_work = works.reader.read
    is_next = index in (0, 1) if found.last is None else index - found.last in (0, 1)
    if not is_next:
        works.reader.gap()
    found.last = index
    for line, end in _lines(_checked(unpacked(read), found), skip, begin):
        position = end
        if is_of_work(line):
            read_work(line)
            continue
        for event in found.parser.events_in(line) if line else ():
            found.add(index, event)
            works.note(event)
        found.positions[index] = position
    if is_compacted:
        works.reader.gap()
    found.positions[index] = position


def _checked(pieces: Iterator[bytes], found: LogRead) -> Iterator[bytes]:
    """Yield the pieces, and refuse a bomb."""
    for piece in pieces:
        found.unpacked_bytes += len(piece)
        if found.unpacked_bytes > RATIO_FREE_BYTES + RATIO_MAX * found.packed_bytes:
            raise LogRefusedError(f"it unpacks to more than {RATIO_MAX} times its size")
        yield piece


def _lines(pieces: Iterator[bytes], skip: int, at: int) -> Iterator[tuple[bytes, int]]:
    """Yield each whole line that is ``wanted``, and the position of its end. After each block, yield b"" with it.

    ``at`` is the position of the first piece.
    """
    kept, is_skipping = b"", False
    for block in _blocks(pieces):
        begin = at
        at += len(block)
        if at <= skip:
            continue
        part = block[max(0, skip - begin) :]
        if is_skipping:
            # The rest of a line that is too long.
            end = part.find(b"\n") + 1
            if not end:
                continue
            part, is_skipping = part[end:], False
        data = kept + part
        start = at - len(data)
        end = data.rfind(b"\n") + 1
        for first, last in wanted(data, end):
            yield data[first:last], start + last + 1
        kept = data[end:]
        if len(kept) > LINE_BYTES:
            kept, is_skipping = b"", True
        yield b"", start + end


def _blocks(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Join small pieces to blocks, because each block has a cost."""
    parts: list[bytes] = []
    size = 0
    for piece in pieces:
        parts.append(piece)
        size += len(piece)
        if size >= _BLOCK_BYTES:
            yield b"".join(parts)
            parts, size = [], 0
    if parts:
        yield b"".join(parts)


def unpacked(read: Read) -> Iterator[bytes]:
    """Yield the unpacked content of a file in pieces.

    Raises:
        LogRefusedError: it is no event log, or its codec cannot be read.
    """
    head = read(PIECE_BYTES)
    codec = next((name for mark, name in _UNREADABLE.items() if head.startswith(mark)), None)
    if codec is not None:
        raise LogRefusedError(
            f"it is compressed with {codec}, which cannot be read; set spark.eventLog.compression.codec to zstd"
        )
    if head.startswith(_ZSTD):
        yield from _of_zstd(head, read)
        return
    if head and head.lstrip()[:1] != b"{":
        begin = clean(head[:_SHOWN_MAX].decode("utf-8", "replace"), length_max=20)
        raise LogRefusedError(f"it is no event log: it begins with {begin!r}")
    while head:
        yield head
        head = read(PIECE_BYTES)


class _File(io.RawIOBase):
    """The bytes of an entry as the file that pyarrow reads."""

    def __init__(self, head: bytes, read: Read) -> None:
        self._head = head
        self._read = read

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        size = PIECE_BYTES if size < 0 else size
        if not self._head:
            self._head = self._read(PIECE_BYTES)
        found, self._head = self._head[:size], self._head[size:]
        return found


def _of_zstd(head: bytes, read: Read) -> Iterator[bytes]:
    try:
        pyarrow: Any = import_module("pyarrow")
    except ImportError:
        raise LogRefusedError(
            "it is compressed with zstd, which needs pyarrow: pip install 'barrierscope[spark]'"
        ) from None
    with pyarrow.CompressedInputStream(pyarrow.PythonFile(_File(head, read), "r"), "zstd") as stream:
        while True:
            try:
                piece = bytes(stream.read(_ZSTD_PIECE_BYTES))
            except OSError:
                # The driver still writes this file, or was killed while it wrote it.
                return
            if not piece:
                return
            yield piece
