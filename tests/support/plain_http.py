"""A minimal HTTP server for benchmarks. It costs so little CPU that the cost of its clients can be measured."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Connection(asyncio.Protocol):
    """Answers the requests of one connection, one after another.

    ``response`` returns the whole HTTP response to a GET of a path.
    """

    def __init__(self, response: Callable[[str], bytes]) -> None:
        self._response = response
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while b"\r\n\r\n" in self._received:
            head, _, self._received = self._received.partition(b"\r\n\r\n")
            assert self._transport is not None
            self._transport.write(self._response(head.split(b" ", 2)[1].decode()))
