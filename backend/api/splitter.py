"""Joins two ASGI applications: ``/ui`` goes to the pages, ``/`` redirects to ``/ui/``, all other paths go to the API.

A person who types the address of a page without ``/ui`` is sent to it. A script that asks there gets the API's answer.

Dash cannot share an application with an API that returns JSON for unknown paths, and cannot be mounted in one.
Invariant: both applications run their own lifespan, and the service does not start if one of them fails to start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PAGES = "/ui"


class Splitter:
    """Routes each request to one of two applications, and runs the lifespan of both.

    ``is_page`` returns whether there is a page at a path, which begins with ``/ui/``.
    """

    def __init__(self, *, api: ASGIApp, pages: ASGIApp, is_page: Callable[[str], bool] = lambda _: False) -> None:
        self._api = api
        self._pages = pages
        self._is_page = is_page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _run_lifespans((self._api, self._pages), scope, receive, send)
            return
        path = scope["path"]
        if path in ("/", PAGES) and scope.get("method") in ("GET", "HEAD"):
            await RedirectResponse(PAGES + "/", 307)(scope, receive, send)
        elif path.startswith(PAGES + "/"):
            await self._pages(scope, receive, send)
        elif (page := self._page_meant(scope)) is not None:
            await RedirectResponse(page, 307, headers={"Vary": "Accept"})(scope, receive, send)
        else:
            await self._api(scope, receive, send)

    def _page_meant(self, scope: Scope) -> str | None:
        """Return the address of the page that a browser means by a path without ``/ui``, or None."""
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            return None
        # The part in front keeps the address in this service, whatever the path is.
        path = PAGES + (scope.get("raw_path") or quote(scope["path"]).encode()).decode("latin-1")
        if not _prefers_html(Headers(scope=scope).get("accept", "")) or not self._is_page(path):
            return None
        query = scope["query_string"].decode("latin-1")
        return f"{path}?{query}" if query else path


def _prefers_html(accept: str) -> bool:
    """Return whether the header ``Accept`` names HTML, and JSON with no higher weight, as that of a browser does."""
    weights = {"text/html": 0.0, "application/json": 0.0}
    for part in accept.lower().split(","):
        kind, *parameters = (piece.strip() for piece in part.split(";"))
        given = [p.removeprefix("q=") for p in parameters if p.startswith("q=")]
        try:
            weight = float(given[0]) if given else 1.0
        except ValueError:
            weight = 0.0
        weights[kind] = max(weights.get(kind, 0.0), weight)
    return weights["text/html"] > 0 and weights["text/html"] >= weights["application/json"]


class _Lifespan:
    """Runs the lifespan of one application, step by step."""

    def __init__(self, app: ASGIApp, scope: Scope, group: asyncio.TaskGroup) -> None:
        self._inbox: asyncio.Queue[Message] = asyncio.Queue()
        self._outbox: asyncio.Queue[Message] = asyncio.Queue()
        # Each application gets its own empty state.
        self._task = group.create_task(self._run(app, {**scope, "state": {}}))

    async def _run(self, app: ASGIApp, scope: Scope) -> None:
        message = "ended without an answer"
        try:
            await app(scope, self._inbox.get, self._outbox.put)
        except Exception as error:  # noqa: BLE001  the top of a task: the answer has the error, and the other application continues
            message = f"{type(error).__name__}: {error}"
        await self._outbox.put({"type": "lifespan.failed", "message": message})

    async def step(self, name: str) -> str | None:
        """Send ``lifespan.<name>`` and wait for the response. Return the error, or None after success."""
        await self._inbox.put({"type": f"lifespan.{name}"})
        answer = await self._outbox.get()
        return None if answer["type"] == f"lifespan.{name}.complete" else str(answer.get("message", ""))

    def end(self) -> None:
        """Cancel the task that runs the application's lifespan."""
        self._task.cancel()


async def _run_lifespans(apps: Sequence[ASGIApp], scope: Scope, receive: Receive, send: Send) -> None:
    await receive()
    async with asyncio.TaskGroup() as group:
        started: list[_Lifespan] = []
        try:
            for app in apps:
                started.append(_Lifespan(app, scope, group))
                failure = await started[-1].step("startup")
                if failure is not None:
                    await send({"type": "lifespan.startup.failed", "message": failure})
                    return
            await send({"type": "lifespan.startup.complete"})
            await receive()
            failures = [failure for child in reversed(started) if (failure := await child.step("shutdown")) is not None]
            if failures:
                await send({"type": "lifespan.shutdown.failed", "message": "; ".join(failures)})
            else:
                await send({"type": "lifespan.shutdown.complete"})
        finally:
            for child in started:
                child.end()
