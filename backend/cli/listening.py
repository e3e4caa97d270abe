"""Ports and servers: whether a port is free, and one ASGI app served on it until the process is asked to stop."""

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
# A request that takes longer than this after the request to stop is cut off.
_GRACEFUL_STOP_S = 2


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens on ``host``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listening_token(host: str, settings: Settings) -> str | None:
    """The token that requests need where the API listens on ``host``; None where it needs none.

    Raises:
        InvalidInputError: others can reach that address, and there is no token.

    """
    token = settings.token()
    if token is None and not is_loopback(host):
        problem = "others can reach it, so every request has to carry a token"
        allowed = (
            "loopback, or any address with BARRIERSCOPE_API_TOKEN or BARRIERSCOPE_API_TOKEN_FILE set, "
            "for example: export BARRIERSCOPE_API_TOKEN=$(openssl rand -hex 32)"
        )
        raise InvalidInputError([FieldProblem("--host", f"{host!r}: {problem}", allowed)], what="option")
    return token


def bind(host: str, port: int, *, option: str) -> socket.socket:
    """A socket that listens on ``host``:``port``.

    Raises:
        HostError: the port is taken or not ours to take, or the address is none of this machine.

    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise HostError(f"{host!r} is no address ({error.strerror})", fix="pass another with --host") from None
    server = socket.socket(family, kind, protocol)
    try:
        # What a server that just ended left in TIME_WAIT is no reason to refuse.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(address)
        server.listen(_BACKLOG)
    except OSError as error:
        server.close()
        raise _refused(host, port, option, error) from None
    return server


def check_port(host: str, port: int, *, option: str) -> None:
    """Raise ``HostError`` where ``bind`` would, and leave the port free."""
    bind(host, port, option=option).close()


def _refused(host: str, port: int, option: str, error: OSError) -> HostError:
    if error.errno == errno.EADDRINUSE:
        return HostError(f"port {port} on {host} is taken", fix=f"pass another with {option}")
    if error.errno == errno.EACCES:
        return HostError(f"port {port} may not be taken by this user", fix=f"pass one above 1023 with {option}")
    return HostError(f"cannot listen on {host}:{port} ({error.strerror})", fix=f"pass another with --host or {option}")


async def serve(
    app: ASGIApp,
    server_socket: socket.socket,
    *,
    beside: Coroutine[Any, Any, None] | None = None,
    trusted_proxies: Sequence[str] = (),
) -> None:
    """Serve ``app`` until SIGTERM or SIGINT; ``beside`` runs along and is cancelled at the end.

    Of ``trusted_proxies`` the forwarded address and scheme are believed. What ``beside`` raises ends the server and is
    raised here.
    """
    import uvicorn

    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACEFUL_STOP_S,
        # Said in full: the server would otherwise believe this machine, and an environment variable of its own.
        proxy_headers=bool(trusted_proxies),
        forwarded_allow_ips=list(trusted_proxies),
    )
    server = uvicorn.Server(config)
    # Its own handling raises the signal again at the end, which would make an orderly stop look like a kill.
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
            # One of the tasks failed and the others were cancelled for it.
            raise errors.exceptions[0] from errors


async def _end_with(stop: asyncio.Event, server: Any) -> None:
    await stop.wait()
    server.should_exit = True


@contextlib.contextmanager
def stop_event() -> Iterator[asyncio.Event]:
    """An event of the running loop that SIGTERM and SIGINT set."""
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
