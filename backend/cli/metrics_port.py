"""Serves ``/metrics`` of a role at a port of its own, beside what the role does.

The port needs no token, because Prometheus and its operator usually have none. It listens on loopback unless
``BARRIERSCOPE_METRICS_HOST`` says otherwise, and on loopback it refuses requests that pages of other sites make.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import metadata
from typing import TYPE_CHECKING, Annotated

import typer

from backend.cli.listening import bind, is_loopback
from backend.domain.errors import HostError
from backend.settings import Settings

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from backend.metrics.page import Refresh

MetricsPort = Annotated[
    int | None, typer.Option(min=1, max=65535, help="Port of /metrics for Prometheus, without a token. [none]")
]
_STOP_WITHIN_S = 2


@asynccontextmanager
async def serving_metrics(
    role: str, settings: Settings, port: int | None = None, *, refresh: Refresh | None = None
) -> AsyncIterator[None]:
    """Serve the metrics of this process while the block runs. Without a port, do nothing.

    ``port`` overrides the setting. ``refresh`` is awaited before each answer.

    Raises:
        HostError: the port is in use or not permitted.
    """
    chosen = port or settings.metrics_port
    if chosen is None:
        yield
        return
    listener = _listener(settings.metrics_host, chosen)
    import uvicorn

    from backend.cli.bounded_http import BoundedHttp
    from backend.metrics.registry import describe_process

    describe_process(role, metadata.version("barrierscope"))
    app = _app(settings.metrics_host, refresh)
    config = uvicorn.Config(
        app,
        http=BoundedHttp,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=_STOP_WITHIN_S,
        proxy_headers=False,
    )
    server = uvicorn.Server(config)
    # The role itself handles the signals.
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve(sockets=[listener]), name="metrics")
            try:
                yield
            finally:
                server.should_exit = True
    except ExceptionGroup as errors:
        # If one task fails, the group cancels the other, so there is only one error.
        raise errors.exceptions[0] from errors
    finally:
        listener.close()


def _listener(host: str, port: int) -> socket.socket:
    try:
        return bind(host, port, option="--metrics-port")
    except HostError as error:
        raise HostError(
            error.what, fix="pass another one with --metrics-port, or set BARRIERSCOPE_METRICS_HOST"
        ) from None


def _app(host: str, refresh: Refresh | None) -> ASGIApp:
    from backend.api.access import Access, AccessRules
    from backend.metrics.page import MetricsPage

    page = MetricsPage(refresh=refresh)
    return Access(page, AccessRules(None, frozenset({host.lower()}))) if is_loopback(host) else page
