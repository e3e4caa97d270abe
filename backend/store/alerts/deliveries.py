"""The outbox: one delivery per (episode, receiver, firing or resolved), and the outcome of each attempt.

A row is written in the transaction that changes the state of its alert. It is *due* until its receiver takes it or it
is abandoned. A claim postpones the next attempt, so a delivery that a killed process had claimed becomes due again.

Invariants: a delivery exists at most once per receiver; *resolved* waits for its *firing*; an attempt's outcome counts
only if the row was not claimed again since.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ARRAY,
    Select,
    Text,
    all_,
    and_,
    bindparam,
    exists,
    func,
    literal_column,
    or_,
    select,
    text,
    true,
    update,
)
from sqlalchemy.dialects.postgresql import Insert
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.alerting.delivery import DeliveryKind, DeliveryState, ReceiverKind
from backend.alerting.lifecycle import AlertState
from backend.alerting.rules import RuleName
from backend.store.postgres.encoding import clean
from backend.store.postgres.statements import among
from backend.store.schema import alert_tables
from backend.store.schema.rows import row_of, value_of
from backend.store.schema.tables import Instant


@dataclass(frozen=True, slots=True)
class Claim:
    """One delivery to attempt now; ``number`` counts its attempts from 1."""

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
    """One line of the log; ``sent_count`` counts how often the receiver took the message."""

    id: int
    alert_id: str
    receiver_id: str
    receiver_name: str
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


_DELIVERY = alert_tables.deliveries.c
_ALERT = alert_tables.alerts.c
_RECEIVER = alert_tables.receivers.c
_ATTEMPT = alert_tables.delivery_attempts.c
_IS_DUE = _DELIVERY.state == DeliveryState.DUE.value
_REPORTS_FIRING = _DELIVERY.kind == DeliveryKind.FIRING.value


def _enqueue(query: Select[Any]) -> Insert:
    new = [_DELIVERY.alert_id, _DELIVERY.receiver_id, _DELIVERY.kind, _DELIVERY.added_at, _DELIVERY.next_attempt_at]
    return pg_insert(alert_tables.deliveries).from_select([c.name for c in new], query).on_conflict_do_nothing()


_NOW = bindparam("now", type_=Instant)
_ENQUEUE_FIRING = _enqueue(
    select(_ALERT.id, _RECEIVER.id, literal_column(f"'{DeliveryKind.FIRING}'"), _NOW, _NOW)
    .select_from(alert_tables.alerts.join(alert_tables.receivers, true()))
    .where(
        _ALERT.state == AlertState.FIRING.value,
        _RECEIVER.removed_at.is_(None),
        _ALERT.id != all_(bindparam("silenced", type_=ARRAY(Text))),
        or_(_ALERT.rule != RuleName.WATCHDOG.value, _RECEIVER.kind == ReceiverKind.ALERTMANAGER.value),
    )
)
_ENQUEUE_RESOLVED = _enqueue(
    select(_DELIVERY.alert_id, _DELIVERY.receiver_id, literal_column(f"'{DeliveryKind.RESOLVED}'"), _NOW, _NOW)
    .select_from(
        alert_tables.deliveries.join(alert_tables.alerts, _ALERT.id == _DELIVERY.alert_id).join(
            alert_tables.receivers, _RECEIVER.id == _DELIVERY.receiver_id
        )
    )
    .where(
        _REPORTS_FIRING,
        _DELIVERY.state != DeliveryState.ABANDONED.value,
        _ALERT.state == AlertState.RESOLVED.value,
        _ALERT.ended_at > bindparam("since", type_=Instant),
        _RECEIVER.removed_at.is_(None),
    )
)


async def enqueue(connection: AsyncConnection, *, silenced: Sequence[str], now: datetime, since: datetime) -> int:
    """Add the missing deliveries; return how many were added.

    A firing alert that is not ``silenced`` (ids) is due to each receiver, including receivers added later. A resolution
    is due to the receivers that got, or are due to get, the firing, if the episode ended after ``since``. The watchdog
    goes only to Alertmanager, which can alert when the watchdog stops.
    """
    values = {"now": now, "silenced": list(silenced), "since": since}
    told = await connection.execute(_ENQUEUE_FIRING, values)
    ended = await connection.execute(_ENQUEUE_RESOLVED, values)
    return told.rowcount + ended.rowcount


async def is_any_due(connection: AsyncConnection, now: datetime) -> bool:
    """Return whether a claim could find a due delivery."""
    query = select(exists().where(_IS_DUE, _DELIVERY.next_attempt_at <= now))
    return bool((await connection.execute(query)).scalar_one())


async def claim(
    connection: AsyncConnection, *, silenced: Sequence[str], now: datetime, retry_after: timedelta, limit: int
) -> list[Claim]:
    """Claim due deliveries, oldest first; they are due again after ``retry_after`` unless their outcome is recorded.

    A firing that is ``silenced`` now and was never attempted waits.
    """
    firing = alert_tables.deliveries.alias("firing")
    waits_for_firing = exists().where(
        firing.c.alert_id == _DELIVERY.alert_id,
        firing.c.receiver_id == _DELIVERY.receiver_id,
        firing.c.kind == DeliveryKind.FIRING.value,
        firing.c.state == DeliveryState.DUE.value,
    )
    is_held = and_(_REPORTS_FIRING, _DELIVERY.attempt_count == 0, among(_DELIVERY.alert_id, silenced))
    due = (
        select(_DELIVERY.id)
        .join_from(alert_tables.deliveries, alert_tables.receivers, _RECEIVER.id == _DELIVERY.receiver_id)
        .where(_IS_DUE, _DELIVERY.next_attempt_at <= now, _RECEIVER.removed_at.is_(None), ~is_held)
        # A receiver gets the firing before the resolution.
        .where(~and_(_DELIVERY.kind == DeliveryKind.RESOLVED.value, waits_for_firing))
        .order_by(_DELIVERY.id)
        .limit(limit)
        .with_for_update(of=alert_tables.deliveries, skip_locked=True)
        .subquery("due")
    )
    claimed = (
        update(alert_tables.deliveries)
        .where(_DELIVERY.id == due.c.id)
        .values(attempt_count=_DELIVERY.attempt_count + 1, last_attempt_at=now, next_attempt_at=now + retry_after)
        .returning(
            _DELIVERY.id.label("delivery_id"),
            *(_DELIVERY.alert_id, _DELIVERY.receiver_id, _DELIVERY.kind, _DELIVERY.added_at),
            _DELIVERY.attempt_count.label("number"),
        )
    )
    rows = (await connection.execute(claimed)).mappings()
    return sorted((value_of(Claim, row) for row in rows), key=lambda c: c.delivery_id)


async def record(connection: AsyncConnection, claimed: Claim, attempt: Attempt, *, next_attempt_at: datetime) -> bool:
    """Record an attempt's outcome; return False if the row was claimed again meanwhile or is no longer due."""
    ended = attempt.at + timedelta(milliseconds=attempt.duration_ms)
    changes: dict[str, Any] = {"result": clean(attempt.result)}
    if attempt.is_ok:
        changes |= {
            "state": DeliveryState.DELIVERED.value,
            "delivered_at": ended,
            "sent_count": _DELIVERY.sent_count + 1,
            "last_sent_at": ended,
        }
    else:
        changes["next_attempt_at"] = next_attempt_at
    settled = (
        update(alert_tables.deliveries)
        .where(_DELIVERY.id == claimed.delivery_id, _DELIVERY.attempt_count == claimed.number, _IS_DUE)
        .values(changes)
        .returning(_DELIVERY.id)
    )
    if (await connection.execute(settled)).first() is None:
        return False
    row = row_of(alert_tables.delivery_attempts, attempt, delivery_id=claimed.delivery_id)
    await connection.execute(pg_insert(alert_tables.delivery_attempts).on_conflict_do_nothing(), row)
    return True


