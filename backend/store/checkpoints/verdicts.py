"""Stores the verdicts on checkpoints that have ended. The caller decides when a stored verdict may be replaced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.store.checkpoints.reader import CheckpointPlace
from backend.store.postgres.statements import beside_key, bound, replaced
from backend.store.schema import tables

_VERDICTS = tables.verdicts
_KEY = bound(_VERDICTS.primary_key)
_OF = select(_VERDICTS.c.document).where(*(_VERDICTS.c[name] == value for name, value in _KEY.items()))
_INSERT = insert(_VERDICTS)
_KEEP = _INSERT.on_conflict_do_nothing()
_REPLACE = _INSERT.on_conflict_do_update(
    index_elements=_VERDICTS.primary_key,
    set_=replaced(_INSERT, beside_key(_VERDICTS)),
    where=_VERDICTS.c.document == bindparam("before", type_=_VERDICTS.c.document.type),
)


async def verdict_of(connection: AsyncConnection, place: CheckpointPlace) -> Mapping[str, Any] | None:
    """Return the stored verdict on a checkpoint, as the JSON document that was stored."""
    verdict: Mapping[str, Any] | None = (await connection.execute(_OF, asdict(place))).scalar_one_or_none()
    return verdict


async def keep_verdict(
    connection: AsyncConnection,
    place: CheckpointPlace,
    document: Mapping[str, Any],
    *,
    before: Mapping[str, Any] | None,
    at: datetime,
) -> Mapping[str, Any]:
    """Store the verdict on a checkpoint, unless a verdict other than ``before`` is stored.

    Return the stored verdict.
    """
    row = asdict(place) | {"judged_at": at, "document": document}
    if before is None:
        await connection.execute(_KEEP, row)
    else:
        await connection.execute(_REPLACE, row | {"before": before})
    return await verdict_of(connection, place) or document
