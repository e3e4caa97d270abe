"""The ASGI application of the dashboard: it serves deep links, adds security headers and closes the API client.

Dash serves deep links through a catch-all route that finds its application in a global variable. With two applications
in one process, it can find the wrong one. Therefore this application maps the address of every page to the index, and
the catch-all is never reached. An unknown address gets the same index, with status 404.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from dashboard import routes

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_log = logging.getLogger(__name__)
_OWN = ("_dash-", "_reload-hash", "_favicon.ico", "assets/")


class DashboardApp:
    """Serves everything under ``/ui/`` (``routes.BASE``)."""

    def __init__(self, dash_app: App, *, content_security_policy: str, close: Callable[[], Awaitable[None]]) -> None:
        self._dash_app = dash_app
        self._close = close
        self._headers = [
            (b"content-security-policy", content_security_policy.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"same-origin"),
            (b"x-frame-options", b"DENY"),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = None
        if scope["method"] in ("GET", "HEAD") and not self._is_own(scope["path"]):
            if routes.parse(scope["path"]).page is routes.PageKind.UNKNOWN:
                status = 404
            scope = {**scope, "path": routes.BASE, "raw_path": routes.BASE.encode()}

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", []), *self._headers]
                message = {**message, "headers": headers, "status": status or message["status"]}
            await send(message)

        await self._dash_app(scope, receive, send_with_headers)

    @staticmethod
    def _is_own(path: str) -> bool:
        return path.startswith(routes.BASE) and path[len(routes.BASE) :].startswith(_OWN)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        try:
            await self._close()
        except OSError as error:
            _log.warning("the API client did not close: %s", error)
        await send({"type": "lifespan.shutdown.complete"})
