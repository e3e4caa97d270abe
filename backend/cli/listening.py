"""Ports and servers: check a port, and serve one ASGI app until the process receives a signal to stop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import signal
import socket
from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from backend.domain.errors import FieldProblem, HostError, InvalidInputError
from backend.settings import Settings

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_BACKLOG = 256
# Requests that take longer than this after the stop signal are cut off.
_GRACEFUL_STOP_S = 2


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server on ``host``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listening_token(host: str, settings: Settings) -> str | None:
    """The token that requests to the API on ``host`` need; None if they need none.

    Raises:
        InvalidInputError: other machines can reach that address, and no token is set.

    """
    token = settings.token()
    if token is None and not is_loopback(host):
        problem = "other machines can reach this address, so every request needs a token"
        allowed = (
            "loopback, or any address with BARRIERSCOPE_API_TOKEN or BARRIERSCOPE_API_TOKEN_FILE set, "
            "for example: export BARRIERSCOPE_API_TOKEN=$(openssl rand -hex 32)"
        )
        raise InvalidInputError([FieldProblem("--host", f"{host!r}: {problem}", allowed)], what="option")
    return token


def bind(host: str, port: int, *, option: str) -> socket.socket:
    """A socket that listens on ``host``:``port``.

    Raises:
        HostError: the port is in use or not permitted, or the address does not belong to this machine.

    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise HostError(f"{host!r} is not an address ({error.strerror})", fix="pass another one with --host") from None
    server = socket.socket(family, kind, protocol)
    try:
        # Connections of an earlier server in TIME_WAIT do not block the port.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(address)
        server.listen(_BACKLOG)
    except OSError as error:
        server.close()
        raise _refused(host, port, option, error) from None
    return server


def check_port(host: str, port: int, *, option: str) -> None:
    """Raise ``HostError`` if ``bind`` would; the port stays free."""
    bind(host, port, option=option).close()


def _refused(host: str, port: int, option: str, error: OSError) -> HostError:
    if error.errno == errno.EADDRINUSE:
        return HostError(f"port {port} on {host} is in use", fix=f"pass another one with {option}")
    if error.errno == errno.EACCES:
        return HostError(f"this user may not listen on port {port}", fix=f"pass one above 1023 with {option}")
    return HostError(
        f"cannot listen on {host}:{port} ({error.strerror})", fix=f"pass another one with --host or {option}"
    )


async def serve(
    app: ASGIApp,
    server_socket: socket.socket,
    *,
    beside: Coroutine[Any, Any, None] | None = None,
    trusted_proxies: Sequence[str] = (),
) -> None:
    """Serve ``app`` until SIGTERM or SIGINT. ``beside`` runs at the same time and is cancelled at the end.

    The server uses the forwarded address and scheme in requests from ``trusted_proxies``. An exception in ``beside``
    ends the server and is raised here.
    """
    import uvicorn

    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACEFUL_STOP_S,
        # Set explicitly: the defaults trust this machine and an environment variable of uvicorn.
        proxy_headers=bool(trusted_proxies),
        forwarded_allow_ips=list(trusted_proxies),
    )
    server = uvicorn.Server(config)
    # uvicorn raises the signal again at the end, so that an orderly stop would look like a kill.
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]
    with stop_event() as stop, server_socket:
        try:
            async with asyncio.TaskGroup() as group:
                companions = [group.create_task(_end_with(stop, server))]
                if beside is not None:
                    companions.append(group.create_task(beside))
                await server.serve(sockets=[server_socket])
                for task in companions:
                    task.cancel()
        except ExceptionGroup as errors:
            # One task failed, and the group cancelled the others.
            raise errors.exceptions[0] from errors


async def _end_with(stop: asyncio.Event, server: Any) -> None:
    await stop.wait()
    server.should_exit = True


@contextlib.contextmanager
def stop_event() -> Iterator[asyncio.Event]:
    """An event that SIGTERM and SIGINT set."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    numbers = (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
