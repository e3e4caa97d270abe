"""The HTTP protocol of our servers: uvicorn's, with limits on the head of a request (its line and its headers).

uvicorn itself limits neither the size of a head nor the time in which it must arrive. Without limits, any client can
fill the memory or hold connections open, before its token is checked. A body must arrive in time as well; the
applications limit its size.
"""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_MAX_BYTES: Final = 64 * 1024
HEADERS_MAX: Final = 100
HEAD_TIMEOUT_S: Final = 15.0
BODY_TIMEOUT_S: Final = 30.0
_TOO_LARGE = b"the request line and the headers are too large\n"


class _HeadTooLargeError(Exception):
    """Ends the parsing of a request. uvicorn then calls ``send_400_response``."""


class BoundedHttp(HttpToolsProtocol):
    """Serves one connection.

    If a head is too large, the connection is closed with status 431. If a head or a body arrives too slowly, the
    connection is closed without a response.
    """

    head_timeout_s = HEAD_TIMEOUT_S
    # Bytes since the parser last completed a head or a part of a body: an unfinished head, or trailers after a body.
    _pending_bytes = 0
    _has_progressed = False
    _is_too_large = False
    _head_timer: asyncio.TimerHandle | None = None
    _body_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the wait for a head."""
        self._stop_timer()
        self._stop_body_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the data. Refuse the request if its head or its trailers are incomplete and already too large."""
        self._has_progressed = False
        super().data_received(data)
        self._pending_bytes = 0 if self._has_progressed else self._pending_bytes + len(data)
        if self._pending_bytes > HEAD_MAX_BYTES and not self.transport.is_closing():
            self._is_too_large = True
            self.send_400_response("")

    def on_message_begin(self) -> None:
        """Begin to wait for the rest of the head."""
        super().on_message_begin()
        self._has_progressed = True
        self._await_head()

    def on_body(self, body: bytes) -> None:
        """Accept a part of a body."""
        self._has_progressed = True
        super().on_body(body)

    def on_headers_complete(self) -> None:
        """Start the request if its complete head is within the limits."""
        self._has_progressed = True
        self._stop_timer()
        size_bytes = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size_bytes > HEAD_MAX_BYTES or len(self.headers) > HEADERS_MAX:
            self._is_too_large = True
            raise _HeadTooLargeError
        self._stop_body_timer()
        self._body_timer = self.loop.call_later(BODY_TIMEOUT_S, self.transport.close)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """End the wait for a body."""
        self._stop_body_timer()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse the request with status 431 if its head is too large, otherwise with status 400."""
        if not self._is_too_large:
            super().send_400_response(msg)
            return
        head = (
            "HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain; charset=utf-8\r\n"
            f"content-length: {len(_TOO_LARGE)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + _TOO_LARGE)
        self.transport.close()

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_timeout_s, self._end_slow)

    def _end_slow(self) -> None:
        self._head_timer = None
        # A response to an earlier request on this connection may still be in progress.
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()

    def _stop_body_timer(self) -> None:
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
