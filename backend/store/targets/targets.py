"""What is watched: targets, how they fare, and who may read them.

Ids of targets come from their normalised URL, so adding the same address twice is one target. A removed target keeps
its row while history hangs on it; adding its URL again revives it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.domain.errors import ConflictError, UnknownEntityError
from backend.domain.ids import TargetId, target_id
from backend.domain.target import TargetOrigin, TargetState
from backend.store.postgres.connections import reading, writing
from backend.store.postgres.encoding import clean, dump


@dataclass(frozen=True, slots=True)
class WatchedTarget:
    """An enabled target, as a collector needs it. ``kind`` chooses the collector: an entry point, such as ``flink``."""

    id: TargetId
    url: str
    name: str
    kind: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TargetCost:
    """What watching costs: means over about the last 20 polls."""

    requests_per_poll: float
    bytes_per_poll: float
    poll_duration_ms: float
    poll_interval_s: float | None


@dataclass(frozen=True, slots=True)
class TargetRecord:
    """A target and how its last polls went."""

    id: TargetId
    url: str
    name: str
    kind: str
    labels: Mapping[str, str]
    origin: TargetOrigin
    is_enabled: bool
    added_at: datetime
    state: TargetState = TargetState.PENDING
    """Never ``SILENT`` in the store: ``services.jobs.silent_jobs`` works that out from the last sign of life."""
    reason: str | None = None
    since: datetime | None = None
    last_success_at: datetime | None = None
    last_attempt_at: datetime | None = None
    engine: str | None = None
    engine_version: str | None = None
    cost: TargetCost | None = None
    rejected_count: int = 0


@dataclass(frozen=True, slots=True)
class NewTarget:
    """A target to add; ``url`` is normalised by the caller."""

    url: str
    name: str
    origin: TargetOrigin
    kind: str = "flink"
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def id(self) -> TargetId:
        """The id it has, or will have."""
        return target_id(url=self.url)


_RECORDS = (
    "SELECT t.id, t.url, t.name, t.kind, t.labels, t.origin, t.is_enabled, t.added_at, h.state, h.reason, h.since,"
    " h.last_success_at, h.last_attempt_at, h.engine, h.engine_version, h.requests_per_poll, h.bytes_per_poll,"
    " h.poll_duration_ms, h.poll_interval_s, h.rejected_count FROM targets t"
    " LEFT JOIN target_health h ON h.target_id = t.id WHERE t.removed_at IS NULL"
)


class TargetRepository:
    """Targets in PostgreSQL; each call is a transaction of its own."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def list_enabled(self) -> list[WatchedTarget]:
        """Every target that is to be read, oldest first; those that push are not."""
        query = text(
            "SELECT id, url, name, kind, labels FROM targets WHERE is_enabled AND removed_at IS NULL"
            " AND origin <> :push ORDER BY added_at, id"
        )
        async with reading(self._engine) as connection:
            rows = (await connection.execute(query, {"push": TargetOrigin.PUSH.value})).all()
        return [WatchedTarget(TargetId(i), url, name, kind, labels) for i, url, name, kind, labels in rows]

    async def lease(self, target_id: TargetId, *, holder: str, ttl_s: float) -> bool:
        """Take or renew the sole right to read a target; False where another holds it, or the target is gone."""
        statement = text(
            "INSERT INTO target_leases AS l (target_id, holder, expires_at)"
            " SELECT id, :holder, now() + make_interval(secs => :ttl) FROM targets"
            " WHERE id = :id AND is_enabled AND removed_at IS NULL"
            " ON CONFLICT (target_id) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at"
            " WHERE l.holder = excluded.holder OR l.expires_at < now() RETURNING 1"
        )
        async with writing(self._engine) as connection:
            taken = await connection.execute(statement, {"id": target_id, "holder": holder, "ttl": ttl_s})
            return taken.first() is not None

    async def release(self, target_id: TargetId, *, holder: str) -> None:
        """Give the right back, so that another need not wait until it expires."""
        statement = text("DELETE FROM target_leases WHERE target_id = :id AND holder = :holder")
        async with writing(self._engine) as connection:
            await connection.execute(statement, {"id": target_id, "holder": holder})

    async def list_all(self) -> list[TargetRecord]:
        """Every target that was not removed, oldest first."""
        async with reading(self._engine) as connection:
            rows = (await connection.execute(text(f"{_RECORDS} ORDER BY t.added_at, t.id"))).mappings().all()
        return [_record(row) for row in rows]

    async def get(self, target_id: str) -> TargetRecord:
        """One target.

        Raises:
            UnknownEntityError: there is none of this id.

        """
        async with reading(self._engine) as connection:
            return await _get(connection, target_id)

    async def add(self, new: NewTarget, *, at: datetime) -> TargetRecord:
        """Add a target, or revive a removed one.

        Raises:
            ConflictError: it is watched already.

        """
        statement = text(
            "INSERT INTO targets AS t (id, url, name, kind, labels, origin, added_at)"
            " VALUES (:id, :url, :name, :kind, CAST(:labels AS jsonb), :origin, :at)"
            " ON CONFLICT (url) DO UPDATE SET name = excluded.name, kind = excluded.kind, labels = excluded.labels,"
            " origin = excluded.origin, is_enabled = TRUE, added_at = excluded.added_at, removed_at = NULL"
            " WHERE t.removed_at IS NOT NULL RETURNING t.id"
        )
        values: dict[str, Any] = {
            "id": new.id,
            "url": new.url,
            "name": clean(new.name),
            "kind": new.kind,
            "labels": dump({clean(k): clean(v) for k, v in new.labels.items()}),
            "origin": new.origin.value,
            "at": at,
        }
        async with writing(self._engine) as connection:
            if (await connection.execute(statement, values)).first() is None:
                # What stands before the @ may be a password.
                shown = new.url.rpartition("@")[2]
                raise ConflictError(f"{shown} is watched already, as target {new.id}", kind="target-exists")
            return await _get(connection, new.id)

    async def get_or_add(self, new: NewTarget, *, at: datetime) -> TargetRecord:
        """The target of that URL as it is; added, or revived, where it is not there."""
        async with reading(self._engine) as connection:
            query = text(f"{_RECORDS} AND t.url = :url")
            row = (await connection.execute(query, {"url": new.url})).mappings().first()
        if row is not None:
            return _record(row)
        try:
            return await self.add(new, at=at)
        except ConflictError:
            # Another was quicker.
            return await self.get(new.id)

    async def change(
        self,
        target_id: str,
        *,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        is_enabled: bool | None = None,
    ) -> TargetRecord:
        """Change what is given; None leaves it as it is.

        Raises:
            UnknownEntityError: there is none of this id.

        """
        statement = text(
            "UPDATE targets SET name = COALESCE(CAST(:name AS text), name),"
            " labels = COALESCE(CAST(:labels AS jsonb), labels),"
            " is_enabled = COALESCE(CAST(:is_enabled AS boolean), is_enabled) WHERE id = :id AND removed_at IS NULL"
        )
        values = {
            "id": target_id,
            "name": None if name is None else clean(name),
            "labels": None if labels is None else dump({clean(k): clean(v) for k, v in labels.items()}),
            "is_enabled": is_enabled,
        }
        async with writing(self._engine) as connection:
            await connection.execute(statement, values)
            return await _get(connection, target_id)

    async def remove(self, target_id: str, *, at: datetime) -> None:
        """Stop watching a target; its history stays until retention drops it.

        Raises:
            UnknownEntityError: there is none of this id.

        """
        statement = text("UPDATE targets SET removed_at = :at WHERE id = :id AND removed_at IS NULL RETURNING 1")
        async with writing(self._engine) as connection:
            if (await connection.execute(statement, {"id": target_id, "at": at})).first() is None:
                raise UnknownEntityError(kind="target", id=target_id)
            # What was known of its health is of the time before.
            await connection.execute(text("DELETE FROM target_health WHERE target_id = :id"), {"id": target_id})


async def _get(connection: AsyncConnection, target_id: str) -> TargetRecord:
    row = (await connection.execute(text(f"{_RECORDS} AND t.id = :id"), {"id": target_id})).mappings().first()
    if row is None:
        raise UnknownEntityError(kind="target", id=target_id)
    return _record(row)


def _record(row: RowMapping) -> TargetRecord:
    cost = None
    if row["requests_per_poll"] is not None:
        cost = TargetCost(
            row["requests_per_poll"], row["bytes_per_poll"], row["poll_duration_ms"], row["poll_interval_s"]
        )
    return TargetRecord(
        **{name: row[name] for name in ("id", "url", "name", "kind", "labels", "is_enabled", "added_at")},
        origin=TargetOrigin(row["origin"]),
        state=_state(row),
        **{name: row[name] for name in ("reason", "since", "last_success_at", "last_attempt_at", "engine_version")},
        engine=row["engine"],
        cost=cost,
        rejected_count=row["rejected_count"] or 0,
    )


def _state(row: RowMapping) -> TargetState:
    if not row["is_enabled"]:
        return TargetState.PAUSED
    return TargetState(row["state"] or TargetState.PENDING)
