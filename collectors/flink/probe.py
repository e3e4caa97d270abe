"""Tests the connection to a target with Flink's REST: reads its engine and running jobs once. Stores nothing.

It uses the collector's own transport with the same bounds, so a target that passes here is read the same way.
"""

from __future__ import annotations

from backend.contracts import flink
from backend.domain.errors import TargetUnavailableError
from backend.domain.observation import JobState
from collectors.base import Probed
from collectors.flink import document, parse
from collectors.flink.client import open_transport

_JOBS_MAX = 50


async def probe(url: str, timeout_s: float) -> Probed:
    """Test the target at ``url``; each of the two requests takes at most ``timeout_s`` seconds.

    Raises:
        InvalidInputError: ``url`` is not an http(s) address.
        TargetUnavailableError: it did not answer in time.
        TargetProtocolError: it answered, but not as Flink does.

    """
    try:
        async with open_transport(url, timeout_s=timeout_s) as transport:
            info = parse.engine_info(document.read(await transport.get(flink.CONFIG), url=transport.url))
            answer = document.read(await transport.get(flink.JOBS_OVERVIEW), url=transport.url)
            entries = parse.jobs_overview(answer)
    except OSError as error:
        raise TargetUnavailableError(url=url, reason=type(error).__name__) from None
    running = [e.name for e in entries if e.state is not JobState.ENDED]
    return Probed(info.engine, info.version, tuple(sorted(running)[:_JOBS_MAX]))
