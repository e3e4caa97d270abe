"""Ends the work for a request that reads if its client has left.

Without this, a request whose client gave up continues: it waits for its turn, computes, and sends an answer to nobody.
A few impatient clients of a very large job would then keep the service busy for minutes. What changes something is
never ended, because the client could not know how far it got.
"""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class EndsWithClient:
    """ASGI middleware that cancels a GET or HEAD request when its client disconnects."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        pending: list[Message] = [await receive()]
        if pending[0].get("more_body", False):
            # Nobody sends a long body with a GET. The application reads or ignores it.
            async def replay() -> Message:
                return pending.pop() if pending else await receive()

            await self._app(scope, replay, send)
            return
        has_left = asyncio.Event()
        failures: list[Exception] = []

        async def own_receive() -> Message:
            if pending:
                return pending.pop()
            await has_left.wait()
            return {"type": "http.disconnect"}

        async def answer() -> None:
            try:
                await self._app(scope, own_receive, send)
            except Exception as error:  # noqa: BLE001  raised again below; the task group would wrap it
                failures.append(error)

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            has_left.set()
            # The task is cancelled once. The driver of the store can then tell PostgreSQL to end the query.
            work.cancel()

        async with asyncio.TaskGroup() as group:
            work = group.create_task(answer())
            watching = group.create_task(watch())
            work.add_done_callback(lambda _: watching.cancel())
        if failures:
            raise failures[0]
