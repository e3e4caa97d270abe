"""Reads a zip file from beginning to end, as it arrives, in bounded memory. Does no I/O itself.

Spark's history server writes the files of an event log into a zip while it sends it: the sizes of an entry follow its
data. ``zipfile`` needs the directory at the end of the file, and so the whole file. Nothing is written to a disk: the
names of the entries are only compared.

Source: APPNOTE.TXT 6.3.10 of PKWARE, sections 4.3.7 (header), 4.3.9 (descriptor) and 4.5.3 (zip64).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Final

from backend.domain.text import clean

_HEADER: Final = struct.Struct("<4sHHHHHIIIHH")
_LOCAL, _DESCRIPTOR = b"PK\x03\x04", b"PK\x07\x08"
_ENDS: Final = (b"PK\x01\x02", b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07")
_ENCRYPTED, _SIZES_FOLLOW = 1, 8
_STORED, _DEFLATED = 0, 8
_ENTRIES_MAX: Final = 10_000
_NAME_MAX: Final = 4096
_SHOWN_MAX: Final = 100
_LARGE: Final = 2**32 - 1
PIECE_BYTES: Final = 256 * 1024


class ZipRefusedError(Exception):
    """The bytes are no zip that a history server sends, or they end too early. ``reason`` is the end of a sentence."""

    def __init__(self, reason: str, *, is_cut: bool = False) -> None:
        self.reason = reason
        self.is_cut = is_cut
        super().__init__(reason)


class ZipEntry:
    """One file in the zip. It is valid until the next one is asked for."""

    def __init__(self, name: str, pieces: Iterator[bytes]) -> None:
        self.name = name
        self._pieces = pieces
        self._kept = b""

    def read(self, size: int = PIECE_BYTES) -> bytes:
        """Return up to ``size`` bytes of its content, b"" at the end.

        Raises:
            ZipRefusedError: the content is damaged or ends too early.
        """
        while not self._kept:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._kept = piece
        found, self._kept = self._kept[:size], self._kept[size:]
        return found

    def skip(self) -> None:
        """Pass the rest of its content. This raises as ``read``."""
        self._kept = b""
        for _ in self._pieces:
            pass


class ZipStream:
    """Yields the entries of a zip. ``read`` returns the next bytes of the zip, b"" at their end."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._kept = b""

    def entries(self) -> Iterator[ZipEntry]:
        """Yield each entry, once the one before was passed.

        Raises:
            ZipRefusedError: the bytes are no zip, a name leads out of the archive, or there are too many entries.
        """
        for number in range(_ENTRIES_MAX + 1):
            mark = self._exactly(4)
            if mark in _ENDS:
                # The rest is the directory, which repeats what was read. It is read, so that a connection is reused.
                while self._some():
                    self._kept = b""
                return
            if mark != _LOCAL:
                raise ZipRefusedError("it is no zip" if number == 0 else "the zip is damaged between two entries")
            entry = self._entry(mark)
            yield entry
            entry.skip()
        raise ZipRefusedError(f"the zip has more than {_ENTRIES_MAX:,} entries")

    def _entry(self, mark: bytes) -> ZipEntry:
        head = _HEADER.unpack(mark + self._exactly(_HEADER.size - 4))
        _, _, flags, method, _, _, crc, packed, size, name_length, extra_length = head
        if name_length > _NAME_MAX:
            raise ZipRefusedError("the zip has a name that is too long")
        raw_name = self._exactly(name_length)
        extra = self._exactly(extra_length)
        name = raw_name.decode("utf-8", "replace")
        if name.startswith(("/", "\\")) or ".." in name.replace("\\", "/").split("/") or ":" in name.split("/")[0]:
            shown = clean(name, length_max=_SHOWN_MAX)
            raise ZipRefusedError(f"the zip has the entry {shown!r}, which leads out of the archive")
        if flags & _ENCRYPTED:
            raise ZipRefusedError("the zip is encrypted")
        if method == _DEFLATED:
            return ZipEntry(name, self._inflated(None if flags & _SIZES_FOLLOW else crc))
        if method == _STORED and not flags & _SIZES_FOLLOW:
            return ZipEntry(name, self._stored(_whole_size(packed, size, extra), crc))
        raise ZipRefusedError(f"the zip has an entry with the compression method {method}, which cannot be read")

    def _inflated(self, crc: int | None) -> Iterator[bytes]:
        inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        seen, packed_bytes, size = 0, 0, 0
        while not inflater.eof:
            if not self._some():
                raise _cut()
            given, self._kept = self._kept, b""
            packed_bytes += len(given)
            while given and not inflater.eof:
                try:
                    piece = inflater.decompress(given, PIECE_BYTES)
                except zlib.error:
                    raise ZipRefusedError("the zip is damaged") from None
                given = inflater.unconsumed_tail
                seen, size = zlib.crc32(piece, seen), size + len(piece)
                if piece:
                    yield piece
            self._kept = inflater.unused_data
        packed_bytes -= len(self._kept)
        if crc is None:
            crc = self._descriptor(is_large=max(packed_bytes, size) > _LARGE)
        if crc != seen:
            raise ZipRefusedError("the zip is damaged: a checksum differs")

    def _descriptor(self, *, is_large: bool) -> int:
        """Read what follows the data of an entry whose header has no sizes. Return the checksum."""
        first = self._exactly(4)
        if first == _DESCRIPTOR:
            first = self._exactly(4)
        self._exactly(16 if is_large else 8)
        return int.from_bytes(first, "little")

    def _stored(self, size: int, crc: int) -> Iterator[bytes]:
        seen, left = 0, size
        while left:
            if not self._some():
                raise _cut()
            piece, self._kept = self._kept[:left], self._kept[left:]
            left -= len(piece)
            seen = zlib.crc32(piece, seen)
            yield piece
        if seen != crc:
            raise ZipRefusedError("the zip is damaged: a checksum differs")

    def _some(self) -> bool:
        """Return whether there are bytes to take, after reading some if there were none."""
        if not self._kept:
            self._kept = self._read(PIECE_BYTES)
        return bool(self._kept)

    def _exactly(self, size: int) -> bytes:
        while len(self._kept) < size:
            more = self._read(PIECE_BYTES)
            if not more:
                raise _cut()
            self._kept += more
        found, self._kept = self._kept[:size], self._kept[size:]
        return found


def _cut() -> ZipRefusedError:
    return ZipRefusedError("the zip breaks off before its end", is_cut=True)


def _whole_size(packed: int, size: int, extra: bytes) -> int:
    """Return the size of an entry that is not compressed. A size beyond 32 bits is in the extra field."""
    if packed != _LARGE:
        return packed
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, at)
        if kind == 1 and length >= 16 and at + 20 <= len(extra):
            return int(struct.unpack_from("<Q", extra, at + 12)[0])
        at += 4 + length
    raise ZipRefusedError("the zip is damaged: the size of an entry is missing")
