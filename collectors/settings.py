"""The role ``change-settings``: changes settings of a running job, with the collector of its target's kind.

The role ``api`` finds ``change_settings`` through the entry point ``barrierscope.roles: change-settings``.
"""

from __future__ import annotations

from collections.abc import Mapping

from backend.domain.address_rules import AddressRules
from backend.domain.errors import ConflictError
from collectors.kinds import find_kind


async def change_settings(
    url: str,
    engine_run_id: str,
    settings: Mapping[str, str],
    timeout_s: float,
    token: str | None,
    *,
    kind: str,
    rules: AddressRules,
) -> None:
    """Change ``settings`` of the job that runs as ``engine_run_id`` on the target of ``kind`` at ``url``.

    Raises:
        ConflictError: the engine cannot change settings of a running job.
        InvalidInputError: the target refuses the values, or ``url`` is not a valid address.
        TargetUnavailableError: the target did not answer in time, or no collector for this kind is installed.
        TargetProtocolError: the target answered, but not as its kind does.
    """
    change = find_kind(kind, url=url).change_settings
    if change is None:
        text = f"jobs of a target of kind {kind!r} take settings when they start: change them and restart the job"
        raise ConflictError(text, kind="restart-needed")
    await change(url, engine_run_id, settings, timeout_s, token, rules=rules)
