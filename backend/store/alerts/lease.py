"""Who evaluates alerts: one process at a time, by a lease in the database, fenced by a term that only rises.

Invariant: a write under ``fence`` commits only while its term is the newest. Taking the lease updates the row that
``fence`` locks, so a write of the former holder either commits before the change of hands or is refused after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.domain.errors import LeadershipLostError
from backend.store.postgres.connections import reading, writing


@dataclass(frozen=True, slots=True)
class Term:
    """The right to evaluate; ``number`` rises with every change of hands."""

    holder: str
    number: int


@dataclass(frozen=True, slots=True)
class EvaluatorRecord:
    """How evaluation goes; ``is_held`` by the database's clock."""

    holder: str
    is_held: bool
    evaluated_at: datetime | None
    evaluation_ms: int | None
    problem: str | None


async def take_term(engine: AsyncEngine, *, holder: str, ttl_s: float) -> Term | None:
    """Take or renew the right; None while another holds it.

    Raises:
        StoreUnavailableError: PostgreSQL is away.

    """
    statement = text(
        "INSERT INTO alert_evaluator AS e (id, holder, term, expires_at)"
        " VALUES (1, :holder, 1, now() + make_interval(secs => :ttl))"
        " ON CONFLICT (id) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at,"
        " term = e.term + (e.holder <> excluded.holder)::int"
        " WHERE e.holder = excluded.holder OR e.expires_at < now() RETURNING term"
    )
    async with writing(engine) as connection:
        row = (await connection.execute(statement, {"holder": holder, "ttl": ttl_s})).first()
    return None if row is None else Term(holder, row[0])


async def release_term(engine: AsyncEngine, term: Term) -> None:
    """Give the right back, so that another need not wait until it expires."""
    statement = text("UPDATE alert_evaluator SET expires_at = '-infinity' WHERE holder = :holder AND term = :term")
    async with writing(engine) as connection:
        await connection.execute(statement, {"holder": term.holder, "term": term.number})


async def fence(connection: AsyncConnection, term: Term) -> None:
    """Let the transaction go on only while ``term`` is the newest; it stays so until the transaction ends.

    Raises:
        LeadershipLostError: another has taken over.

    """
    query = text("SELECT 1 FROM alert_evaluator WHERE id = 1 AND holder = :holder AND term = :term FOR SHARE")
    if (await connection.execute(query, {"holder": term.holder, "term": term.number})).first() is None:
        raise LeadershipLostError(term.holder)


async def note_evaluation(
    connection: AsyncConnection, term: Term, *, at: datetime, evaluation_ms: int, problem: str | None
) -> None:
    """Keep when was evaluated last, how long that took, and what was in the way."""
    await connection.execute(
        text(
            "UPDATE alert_evaluator SET evaluated_at = :at, evaluation_ms = :ms, problem = :problem"
            " WHERE id = 1 AND holder = :holder AND term = :term"
        ),
        {"at": at, "ms": evaluation_ms, "problem": problem, "holder": term.holder, "term": term.number},
    )


async def evaluator_record(engine: AsyncEngine) -> EvaluatorRecord | None:
    """How evaluation goes; None where nobody has ever evaluated."""
    query = text(
        "SELECT holder, expires_at > now(), evaluated_at, evaluation_ms, problem FROM alert_evaluator WHERE id = 1"
    )
    async with reading(engine) as connection:
        row = (await connection.execute(query)).first()
    return None if row is None else EvaluatorRecord(*row)
