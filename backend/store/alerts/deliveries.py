"""Stores the outbox of alerts: the messages for receivers, and the outcome of each attempt to send one.

There is one delivery for each episode, receiver and kind (firing or resolved). Its row is written in the transaction
that changes the state of the alert. A delivery is *due* until its receiver accepts it or it is abandoned. A claim
postpones the next attempt. So a delivery that a process had claimed becomes due again if that process is killed.

Invariants: there is never a second delivery for the same episode, receiver and kind; *resolved* is not sent before
*firing*; the outcome of an attempt counts only if the delivery was not claimed again meanwhile.
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

from backend.alerting.delivery import DeliveryKind, DeliveryState
from backend.alerting.lifecycle import AlertState
from backend.alerting.rules import RuleName
from backend.domain.receivers import SENT_AGAIN
from backend.store.postgres.encoding import clean
from backend.store.postgres.statements import among
from backend.store.schema import alert_tables
from backend.store.schema.rows import row_of, value_of
from backend.store.schema.tables import Instant


@dataclass(frozen=True, slots=True)
class Claim:
    """A delivery that the claiming process must attempt now. ``number`` is 1 for the first attempt."""

    delivery_id: int
    alert_id: str
    receiver_id: str
    kind: DeliveryKind
    number: int
    added_at: datetime


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to send a delivery. ``result`` describes the outcome in words."""

    number: int
    at: datetime
    duration_ms: int
    is_ok: bool
    result: str


@dataclass(frozen=True, slots=True)
class DeliveryRecord:
    """A delivery as the delivery log shows it. ``sent_count`` counts how often the receiver accepted the message."""

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
_IS_SENT_AGAIN = _RECEIVER.kind.in_([kind.value for kind in SENT_AGAIN])


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
        or_(_ALERT.rule != RuleName.WATCHDOG.value, _IS_SENT_AGAIN),
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
    """Add the missing deliveries and return how many were added.

    A firing alert gets a delivery for each receiver, also for receivers that are added later, unless the alert's id
    is in ``silenced``. A resolved alert gets a delivery for each receiver that got the firing message or will get it,
    if the episode ended after ``since``. The watchdog is sent only to Alertmanager, which can raise an alert when the
    watchdog stops.
    """
    values = {"now": now, "silenced": list(silenced), "since": since}
    firing = await connection.execute(_ENQUEUE_FIRING, values)
    ended = await connection.execute(_ENQUEUE_RESOLVED, values)
    return firing.rowcount + ended.rowcount


async def is_any_due(connection: AsyncConnection, now: datetime) -> bool:
    """Return whether a delivery is due at ``now``, so that ``claim`` may find one."""
    query = select(exists().where(_IS_DUE, _DELIVERY.next_attempt_at <= now))
    return bool((await connection.execute(query)).scalar_one())


async def due_deliveries(connection: AsyncConnection) -> tuple[int, datetime | None]:
    """Return how many deliveries wait, and when the oldest of them was added."""
    row = (await connection.execute(select(func.count(), func.min(_DELIVERY.added_at)).where(_IS_DUE))).one()
    return row[0], row[1]