async def abandon(connection: AsyncConnection, *, added_before: datetime) -> int:
    """Abandon deliveries added before ``added_before`` or silenced until their alert resolved; return how many."""
    old = await connection.execute(
        update(alert_tables.deliveries)
        .where(_IS_DUE, _DELIVERY.added_at < added_before)
        .values(state=DeliveryState.ABANDONED.value, result=func.concat("given up; last: ", _DELIVERY.result))
    )
    # Text: two updates in one statement; the second changes the resolutions of the rows that the first changed.
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
    """Mark the deliveries that a silence holds back in the log."""
    await connection.execute(
        update(alert_tables.deliveries)
        .where(
            *(_IS_DUE, _REPORTS_FIRING, _DELIVERY.attempt_count == 0),
            among(_DELIVERY.alert_id, silenced),
            _DELIVERY.result.is_distinct_from("silenced"),
        )
        .values(result="silenced")
    )


async def told_to_alertmanagers(connection: AsyncConnection) -> list[tuple[int, str, str, datetime]]:
    """Return the firing alerts that an Alertmanager took: (delivery, alert, receiver, when it was last sent)."""
    query = (
        select(_DELIVERY.id, _DELIVERY.alert_id, _DELIVERY.receiver_id, _DELIVERY.last_sent_at)
        .select_from(
            alert_tables.deliveries.join(alert_tables.alerts, _ALERT.id == _DELIVERY.alert_id).join(
                alert_tables.receivers, _RECEIVER.id == _DELIVERY.receiver_id
            )
        )
        .where(
            *(
                _REPORTS_FIRING,
                _DELIVERY.state == DeliveryState.DELIVERED.value,
                _ALERT.state == AlertState.FIRING.value,
            ),
            *(_RECEIVER.kind == ReceiverKind.ALERTMANAGER.value, _RECEIVER.removed_at.is_(None)),
        )
        .order_by(_DELIVERY.id)
    )
    return [(i, alert, receiver, at) for i, alert, receiver, at in await connection.execute(query)]


