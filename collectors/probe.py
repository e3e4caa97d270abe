"""The role ``probe``: tests the connection to a target with the collector of its kind. Stores nothing.

The role ``api`` finds ``probe`` through the entry point ``barrierscope.roles: probe``.
"""

from __future__ import annotations

from backend.domain.connection import Reach
from backend.domain.errors import TargetUnavailableError
from collectors.base import Probed
from collectors.kinds import find_kind


async def probe(url: str, timeout_s: float, *, kind: str, reach: Reach) -> Probed:
    """Test the connection to the target of ``kind`` at ``url``. Each request takes at most ``timeout_s`` seconds.

    ``reach`` has the allowed addresses and the credentials.

    Raises:
        InvalidInputError: ``url`` is not a valid address for this kind.
        TargetUnavailableError: the target did not answer in time, or no installed collector can test this kind.
        TargetProtocolError: the target answered, but not as its kind does.
    """
    ask = find_kind(kind, url=url).probe
    if ask is None:
        raise TargetUnavailableError(url=url, reason=f"targets of kind {kind!r} cannot be tested")
    return await ask(url, timeout_s, reach=reach)
