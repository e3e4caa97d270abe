"""``/health/live`` and ``/health/ready``: probes of this process, without a token and under any host name.

The answer is one word, without an address, version or reason. Live: the process answers; it does not check the store,
because a restart does not repair a database. Ready: the store answers and has the tables that this version needs. A
newer schema is ready too, so that the old version keeps serving during an upgrade.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from backend.api.problems import problem

LIVE_PATH = "/health/live"
READY_PATH = "/health/ready"
# Clients without a token must not be able to load the store.
_KEPT_S = 1.0

IsReady = Callable[[], Awaitable[bool]]


class HealthProbe:
    """ASGI middleware in front of the access control."""

    def __init__(self, app: ASGIApp, is_ready: IsReady, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._is_ready = is_ready
        self._monotonic = monotonic
        self._known: tuple[float, bool] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in (LIVE_PATH, READY_PATH):
            await self._app(scope, receive, send)
            return
        await (await self._answer(scope))(scope, receive, send)

    async def _answer(self, scope: Scope) -> Response:
        path = scope["path"]
        if scope["method"] not in ("GET", "HEAD"):
            headers = {"Allow": "GET, HEAD"}
            return problem(405, "method-not-allowed", f"{path} allows GET, HEAD", instance=path, headers=headers)
        if path == LIVE_PATH or await self._ready():
            return JSONResponse({"status": "ok"}, headers={"Cache-Control": "no-store"})
        return problem(503, "not-ready", "not ready", instance=path, headers={"Retry-After": "5"})

    async def _ready(self) -> bool:
        now = self._monotonic()
        if self._known is None or now - self._known[0] >= _KEPT_S:
            self._known = (now, await self._is_ready())
        return self._known[1]
