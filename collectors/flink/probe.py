"""Tests the connection to a target that has Flink's REST API: reads its engine and its jobs once. Stores nothing.

The test uses the collector's transport with the same limits. So the collector can also read a target that passes the
test.
"""

from __future__ import annotations

from backend.contracts import flink
from backend.domain.address_rules import AddressRules
from backend.domain.errors import TargetUnavailableError
from backend.domain.observation import JobState
from collectors.base import Probed
from collectors.flink import document, parse
from collectors.flink.client import open_transport

_JOBS_MAX = 50


async def probe(url: str, timeout_s: float, *, rules: AddressRules) -> Probed:
    """Test the target at ``url``. Each of the two requests takes at most ``timeout_s`` seconds.

    Raises:
        InvalidInputError: ``url`` is not an http(s) address.
        TargetUnavailableError: the target did not answer in time.
        TargetProtocolError: the response is not one that Flink sends.
    """
    try:
        async with open_transport(url, timeout_s=timeout_s, rules=rules) as transport:
            info = parse.engine_info(document.read(await transport.get(flink.CONFIG), url=transport.url))
            answer = document.read(await transport.get(flink.JOBS_OVERVIEW), url=transport.url)
            entries = parse.jobs_overview(answer)
    except OSError as error:
        raise TargetUnavailableError(url=url, reason=type(error).__name__) from None
    running = [e.name for e in entries if e.state is not JobState.ENDED]
    return Probed(info.engine, info.version, tuple(sorted(running)[:_JOBS_MAX]))
