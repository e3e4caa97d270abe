"""A small proxy on the loopback interface between Barrierscope and a Flink cluster, with the faults that proxies have.

The cluster is behind a path prefix. Of the GET requests, every few one gets the fault. The next request for the same
path gets Flink's answer, because the count goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from enum import StrEnum

import aiohttp
from aiohttp import web
from yarl import URL

PREFIX = "/teams/orders and returns/flink"
EVERY = 7
_SLOW_S = 3.0
_LOGIN = "<html><body><form action='/login'>Please log in</form></body></html>"

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Fault(StrEnum):
    """What the proxy does to some requests."""

    NONE = "path prefix"
    BAD_GATEWAY = "502"
    LOGIN = "redirect to a login"
    SLOW = "slow answer"
    CUT = "cut body"


@asynccontextmanager
async def proxied(url: str, fault: Fault, *, every: int = EVERY, slow_s: float = _SLOW_S) -> AsyncIterator[str]:
    """Serve the target at ``url`` behind a proxy, and yield the address behind it."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(30)) as session:
        app = web.Application()
        app.router.add_get("/{path:.*}", _handler(session, url, fault, every=every, slow_s=slow_s))
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}{PREFIX.replace(' ', '%20')}"
        finally:
            await runner.cleanup()


def _handler(session: aiohttp.ClientSession, url: str, fault: Fault, *, every: int, slow_s: float) -> _Handler:
    count = 0

    async def handle(request: web.Request) -> web.StreamResponse:
        nonlocal count
        prefix = PREFIX.replace(" ", "%20")
        if not request.raw_path.startswith(prefix):
            return web.Response(status=404, text=_LOGIN, content_type="text/html")
        count += 1
        is_faulty = fault is not Fault.NONE and count % every == 0
        if is_faulty and fault is Fault.BAD_GATEWAY:
            return web.Response(status=502, text="<html>502 Bad Gateway</html>", content_type="text/html")
        if is_faulty and fault is Fault.LOGIN:
            return web.Response(status=302, headers={"Location": "/login"}, text=_LOGIN, content_type="text/html")
        if is_faulty and fault is Fault.SLOW:
            await asyncio.sleep(slow_s)
        status, body = await _forwarded(session, url + request.raw_path.removeprefix(prefix))
        if is_faulty and fault is Fault.CUT:
            return await _cut(request, body)
        return web.Response(status=status, body=body, content_type="application/json")

    return handle


async def _forwarded(session: aiohttp.ClientSession, url: str) -> tuple[int, bytes]:
    async with session.get(URL(url, encoded=True)) as answer:
        return answer.status, await answer.read()


async def _cut(request: web.Request, body: bytes) -> web.StreamResponse:
    """Send half of the body, and close the connection."""
    response = web.StreamResponse(headers={"Content-Length": str(len(body)), "Content-Type": "application/json"})
    await response.prepare(request)
    await response.write(body[: len(body) // 2])
    if request.transport is not None:
        request.transport.close()
    return response
