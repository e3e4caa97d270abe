"""Finds the stored checkpoint from which a run was restored, so that the two can be linked."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final, NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.domain.checkpoint import CheckpointStatus, RestoredFrom
from backend.domain.ids import JobId, RunId

# Flink and the reference runtime have the id of the run before the folder of the checkpoint. The folder of a savepoint
# of Flink has only a part of that id, so the savepoint is not found.
_LOCATION: Final = re.compile(r"(?:^|[/:])([0-9a-f]{32})/(?:chk|savepoint)-(\d{1,18})/?(?:_metadata)?$")
# A path can end with a slash or with the name of the metadata file, and Flink writes ``file:/c`` and ``file:///c``.
_TAIL: Final = "/?(_metadata)?$"
_SLASHES: Final = ":/+"
# Flink's application mode with high availability gives every job the same id, so the id alone identifies no run.
# The LIMIT within LATERAL makes PostgreSQL look up the checkpoint of each run in an index. Without it, PostgreSQL reads
# all stored checkpoints if many runs have the id.
_TAKEN: Final = text(
    "SELECT r.job_id, r.id, j.name FROM runs r JOIN jobs j ON j.id = r.job_id CROSS JOIN LATERAL ("
    "SELECT FROM checkpoints c WHERE c.run_id = r.id AND c.checkpoint_id = :id AND c.status = :completed"
    " AND (coalesce(c.external_path, '') = ''"
    " OR regexp_replace(regexp_replace(c.external_path, :tail, ''), :slashes, ':/') = :path) LIMIT 1) found"
    " WHERE r.engine_run_id = :run AND (CAST(:at AS timestamptz) IS NULL OR r.started_at <= :at) LIMIT 2"
)


class Taken(NamedTuple):
    """The run that took a stored checkpoint."""

    job_id: JobId
    run_id: RunId
    job: str


async def taken_by(
    connection: AsyncConnection, origin: RestoredFrom, restored_at: datetime | None = None
) -> Taken | None:
    """Return the run that took the checkpoint, or None if its location names no stored one, or one of several runs.

    A run that began after ``restored_at`` did not take it. If ``restored_at`` is None, this is not checked.
    """
    match = _LOCATION.search(origin.location or "")
    if match is None or int(match[2]) != origin.checkpoint_id:
        return None
    values = {
        "run": match[1],
        "id": origin.checkpoint_id,
        "path": re.sub(_SLASHES, ":/", re.sub(_TAIL, "", match.string), count=1),
        "tail": _TAIL,
        "slashes": _SLASHES,
        "at": restored_at,
        "completed": CheckpointStatus.COMPLETED,
    }
    rows = (await connection.execute(_TAKEN, values)).all()
    return Taken(*rows[0]) if len(rows) == 1 else None
