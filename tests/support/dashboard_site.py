"""Serve the pages of the dashboard over a fake API on a free port."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import httpx
import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from backend.api import login_page
from backend.api.access import LOGIN_PATH
from dashboard.role import create_app
from tests.support.fake_api import FakeApi
from tests.support.waiting import PATIENCE_S, until

_IN_USE = threading.Lock()
"""Whether a site is served at the address of this process."""


@cache
def _own_socket() -> socket.socket:
    """Return the socket on which the sites of this process listen, one after another.

    It stays open, so no other process gets its port. At the same address, a browser need not start again for the next
    site, and finds the scripts that it has compiled.
    """
    return _listening()


def _listening() -> socket.socket:
    found = socket.socket()
    found.bind(("127.0.0.1", 0))
    found.listen()
    return found


@contextmanager
def _socket() -> Iterator[socket.socket]:
    """Yield the socket of this process, or another one if a site is served on it."""
    if not _IN_USE.acquire(blocking=False):
        yield _listening()
        return
    try:
        # The server closes what it listens on. The original stays open.
        yield _own_socket().dup()
    finally:
        _IN_USE.release()


@contextmanager
def site_over(fake: FakeApi, *, has_date: bool = True, api_s: float = 0.0) -> Iterator[str]:
    """Serve the pages and the login page during the ``with`` block, and yield their address.

    With ``has_date``, responses have the header ``Date``, from which a page learns the clock of the service.
    Each answer of the API takes ``api_s`` seconds.
    """

    async def answer(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(api_s)
        return fake.handle(request)

    pages = create_app(transport=httpx.MockTransport(answer), api_base_url="http://api.test")

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        # The role ``api`` serves the login page and its health beside the dashboard.
        path = scope["path"] if scope["type"] == "http" else ""
        own: ASGIApp = pages
        if path == LOGIN_PATH:
            own = login_page.form("This service needs its API token.")
        elif path == "/health/live":
            own = PlainTextResponse("live")
        await own(scope, receive, send)

    config = uvicorn.Config(app, log_level="error", date_header=has_date)
    server = uvicorn.Server(config)
    with _socket() as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread = threading.Thread(target=server.run, args=([listening],), name="dashboard")
        thread.start()
        try:
            until(lambda: server.started, "the dashboard serves")
            yield address
        finally:
            server.should_exit = True
            thread.join(PATIENCE_S)
