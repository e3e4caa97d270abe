"""Serves the probes ``/health/live`` and ``/health/ready``, without a token and under any host name.

The response is one word, without an address, version or reason. Live means that this process responds. It does not
check the store, because a restart of the process does not repair a database. Ready means that the store responds and
has the tables that this version needs. A newer schema is ready too, so that the old version keeps serving during an
upgrade.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from backend.api.problems import problem

LIVE_PATH = "/health/live"
READY_PATH = "/health/ready"
# How long a result is reused, so that clients without a token cannot load the store.
_KEPT_S = 1.0
# A check that takes longer counts as failed. The probes of the chart wait 5 s or more for a response.
_CHECK_MAX_S = 4.0

IsReady = Callable[[], Awaitable[bool]]


class HealthProbe:
    """ASGI middleware in front of the access control, which responds to the probes and passes on all other requests."""

    def __init__(
        self,
        app: ASGIApp,
        is_ready: IsReady,
        monotonic: Callable[[], float] = time.monotonic,
        check_max_s: float = _CHECK_MAX_S,
    ) -> None:
        self._app = app
        self._check_max_s = check_max_s
        self._is_ready = is_ready
        self._monotonic = monotonic
        self._known: tuple[float, bool] | None = None
        self._checking = asyncio.Lock()

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
        # Probes that arrive during a check use its result.
        async with self._checking:
            now = self._monotonic()
            if self._known is None or now - self._known[0] >= _KEPT_S:
                self._known = (now, await self._check())
            return self._known[1]

    async def _check(self) -> bool:
        try:
            async with asyncio.timeout(self._check_max_s):
                return await self._is_ready()
        except TimeoutError:
            return False
