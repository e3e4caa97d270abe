"""Writes and reads what the checkpoint folders of Spark queries hold. Of each folder, the newest reading is kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from posixpath import normpath
from typing import Final

from pydantic import TypeAdapter
from sqlalchemy import ARRAY, Text, any_, bindparam, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.domain.checkpoint_files import CheckpointFiles
from backend.domain.observation import Observation
from backend.store.jobs.reader import RunRecord
from backend.store.postgres.copying import Cursor
from backend.store.postgres.encoding import clean, dump
from backend.store.postgres.statements import beside_key, bound, replaced, sql_of
from backend.store.schema import tables
from backend.store.schema.watch_tables import checkpoint_folders

_FILES: Final[TypeAdapter[CheckpointFiles]] = TypeAdapter(CheckpointFiles)
_FOLDER, _TARGET = checkpoint_folders.c, tables.targets.c
_INSERT = insert(checkpoint_folders).values(**bound(_FOLDER))
_WRITE = sql_of(
    _INSERT.on_conflict_do_update(
        index_elements=checkpoint_folders.primary_key,
        set_=replaced(_INSERT, beside_key(checkpoint_folders)),
        where=_FOLDER.observed_at <= _INSERT.excluded.observed_at,
    )
)
_OF_QUERY = (
    select(_FOLDER.target_id, _TARGET.name, _TARGET.url, _FOLDER.files, _FOLDER.observed_at)
    .join_from(checkpoint_folders, tables.targets, _TARGET.id == _FOLDER.target_id)
    .where(_FOLDER.query_id == bindparam("query"), _TARGET.removed_at.is_(None))
    .order_by(_TARGET.name)
)
_OF_QUERIES = (
    select(_FOLDER.query_id, _TARGET.url, _FOLDER.observed_at, _FOLDER.files)
    .join_from(checkpoint_folders, tables.targets, _TARGET.id == _FOLDER.target_id)
    .where(_FOLDER.query_id == any_(bindparam("queries", type_=ARRAY(Text))), _TARGET.removed_at.is_(None))
    .order_by(_FOLDER.observed_at, _FOLDER.target_id)
)
_TIMES = _OF_QUERIES.with_only_columns(_FOLDER.query_id, _FOLDER.observed_at, maintain_column_froms=True)


@dataclass(frozen=True, slots=True)
class FolderRecord:
    """The newest reading of a folder. ``observed_at`` is when it was read, on our clock."""

    target_id: str
    target_name: str
    url: str
    files: CheckpointFiles
    observed_at: datetime


async def write_folders(cursor: Cursor, observations: Iterable[Observation]) -> None:
    """Store the readings of folders. A reading that is older than the stored one is left out."""
    found = [(o, o.folder) for o in observations if o.folder is not None]
    # All writers lock the rows in the same order, so that they cannot deadlock.
    rows = [
        {
            "target_id": observation.target_id,
            "query_id": clean(folder.query_id),
            "files": dump(folder),
            "observed_at": observation.observed_at,
        }
        for observation, folder in sorted(found, key=lambda one: one[0].target_id)
    ]
    if rows:
        await cursor.executemany(_WRITE, rows)


def query_of(run: RunRecord) -> str | None:
    """Return the id of the query whose checkpoint folders belong to a run, or None if none can."""
    query_id, _, own_id = run.engine_run_id.partition("/")
    return query_id if run.engine.is_micro_batched and own_id else None


async def folders_of(connection: AsyncConnection, query_id: str) -> list[FolderRecord]:
    """Return the checkpoint folders of a query: one, or several if the folder was copied."""
    rows = (await connection.execute(_OF_QUERY, {"query": query_id})).all()
    return [
        FolderRecord(target_id, name, url, _FILES.validate_python(files), observed_at)
        for target_id, name, url, files, observed_at in rows
    ]


async def folders_of_queries(
    connection: AsyncConnection, query_ids: Sequence[str]
) -> Mapping[str, list[tuple[datetime, CheckpointFiles]]]:
    """Return the newest readings of the checkpoint folders of each query that has any, with their times.

    Targets whose addresses are spelled differently (``/srv/orders``, ``/srv/./orders``) are one folder.
    """
    found: dict[str, dict[str, tuple[datetime, CheckpointFiles]]] = {}
    if query_ids:
        rows = await connection.execute(_OF_QUERIES, {"queries": list(query_ids)})
        for query_id, url, observed_at, files in rows.all():
            found.setdefault(query_id, {})[normpath(url)] = (observed_at, _FILES.validate_python(files))
    return {query_id: list(folders.values()) for query_id, folders in found.items()}


async def folder_times_of_queries(
    connection: AsyncConnection, query_ids: Sequence[str]
) -> Mapping[str, list[datetime]]:
    """Return when the checkpoint folders of each query that has any were last read, the oldest reading first."""
    found: dict[str, list[datetime]] = {}
    if query_ids:
        for query_id, observed_at in (await connection.execute(_TIMES, {"queries": list(query_ids)})).all():
            found.setdefault(query_id, []).append(observed_at)
    return found
