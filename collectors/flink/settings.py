"""Changes settings of a running job on the reference runtime, and sends requests to jobs of it and of Flink.

Flink itself reads settings only when a job starts, and its REST API cannot abort a checkpoint. The module uses the
collector's transport with the same limits: no redirects and no proxies. It reads the target's ``/config`` and writes
only to the paths for settings, savepoints, aborts, stops and starts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import orjson

from backend.contracts import flink
from backend.domain.connection import Reach
from backend.domain.engines import EngineCapabilities
from backend.domain.errors import ConflictError, FieldProblem, InvalidInputError, TargetProtocolError
from backend.domain.job_request import (
    AbortCheckpoint,
    CheckSettings,
    JobRequest,
    StartFrom,
    StopWithSavepoint,
    TriggerSavepoint,
)
from collectors.flink import document, parse
from collectors.flink.client import open_transport

_RUN = re.compile(r"[0-9a-f]{32}")
_REFUSED = (400, 409, 422)
# Without a directory, the engine uses its default one.
_SAVEPOINT = b'{"cancel-job": false}'
_STOP = b'{"drain": false}'


async def change_settings(
    url: str,
    engine_run_id: str,
    change: Mapping[str, str] | JobRequest,
    timeout_s: float,
    token: str | None,
    *,
    reach: Reach,
) -> None:
    """Change settings of the job that runs as ``engine_run_id`` at ``url``, or send it a request.

    Of several settings either all change, or none. ``token`` is sent only to ``url``, and only in the request that
    changes something. If it is None, no token is sent.

    Raises:
        ConflictError: the engine at ``url`` cannot do this while a job runs.
        InvalidInputError: the target refuses the change, or ``url`` is not an http(s) address.
        TargetUnavailableError: the target did not answer within ``timeout_s`` seconds.
        TargetProtocolError: the response is not that of the live runtime.
    """
    if not _RUN.fullmatch(engine_run_id):
        raise ConflictError(
            f"{engine_run_id!r} is not a run whose settings can change while it runs", kind="restart-needed"
        )
    async with open_transport(url, timeout_s=timeout_s, reach=reach) as transport:
        info = parse.engine_info(document.read(await transport.get(flink.CONFIG), url=transport.url))
        _must_be_able(info.engine, change)
        try:
            if isinstance(change, TriggerSavepoint):
                await transport.post(f"/jobs/{engine_run_id}/savepoints", _SAVEPOINT, token=token)
            elif isinstance(change, AbortCheckpoint):
                path = f"/jobs/{engine_run_id}/checkpoints/{change.checkpoint_id}/abort"
                await transport.post(path, b"{}", token=token)
            elif isinstance(change, StopWithSavepoint):
                await transport.post(f"/jobs/{engine_run_id}/stop", _STOP, token=token)
            elif isinstance(change, StartFrom):
                await transport.post("/jobs", orjson.dumps({"savepointPath": change.location}), token=token)
            elif isinstance(change, CheckSettings):
                # An older runtime does not have this path and refuses it. It would ignore an unknown parameter of the
                # path for changes, and make the change.
                body = orjson.dumps(dict(change.settings))
                await transport.post(f"/jobs/{engine_run_id}/settings/check", body, token=token)
            else:
                await transport.patch(f"/jobs/{engine_run_id}/settings", orjson.dumps(dict(change)), token=token)
        except TargetProtocolError as error:
            if error.status not in _REFUSED:
                raise
            problem = FieldProblem("change", error.reason, "what the target does while the job runs")
            raise InvalidInputError([problem], what="change") from None


def _must_be_able(engine: EngineCapabilities, change: Mapping[str, str] | JobRequest) -> None:
    if isinstance(change, TriggerSavepoint):
        is_able, text = engine.can_trigger_savepoints, f"{engine.name} has no request for a savepoint"
    elif isinstance(change, AbortCheckpoint):
        is_able, text = engine.can_abort_checkpoints, f"{engine.name} has no request that aborts a checkpoint"
    elif isinstance(change, StopWithSavepoint | StartFrom):
        is_able, text = engine.can_continue_jobs, f"{engine.name} has no request that stops a job and starts it again"
    else:
        text = f"{engine.name} takes these settings when the job starts: change them and restart it"
        if not engine.can_apply_settings_live:
            raise ConflictError(text, kind="restart-needed")
        return
    if not is_able:
        raise ConflictError(text, kind="action-not-available")
