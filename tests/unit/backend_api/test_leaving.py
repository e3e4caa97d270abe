"""Tests that work ends with its client, and that an answer, an error or a change is never ended."""

from __future__ import annotations

import asyncio

import pytest

from backend.api.leaving import EndsWithClient

pytestmark = pytest.mark.anyio
_REQUEST = {"type": "http.request", "body": b"", "more_body": False}


class _Client:
    """Sends its request, and leaves when it is asked to."""

    def __init__(self) -> None:
        self.pending = [_REQUEST]
        self.left = asyncio.Event()

    async def receive(self):
        if self.pending:
            return self.pending.pop()
        await self.left.wait()
        return {"type": "http.disconnect"}


class _Application:
    def __init__(self) -> None:
        self.began, self.may_end = asyncio.Event(), asyncio.Event()
        self.has_ended = False

    async def __call__(self, scope, receive, send):
        assert await receive() == _REQUEST
        self.began.set()
        await self.may_end.wait()
        self.has_ended = True


async def _nowhere(_):
    pass


def _scope(method):
    return {"type": "http", "method": method}


@pytest.mark.parametrize(("method", "has_ended"), [("GET", False), ("HEAD", False), ("POST", True)])
async def test_what_reads_ends_with_its_client_and_what_changes_goes_on(method, has_ended):
    client, application = _Client(), _Application()
    async with asyncio.TaskGroup() as group:
        group.create_task(EndsWithClient(application)(_scope(method), client.receive, _nowhere))
        await application.began.wait()
        client.left.set()
        for _ in range(10):
            await asyncio.sleep(0)
        application.may_end.set()

    assert application.has_ended is has_ended


async def test_a_request_ends_although_its_client_stays():
    application = _Application()
    application.may_end.set()
    await EndsWithClient(application)(_scope("GET"), _Client().receive, _nowhere)

    assert application.has_ended


async def test_an_error_of_the_application_is_raised_as_it_is():
    async def broken(scope, receive, send):
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await EndsWithClient(broken)(_scope("GET"), _Client().receive, _nowhere)


async def test_the_application_learns_that_the_client_has_left():
    client, seen = _Client(), []

    async def listening(scope, receive, send):
        seen.append((await receive())["type"])
        client.left.set()
        seen.append((await receive())["type"])

    await EndsWithClient(listening)(_scope("GET"), client.receive, _nowhere)
    assert seen[0] == "http.request"
