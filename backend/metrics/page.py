"""The page ``/metrics``: an ASGI application that writes the metrics of this process for Prometheus.

The text of many jobs takes a while to write, so a thread writes it while the event loop goes on. Scrapers that come
within ``_KEPT_S`` get the same text, so that several of them cost no more than one. Prometheus chooses the format with
the header ``Accept``: the plain text format, or OpenMetrics.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from backend.metrics.registry import REGISTRY

METRICS_PATH = "/metrics"
_KEPT_S = 1.0

Refresh = Callable[[], Awaitable[None]]


class MetricsPage:
    """Answers ``GET /metrics``, and passes any other request on to ``rest``.

    ``refresh`` is awaited before the metrics are read, so that it can bring what they show up to date. It must be
    bounded in time and must not raise.
    """

    def __init__(
        self,
        rest: ASGIApp | None = None,
        *,
        refresh: Refresh | None = None,
        registry: CollectorRegistry = REGISTRY,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rest = rest or _not_found
        self._refresh = refresh
        self._registry = registry
        self._monotonic = monotonic
        self._turn = asyncio.Lock()
        self._kept: dict[str, tuple[float, bytes]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != METRICS_PATH:
            await self._rest(scope, receive, send)
            return
        await (await self._answer(Request(scope)))(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("/metrics allows GET, HEAD\n", 405, headers={"Allow": "GET, HEAD"})
        encode, media_type = choose_encoder(request.headers.get("accept", ""))
        async with self._turn:
            written_s, text = self._kept.get(media_type, (float("-inf"), b""))
            if self._monotonic() - written_s > _KEPT_S:
                if self._refresh is not None:
                    await self._refresh()
                text = await asyncio.to_thread(encode, self._registry)
                self._kept[media_type] = (self._monotonic(), text)
        return Response(text, headers={"Content-Type": media_type, "Cache-Control": "no-store"})


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await PlainTextResponse(f"the metrics are at {METRICS_PATH}\n", 404)(scope, receive, send)
