"""Reads what the links of a target's jobs need. A removed target keeps its links, because its history stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.domain.errors import UnknownEntityError
from backend.store.schema import tables
from backend.store.schema.rows import value_of


@dataclass(frozen=True, slots=True)
class TargetLinks:
    """The address, the name, the labels and the link templates of a target. ``url`` may contain credentials."""

    url: str
    ui_url: str | None
    name: str
    labels: Mapping[str, str]
    link_templates: Sequence[Mapping[str, str]]


_LINKS = select(tables.targets).where(tables.targets.c.id == bindparam("target"))


async def links_of_target(connection: AsyncConnection, target_id: str) -> TargetLinks:
    """Return the links of a target, which may be removed.

    Raises:
        UnknownEntityError: there was never a target with this id.
    """
    row = (await connection.execute(_LINKS, {"target": target_id})).mappings().first()
    if row is None:
        raise UnknownEntityError(kind="target", id=target_id)
    return value_of(TargetLinks, row)
