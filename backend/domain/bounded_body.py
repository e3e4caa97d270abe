"""Decompresses the body of an HTTP response with a limit on its size, so that an endless answer or a bomb ends there.

The bytes are counted *after* decompression, and no piece is larger than ``PIECE_BYTES``. So a response takes no more
memory than its limit, however well it is compressed. Does no I/O: every HTTP client of this project feeds it the chunks
that arrived.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

from backend.domain.text import printable

BODY_MAX_BYTES: Final = 8 * 1024 * 1024
"""The limit for a document of a target or of the API."""

PIECE_BYTES: Final = 64 * 1024
_ENCODING_SHOWN = 40


class BodyRefusedError(Exception):
    """A body is too large, or its compression is unknown or broken. ``is_passing`` is whether a retry may help."""

    def __init__(self, reason: str, *, is_passing: bool = False) -> None:
        self.reason = reason
        self.is_passing = is_passing
        super().__init__(reason)


class BoundedBody:
    """Collects one body. If it exceeds ``size_max``, raise an error or, with ``is_cut``, keep only its beginning.

    Raises:
        BodyRefusedError: the encoding is not one that was asked for.
    """

    def __init__(self, encoding: str, *, size_max: int = BODY_MAX_BYTES, is_cut: bool = False) -> None:
        self._decoder = _decoder(encoding.strip().lower())
        self._size_max = size_max
        self._is_cut = is_cut
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> bool:
        """Add a chunk as it arrived. Return False if the rest of the body is not needed.

        Raises:
            BodyRefusedError: the body is too large, or its compression is broken.
        """
        for part in self._decoded(chunk):
            self._parts.append(part)
            self._size += len(part)
            if self._size > self._size_max:
                if self._is_cut:
                    return False
                raise BodyRefusedError(f"the answer is larger than {self._size_max // 2**20} MiB")
        return True

    def whole(self) -> bytes:
        """Return the body after its last chunk, cut to the limit.

        Raises:
            BodyRefusedError: the compressed body was incomplete.
        """
        is_whole = self._size <= self._size_max
        if is_whole and self._decoder is not None and not self._decoder.eof:
            raise _broken()
        return b"".join(self._parts)[: self._size_max]

    def _decoded(self, chunk: bytes) -> Iterator[bytes]:
        if self._decoder is None:
            yield chunk
            return
        rest = chunk
        while rest:
            try:
                yield self._decoder.decompress(rest, PIECE_BYTES)
            except zlib.error:
                raise _broken() from None
            rest = self._decoder.unconsumed_tail


def _decoder(encoding: str) -> zlib._Decompress | None:
    if encoding in {"", "identity"}:
        return None
    if encoding in {"gzip", "x-gzip", "deflate"}:
        # The flag 32 makes zlib accept both its own headers and gzip headers.
        return zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
    name = printable(encoding[:_ENCODING_SHOWN])
    raise BodyRefusedError(f"the answer is encoded as {name!r}, which was not asked for")


def _broken() -> BodyRefusedError:
    return BodyRefusedError("the compressed answer is broken", is_passing=True)
