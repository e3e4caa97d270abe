"""Receivers: where alerts are sent. A credential is never stored, only where it is found."""

# ruff: noqa: S608  the text put into statements is this module's own column list; every value is bound.

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.domain.errors import ConflictError, UnknownEntityError
from backend.store.schema.documents import clean

ReceiverKind = Literal["alertmanager", "webhook"]
ReceiverOrigin = Literal["api", "configuration"]


@dataclass(frozen=True, slots=True)
class Receiver:
    """Where alerts are sent; ``credential`` is ``env:NAME`` or ``file:NAME``."""

    id: str
    name: str
    kind: ReceiverKind
    url: str
    credential: str | None
    origin: ReceiverOrigin
    added_at: datetime


_COLUMNS = "id, name, kind, url, credential, origin, added_at"


async def list_receivers(connection: AsyncConnection) -> list[Receiver]:
    """Every receiver that was not removed, oldest first; there are a few."""
    query = text(f"SELECT {_COLUMNS} FROM receivers WHERE removed_at IS NULL ORDER BY added_at, id")
    return [_receiver(row) for row in await connection.execute(query)]


async def get_receiver(connection: AsyncConnection, receiver_id: str) -> Receiver:
    """One receiver.

    Raises:
        UnknownEntityError: there is none of this id.

    """
    query = text(f"SELECT {_COLUMNS} FROM receivers WHERE id = :id AND removed_at IS NULL")
    row = (await connection.execute(query, {"id": receiver_id})).first()
    if row is None:
        raise UnknownEntityError(kind="receiver", id=receiver_id)
    return _receiver(row)


async def add_receiver(connection: AsyncConnection, receiver: Receiver) -> None:
    """Write a new one.

    Raises:
        ConflictError: one of that name is there already.

    """
    done = await connection.execute(
        text(
            f"INSERT INTO receivers ({_COLUMNS}) VALUES (:id, :name, :kind, :url, :credential, :origin, :added_at)"
            " ON CONFLICT (name) WHERE removed_at IS NULL DO NOTHING RETURNING 1"
        ),
        {
            "id": receiver.id,
            "name": clean(receiver.name),
            "kind": receiver.kind,
            "url": clean(receiver.url),
            "credential": receiver.credential,
            "origin": receiver.origin,
            "added_at": receiver.added_at,
        },
    )
    if done.first() is None:
        raise ConflictError(f"a receiver is called {receiver.name!r} already", kind="receiver-exists")


async def remove_receiver(connection: AsyncConnection, receiver_id: str, *, at: datetime) -> None:
    """Send it nothing any more; the log of what it was sent stays.

    Raises:
        UnknownEntityError: there is none of this id.

    """
    done = await connection.execute(
        text("UPDATE receivers SET removed_at = :at WHERE id = :id AND removed_at IS NULL RETURNING 1"),
        {"id": receiver_id, "at": at},
    )
    if done.first() is None:
        raise UnknownEntityError(kind="receiver", id=receiver_id)
    await connection.execute(
        text(
            "UPDATE deliveries SET state = 'abandoned', result = 'the receiver was removed'"
            " WHERE receiver_id = :id AND state = 'due'"
        ),
        {"id": receiver_id},
    )


def _receiver(row: Any) -> Receiver:
    return Receiver(*row)
