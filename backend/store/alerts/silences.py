"""Reads and writes silences. For some time, a silence hides the alerts that match it.

The author and the reason of a silence are stored. A silence that has ended stays stored as history.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import RowMapping, bindparam, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.alerting.labels import Labels, Matcher, fits_all
from backend.domain.errors import UnknownEntityError
from backend.store.postgres.encoding import clean
from backend.store.postgres.keyset import newest_first
from backend.store.schema import alert_tables
from backend.store.schema.rows import row_of, value_of


@dataclass(frozen=True, slots=True)
class Silence:
    """Hides the alerts whose labels fit all matchers, from ``starts_at`` (inclusive) until ``ends_at`` (exclusive)."""

    id: str
    matchers: tuple[Matcher, ...]
    starts_at: datetime
    ends_at: datetime
    reason: str
    author: str
    added_at: datetime

    def hides(self, labels: Labels, now: datetime) -> bool:
        """Return whether the silence hides an alert with these labels at ``now``."""
        return self.starts_at <= now < self.ends_at and fits_all(self.matchers, labels)


_SILENCE = alert_tables.silences.c
_SILENCES = select(alert_tables.silences)
_IN_FORCE = _SILENCES.where(_SILENCE.starts_at <= bindparam("now"), _SILENCE.ends_at > bindparam("now")).order_by(
    _SILENCE.ends_at, _SILENCE.id
)


async def silences_at(connection: AsyncConnection, now: datetime) -> list[Silence]:
    """Return the silences in force at ``now``."""
    return [_silence(row) for row in (await connection.execute(_IN_FORCE, {"now": now})).mappings()]


async def list_silences(
    connection: AsyncConnection, *, before: tuple[datetime, str] | None, limit: int
) -> list[Silence]:
    """Return up to ``limit`` silences that end before ``before`` (end, id), latest end first."""
    query, page = newest_first(_SILENCES, _SILENCE.ends_at, _SILENCE.id, before=before, limit=limit)
    return [_silence(row) for row in (await connection.execute(query, page)).mappings()]


async def add_silence(connection: AsyncConnection, silence: Silence) -> None:
    """Store a new silence."""
    matchers = [[clean(m.name), clean(m.value), m.is_equal] for m in silence.matchers]
    row = row_of(alert_tables.silences, silence, matchers=matchers)
    await connection.execute(insert(alert_tables.silences), row)


async def end_silence(connection: AsyncConnection, silence_id: str, *, at: datetime) -> None:
    """End a silence at ``at``, even if it has not begun. A silence that has already ended stays unchanged.

    Raises:
        UnknownEntityError: there is no such silence.
    """
    ended = (
        update(alert_tables.silences)
        .where(_SILENCE.id == silence_id)
        .values(starts_at=func.least(_SILENCE.starts_at, at), ends_at=func.least(_SILENCE.ends_at, at))
        .returning(_SILENCE.id)
    )
    if (await connection.execute(ended)).first() is None:
        raise UnknownEntityError(kind="silence", id=silence_id)


def _silence(row: RowMapping) -> Silence:
    return value_of(Silence, row, matchers=tuple(Matcher(*m) for m in row["matchers"]))
