"""Tests the connection to a target that has Flink's REST API: reads its engine and its jobs once. Stores nothing.

The test uses the collector's transport with the same limits. So the collector can also read a target that passes the
test.
"""

from __future__ import annotations

import asyncio
from functools import partial

from backend.contracts import flink
from backend.domain.connection import Reach
from backend.domain.errors import TargetProtocolError, TargetUnavailableError, WrongRootError
from backend.domain.observation import JobState
from backend.domain.web_ui import page_error, without_page
from collectors.base import Probed
from collectors.flink import document, parse
from collectors.flink.client import open_transport, parse_target_url
from collectors.flink.roots import better_error

_JOBS_MAX = 50


async def probe(url: str, timeout_s: float, *, reach: Reach) -> Probed:
    """Test the target at ``url``. Each of the two requests takes at most ``timeout_s`` seconds.

    If Flink does not answer at ``url``, other paths of the same origin are tried in what is left of ``timeout_s``.

    Raises:
        InvalidInputError: ``url`` is not an http(s) address.
        TargetUnavailableError: the target did not answer in time.
        WrongRootError: Flink answers at another path.
        TargetProtocolError: the response is not one that Flink sends.
    """
    clock_s = asyncio.get_running_loop().time
    end_s = clock_s() + timeout_s
    try:
        return await ask_once(url, timeout_s, reach=reach)
    except TargetProtocolError as error:
        ask = partial(ask_once, timeout_s=timeout_s, reach=reach)
        raise await better_error(error, url, ask, reach=reach, timeout_s=max(0.0, end_s - clock_s())) from None


async def check_page(address: str, timeout_s: float, *, reach: Reach) -> None:
    """If ``address`` is a page of the web UI, raise an error that names the REST root to which the page belongs.

    Return if it is no page, or if no root is found: an address with a query or a fragment is refused later.

    Raises:
        WrongRootError: the root was found.
        InvalidInputError, TargetUnavailableError: as ``probe``.
    """
    if (root := without_page(address)) is None:
        return
    try:
        await probe(root, timeout_s, reach=reach)
    except WrongRootError:
        raise
    except TargetProtocolError:
        return
    raise page_error(address, parse_target_url(root).shown)


async def ask_once(url: str, timeout_s: float, *, reach: Reach) -> Probed:
    """Test the target at exactly this address. This raises the same errors as ``probe`` but ``WrongRootError``."""
    try:
        async with open_transport(url, timeout_s=timeout_s, reach=reach) as transport:
            info = parse.engine_info(document.read(await transport.get(flink.CONFIG), url=transport.url))
            answer = document.read(await transport.get(flink.JOBS_OVERVIEW), url=transport.url)
            entries = parse.jobs_overview(answer)
    except OSError as error:
        raise TargetUnavailableError(url=url, reason=type(error).__name__) from None
    running = [e.name for e in entries if e.state is not JobState.ENDED]
    return Probed(info.engine, info.version, tuple(sorted(running)[:_JOBS_MAX]))
