"""Reads and writes recommendations ("cards") and their history.

A card belongs to a job and outlives the job's runs. A unique index allows at most one open card (new or accepted) per
job and topic. A process locks the job's cards while it changes them, so two processes that derive the same
recommendation write only one card.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, func, insert, select, update
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.domain.advice import THE_SERVICE, AdviceOutcome, AdviceState, AdviceStep, Topic
from backend.domain.errors import UnknownEntityError
from backend.store.postgres.encoding import clean
from backend.store.postgres.keyset import newest_first
from backend.store.postgres.statements import among
from backend.store.schema import tables
from backend.store.schema.rows import row_of, value_of

Document = Mapping[str, Any]

_CARD = tables.recommendations.c
_EVENT = tables.recommendation_events.c
# The states of an open card, which can still be accepted, dismissed or applied.
_OPEN = [state.value for state in AdviceState if state.is_open]
_CARDS = select(tables.recommendations).where(_CARD.job_id == bindparam("job"))


@dataclass(frozen=True, slots=True)
class CardRecord:
    """A recommendation as it is stored. ``document`` and ``measured`` hold JSON in the API's shape."""

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
    """One entry in a card's history. ``state`` is the card's state after this entry.

    ``author`` is who took the step: ``THE_SERVICE``, or a person; None for a person whose name is not known.
    """

    at: datetime
    kind: AdviceStep
    state: AdviceState
    reason: str
    outcome: AdviceOutcome | None = None
    author: str | None = THE_SERVICE


async def lock_job(connection: AsyncConnection, job_id: str) -> None:
    """Lock the cards of a job until the transaction ends."""
    key = func.hashtextextended(f"advice {job_id}", 0)
    await connection.execute(select(func.pg_advisory_xact_lock(key)))


async def list_cards(
    connection: AsyncConnection, job_id: str, *, before: tuple[datetime, str] | None = None, limit: int
) -> list[CardRecord]:
    """Return up to ``limit`` of the job's cards that are older than ``before`` (creation time, id), newest first."""
    query, page = newest_first(_CARDS, _CARD.created_at, _CARD.id, before=before, limit=limit)
    rows = (await connection.execute(query, {"job": job_id} | page)).mappings()
    return [value_of(CardRecord, row) for row in rows]


async def get_card(connection: AsyncConnection, job_id: str, card_id: str) -> CardRecord:
    """Return one card of a job.

    Raises:
        UnknownEntityError: the job has no card with this id.
    """
    query = select(tables.recommendations).where(_CARD.job_id == job_id, _CARD.id == card_id)
    row = (await connection.execute(query)).mappings().first()
    if row is None:
        raise UnknownEntityError(kind="recommendation", id=card_id)
    return value_of(CardRecord, row)


async def events_of(connection: AsyncConnection, card_ids: Sequence[str]) -> Mapping[str, tuple[CardEvent, ...]]:
    """Return the events of each card, oldest first."""
    query = (
        select(tables.recommendation_events)
        .where(among(_EVENT.recommendation_id, card_ids))
        .order_by(_EVENT.recommendation_id, _EVENT.number)
    )
    events: dict[str, list[CardEvent]] = {}
    for row in (await connection.execute(query)).mappings():
        events.setdefault(row["recommendation_id"], []).append(value_of(CardEvent, row))
    return {card_id: tuple(rows) for card_id, rows in events.items()}


async def open_headlines(connection: AsyncConnection, job_ids: Sequence[str]) -> list[tuple[str, Topic, str]]:
    """Return the job, the topic and the headline of each open recommendation for these jobs."""
    query = select(_CARD.job_id, _CARD.topic, _CARD.document["headline"].astext.label("headline")).where(
        among(_CARD.job_id, job_ids), _CARD.state.in_(_OPEN)
    )
    rows = await connection.execute(query)
    return [(row.job_id, Topic(row.topic), row.headline) for row in rows if row.headline is not None]


_OPEN_COUNTS = select(_CARD.job_id, func.count().label("total")).where(_CARD.state.in_(_OPEN)).group_by(_CARD.job_id)


