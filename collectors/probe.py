"""The role ``probe``: tests the connection to a target with the collector of its kind. Stores nothing.

Found by the ``api`` role through the entry point ``barrierscope.roles: probe``.
"""

from __future__ import annotations

from backend.domain.errors import TargetUnavailableError
from collectors.base import Probed
from collectors.kinds import find_kind


async def probe(url: str, timeout_s: float, *, kind: str) -> Probed:
    """Ask the target of ``kind`` at ``url``; each request takes at most ``timeout_s`` seconds.

    Raises:
        InvalidInputError: ``url`` is not a valid address for this kind.
        TargetUnavailableError: it did not answer in time, or no collector that can test this kind is installed.
        TargetProtocolError: it answered, but not as its kind does.

    """
    ask = find_kind(kind, url=url).probe
    if ask is None:
        raise TargetUnavailableError(url=url, reason=f"targets of kind {kind!r} cannot be tested")
    return await ask(url, timeout_s)
