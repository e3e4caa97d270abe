"""Check and bind ports, and serve one ASGI app until the process receives a signal to stop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import signal
import socket
from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from backend.domain.address_rules import AddressRules
from backend.domain.connection import Reach
from backend.domain.errors import FieldProblem, HostError, InvalidInputError
from backend.settings import Settings, credential_environment, names

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_BACKLOG = 256
# Requests that still run this many seconds after the stop signal are cut off.
_GRACEFUL_STOP_S = 2


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server that listens on ``host``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listening_token(host: str, settings: Settings) -> str | None:
    """Return the token that every request to the API on ``host`` must carry, or None if no token is set.

    Raises:
        InvalidInputError: other machines can reach ``host``, and no token is set.
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


def address_rules(host: str, settings: Settings, allowed: str) -> AddressRules:
    """Return the rules for addresses that users enter through the API on ``host``.

    ``allowed`` is the setting with the list. Everything is allowed only if the list is empty and only this machine can
    reach the API, directly or through a proxy.
    """
    listed = names(allowed)
    return AddressRules(not listed and is_loopback(host) and not _has_proxy(settings), listed)


def target_limits(host: str, settings: Settings) -> Reach:
    """Return what users may reach and name as credentials in targets that they add through the API on ``host``."""
    rules = address_rules(host, settings, settings.allowed_targets)
    return Reach(rules, policy=settings.credential_policy(), environment=credential_environment())


def _has_proxy(settings: Settings) -> bool:
    """Return whether the settings describe a proxy, through which other machines can reach an API on loopback."""
    public = settings.public_url and urlsplit(settings.public_url).hostname
    return bool(names(settings.trusted_proxies)) or (public is not None and not is_loopback(public))


def bind(host: str, port: int, *, option: str) -> socket.socket:
    """Return a socket that listens on ``host``:``port``.

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
        # Without this option, old connections in TIME_WAIT would block the port after a restart of the server.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(address)
        server.listen(_BACKLOG)
    except OSError as error:
        server.close()
        raise _refused(host, port, option, error) from None
    return server


def check_port(host: str, port: int, *, option: str) -> None:
    """Raise ``HostError`` if ``bind`` would raise it. The port stays free."""
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
    """Serve ``app`` until SIGTERM or SIGINT. Run ``beside`` at the same time, and cancel it when the server stops.

    Requests from ``trusted_proxies`` may set the client address and scheme in forwarded headers. An exception in
    ``beside`` stops the server and is raised here.
    """
    import uvicorn

    from backend.cli.bounded_http import BoundedHttp

    config = uvicorn.Config(
        app,
        http=BoundedHttp,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACEFUL_STOP_S,
        # Both options are set explicitly. By default uvicorn trusts forwarded headers from this machine and from the
        # addresses in an environment variable.
        proxy_headers=bool(trusted_proxies),
        forwarded_allow_ips=list(trusted_proxies),
    )
    server = uvicorn.Server(config)
    # uvicorn would raise the signal again after its shutdown, so an orderly stop would look like a kill.
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
            # If one task fails, the group cancels the others, so there is only one error.
            raise errors.exceptions[0] from errors


async def _end_with(stop: asyncio.Event, server: Any) -> None:
    await stop.wait()
    server.should_exit = True


@contextlib.contextmanager
def stop_event() -> Iterator[asyncio.Event]:
    """Yield an event that SIGTERM and SIGINT set."""
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
