"""Unusable ports are refused with a reason. A server stops on request, together with its background task."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket

import httpx
import pytest

from backend.cli.listening import bind, check_port, is_loopback, serve
from backend.domain.errors import HostError
from tests.support.waiting import PATIENCE_S


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *[(h, True) for h in ("127.0.0.1", "127.9.9.9", "::1", "localhost")],
        *[(h, False) for h in ("0.0.0.0", "::", "10.0.0.1", "example.org", "127.0.0.1.example.org", "")],
    ],
)
def test_only_addresses_of_this_machine_are_loopback(host, expected):
    assert is_loopback(host) is expected


def test_a_taken_port_names_the_option_that_gives_another():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(HostError) as refused:
            check_port("127.0.0.1", port, option="--port")

    assert str(refused.value) == f"port {port} on 127.0.0.1 is in use; pass another one with --port"
    check_port("127.0.0.1", port, option="--port")


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host"])
def test_an_address_of_another_machine_is_refused(host):
    with pytest.raises(HostError, match="--host"):
        check_port(host, 8050, option="--port")


async def _hello(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


@pytest.mark.anyio
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_server_answers_until_it_is_stopped_and_ends_its_background_task(number):
    cancelled = asyncio.Event()

    async def beside():
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    listener = bind("127.0.0.1", 0, option="--port")
    port = listener.getsockname()[1]
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        server = group.create_task(serve(_hello, listener, beside=beside()))
        async with httpx.AsyncClient(trust_env=False) as client:
            assert (await client.get(f"http://127.0.0.1:{port}/")).text == "hello"
        os.kill(os.getpid(), number)
        await server

    assert cancelled.is_set()


@pytest.mark.anyio
async def test_an_error_in_the_background_task_ends_the_server_and_is_raised():
    async def beside():
        raise HostError("the disk is full", fix="make room")

    with pytest.raises(HostError, match="the disk is full"):
        async with asyncio.timeout(PATIENCE_S):
            await serve(_hello, bind("127.0.0.1", 0, option="--port"), beside=beside())


def test_a_stopped_server_leaves_its_port_free():
    listener = bind("127.0.0.1", 0, option="--port")
    port = listener.getsockname()[1]

    async def briefly():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                await serve(_hello, listener)

    asyncio.run(briefly())

    check_port("127.0.0.1", port, option="--port")
