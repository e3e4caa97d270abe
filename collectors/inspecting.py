"""The role ``inspect``: reads the threads and the stacks of a running subtask with the collector of its target's kind.

The role ``api`` finds ``inspect`` through the entry point ``barrierscope.roles: inspect``.
"""

from __future__ import annotations

from backend.domain.connection import Reach
from backend.domain.errors import ConflictError
from backend.domain.inspection import Inspected, InspectionRequest
from collectors.kinds import find_kind


async def inspect(
    url: str, engine_run_id: str, request: InspectionRequest, timeout_s: float, *, kind: str, reach: Reach
) -> Inspected:
    """Return the threads or stacks that ``request`` asks for, from the target of ``kind`` at ``url``.

    Raises:
        ConflictError: the engine does not offer this, or one of its settings switches it off.
        InvalidInputError: ``url`` is not a valid address for this kind.
        TargetUnavailableError: the target did not answer in time, or no collector for this kind is installed.
        TargetProtocolError: the target answered, but not as its kind does.
    """
    of_kind = find_kind(kind, url=url).inspect
    if of_kind is None:
        text = f"threads cannot be read from targets of kind {kind!r}"
        raise ConflictError(text, kind="inspection-not-available")
    return await of_kind(url, engine_run_id, request, timeout_s, reach=reach)