async def claim(
    connection: AsyncConnection, *, silenced: Sequence[str], now: datetime, retry_after: timedelta, limit: int
) -> list[Claim]:
    """Claim up to ``limit`` due deliveries, oldest first, and return them.

    A claimed delivery is due again after ``retry_after`` unless its outcome is recorded. A firing message that was
    never attempted is not claimed while its alert is in ``silenced``.
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
        # A resolved message waits while the firing message for the same receiver is still due.
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
    """Record the outcome of an attempt.

    Return False and record nothing if the delivery was claimed again meanwhile or is no longer due.
    """
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
    """Abandon due deliveries that must no longer be sent, and return how many.

    These are the deliveries added before ``added_before``, and those that were silenced until their alert resolved.
    """
    old = await connection.execute(
        update(alert_tables.deliveries)
        .where(_IS_DUE, _DELIVERY.added_at < added_before)
        .values(state=DeliveryState.ABANDONED.value, result=func.concat("given up; last: ", _DELIVERY.result))
    )
    # This is SQL text because one statement does two updates: the first abandons firing messages, and the second
    # abandons the resolved messages that belong to them.
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
    """Mark the firing messages that a silence holds back, so that the delivery log shows this."""
    await connection.execute(
        update(alert_tables.deliveries)
        .where(
            *(_IS_DUE, _REPORTS_FIRING, _DELIVERY.attempt_count == 0),
            among(_DELIVERY.alert_id, silenced),
            _DELIVERY.result.is_distinct_from("silenced"),
        )
        .values(result="silenced")
    )


async def accepted_to_send_again(connection: AsyncConnection) -> list[tuple[int, str, str, datetime]]:
    """Return the deliveries of firing messages that were accepted, whose alerts still fire, and that are sent again.

    Each tuple holds the delivery's id, the alert's id, the receiver's id and the time at which the message was last
    sent.
    """
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
            *(_IS_SENT_AGAIN, _RECEIVER.removed_at.is_(None)),
        )
        .order_by(_DELIVERY.id)
    )
    return [(i, alert, receiver, at) for i, alert, receiver, at in await connection.execute(query)]


async def note_resent(connection: AsyncConnection, delivery_ids: Sequence[int], *, at: datetime) -> None:
    """Record that these deliveries were sent again at ``at``."""
    await connection.execute(
        update(alert_tables.deliveries)
        .where(among(_DELIVERY.id, delivery_ids))
        .values(sent_count=_DELIVERY.sent_count + 1, last_sent_at=at)
    )


async def deliveries_of(connection: AsyncConnection, alert_id: str) -> list[DeliveryRecord]:
    """Return the deliveries of one episode, oldest first."""
    return await deliveries_of_alerts(connection, [alert_id])


async def deliveries_of_alerts(connection: AsyncConnection, alert_ids: Sequence[str]) -> list[DeliveryRecord]:
    """Return the deliveries of these episodes, oldest first."""
    query = (
        select(alert_tables.deliveries, _RECEIVER.name.label("receiver_name"))
        .join_from(alert_tables.deliveries, alert_tables.receivers, _RECEIVER.id == _DELIVERY.receiver_id)
        .where(among(_DELIVERY.alert_id, alert_ids))
        .order_by(_DELIVERY.id)
    )
    return [value_of(DeliveryRecord, row) for row in (await connection.execute(query)).mappings()]


async def attempts_of(
    connection: AsyncConnection, delivery_ids: Sequence[int], *, limit: int
) -> dict[int, list[Attempt]]:
    """Return the newest ``limit`` attempts of each delivery. The attempts of a delivery are sorted oldest first."""
    place = func.row_number().over(partition_by=_ATTEMPT.delivery_id, order_by=_ATTEMPT.number.desc())
    attempts = (
        select(alert_tables.delivery_attempts, place.label("place"))
        .where(among(_ATTEMPT.delivery_id, delivery_ids))
        .subquery()
    )
    query = select(attempts).where(attempts.c.place <= limit).order_by(attempts.c.delivery_id, attempts.c.number)
    by_delivery: dict[int, list[Attempt]] = {}
    for row in (await connection.execute(query)).mappings():
        by_delivery.setdefault(row["delivery_id"], []).append(value_of(Attempt, row))
    return by_delivery


async def due_counts(connection: AsyncConnection) -> dict[str, int]:
    """Return the number of due deliveries of each receiver. A receiver without due deliveries is absent."""
    query = select(_DELIVERY.receiver_id, func.count()).where(_IS_DUE).group_by(_DELIVERY.receiver_id)
    rows = (await connection.execute(query)).all()
    return {row[0]: row[1] for row in rows}
