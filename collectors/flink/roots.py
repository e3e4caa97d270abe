"""Finds the REST root of Flink if the given address is not one: a page of the web UI, or a path too short or too long.

Only paths of the same origin are tried, one after the other, at most ``TRIES_MAX``, with the address rules of the
caller and within its deadline. A redirect is used for its path only, and only if it stays on the origin.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from yarl import URL

from backend.contracts import flink
from backend.domain.connection import Reach
from backend.domain.errors import InvalidInputError, TargetProtocolError, UpstreamError, WrongRootError
from backend.domain.text import clean
from collectors.flink import document
from collectors.flink.client import open_transport, parse_target_url

TRIES_MAX: Final = 8

_ANCESTORS_MAX = 3
_LIVE_PREFIX = "/runtime/v1"
# The path of our own live runtime, and the usual name of a proxy's prefix.
_USUAL_PREFIXES = (_LIVE_PREFIX, "/flink")
_OWN_TARGETS = "/api/v1/targets?limit=20"
_SERVER_ERROR = 500
_SHOWN_MAX = 200

Ask: TypeAlias = Callable[[str], Awaitable[object]]
"""Reads the root at an address, and raises ``UpstreamError`` if Flink does not answer there."""


async def better_error(
    error: TargetProtocolError, address: str, ask: Ask, *, reach: Reach, timeout_s: float
) -> TargetProtocolError:
    """Return the error to report if ``address`` answered with ``error``: with the right root, if one is found.

    If the target's server fails, another path does not help, and none is tried.
    """
    if (error.status or 0) >= _SERVER_ERROR:
        return error
    shown = parse_target_url(address).shown
    try:
        async with asyncio.timeout(timeout_s):
            root = await _found(address, paths_to_try(URL(address).raw_path, error.redirected_to), ask)
            if root is not None:
                return WrongRootError(url=shown, reason=error.reason, root=root)
            live = await _live_root(address, reach=reach, timeout_s=timeout_s)
    except (TimeoutError, OSError, UpstreamError):
        return error
    reason = "this is the address of Barrierscope itself"
    return error if live is None else WrongRootError(url=shown, reason=reason, root=live, of="its live jobs")


def paths_to_try(path: str, redirected_to: str | None = None) -> tuple[str, ...]:
    """Return the paths that may be the REST root instead of ``path``, the most likely ones first.

    These are the path to which the target redirects, the shorter paths, and those with a usual prefix.
    """
    own = path.rstrip("/")
    parts = own.split("/")
    shorter = ["/".join(parts[:n]) for n in range(len(parts) - 1, 0, -1)]
    redirected = [] if redirected_to is None else [redirected_to.removesuffix(flink.JOBS_OVERVIEW).rstrip("/")]
    longer = [parent + prefix for prefix in _USUAL_PREFIXES for parent in (own, "")]
    found = dict.fromkeys([*redirected, *shorter[:_ANCESTORS_MAX], *shorter[-1:], *longer])
    return tuple(p for p in found if p != own)[:TRIES_MAX]


async def _found(address: str, paths: tuple[str, ...], ask: Ask) -> str | None:
    """Return the first of ``paths`` that is a root, as an address without credentials.

    Raises:
        TargetUnavailableError: the target does not answer any more.
    """
    for path in paths:
        candidate = str(URL(address).with_path(path, encoded=True))
        try:
            await ask(candidate)
        except TargetProtocolError:
            continue
        return parse_target_url(candidate).shown
    return None


async def _live_root(address: str, *, reach: Reach, timeout_s: float) -> str | None:
    """Return the address of the built-in live runtime if Barrierscope's own API answers at this origin.

    The root has the same host. It is not connected to, since its port is another one.

    Raises:
        TargetProtocolError: another program answers, or the API requires a token.
    """
    origin = URL(address).with_path("/")
    async with open_transport(str(origin), timeout_s=timeout_s, reach=reach) as transport:
        listed = document.read(await transport.get(_OWN_TARGETS), url=transport.url)
    for target in listed.get("items").items():
        if target.get("origin").value != "built-in":
            continue
        root = target.get("url").text(length_max=_SHOWN_MAX)
        if root.endswith(_LIVE_PREFIX):
            return _on_host(root, origin.host)
    return None


def _on_host(text: str, host: str | None) -> str | None:
    try:
        target_url = parse_target_url(text)
    except InvalidInputError:
        return None
    return clean(target_url.shown, length_max=_SHOWN_MAX) if target_url.root.host == host else None
