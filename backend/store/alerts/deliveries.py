"""The outbox: what is due to whom, once per (episode, receiver, firing or resolved), and how each attempt went.

A row is written in the transaction that changes the state of its alert. It is *due* until a receiver took it, however
often that fails; a claim puts its next attempt off, so what a killed process had claimed is due again later.

Invariants: a row is never due twice to one receiver; *resolved* waits for its *firing*; an attempt's outcome counts
only while nobody else has claimed the row since.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.alerting.rules import RuleName
from backend.store.schema.documents import clean

DeliveryKind = Literal["firing", "resolved"]
DeliveryState = Literal["due", "delivered", "abandoned"]


@dataclass(frozen=True, slots=True)
class Claim:
    """One delivery to attempt now; ``number`` of the attempt counts from 1."""

    delivery_id: int
    alert_id: str
    receiver_id: str
    kind: DeliveryKind
    number: int
    added_at: datetime


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt and its outcome in words."""

    number: int
    at: datetime
    duration_ms: int
    is_ok: bool
    result: str


@dataclass(frozen=True, slots=True)
class DeliveryRecord:
    """One line of the log; ``sent_count`` counts how often Alertmanager was told."""

    id: int
    alert_id: str
    receiver_id: str
    receiver_name: str
    receiver_kind: str
    kind: DeliveryKind
    state: DeliveryState
    added_at: datetime
    attempt_count: int
    next_attempt_at: datetime
    last_attempt_at: datetime | None
    delivered_at: datetime | None
    sent_count: int
    last_sent_at: datetime | None
    result: str | None


async def enqueue(connection: AsyncConnection, *, silenced: Sequence[str], now: datetime, since: datetime) -> int:
    """Make due what every receiver has yet to hear; returns how much that is.

    A firing alert that is not ``silenced`` (ids) is due to each receiver, also to one added later. A resolution is
    due to those who were told, or are still to be told, of the firing; only of episodes that ended after ``since``.
    The watchdog goes to Alertmanager only, whose silence can be watched.
    """
    firing = text(
        "INSERT INTO deliveries (alert_id, receiver_id, kind, added_at, next_attempt_at)"
        " SELECT a.id, r.id, 'firing', :now, :now FROM alerts a CROSS JOIN receivers r"
        " WHERE a.state = 'firing' AND r.removed_at IS NULL AND a.id <> ALL(:silenced)"
        " AND (a.rule <> :watchdog OR r.kind = 'alertmanager') ON CONFLICT DO NOTHING"
    )
    resolved = text(
        "INSERT INTO deliveries (alert_id, receiver_id, kind, added_at, next_attempt_at)"
        " SELECT d.alert_id, d.receiver_id, 'resolved', :now, :now FROM deliveries d"
        " JOIN alerts a ON a.id = d.alert_id JOIN receivers r ON r.id = d.receiver_id"
        " WHERE d.kind = 'firing' AND d.state <> 'abandoned' AND a.state = 'resolved' AND a.ended_at > :since"
        " AND r.removed_at IS NULL ON CONFLICT DO NOTHING"
    )
    values = {"now": now, "silenced": list(silenced), "watchdog": RuleName.WATCHDOG.value, "since": since}
    told = await connection.execute(firing, values)
    ended = await connection.execute(resolved, values)
    return told.rowcount + ended.rowcount


async def is_any_due(connection: AsyncConnection, now: datetime) -> bool:
    """Whether there may be anything to claim."""
    query = text("SELECT EXISTS (SELECT FROM deliveries WHERE state = 'due' AND next_attempt_at <= :now)")
    return bool((await connection.execute(query, {"now": now})).scalar_one())


async def claim(
    connection: AsyncConnection, *, silenced: Sequence[str], now: datetime, retry_after: timedelta, limit: int
) -> list[Claim]:
    """Take deliveries that are due, oldest first; they are due again ``retry_after`` unless recorded before.

    What is ``silenced`` by now and was never attempted waits.
    """
    query = text(
        "UPDATE deliveries d SET attempt_count = d.attempt_count + 1, last_attempt_at = :now, next_attempt_at = :next"
        " FROM (SELECT q.id FROM deliveries q JOIN receivers r ON r.id = q.receiver_id"
        " WHERE q.state = 'due' AND q.next_attempt_at <= :now AND r.removed_at IS NULL"
        " AND NOT (q.kind = 'firing' AND q.attempt_count = 0 AND q.alert_id = ANY(:silenced))"
        # In order: nobody hears of an end before the begin.
        " AND NOT (q.kind = 'resolved' AND EXISTS (SELECT 1 FROM deliveries f WHERE f.alert_id = q.alert_id"
        " AND f.receiver_id = q.receiver_id AND f.kind = 'firing' AND f.state = 'due'))"
        " ORDER BY q.id LIMIT :limit FOR UPDATE OF q SKIP LOCKED) c"
        " WHERE d.id = c.id RETURNING d.id, d.alert_id, d.receiver_id, d.kind, d.attempt_count, d.added_at"
    )
    values = {"now": now, "next": now + retry_after, "silenced": list(silenced), "limit": limit}
    return sorted((Claim(*row) for row in await connection.execute(query, values)), key=lambda c: c.delivery_id)


