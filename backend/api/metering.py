"""Counts the requests of the API and the pages, and the time that they take, by route and not by address.

A route is the template of a path, such as ``/api/v1/jobs/{job_id}``, so that the number of series stays small. A path
without a route counts as ``other``. Streams and downloads count until their end.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.metrics.registry import summary
from backend.services.presenting import API_ROOT

OTHER = "other"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

_REQUESTS = summary(
    "barrierscope_http_request_duration_seconds",
    "Requests and the time that they took, by route, method and class of status.",
    ("route", "method", "status"),
)
# The series of failed requests exists from the beginning, so that the first failure is an increase.
_REQUESTS.labels(OTHER, "GET", "5xx")


class Metered:
    """ASGI middleware that counts requests. With ``route``, all of them count as requests of that route."""

    def __init__(self, app: ASGIApp, route: str | None = None, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._route = route
        self._monotonic = monotonic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_s, status = self._monotonic(), "5xx"

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = f"{message['status'] // 100}xx"
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            method = scope["method"] if scope["method"] in _METHODS else OTHER
            route = self._route or _route_of(scope)
            _REQUESTS.labels(route, method, status).observe(self._monotonic() - began_s)


def _route_of(scope: Scope) -> str:
    path = getattr(scope.get("route"), "path", None)
    if not isinstance(path, str):
        return OTHER
    return path if path.startswith(API_ROOT) else API_ROOT + path
