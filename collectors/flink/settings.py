"""Changes settings of a running job on the reference runtime. Flink itself reads settings only when a job starts.

The module uses the collector's transport with the same limits: no redirects and no proxies. It reads the target's
``/config`` and writes only to the job's path for settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import orjson

from backend.contracts import flink
from backend.domain.address_rules import AddressRules
from backend.domain.errors import ConflictError, FieldProblem, InvalidInputError, TargetProtocolError
from collectors.flink import document, parse
from collectors.flink.client import open_transport

_RUN = re.compile(r"[0-9a-f]{32}")
_REFUSED = (400, 409, 422)


async def change_settings(
    url: str,
    engine_run_id: str,
    settings: Mapping[str, str],
    timeout_s: float,
    token: str | None,
    *,
    rules: AddressRules,
) -> None:
    """Change ``settings`` of the job that runs as ``engine_run_id`` at ``url``. Either all of them change, or none.

    ``token`` is sent only to ``url``, and only in the request that changes the settings. If it is None, no token is
    sent.

    Raises:
        ConflictError: the engine at ``url`` cannot change settings of a running job.
        InvalidInputError: the target refuses the values, or ``url`` is not an http(s) address.
        TargetUnavailableError: the target did not answer within ``timeout_s`` seconds.
        TargetProtocolError: the response is not that of the live runtime.
    """
    if not _RUN.fullmatch(engine_run_id):
        raise ConflictError(
            f"{engine_run_id!r} is not a run whose settings can change while it runs", kind="restart-needed"
        )
    async with open_transport(url, timeout_s=timeout_s, rules=rules) as transport:
        info = parse.engine_info(document.read(await transport.get(flink.CONFIG), url=transport.url))
        if not info.engine.can_apply_settings_live:
            text = f"{info.engine.name} takes these settings when the job starts: change them and restart it"
            raise ConflictError(text, kind="restart-needed")
        try:
            await transport.patch(f"/jobs/{engine_run_id}/settings", orjson.dumps(dict(settings)), token=token)
        except TargetProtocolError as error:
            if error.status not in _REFUSED:
                raise
            problem = FieldProblem("settings", error.reason, "what the target takes while the job runs")
            raise InvalidInputError([problem], what="change") from None
