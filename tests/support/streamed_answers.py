"""A transport of httpx for clients that read their answers as streams."""

from __future__ import annotations

from collections.abc import Callable

import httpx


def streamed(handle: Callable[[httpx.Request], httpx.Response]) -> httpx.MockTransport:
    """Return a transport with the answers of ``handle``, which arrive as streams, as on a network."""

    def answer(request: httpx.Request) -> httpx.Response:
        made = handle(request)
        return httpx.Response(made.status_code, headers=made.headers, stream=httpx.ByteStream(made.content))

    return httpx.MockTransport(answer)