async def open_counts(connection: AsyncConnection) -> Mapping[str, int]:
    """Return the number of open recommendations of each job. A job without open recommendations is absent."""
    return {row.job_id: row.total for row in await connection.execute(_OPEN_COUNTS)}


_FOLLOWED = (
    select(_CARD.job_id)
    .distinct()
    .where(_CARD.state.in_([*_OPEN, *(state.value for state in AdviceState if state.is_in_force)]))
)


async def followed_jobs(connection: AsyncConnection) -> set[str]:
    """Return the jobs that have a card which can still change by itself."""
    return set((await connection.execute(_FOLLOWED)).scalars())


async def add_card(
    connection: AsyncConnection,
    card: CardRecord,
    kind: AdviceStep = AdviceStep.STATE,
    *,
    outcome: AdviceOutcome | None = None,
    author: str | None = THE_SERVICE,
) -> None:
    """Store a new card and its first event. If a card with this id exists already, that card stays unchanged."""
    row = row_of(tables.recommendations, card)
    added = await connection.execute(
        pg_insert(tables.recommendations).values(row).on_conflict_do_nothing(index_elements=[_CARD.id])
    )
    if added.rowcount:
        first = CardEvent(card.created_at, kind, card.state, card.state_reason, outcome, author)
        await _add_event(connection, card.id, first)


async def refresh_card(
    connection: AsyncConnection, card_id: str, given_at: datetime, document: Document | None
) -> None:
    """Record that the recommendation was derived again at ``given_at``.

    If ``document`` is not None, it replaces the stored document.
    """
    changes: dict[str, Any] = {"last_given_at": given_at}
    if document is not None:
        changes["document"] = document
    await connection.execute(update(tables.recommendations).where(_CARD.id == card_id).values(changes))


async def move_card(
    connection: AsyncConnection,
    card: CardRecord,
    state: AdviceState,
    reason: str,
    at: datetime,
    *,
    applied_at: datetime | None = None,
    measured: Document | None = None,
    kind: AdviceStep = AdviceStep.STATE,
    outcome: AdviceOutcome | None = None,
    author: str | None = THE_SERVICE,
) -> CardRecord:
    """Change a card's state, add the change to its history, and return the changed card.

    The caller must hold ``lock_job`` for the card's job, so that no other transaction has changed the card since it was
    read.
    """
    moved = replace(
        card,
        state=state,
        state_reason=reason,
        changed_at=at,
        applied_at=applied_at or card.applied_at,
        measured=measured or card.measured,
    )
    row = row_of(tables.recommendations, moved)
    changes = {name: row[name] for name in ("state", "state_reason", "changed_at", "applied_at", "measured")}
    await connection.execute(update(tables.recommendations).where(_CARD.id == card.id).values(changes))
    await _add_event(connection, card.id, CardEvent(at, kind, state, reason, outcome, author))
    return moved


async def note_step(
    connection: AsyncConnection,
    card: CardRecord,
    reason: str,
    at: datetime,
    kind: AdviceStep,
    *,
    outcome: AdviceOutcome | None = None,
    author: str | None = THE_SERVICE,
) -> CardRecord:
    """Add a step to a card's history, such as that a roll back was sent. The card keeps its state.

    The caller must hold ``lock_job`` for the card's job.
    """
    moved = replace(card, state_reason=reason, changed_at=at)
    changes = {"state_reason": clean(reason), "changed_at": at}
    await connection.execute(update(tables.recommendations).where(_CARD.id == card.id).values(changes))
    await _add_event(connection, card.id, CardEvent(at, kind, card.state, reason, outcome, author))
    return moved


async def _add_event(connection: AsyncConnection, card_id: str, event: CardEvent) -> None:
    values = {
        "recommendation_id": card_id,
        "number": select(func.coalesce(func.max(_EVENT.number), 0) + 1)
        .where(_EVENT.recommendation_id == card_id)
        .scalar_subquery(),
        "at": event.at,
        "kind": event.kind.value,
        "state": event.state.value,
        "reason": clean(event.reason),
        "outcome": None if event.outcome is None else event.outcome.value,
        "author": None if event.author is None else clean(event.author),
    }
    await connection.execute(insert(tables.recommendation_events).values(values))
