"""Stores the newest choice of the fast simulation for each run, so that one process makes it and all read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.domain.ids import RunId
from backend.store.postgres.statements import beside_key, one_of, replaced, seconds_from_now
from backend.store.schema import choice_tables as tables
from backend.store.schema import tables as job_tables

_OF_RUNS = select(tables.setting_choices.c.run_id, tables.setting_choices.c.document).where(
    one_of(tables.setting_choices.c.run_id, "runs")
)
_RUN = job_tables.runs
_OTHER = _RUN.alias()
_BEFORE_RUN = (
    select(tables.setting_choices.c.document)
    .join(_OTHER, _OTHER.c.id == tables.setting_choices.c.run_id)
    .join(_RUN, _RUN.c.job_id == _OTHER.c.job_id)
    .where(_RUN.c.id == bindparam("run"), _OTHER.c.started_at < _RUN.c.started_at)
    .order_by(_OTHER.c.started_at.desc())
    .limit(1)
)
_TIMES_OF_RUNS = select(tables.setting_choices.c.run_id, tables.setting_choices.c.made_at).where(
    one_of(tables.setting_choices.c.run_id, "runs")
)
_INSERT = insert(tables.setting_choices)
# Only the process that has claimed a run chooses for it, so the newest choice is the one that is written last.
# Its time is not compared: a clock may be set back.
_KEEP = _INSERT.on_conflict_do_update(
    index_elements=[tables.setting_choices.c.run_id],
    set_=replaced(_INSERT, beside_key(tables.setting_choices)),
)
_CLAIM = tables.choice_claims.c
_NEW_CLAIM = insert(tables.choice_claims).values(
    run_id=bindparam("run"), holder=bindparam("holder"), expires_at=seconds_from_now("claimed_s")
)
# Claims are compared by the database's clock, which all processes share.
_CLAIM_RUN = _NEW_CLAIM.on_conflict_do_update(
    index_elements=[_CLAIM.run_id],
    set_=replaced(_NEW_CLAIM, beside_key(tables.choice_claims)),
    where=_CLAIM.expires_at <= func.now(),
).returning(_CLAIM.run_id)
_RELEASE = (
    delete(tables.choice_claims)
    .where(_CLAIM.run_id == bindparam("run"), _CLAIM.holder == bindparam("holder"))
    .returning(_CLAIM.run_id)
)


async def choices_of(connection: AsyncConnection, run_ids: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Return the stored choices of these runs as documents. A run without one is absent."""
    rows = (await connection.execute(_OF_RUNS, {"runs": list(run_ids)})).all()
    return {row.run_id: row.document for row in rows}


async def choice_before(connection: AsyncConnection, run_id: RunId) -> Mapping[str, Any] | None:
    """Return the choice for the newest earlier run of the same job that has one, as a document; None without any."""
    document: Mapping[str, Any] | None = (await connection.execute(_BEFORE_RUN, {"run": run_id})).scalar()
    return document


async def choice_times_of(connection: AsyncConnection, run_ids: Sequence[str]) -> dict[str, datetime]:
    """Return when the stored choices of these runs were made, on the service's clock. A run without one is absent."""
    rows = (await connection.execute(_TIMES_OF_RUNS, {"runs": list(run_ids)})).all()
    return {row.run_id: row.made_at for row in rows}


async def claim_choice(connection: AsyncConnection, run_id: RunId, holder: str, *, claimed_s: float) -> bool:
    """Return whether ``holder`` may choose for a run. If so, no other one may until it releases the run.

    If it never does, because its process has ended, others may after ``claimed_s`` seconds.
    """
    claimed = await connection.execute(_CLAIM_RUN, {"run": run_id, "holder": holder, "claimed_s": claimed_s})
    return claimed.first() is not None


async def release_choice(connection: AsyncConnection, run_id: RunId, holder: str) -> bool:
    """Let others choose for a run. Return whether ``holder`` had claimed it until now."""
    return (await connection.execute(_RELEASE, {"run": run_id, "holder": holder})).first() is not None


async def keep_choice(
    connection: AsyncConnection, run_id: RunId, made_at: datetime, document: Mapping[str, Any]
) -> None:
    """Store a choice in place of the earlier one of the same run. The caller has claimed the run, and commits.

    ``made_at`` is on the service's clock, so that the choices of jobs with different clocks can be ordered.
    """
    await connection.execute(_KEEP, {"run_id": run_id, "made_at": made_at, "document": document})
