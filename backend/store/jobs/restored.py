"""Finds the stored checkpoint from which a run was restored, so that the two can be linked."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.domain.checkpoint import RestoredFrom
from backend.domain.ids import JobId, RunId

# Flink and the reference runtime have the id of the run before the folder of the checkpoint. The folder of a savepoint
# of Flink has only a part of that id, so the savepoint is not found.
_LOCATION: Final = re.compile(r"(?:^|[/:])([0-9a-f]{32})/(?:chk|savepoint)-(\d{1,18})/?(?:_metadata)?$")
_TAKEN: Final = text(
    "SELECT r.job_id, r.id, j.name FROM runs r JOIN jobs j ON j.id = r.job_id WHERE r.engine_run_id = :run"
    " AND EXISTS (SELECT FROM checkpoints c WHERE c.run_id = r.id AND c.checkpoint_id = :id)"
    " ORDER BY r.started_at DESC, r.id DESC LIMIT 1"
)


class Taken(NamedTuple):
    """The run that took a stored checkpoint."""

    job_id: JobId
    run_id: RunId
    job: str


async def taken_by(connection: AsyncConnection, origin: RestoredFrom) -> Taken | None:
    """Return the run that took the checkpoint, or None if its location names no stored one."""
    match = _LOCATION.search(origin.location or "")
    if match is None or int(match[2]) != origin.checkpoint_id:
        return None
    row = (await connection.execute(_TAKEN, {"run": match[1], "id": origin.checkpoint_id})).first()
    return None if row is None else Taken(*row)
