"""Recommendations and what became of them; each belongs to a job and outlives its runs.

At most one is open (new, accepted) for a topic of a job: the database holds to that. Whoever changes the cards of a job
holds its lock, so two processes that work them out at once write one card.
"""

# ruff: noqa: S608  the text put into statements is this module's own column list; every value is bound.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.domain.advice import AdviceState, Topic
from backend.domain.errors import UnknownEntityError
from backend.store.postgres.keyset import newest_first
from backend.store.schema.documents import clean, dump

Document = Mapping[str, Any]

_COLUMNS = (
    "id, job_id, run_id, topic, kind, state, state_reason, created_at, changed_at, last_given_at, applied_at,"
    " document, measured"
)


@dataclass(frozen=True, slots=True)
class CardRecord:
    """A recommendation as stored. ``document`` and ``measured`` are the API's JSON."""

    id: str
    job_id: str
    run_id: str
    topic: Topic
    kind: str
    state: AdviceState
    state_reason: str
    created_at: datetime
    changed_at: datetime
    last_given_at: datetime
    applied_at: datetime | None
    document: Document
    measured: Document | None


@dataclass(frozen=True, slots=True)
class CardEvent:
    """One change of a card's state."""

    at: datetime
    state: AdviceState
    reason: str


async def lock_job(connection: AsyncConnection, job_id: str) -> None:
    """Hold the cards of a job until the transaction ends."""
    await connection.execute(
        text("SELECT pg_advisory_xact_lock(hashtextextended('advice ' || :id, 0))"), {"id": job_id}
    )


async def list_cards(
    connection: AsyncConnection, job_id: str, *, before: tuple[datetime, str] | None = None, limit: int
) -> list[CardRecord]:
    """Cards of a job, newest first, those older than ``before`` (creation, id)."""
    query = text(
        f"SELECT {_COLUMNS} FROM recommendations WHERE job_id = :job"
        f" AND {newest_first({'at': 'created_at', 'id': 'id'})}"
    )
    at, card_id = before or (None, None)
    rows = await connection.execute(query, {"job": job_id, "at": at, "id": card_id, "limit": limit})
    return [_card(row) for row in rows.mappings()]


async def get_card(connection: AsyncConnection, job_id: str, card_id: str) -> CardRecord:
    """One card.

    Raises:
        UnknownEntityError: the job has none of this id.

    """
    query = text(f"SELECT {_COLUMNS} FROM recommendations WHERE job_id = :job AND id = :id")
    row = (await connection.execute(query, {"job": job_id, "id": card_id})).mappings().first()
    if row is None:
        raise UnknownEntityError(kind="recommendation", id=card_id)
    return _card(row)


async def events_of(connection: AsyncConnection, card_ids: Sequence[str]) -> Mapping[str, tuple[CardEvent, ...]]:
    """What happened to these cards, oldest first."""
    query = text(
        "SELECT recommendation_id, at, state, reason FROM recommendation_events WHERE recommendation_id = ANY(:ids)"
        " ORDER BY recommendation_id, number"
    )
    found: dict[str, list[CardEvent]] = {}
    for card_id, at, state, reason in (await connection.execute(query, {"ids": list(card_ids)})).all():
        found.setdefault(card_id, []).append(CardEvent(at, AdviceState(state), reason))
    return {card_id: tuple(rows) for card_id, rows in found.items()}


async def open_counts(connection: AsyncConnection) -> Mapping[str, int]:
    """How many recommendations somebody may act on, by job; a job without one is absent."""
    query = text(
        "SELECT job_id, count(*) AS total FROM recommendations WHERE state IN ('new', 'accepted') GROUP BY job_id"
    )
    return {row.job_id: row.total for row in await connection.execute(query)}


async def add_card(connection: AsyncConnection, card: CardRecord) -> None:
    """Keep a new card; one of the same id is there already."""
    statement = text(
        f"INSERT INTO recommendations ({_COLUMNS}) VALUES (:id, :job_id, :run_id, :topic, :kind, :state, :state_reason,"
        " :created_at, :changed_at, :last_given_at, :applied_at, CAST(:document AS jsonb), NULL)"
        " ON CONFLICT (id) DO NOTHING"
    )
    values = {
        name: getattr(card, name)
        for name in ("id", "job_id", "run_id", "kind", "created_at", "changed_at", "last_given_at", "applied_at")
    }
    values |= {
        "topic": card.topic.value,
        "state": card.state.value,
        "state_reason": clean(card.state_reason),
        "document": dump(card.document),
    }
    await connection.execute(statement, values)
    await _add_event(connection, card.id, card.created_at, card.state, card.state_reason)


async def refresh_card(
    connection: AsyncConnection, card_id: str, given_at: datetime, document: Document | None
) -> None:
    """Keep that it was given again, and what it says now where that is told."""
    statement = text(
        "UPDATE recommendations SET last_given_at = :at, document = coalesce(CAST(:document AS jsonb), document)"
        " WHERE id = :id"
    )
    told = None if document is None else dump(document)
    await connection.execute(statement, {"id": card_id, "at": given_at, "document": told})


async def move_card(
    connection: AsyncConnection,
    card: CardRecord,
    state: AdviceState,
    reason: str,
    at: datetime,
    *,
    applied_at: datetime | None = None,
    measured: Document | None = None,
) -> CardRecord:
    """Give it another state and add that to its history."""
    statement = text(
        "UPDATE recommendations SET state = :state, state_reason = :reason, changed_at = :at,"
        " applied_at = coalesce(:applied, applied_at), measured = coalesce(CAST(:measured AS jsonb), measured)"
        " WHERE id = :id"
    )
    told = None if measured is None else dump(measured)
    values = {"id": card.id, "state": state.value, "reason": clean(reason), "at": at, "applied": applied_at}
    await connection.execute(statement, values | {"measured": told})
    await _add_event(connection, card.id, at, state, reason)
    return replace(
        card,
        state=state,
        state_reason=reason,
        changed_at=at,
        applied_at=applied_at or card.applied_at,
        measured=measured or card.measured,
    )


async def _add_event(connection: AsyncConnection, card_id: str, at: datetime, state: AdviceState, reason: str) -> None:
    statement = text(
        "INSERT INTO recommendation_events (recommendation_id, number, at, state, reason)"
        " SELECT :id, coalesce(max(number), 0) + 1, :at, :state, :reason FROM recommendation_events"
        " WHERE recommendation_id = :id"
    )
    await connection.execute(statement, {"id": card_id, "at": at, "state": state.value, "reason": clean(reason)})


def _card(row: RowMapping) -> CardRecord:
    return CardRecord(
        **{
            name: row[name]
            for name in ("id", "job_id", "run_id", "kind", "state_reason", "created_at", "changed_at", "last_given_at")
        },
        topic=Topic(row["topic"]),
        state=AdviceState(row["state"]),
        applied_at=row["applied_at"],
        document=row["document"],
        measured=row["measured"],
    )
