"""Stores the newest choice of the fast simulation for each run, so that one process makes it and all read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.domain.ids import RunId
from backend.store.postgres.statements import beside_key, one_of, replaced
from backend.store.schema import tables

_OF_RUNS = select(tables.setting_choices.c.run_id, tables.setting_choices.c.document).where(
    one_of(tables.setting_choices.c.run_id, "runs")
)
_INSERT = insert(tables.setting_choices)
# Of two processes that chose at the same time, the later one is kept.
_KEEP = _INSERT.on_conflict_do_update(
    index_elements=[tables.setting_choices.c.run_id],
    set_=replaced(_INSERT, beside_key(tables.setting_choices)),
    where=tables.setting_choices.c.made_at < _INSERT.excluded.made_at,
)


async def choices_of(connection: AsyncConnection, run_ids: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Return the stored choices of these runs as documents. A run without one is absent."""
    rows = (await connection.execute(_OF_RUNS, {"runs": list(run_ids)})).all()
    return {row.run_id: row.document for row in rows}


async def keep_choice(
    connection: AsyncConnection, run_id: RunId, made_at: datetime, document: Mapping[str, Any]
) -> None:
    """Store a choice in place of an older one of the same run. The caller commits."""
    await connection.execute(_KEEP, {"run_id": run_id, "made_at": made_at, "document": document})
