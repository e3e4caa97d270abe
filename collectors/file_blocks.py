"""Reads log files in blocks, in bounded memory, and finds the lines that contain one of some texts.

``bytes.find`` searches a block at the speed of memory. Only lines with a hit are decoded, which is a small part of most
logs. A file whose name ends with ``.gz`` is decompressed on the way; ``-`` is standard input.
"""

from __future__ import annotations

import gzip
import io
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, cast

from backend.domain.errors import FieldProblem, InvalidInputError
from backend.domain.text import printable

BLOCK_BYTES: Final = 4 << 20
TRACE_BYTES: Final = 64 << 10
"""A line and the stack trace after it are read up to this length."""
_FILES_MAX: Final = 10_000
_STDIN: Final = "-"
LINE_BYTES: Final = 16 << 20
"""A longer line is left out where whole lines are needed."""
# A read that comes upon a damaged end loses all that it has read.
_PIECE_BYTES: Final = 4 << 10
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
# The block formats of lz4-java, snappy-java and LZF.
_OTHER_MAGIC: Final = (b"LZ4Block", b"\x82SNAPPY", b"ZV\x00", b"ZV\x01")
_GZIP_MAGIC: Final = b"\x1f\x8b"
_DAMAGED: Final = "cannot be read to its end (damaged, cut or still written): only a first part was read"

ShowBytes = Callable[[int, int | None], None]
"""Is called with the bytes that were read of a file, and its size if that is known."""


class Hit(NamedTuple):
    """A line with one of the texts. What follows it begins at ``begin`` in ``block``."""

    line: bytes
    block: bytes
    begin: int = 0

    def lines_after(self, count_max: int) -> Iterator[bytes]:
        """Yield the lines that follow, up to ``TRACE_BYTES`` after the line: of its stack trace, and others."""
        at, end = self.begin, min(len(self.block), self.begin + TRACE_BYTES)
        for _ in range(count_max):
            if at >= end:
                return
            after = self.block.find(b"\n", at, end)
            stop = end if after < 0 else after
            yield self.block[at:stop]
            at = stop + 1


def files_of(names: Sequence[str], *, option: str, wanted: Callable[[Path], bool]) -> list[str]:
    """Return the files that are named, and those ``wanted`` of the folders that are named, each once.

    Raises:
        InvalidInputError: a file or folder does not exist or cannot be read, or a folder has no such file.
    """
    files: list[str] = []
    problems: list[FieldProblem] = []
    for name in names:
        path = Path(name)
        if name == _STDIN or path.is_file() or (path.exists() and not path.is_dir()):
            files.append(name)
        elif path.is_dir():
            inside = sorted(str(p) for p in path.rglob("*") if p.is_file() and wanted(p))[:_FILES_MAX]
            files += inside
            if not inside:
                problems.append(FieldProblem(option, f"{name!r} has no such file", "a file, a folder of files, or -"))
        else:
            problems.append(FieldProblem(option, f"{name!r} does not exist", "a file, a folder of files, or -"))
    if problems:
        raise InvalidInputError(problems, what="option")
    return list(dict.fromkeys(files))


def is_log(path: Path) -> bool:
    """Return whether a file in a folder looks like a log: ``flink.log``, ``flink.log.3``, ``flink.out``, also .gz."""
    name = path.name.removesuffix(".gz").lower()
    return any(part in name for part in (".log", ".out", ".err", ".txt", ".json", ".ndjson")) or name.startswith("log")


@contextmanager
def opened(name: str) -> Iterator[BinaryIO]:
    """Open a file to read its decompressed bytes.

    Raises:
        InvalidInputError: the file cannot be read.
    """
    if name == _STDIN:
        yield sys.stdin.buffer
        return
    try:
        file = open(name, "rb")  # noqa: SIM115 - closed below
    except OSError as error:
        problem = FieldProblem("file", f"{name!r} cannot be read ({error.strerror})", "a file that can be read")
        raise InvalidInputError([problem], what="option") from None
    with file:
        head = file.peek(8)[:8]
        if head.startswith(_ZSTD_MAGIC):
            with _unpacked_zstd(name, file) as stream:
                yield stream
        elif head.startswith(_OTHER_MAGIC):
            raise InvalidInputError(
                [
                    FieldProblem(
                        "file",
                        f"{name!r} is compressed with a codec that cannot be read",
                        "plain, .gz or zstd (spark.eventLog.compression.codec)",
                    )
                ],
                what="option",
            )
        elif head.startswith(_GZIP_MAGIC):
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield cast("BinaryIO", unpacked)
        else:
            yield file