async def record(connection: AsyncConnection, claimed: Claim, attempt: Attempt, *, next_attempt_at: datetime) -> bool:
    """Write an attempt's outcome; False where the row was claimed anew meanwhile, or is settled."""
    done = await connection.execute(
        text(
            "UPDATE deliveries SET result = :result, state = CASE WHEN :is_ok THEN 'delivered' ELSE state END,"
            " delivered_at = CASE WHEN :is_ok THEN :ended ELSE delivered_at END,"
            " sent_count = sent_count + (:is_ok)::int,"
            " last_sent_at = CASE WHEN :is_ok THEN :ended ELSE last_sent_at END,"
            " next_attempt_at = CASE WHEN :is_ok THEN next_attempt_at ELSE :next END"
            " WHERE id = :id AND attempt_count = :number AND state = 'due' RETURNING 1"
        ),
        {
            "id": claimed.delivery_id,
            "number": claimed.number,
            "is_ok": attempt.is_ok,
            "result": clean(attempt.result),
            "ended": attempt.at + timedelta(milliseconds=attempt.duration_ms),
            "next": next_attempt_at,
        },
    )
    if done.first() is None:
        return False
    await connection.execute(
        text(
            "INSERT INTO delivery_attempts (delivery_id, number, at, duration_ms, is_ok, result)"
            " VALUES (:id, :number, :at, :ms, :is_ok, :result) ON CONFLICT DO NOTHING"
        ),
        {
            "id": claimed.delivery_id,
            "number": attempt.number,
            "at": attempt.at,
            "ms": attempt.duration_ms,
            "is_ok": attempt.is_ok,
            "result": clean(attempt.result),
        },
    )
    return True


async def abandon(connection: AsyncConnection, *, added_before: datetime) -> int:
    """Give up what nobody took for so long, and what a silence held until it was over; returns how many."""
    old = await connection.execute(
        text(
            "UPDATE deliveries SET state = 'abandoned', result = concat('given up; last: ', result)"
            " WHERE state = 'due' AND added_at < :at"
        ),
        {"at": added_before},
    )
    held = await connection.execute(
        text(
            "WITH held AS (UPDATE deliveries d SET state = 'abandoned', result = 'silenced until it was over'"
            " FROM alerts a WHERE a.id = d.alert_id AND a.state = 'resolved' AND d.kind = 'firing'"
            " AND d.state = 'due' AND d.attempt_count = 0 AND d.result = 'silenced'"
            " RETURNING d.alert_id, d.receiver_id)"
            " UPDATE deliveries r SET state = 'abandoned', result = 'silenced until it was over' FROM held"
            " WHERE r.alert_id = held.alert_id AND r.receiver_id = held.receiver_id AND r.kind = 'resolved'"
        )
    )
    return old.rowcount + held.rowcount


async def note_held(connection: AsyncConnection, *, silenced: Sequence[str]) -> None:
    """Say in the log what a silence holds back."""
    await connection.execute(
        text(
            "UPDATE deliveries SET result = 'silenced' WHERE state = 'due' AND kind = 'firing' AND attempt_count = 0"
            " AND alert_id = ANY(:ids) AND result IS DISTINCT FROM 'silenced'"
        ),
        {"ids": list(silenced)},
    )


async def told_to_alertmanagers(connection: AsyncConnection) -> list[tuple[int, str, str, datetime]]:
    """Firing alerts that an Alertmanager took: (delivery, alert, receiver, when it was told last)."""
    query = text(
        "SELECT d.id, d.alert_id, d.receiver_id, d.last_sent_at FROM deliveries d JOIN alerts a ON a.id = d.alert_id"
        " JOIN receivers r ON r.id = d.receiver_id WHERE d.kind = 'firing' AND d.state = 'delivered'"
        " AND a.state = 'firing' AND r.kind = 'alertmanager' AND r.removed_at IS NULL ORDER BY d.id"
    )
    return [(i, alert, receiver, at) for i, alert, receiver, at in await connection.execute(query)]


async def note_resent(connection: AsyncConnection, delivery_ids: Sequence[int], *, at: datetime) -> None:
    """Count one more telling."""
    await connection.execute(
        text("UPDATE deliveries SET sent_count = sent_count + 1, last_sent_at = :at WHERE id = ANY(:ids)"),
        {"ids": list(delivery_ids), "at": at},
    )


async def deliveries_of(connection: AsyncConnection, alert_id: str) -> list[DeliveryRecord]:
    """The log of one episode, oldest first."""
    query = text(
        "SELECT d.id, d.alert_id, d.receiver_id, r.name, r.kind, d.kind, d.state, d.added_at, d.attempt_count,"
        " d.next_attempt_at, d.last_attempt_at, d.delivered_at, d.sent_count, d.last_sent_at, d.result"
        " FROM deliveries d JOIN receivers r ON r.id = d.receiver_id WHERE d.alert_id = :id ORDER BY d.id"
    )
    return [DeliveryRecord(*row) for row in await connection.execute(query, {"id": alert_id})]


async def attempts_of(
    connection: AsyncConnection, delivery_ids: Sequence[int], *, limit: int
) -> dict[int, list[Attempt]]:
    """The newest attempts of each delivery, oldest first."""
    query = text(
        "SELECT delivery_id, number, at, duration_ms, is_ok, result FROM (SELECT *, row_number() OVER"
        " (PARTITION BY delivery_id ORDER BY number DESC) AS place FROM delivery_attempts"
        " WHERE delivery_id = ANY(:ids)) a WHERE place <= :limit ORDER BY delivery_id, number"
    )
    found: dict[int, list[Attempt]] = {}
    for delivery_id, *values in await connection.execute(query, {"ids": list(delivery_ids), "limit": limit}):
        found.setdefault(delivery_id, []).append(Attempt(*values))
    return found


async def due_counts(connection: AsyncConnection) -> dict[str, int]:
    """How much is due to each receiver."""
    query = text("SELECT receiver_id, count(*) FROM deliveries WHERE state = 'due' GROUP BY receiver_id")
    rows = (await connection.execute(query)).all()
    return {row[0]: row[1] for row in rows}
