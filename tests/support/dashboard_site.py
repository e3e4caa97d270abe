"""Serve the pages of the dashboard over a fake API on a free port."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from backend.api import login_page
from backend.api.access import LOGIN_PATH
from dashboard.role import create_app
from tests.support.fake_api import FakeApi
from tests.support.running_up import free_port
from tests.support.waiting import PATIENCE_S, until


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

    config = uvicorn.Config(app, host="127.0.0.1", port=free_port(), log_level="error", date_header=has_date)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="dashboard")
    thread.start()
    try:
        until(lambda: server.started, "the dashboard serves")
        yield f"http://127.0.0.1:{config.port}"
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)
