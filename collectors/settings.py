"""The role ``change-settings``: changes a running job through the collector of its target's kind.

It changes settings, triggers savepoints and aborts checkpoints.

The role ``api`` finds ``change_settings`` through the entry point ``barrierscope.roles: change-settings``.
"""

from __future__ import annotations

from collections.abc import Mapping

from backend.domain.connection import Reach
from backend.domain.errors import ConflictError
from backend.domain.job_request import JobRequest
from collectors.kinds import find_kind


async def change_settings(
    url: str,
    engine_run_id: str,
    change: Mapping[str, str] | JobRequest,
    timeout_s: float,
    token: str | None,
    *,
    kind: str,
    reach: Reach,
) -> None:
    """Change settings of the job that runs as ``engine_run_id`` on the target of ``kind``, or send it a request.

    Raises:
        ConflictError: the engine cannot do this while the job runs.
        InvalidInputError: the target refuses the values, or ``url`` is not a valid address.
        TargetUnavailableError: the target did not answer in time, or no collector for this kind is installed.
        TargetProtocolError: the target answered, but not as its kind does.
    """
    of_kind = find_kind(kind, url=url).change_settings
    if of_kind is None:
        text = f"jobs of a target of kind {kind!r} take settings when they start: change them and restart the job"
        raise ConflictError(text, kind="restart-needed")
    await of_kind(url, engine_run_id, change, timeout_s, token, reach=reach)