class _Unpacked(io.RawIOBase):
    """Reads a stream of pyarrow, in small pieces, so that what precedes a damaged end is not lost."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def read1(self, size: int = -1) -> bytes:
        return bytes(self._stream.read(_PIECE_BYTES))


@contextmanager
def _unpacked_zstd(name: str, file: BinaryIO) -> Iterator[BinaryIO]:
    try:
        pyarrow = import_module("pyarrow")
    except ImportError:
        problem = FieldProblem(
            "file",
            f"{name!r} is compressed with zstd, which needs pyarrow",
            "pip install 'barrierscope[spark]', or the file unpacked",
        )
        raise InvalidInputError([problem], what="option") from None
    with pyarrow.CompressedInputStream(pyarrow.PythonFile(file, "r"), "zstd") as stream:
        yield cast("BinaryIO", _Unpacked(stream))


def long_lines(parts: Iterator[bytes], bounds: Callable[[bytes, int], Iterable[tuple[int, int]]]) -> Iterator[bytes]:
    """Yield the whole lines that ``bounds`` finds in a block before an end, which is that of a line.

    A line of more than ``LINE_BYTES`` is left out.
    """
    kept = b""
    for part in parts:
        block = kept + part
        end = block.rfind(b"\n") + 1
        for first, last in bounds(block, end):
            yield block[first:last]
        kept = block[end:] if len(block) - end <= LINE_BYTES else b""
    if kept:
        whole = kept + b"\n"
        for first, last in bounds(whole, len(whole)):
            yield whole[first:last]


def blocks(name: str, show: ShowBytes, damages: list[str]) -> Iterator[bytes]:
    """Yield the bytes of a file in blocks.

    If a compressed file is damaged or cut, what precedes the damage is yielded, and a sentence is added to ``damages``.
    """
    is_sized = name != _STDIN and not name.endswith(".gz") and Path(name).is_file()
    size = os.path.getsize(name) if is_sized else None
    read_bytes = 0
    with opened(name) as file:
        has_more = True
        while has_more:
            block, has_more, is_damaged = _block(file)
            read_bytes += len(block)
            show(read_bytes, size)
            if is_damaged:
                damages.append(f"{printable(name)} {_DAMAGED}")
            yield block


def _block(file: BinaryIO) -> tuple[bytes, bool, bool]:
    """Return the next bytes, whether more may follow, and whether the file is damaged there.

    What was decompressed before an error is returned.
    """
    parts: list[bytes] = []
    length = 0
    while length < BLOCK_BYTES:
        try:
            part = file.read1(BLOCK_BYTES)  # type: ignore[attr-defined]
        except (EOFError, OSError, zlib.error):
            return b"".join(parts), False, True
        if not part:
            return b"".join(parts), False, False
        parts.append(part)
        length += len(part)
    return b"".join(parts), True, False


def hits(parts: Iterator[bytes], texts: Sequence[bytes]) -> Iterator[Hit]:
    """Yield the lines that contain one of ``texts``, in their order, each once.

    A line that is longer than ``TRACE_BYTES`` is cut.
    """
    kept = b""
    for part in parts:
        block = kept + part
        # The stack trace of a line near the end of the block may be incomplete, so the line waits for the next block.
        end = block.rfind(b"\n", 0, max(0, len(block) - TRACE_BYTES)) + 1
        if end == 0 and len(block) > 4 * TRACE_BYTES:
            # A line without an end, as in a file that is no log.
            end = len(block) - TRACE_BYTES
        yield from _in_block(block, end, texts)
        kept = block[end:]
    yield from _in_block(kept, len(kept), texts)


def _in_block(block: bytes, end: int, texts: Sequence[bytes]) -> Iterator[Hit]:
    """Yield the hits of which the line begins before ``end``."""
    stops: dict[int, int] = {}
    for text in texts:
        at = block.find(text, 0, end)
        while at >= 0:
            after = block.find(b"\n", at)
            stops[block.rfind(b"\n", 0, at) + 1] = stop = len(block) if after < 0 else after
            at = block.find(text, stop, end)
    for start in sorted(stops):
        stop = stops[start]
        yield Hit(block[start : min(stop, start + TRACE_BYTES)].rstrip(b"\r"), block, stop + 1)