async def note_resent(connection: AsyncConnection, delivery_ids: Sequence[int], *, at: datetime) -> None:
    """Record that these deliveries were sent once more."""
    await connection.execute(
        update(alert_tables.deliveries)
        .where(among(_DELIVERY.id, delivery_ids))
        .values(sent_count=_DELIVERY.sent_count + 1, last_sent_at=at)
    )


async def deliveries_of(connection: AsyncConnection, alert_id: str) -> list[DeliveryRecord]:
    """Return the deliveries of one episode, oldest first."""
    query = (
        select(alert_tables.deliveries, _RECEIVER.name.label("receiver_name"))
        .join_from(alert_tables.deliveries, alert_tables.receivers, _RECEIVER.id == _DELIVERY.receiver_id)
        .where(_DELIVERY.alert_id == alert_id)
        .order_by(_DELIVERY.id)
    )
    return [value_of(DeliveryRecord, row) for row in (await connection.execute(query)).mappings()]


async def attempts_of(
    connection: AsyncConnection, delivery_ids: Sequence[int], *, limit: int
) -> dict[int, list[Attempt]]:
    """Return the newest attempts of each delivery, oldest first."""
    place = func.row_number().over(partition_by=_ATTEMPT.delivery_id, order_by=_ATTEMPT.number.desc())
    attempts = (
        select(alert_tables.delivery_attempts, place.label("place"))
        .where(among(_ATTEMPT.delivery_id, delivery_ids))
        .subquery()
    )
    query = select(attempts).where(attempts.c.place <= limit).order_by(attempts.c.delivery_id, attempts.c.number)
    found: dict[int, list[Attempt]] = {}
    for row in (await connection.execute(query)).mappings():
        found.setdefault(row["delivery_id"], []).append(value_of(Attempt, row))
    return found


async def due_counts(connection: AsyncConnection) -> dict[str, int]:
    """Return the number of due deliveries by receiver."""
    query = select(_DELIVERY.receiver_id, func.count()).where(_IS_DUE).group_by(_DELIVERY.receiver_id)
    rows = (await connection.execute(query)).all()
    return {row[0]: row[1] for row in rows}
