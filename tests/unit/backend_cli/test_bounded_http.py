"""Tests of the limits on the head of a request, with raw connections to a real server."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
import uvicorn

from backend.cli.bounded_http import HEAD_MAX_BYTES, HEADERS_MAX, BoundedHttp
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio

_HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n"
_POST = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n"


async def _hello(scope, receive, send):
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"hello"})


@asynccontextmanager
async def _connected(protocol=BoundedHttp):
    config = uvicorn.Config(_hello, http=protocol, port=0, log_config=None, lifespan="off", access_log=False)
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    reader, writer = await asyncio.open_connection(*server.servers[0].sockets[0].getsockname())
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield reader, writer
    finally:
        writer.close()
        await server.shutdown()


async def _answer_to(*parts):
    async with _connected() as (reader, writer):
        for part in parts:
            writer.write(part)
            await asyncio.sleep(0)
        return (await reader.read(100)).partition(b"\r\n")[0]


@pytest.mark.parametrize(
    "parts",
    [
        (_HEAD, b"\r\n"),
        (_HEAD, b"X: " + b"x" * (HEAD_MAX_BYTES - 100) + b"\r\n\r\n"),
        (_HEAD, b"X: x\r\n" * (HEADERS_MAX - 1), b"\r\n"),
        (_POST, b"X: x\r\n\r\n"),
    ],
)
async def test_a_head_within_the_limits_is_served(parts):
    assert await _answer_to(*parts) == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize(
    "parts",
    [
        (_HEAD, b"X: " + b"x" * HEAD_MAX_BYTES + b"\r\n\r\n"),
        (_HEAD, b"X: x\r\n" * HEADERS_MAX, b"\r\n"),
        (b"GET /" + b"x" * HEAD_MAX_BYTES, b" HTTP/1.1\r\nHost: x\r\n\r\n"),
    ],
)
async def test_a_head_beyond_the_limits_is_refused(parts):
    assert await _answer_to(*parts) == b"HTTP/1.1 431 Request Header Fields Too Large"


@pytest.mark.parametrize("begin", [_HEAD + b"X: ", b"GET /", _POST + b"X: "])
async def test_a_head_or_trailer_that_never_ends_is_refused_before_it_ends(begin):
    async def endlessly(writer):
        # Nothing ends the line, so only a limit on incomplete input can end the connection.
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()
            await asyncio.sleep(0)

    async with _connected() as (_, writer):
        writer.write(begin)
        with pytest.raises(ConnectionError):
            await endlessly(writer)


@pytest.mark.parametrize("begin", [b"", _HEAD, _HEAD + b"\r\n" + _HEAD])
async def test_a_head_that_does_not_arrive_in_time_ends_the_connection(begin):
    class Impatient(BoundedHttp):
        head_timeout_s = 0.05

    async with _connected(Impatient) as (reader, writer):
        writer.write(begin)
        assert (await reader.read()).count(b"200 OK") == begin.count(b"\r\n\r\n")


async def test_other_malformed_input_keeps_its_own_status():
    assert await _answer_to(b"nonsense\r\n\r\n") == b"HTTP/1.1 400 Bad Request"
