"""The ASGI application of the dashboard: it serves deep links, adds security headers and closes the API client.

Dash serves deep links through a catch-all route, which finds its application in a global variable. With two
applications in one process, that can be the wrong one. Therefore this application serves the index page at the
address of every page, and requests never reach the catch-all route. An unknown address gets the same index page with
status 404.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from starlette.staticfiles import StaticFiles

from dashboard import routes

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_log = logging.getLogger(__name__)
# Dash loads the library from this address when a page shows its first chart.
_PLOTLY = f"{routes.BASE}_dash-component-suites/plotly/package_data/plotly.min.js"
# Plotly with the trace types scatter, bar and heatmap, a quarter of the whole library. `make plotly-bundle` builds it.
_PLOTLY_FILE = "plotly-4.1.1.min.js"
# Files of other projects, by their addresses. The scripts of the pages load driver.js when a tour starts;
# `make driver-bundle` fetches it.
_VENDORED = {
    _PLOTLY: _PLOTLY_FILE,
    f"{routes.BASE}assets/vendor/regenerator-runtime.js": "regenerator-runtime-0.13.11.js",
    f"{routes.BASE}assets/lazy/driver.js": "driver-1.8.0.js",
    f"{routes.BASE}assets/lazy/driver.css": "driver-1.8.0.css",
}
# The addresses at which Dash sends JSON to its own scripts. It sends no content type with the result of a callback.
_DATA = tuple(f"{routes.BASE}_dash-{name}" for name in ("update-component", "layout", "dependencies"))
_VENDOR = Path(__file__).parent / "vendor"
_OWN = ("_dash-", "_reload-hash", "_favicon.ico", "assets/")


class DashboardApp:
    """Serves everything under ``/ui/`` (``routes.BASE``). ``sockets`` serve the WebSockets, by their paths."""

    def __init__(
        self,
        dash_app: App,
        *,
        content_security_policy: str,
        close: Callable[[], Awaitable[None]],
        sockets: Mapping[str, App] | None = None,
    ) -> None:
        self._dash_app = dash_app
        self._close = close
        self._sockets = sockets or {}
        self._vendor = StaticFiles(directory=_VENDOR)
        self._of_data = [(b"x-content-type-options", b"nosniff")]
        self._of_documents = [
            *self._of_data,
            (b"content-security-policy", content_security_policy.encode()),
            (b"referrer-policy", b"same-origin"),
            (b"x-frame-options", b"DENY"),
        ]

    def is_page(self, path: str) -> bool:
        """Return whether there is a page at a path, such as ``/ui/alerts``."""
        return not self._is_own(path) and routes.parse(path).page is not routes.PageKind.UNKNOWN

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._sockets.get(scope["path"], _refuse)(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = None
        app = self._dash_app
        is_data = scope["path"] in _DATA
        if (vendored := _VENDORED.get(scope["path"])) is not None:
            app, scope = self._vendor, {**scope, "path": f"/{vendored}", "root_path": ""}
        elif scope["method"] in ("GET", "HEAD") and not self._is_own(scope["path"]):
            page = routes.parse(scope["path"]).page
            if page is routes.PageKind.UNKNOWN:
                status = 404
            query = f"page={page}".encode()
            scope = {**scope, "path": routes.BASE, "raw_path": routes.BASE.encode(), "query_string": query}

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", []))
                # JSON needs no content security policy, because a browser does not open it as a document. A live page
                # gets several such responses per second, and the policy would be most of their bytes.
                headers += self._of_data if is_data else self._of_documents
                if is_data and message["status"] != 204 and b"content-type" not in dict(headers):
                    headers.append((b"content-type", b"application/json"))
                message = {**message, "headers": headers, "status": status or message["status"]}
            await send(message)

        await app(scope, receive, send_with_headers)

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


async def _refuse(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "websocket.close", "code": 1008})
