"""Stores the newest choice of the fast simulation for each run, so that one process makes it and all read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.domain.ids import RunId
from backend.store.postgres.statements import beside_key, one_of, replaced
from backend.store.schema import tables

_OF_RUNS = select(tables.setting_choices.c.run_id, tables.setting_choices.c.document).where(
    one_of(tables.setting_choices.c.run_id, "runs")
)
_TIMES_OF_RUNS = select(tables.setting_choices.c.run_id, tables.setting_choices.c.made_at).where(
    one_of(tables.setting_choices.c.run_id, "runs")
)
_INSERT = insert(tables.setting_choices)
# Only the process that holds the lock of a run chooses for it, so the newest choice is the one that is written last.
# Its time is not compared: a clock may be set back.
_KEEP = _INSERT.on_conflict_do_update(
    index_elements=[tables.setting_choices.c.run_id],
    set_=replaced(_INSERT, beside_key(tables.setting_choices)),
)
# The first key of the advisory locks of runs for which a process chooses settings.
_LOCKS = 0x63686F69
_LOCK = select(func.pg_try_advisory_xact_lock(_LOCKS, func.hashtext(bindparam("run"))))


async def choices_of(connection: AsyncConnection, run_ids: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Return the stored choices of these runs as documents. A run without one is absent."""
    rows = (await connection.execute(_OF_RUNS, {"runs": list(run_ids)})).all()
    return {row.run_id: row.document for row in rows}


async def choice_times_of(connection: AsyncConnection, run_ids: Sequence[str]) -> dict[str, datetime]:
    """Return when the stored choices of these runs were made, on the service's clock. A run without one is absent."""
    rows = (await connection.execute(_TIMES_OF_RUNS, {"runs": list(run_ids)})).all()
    return {row.run_id: row.made_at for row in rows}


async def try_lock_choice(connection: AsyncConnection, run_id: RunId) -> bool:
    """Return whether this transaction may choose for a run. If so, no other one may until it ends."""
    return bool((await connection.execute(_LOCK, {"run": run_id})).scalar_one())


async def keep_choice(
    connection: AsyncConnection, run_id: RunId, made_at: datetime, document: Mapping[str, Any]
) -> None:
    """Store a choice in place of the earlier one of the same run. The caller holds the run's lock, and commits.

    ``made_at`` is on the service's clock, so that the choices of jobs with different clocks can be ordered.
    """
    await connection.execute(_KEEP, {"run_id": run_id, "made_at": made_at, "document": document})
