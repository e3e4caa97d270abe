"""Manages the lease that allows one process at a time to evaluate alerts.

Each new holder gets a higher term. Invariant: a write under ``fence`` commits only while its term is the newest. Taking
the lease updates the row that ``fence`` locks. So a write of the former holder either commits before the lease passes
to the new holder, or is refused afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, bindparam, case, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.domain.errors import LeadershipLostError
from backend.store.postgres.connections import reading, writing
from backend.store.postgres.statements import seconds_from_now
from backend.store.schema import alert_tables
from backend.store.schema.rows import value_of


@dataclass(frozen=True, slots=True)
class Term:
    """A lease that a process holds. ``number`` rises each time another process takes the lease."""

    holder: str
    number: int


@dataclass(frozen=True, slots=True)
class EvaluatorRecord:
    """The holder of the lease, and the last evaluation of the alert rules.

    ``is_held`` is whether the lease is valid by the database's clock.
    """

    holder: str
    is_held: bool
    evaluated_at: datetime | None
    evaluation_ms: int | None
    problem: str | None


_ROW = alert_tables.alert_evaluator.c
_ONLY_ROW = 1
_NEW = pg_insert(alert_tables.alert_evaluator).values(
    id=_ONLY_ROW,
    holder=bindparam("holder"),
    term=1,
    # The database's clock decides when a lease expires, because it is the same for all processes.
    expires_at=seconds_from_now("ttl"),
)
_TAKE = _NEW.on_conflict_do_update(
    index_elements=[_ROW.id],
    set_={
        "holder": _NEW.excluded.holder,
        "expires_at": _NEW.excluded.expires_at,
        "term": _ROW.term + case((_ROW.holder == _NEW.excluded.holder, 0), else_=1),
    },
    where=or_(_ROW.holder == _NEW.excluded.holder, _ROW.expires_at < func.now()),
).returning(_ROW.term)


def _is_held_by(term: Term) -> list[ColumnElement[bool]]:
    return [_ROW.id == _ONLY_ROW, _ROW.holder == term.holder, _ROW.term == term.number]


async def take_term(engine: AsyncEngine, *, holder: str, ttl_s: float) -> Term | None:
    """Take or renew the lease. Return None while another process holds the lease.

    Raises:
        StoreUnavailableError: PostgreSQL is unreachable.
    """
    async with writing(engine) as connection:
        row = (await connection.execute(_TAKE, {"holder": holder, "ttl": ttl_s})).first()
    return None if row is None else Term(holder, row[0])


async def release_term(engine: AsyncEngine, term: Term) -> None:
    """Release the lease, so that another process need not wait until it expires."""
    released = update(alert_tables.alert_evaluator).where(*_is_held_by(term))
    async with writing(engine) as connection:
        # The lease ends now, not at '-infinity', which the driver cannot read as an instant.
        await connection.execute(released.values(expires_at=func.now()))


async def fence(connection: AsyncConnection, term: Term) -> None:
    """Check that ``term`` is the newest, and lock its row so that it stays the newest until the transaction ends.

    Raises:
        LeadershipLostError: another process has taken over.
    """
    query = select(_ROW.id).where(*_is_held_by(term)).with_for_update(read=True)
    if (await connection.execute(query)).first() is None:
        raise LeadershipLostError(term.holder)


async def note_evaluation(
    connection: AsyncConnection, term: Term, *, at: datetime, evaluation_ms: int, problem: str | None
) -> None:
    """Record the time, the duration and the error of the last evaluation."""
    noted = update(alert_tables.alert_evaluator).where(*_is_held_by(term))
    await connection.execute(noted.values(evaluated_at=at, evaluation_ms=evaluation_ms, problem=problem))


async def has_evaluator(connection: AsyncConnection) -> bool:
    """Return whether a process holds the lease."""
    return bool((await connection.execute(select(func.bool_or(_ROW.expires_at > func.now())))).scalar_one())


async def evaluator_record(engine: AsyncEngine) -> EvaluatorRecord | None:
    """Return the holder of the lease and the last evaluation, or None if no process has ever held the lease."""
    query = select(
        *(_ROW.holder, _ROW.evaluated_at, _ROW.evaluation_ms, _ROW.problem),
        (_ROW.expires_at > func.now()).label("is_held"),
    )
    async with reading(engine) as connection:
        row = (await connection.execute(query)).mappings().first()
    return None if row is None else value_of(EvaluatorRecord, row)
