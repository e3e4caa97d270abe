"""Tests of the servers' ports: a port that cannot be used is refused with a reason.

A server stops on request, together with its background task.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket

import httpx
import pytest

from backend.cli.listening import address_rules, bind, check_port, is_loopback, serve
from backend.domain.address_rules import AddressRules
from backend.domain.errors import HostError
from backend.settings import Settings
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


_LIMITED = AddressRules(is_everything_allowed=False)


@pytest.mark.parametrize(
    ("host", "settings", "is_everything_allowed"),
    [
        ("127.0.0.1", {}, True),
        ("::1", {"public_url": "http://[::1]:8050"}, True),
        ("127.0.0.1", {"public_url": "http://localhost:8050/"}, True),
        ("127.0.0.1", {"public_url": "https://barrierscope.example"}, False),
        ("127.0.0.1", {"public_url": "http://127.0.0.1.example"}, False),
        ("127.0.0.1", {"public_url": "http://10.1.2.3:80"}, False),
        ("127.0.0.1", {"trusted_proxies": "127.0.0.1"}, False),
        ("10.1.2.3", {}, False),
        ("0.0.0.0", {"public_url": "http://127.0.0.1:8050"}, False),
    ],
)
def test_without_a_list_every_address_is_allowed_only_if_no_other_machine_reaches_the_api(
    host, settings, is_everything_allowed
):
    rules = address_rules(host, Settings(**settings), "")

    assert rules == (AddressRules(is_everything_allowed=True) if is_everything_allowed else _LIMITED)


def test_a_list_limits_the_addresses_on_loopback_too():
    rules = address_rules("127.0.0.1", Settings(), "flink, 10.0.0.0/8")

    assert rules == AddressRules(is_everything_allowed=False, allowed=("flink", "10.0.0.0/8"))


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
