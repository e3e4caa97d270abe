"""Silences: which alerts are not delivered, until when, who said so and why. An ended one is kept as history."""

# ruff: noqa: S608  the text put into statements is this module's own column list; every value is bound.

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.alerting.labels import Labels, Matcher, fits_all
from backend.domain.errors import UnknownEntityError
from backend.store.postgres.keyset import newest_first
from backend.store.schema.documents import clean, dump


@dataclass(frozen=True, slots=True)
class Silence:
    """Hides alerts that all matchers fit, from ``starts_at`` until just before ``ends_at``."""

    id: str
    matchers: tuple[Matcher, ...]
    starts_at: datetime
    ends_at: datetime
    reason: str
    author: str
    added_at: datetime

    def hides(self, labels: Labels, now: datetime) -> bool:
        """Whether it hides an alert of these labels at ``now``."""
        return self.starts_at <= now < self.ends_at and fits_all(self.matchers, labels)


_COLUMNS = "id, matchers, starts_at, ends_at, reason, author, added_at"


async def silences_at(connection: AsyncConnection, now: datetime) -> list[Silence]:
    """Those that are in force at ``now``."""
    query = text(f"SELECT {_COLUMNS} FROM silences WHERE starts_at <= :now AND ends_at > :now ORDER BY ends_at, id")
    return [_silence(row) for row in await connection.execute(query, {"now": now})]


async def list_silences(
    connection: AsyncConnection, *, before: tuple[datetime, str] | None, limit: int
) -> list[Silence]:
    """All of them, latest end first, those before ``before`` (end, id)."""
    query = text(f"SELECT {_COLUMNS} FROM silences WHERE {newest_first({'at': 'ends_at', 'id': 'id'})}")
    at, silence_id = before or (None, None)
    return [_silence(row) for row in await connection.execute(query, {"at": at, "id": silence_id, "limit": limit})]


async def add_silence(connection: AsyncConnection, silence: Silence) -> None:
    """Write a new one."""
    await connection.execute(
        text(
            f"INSERT INTO silences ({_COLUMNS})"
            " VALUES (:id, CAST(:matchers AS jsonb), :starts_at, :ends_at, :reason, :author, :added_at)"
        ),
        {
            "id": silence.id,
            "matchers": dump([[clean(m.name), clean(m.value), m.is_equal] for m in silence.matchers]),
            "starts_at": silence.starts_at,
            "ends_at": silence.ends_at,
            "reason": clean(silence.reason),
            "author": clean(silence.author),
            "added_at": silence.added_at,
        },
    )


async def end_silence(connection: AsyncConnection, silence_id: str, *, at: datetime) -> None:
    """Let a silence end now, or never begin; one that has ended stays as it is.

    Raises:
        UnknownEntityError: there is none of this id.

    """
    found = await connection.execute(
        text(
            "UPDATE silences SET starts_at = least(starts_at, :at), ends_at = least(ends_at, :at)"
            " WHERE id = :id RETURNING 1"
        ),
        {"id": silence_id, "at": at},
    )
    if found.first() is None:
        raise UnknownEntityError(kind="silence", id=silence_id)


def _silence(row: Any) -> Silence:
    silence_id, matchers, *rest = row
    return Silence(silence_id, tuple(Matcher(*m) for m in matchers), *rest)
