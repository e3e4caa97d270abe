"""Reads and writes receivers of alerts. A reference to a credential is stored, never the credential itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.alerting.delivery import DeliveryState, ReceiverOrigin
from backend.domain.errors import ConflictError, UnknownEntityError
from backend.domain.receivers import ReceiverKind
from backend.store.schema import alert_tables
from backend.store.schema.rows import row_of, value_of


@dataclass(frozen=True, slots=True)
class Receiver:
    """A receiver of alerts. ``credential`` is a reference: ``env:NAME`` or ``file:NAME``."""

    id: str
    name: str
    kind: ReceiverKind
    url: str
    credential: str | None
    origin: ReceiverOrigin
    added_at: datetime


_RECEIVER = alert_tables.receivers.c
_IN_USE = _RECEIVER.removed_at.is_(None)


async def list_receivers(connection: AsyncConnection) -> list[Receiver]:
    """Return every receiver that is not removed, oldest first."""
    query = select(alert_tables.receivers).where(_IN_USE).order_by(_RECEIVER.added_at, _RECEIVER.id)
    return [value_of(Receiver, row) for row in (await connection.execute(query)).mappings()]


async def get_receiver(connection: AsyncConnection, receiver_id: str) -> Receiver:
    """Return one receiver that is not removed.

    Raises:
        UnknownEntityError: there is no such receiver.
    """
    query = select(alert_tables.receivers).where(_RECEIVER.id == receiver_id, _IN_USE)
    row = (await connection.execute(query)).mappings().first()
    if row is None:
        raise UnknownEntityError(kind="receiver", id=receiver_id)
    return value_of(Receiver, row)


async def add_receiver(connection: AsyncConnection, receiver: Receiver) -> None:
    """Store a new receiver.

    Raises:
        ConflictError: a receiver with this name exists.
    """
    new = (
        pg_insert(alert_tables.receivers)
        .on_conflict_do_nothing(index_elements=[_RECEIVER.name], index_where=_IN_USE)
        .returning(_RECEIVER.id)
    )
    if (await connection.execute(new, row_of(alert_tables.receivers, receiver))).first() is None:
        raise ConflictError(f"a receiver named {receiver.name!r} exists already", kind="receiver-exists")


async def remove_receiver(connection: AsyncConnection, receiver_id: str, *, at: datetime) -> None:
    """Remove a receiver and abandon its due deliveries. Its delivery log stays.

    Raises:
        UnknownEntityError: there is no such receiver.
    """
    removed = (
        update(alert_tables.receivers)
        .where(_RECEIVER.id == receiver_id, _IN_USE)
        .values(removed_at=at)
        .returning(_RECEIVER.id)
    )
    if (await connection.execute(removed)).first() is None:
        raise UnknownEntityError(kind="receiver", id=receiver_id)
    delivery = alert_tables.deliveries.c
    await connection.execute(
        update(alert_tables.deliveries)
        .where(delivery.receiver_id == receiver_id, delivery.state == DeliveryState.DUE.value)
        .values(state=DeliveryState.ABANDONED.value, result="the receiver was removed")
    )
