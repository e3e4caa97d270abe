"""Decides which collector reads which target.

A collector renews one row, its session, over a connection of its own and in a thread of its own. So neither many
targets, nor a busy event loop, nor a full connection pool delays the renewal. The leases themselves only name their
holder, and are written when targets change hands. A lease is free if the session of its holder is not alive. A
session is not alive if it has expired by the database's clock, or if its connection is gone. PostgreSQL closes the
connection of a killed process at once, so another collector takes the targets at its next attempt. Expiry covers a
machine that vanished.

Two collectors may read one target for a short time. That does no harm, because every write is idempotent.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

import psycopg
import structlog
from sqlalchemy import (
    Integer,
    Interval,
    Text,
    and_,
    bindparam,
    column,
    delete,
    exists,
    func,
    literal_column,
    or_,
    select,
    table,
)
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.domain.connection import ConnectionOptions
from backend.domain.ids import TargetId
from backend.domain.target import TargetOrigin
from backend.store.postgres.blocking import BlockingConnection
from backend.store.postgres.connections import connect_arguments, reading, writing
from backend.store.postgres.statements import beside_key, one_of, replaced, seconds_from_now, sql_of
from backend.store.schema import tables, watch_tables
from backend.store.schema.rows import value_of
from backend.store.targets.targets import WatchedTarget

_log = structlog.get_logger(__name__)

# A lease that was just taken is not taken again, although the session of its new holder may not be visible yet.
_FRESH_S = 2.0
_STOP_WITHIN_S = 5.0
_ANSWER_MARGIN_S = 1.0
_FORGOTTEN_AFTER = literal_column("interval '1 day'", Interval)

_TARGET = tables.targets.c
_LEASE = watch_tables.target_leases.c
_SESSION = watch_tables.collector_sessions.c
_BACKENDS = table("pg_stat_activity", column("pid", Integer))


_ALIVE = select(_SESSION.holder).where(
    _SESSION.expires_at >= func.now(), exists().where(_BACKENDS.c.pid == _SESSION.backend_pid)
)
_IS_FREE = and_(_LEASE.expires_at < func.now(), _LEASE.holder.not_in(_ALIVE))
_IS_POLLED = and_(_TARGET.is_enabled, _TARGET.removed_at.is_(None), _TARGET.origin != TargetOrigin.PUSH.value)
_HOLDER = bindparam("holder", type_=Text)
_PROPOSED = {"target_id": _TARGET.id, "holder": _HOLDER, "expires_at": seconds_from_now("fresh")}
_NEW_LEASES = pg_insert(watch_tables.target_leases).from_select(
    list(_PROPOSED),
    select(*_PROPOSED.values())
    .join_from(tables.targets, watch_tables.target_leases, isouter=True)
    .where(_IS_POLLED, or_(_LEASE.target_id.is_(None), and_(_LEASE.holder != _HOLDER, _IS_FREE)))
    # Concurrent collectors lock the rows in the same order, so that they cannot deadlock.
    .order_by(_TARGET.id),
)
_TAKEN = (
    _NEW_LEASES.on_conflict_do_update(
        index_elements=watch_tables.target_leases.primary_key,
        set_=replaced(_NEW_LEASES, beside_key(watch_tables.target_leases)),
        where=_IS_FREE,
    )
    .returning(_LEASE.target_id)
    .cte("taken")
)
_TAKE = (
    select(tables.targets)
    .where(
        _IS_POLLED,
        or_(
            _TARGET.id.in_(select(_TAKEN.c.target_id)),
            _TARGET.id.in_(select(_LEASE.target_id).where(_LEASE.holder == _HOLDER)),
        ),
    )
    .order_by(_TARGET.added_at, _TARGET.id)
)
_RELEASE = delete(watch_tables.target_leases).where(one_of(_LEASE.target_id, "targets"), _LEASE.holder == _HOLDER)

_SESSION_ROW = pg_insert(watch_tables.collector_sessions).values(
    holder=_HOLDER, expires_at=seconds_from_now("ttl"), backend_pid=func.pg_backend_pid()
)
_RENEW = sql_of(
    _SESSION_ROW.on_conflict_do_update(
        index_elements=watch_tables.collector_sessions.primary_key,
        set_=replaced(_SESSION_ROW, beside_key(watch_tables.collector_sessions)),
    )
)
_END = sql_of(delete(watch_tables.collector_sessions).where(_SESSION.holder == _HOLDER))
_FORGET = sql_of(delete(watch_tables.collector_sessions).where(_SESSION.expires_at < func.now() - _FORGOTTEN_AFTER))


class TargetLeases:
    """The leases of one collector. Each call is one statement."""

    def __init__(self, engine: AsyncEngine, *, holder: str) -> None:
        self._engine = engine
        self._holder = holder

    async def take(self) -> list[WatchedTarget]:
        """Take every free target. Return all targets that this collector holds, oldest first.

        Raises:
            StoreUnavailableError: PostgreSQL is unreachable.
        """
        values = {"holder": self._holder, "fresh": _FRESH_S}
        async with writing(self._engine) as connection:
            rows = (await connection.execute(_TAKE, values)).mappings()
            return [value_of(WatchedTarget, row, connection=ConnectionOptions.of(row["connection"])) for row in rows]

    async def release(self, target_ids: Iterable[TargetId]) -> None:
        """Release leases of this collector, so that another one need not wait."""
        async with writing(self._engine) as connection:
            await connection.execute(_RELEASE, {"holder": self._holder, "targets": list(target_ids)})


_IS_ANY_ALIVE = select(exists().where(_SESSION.expires_at > func.now()))


async def has_collector(connection: AsyncConnection) -> bool:
    """Return whether the session of any collector has not expired."""
    return bool((await connection.execute(_IS_ANY_ALIVE)).scalar_one())


async def is_any_collector_alive(engine: AsyncEngine) -> bool:
    """Return whether the session of any collector has not expired, in a transaction of its own."""
    async with reading(engine) as connection:
        return await has_collector(connection)


class CollectorSession:
    """Keeps the session of one collector alive while the ``with`` block runs.

    The session expires ``ttl_s`` after the last renewal. While PostgreSQL is unreachable, the thread keeps trying.
    """

    def __init__(self, url: str, *, holder: str, ttl_s: float = 10.0, renew_s: float = 2.0) -> None:
        self._arguments = connect_arguments(url)
        self._values = {"holder": holder, "ttl": ttl_s}
        self._ttl_s = ttl_s
        self._renew_s = renew_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="collector-session", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        # The thread does not end in time if PostgreSQL does not answer. It then ends with the process.
        self._thread.join(_STOP_WITHIN_S)

    def _keep(self) -> None:
        reason = None
        while not self._stop.is_set():
            try:
                self._renew_until_stopped()
            except (psycopg.Error, OSError) as error:
                before, reason = reason, str(error).partition("\n")[0]
                if reason != before:
                    _log.warning("session of this collector not renewed", reason=reason)
                self._stop.wait(self._renew_s)

    def _renew_until_stopped(self) -> None:
        with self._connect() as connection:
            connection.execute(_FORGET)
            while True:
                connection.execute(_RENEW, self._values)
                if self._stop.wait(self._renew_s):
                    connection.execute(_END, self._values)
                    return

    def _connect(self) -> BlockingConnection:
        ttl_ms = round(self._ttl_s * 1000)
        own: dict[str, Any] = {
            "connect_timeout": max(2, round(self._ttl_s / 2)),
            # A server that vanished without closing the connection is noticed within the life of the session.
            "tcp_user_timeout": ttl_ms,
            "options": f"-c statement_timeout={ttl_ms}",
            "application_name": "barrierscope-collector-session",
        }
        connection = BlockingConnection.connect(autocommit=True, **(self._arguments | own))
        # This is longer than the server's own timeout, so a working server reports its timeout first.
        connection.answer_timeout_s = self._ttl_s + _ANSWER_MARGIN_S
        return connection
