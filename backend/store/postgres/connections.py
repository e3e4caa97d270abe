"""Connects to PostgreSQL, and translates its errors into ``StoreUnavailableError``.

The server limits the time of every statement and of every wait for a lock. This module limits the time until each
response of the server, because a server whose processes are suspended enforces no timeout. So a stuck server causes
an error instead of a hang. Only ``reading`` and ``writing`` return a connection. ``writing`` commits at its end, or
rolls back after an exception.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import psycopg
from psycopg import pq
from psycopg.abc import PQGen
from sqlalchemy import exc
from sqlalchemy.engine import URL, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from backend.domain.errors import (
    FieldProblem,
    InvalidInputError,
    StoreBusyError,
    StoreFullError,
    StoreUnavailableError,
)
from backend.store.postgres.encoding import dump, load

_CONNECT_TIMEOUT_S = 5
_POOL_TIMEOUT_S = 10
_POOL_SIZE = 5
_POOL_OVERFLOW = 10
_STATEMENT_TIMEOUT_MS = 30_000
_LOCK_TIMEOUT_MS = 10_000
# This is longer than the server's own timeouts, so a working server reports its timeout first.
_ANSWER_TIMEOUT_S = _STATEMENT_TIMEOUT_MS / 1000 + 5
# An idle connection is checked before each use. A server that works responds to this check within milliseconds.
_PING_TIMEOUT_S = 3.0
# If a connection has responded within this time, a busy writer uses the connection without a check.
_RESPONDED_WITHIN_S = 1.0

_T = TypeVar("_T")


def store_url(url: str) -> URL:
    """Return ``url`` with the database driver that this project uses.

    Raises:
        InvalidInputError: ``url`` is not a PostgreSQL URL. The error does not repeat the URL, because the URL
            may contain a password.
    """
    try:
        parsed = make_url(url)
    except (exc.ArgumentError, ValueError):
        parsed = None
    if parsed is None or parsed.get_backend_name() not in ("postgresql", "postgres"):
        problem = FieldProblem(
            "--database-url", "is not a PostgreSQL URL", "postgresql://user:password@host:5432/database"
        )
        raise InvalidInputError([problem], what="option") from None
    return parsed.set(drivername="postgresql+psycopg")


def connect_arguments(url: str) -> dict[str, Any]:
    """Return the arguments with which psycopg connects to ``url``, as SQLAlchemy passes them.

    libpq would read some URLs differently, for example one with an encoded space.

    Raises:
        InvalidInputError: ``url`` is not a PostgreSQL URL.
    """
    parsed = store_url(url)
    _, arguments = parsed.get_dialect()().create_connect_args(parsed)
    return dict(arguments)


def create_store_engine(
    url: str,
    *,
    pool_size: int = _POOL_SIZE,
    pool_overflow: int = _POOL_OVERFLOW,
    pool_timeout_s: float = _POOL_TIMEOUT_S,
    connect_timeout_s: int = _CONNECT_TIMEOUT_S,
    answer_timeout_s: float = _ANSWER_TIMEOUT_S,
    plans_once: bool = False,
) -> AsyncEngine:
    """Return a pool of connections to the database at ``url`` (``postgresql://...``). The caller disposes of it.

    A connection whose server does not respond to a statement within ``answer_timeout_s`` is closed, and the statement
    raises an error. With ``plans_once``, a prepared statement is planned once for all values of its parameters. This
    suits a process that only looks up rows by their keys, as ingest does. A connection that has just responded is then
    not checked before its next use, because ingest repeats a write that fails.
    """
    # Statements that look up some hundred rows by an index are estimated high, and compiling them takes ten times as
    # long as they do.
    options = (
        f"-c statement_timeout={_STATEMENT_TIMEOUT_MS} -c lock_timeout={_LOCK_TIMEOUT_MS} -c timezone=UTC -c jit=off"
    )
    if plans_once:
        options += " -c plan_cache_mode=force_generic_plan"
    engine = create_async_engine(
        store_url(url),
        pool_size=pool_size,
        max_overflow=pool_overflow,
        pool_timeout=pool_timeout_s,
        pool_pre_ping=True,
        hide_parameters=True,
        json_serializer=dump,
        json_deserializer=load,
        connect_args={
            "async_creator_fn": partial(_connect, answer_timeout_s=answer_timeout_s),
            "connect_timeout": connect_timeout_s,
            "options": options,
            "application_name": "barrierscope",
            # Our queries are few and repeat, so they are prepared early. Their plans are then cached on each
            # connection.
            "prepare_threshold": 3,
        },
    )
    if plans_once:
        ping = engine.dialect.do_ping

        def is_alive(dbapi_connection: DBAPIConnection) -> bool:
            raw = dbapi_connection.driver_connection
            return (isinstance(raw, _Connection) and raw.has_just_responded) or ping(dbapi_connection)

        engine.dialect.do_ping = is_alive  # type: ignore[method-assign]
    return engine


class _Connection(psycopg.AsyncConnection[Any]):
    """A connection that is closed if the server does not respond in time."""

    answer_timeout_s = _ANSWER_TIMEOUT_S
    _is_late = False
    _responded_s = -math.inf

    @property
    def has_just_responded(self) -> bool:
        """Whether the server responded within the last second, and nothing has failed since then."""
        age_s = asyncio.get_running_loop().time() - self._responded_s
        return not self.closed and age_s < _RESPONDED_WITHIN_S

    async def wait(self, gen: PQGen[_T], *args: Any, **more: Any) -> _T:
        # Only the pool's check of an idle connection runs in autocommit mode. Every other statement runs in a
        # transaction.
        within_s = min(self.answer_timeout_s, _PING_TIMEOUT_S) if self.autocommit else self.answer_timeout_s
        loop = asyncio.get_running_loop()
        timer = loop.call_later(within_s, self._hang_up)
        try:
            result = await super().wait(gen, *args, **more)
            self._responded_s = loop.time()
            return result
        except psycopg.OperationalError:
            if not self._is_late:
                raise
            raise psycopg.OperationalError(f"the server did not respond within {within_s:g} s") from None
        finally:
            timer.cancel()

    def _hang_up(self) -> None:
        # The limit applies only while a statement runs: a connection that listens for notifications may wait for
        # hours.
        if self.pgconn.transaction_status != pq.TransactionStatus.ACTIVE:
            return
        self._is_late = True
        # Shutting the socket down ends the wait with an error. A cancellation would first request the server to
        # cancel the statement, and would wait for the response.
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self.pgconn.socket)) as copy:
            copy.shutdown(socket.SHUT_RDWR)


async def _connect(*args: Any, answer_timeout_s: float, **options: Any) -> _Connection:
    connection = await _Connection.connect(*args, **options)
    connection.answer_timeout_s = answer_timeout_s
    return connection


@asynccontextmanager
async def reading(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Open a connection. Its transaction is rolled back at the end.

    Raises:
        StoreUnavailableError: PostgreSQL is unreachable.
    """
    with_translation = _translated()
    async with with_translation, engine.connect() as connection:
        yield connection


@asynccontextmanager
async def writing(engine: AsyncEngine, *, answer_timeout_s: float | None = None) -> AsyncIterator[AsyncConnection]:
    """Open a connection. Its transaction is committed at the end, or rolled back after an exception.

    ``answer_timeout_s`` replaces the usual limit of the time that the server may need for a statement.

    Raises:
        StoreUnavailableError: PostgreSQL is unreachable. An interrupted commit may have taken place or not. Write
            again: every write is idempotent.
    """
    with_translation = _translated()
    async with with_translation, engine.begin() as connection:
        if answer_timeout_s is None:
            yield connection
            return
        raw = (await connection.get_raw_connection()).driver_connection
        assert isinstance(raw, _Connection)
        usual_s, raw.answer_timeout_s = raw.answer_timeout_s, answer_timeout_s
        try:
            yield connection
        finally:
            raw.answer_timeout_s = usual_s


@asynccontextmanager
async def limited(connection: AsyncConnection, *, statement_timeout_ms: int) -> AsyncIterator[None]:
    """Limit the time of each statement in a block that only reads. After a timeout, the transaction goes on.

    Raises:
        TimeoutError: a statement took longer.
    """
    nested = await connection.begin_nested()
    try:
        await connection.exec_driver_sql(f"SET LOCAL statement_timeout = {statement_timeout_ms:d}")
        yield
    except exc.OperationalError as error:
        if not isinstance(error.orig, psycopg.errors.QueryCanceled):
            raise
        raise TimeoutError(f"a statement took longer than {statement_timeout_ms} ms") from error
    finally:
        # The rollback restores the usual limit, a release of the savepoint does not.
        await nested.rollback()


@asynccontextmanager
async def session(engine: AsyncEngine, *, statement_timeout_s: int) -> AsyncIterator[AsyncConnection]:
    """Open a connection for several transactions, which the caller commits. It is closed at the end.

    So the session's temporary tables and locks end with it.

    Raises:
        StoreUnavailableError: PostgreSQL is unreachable.
    """
    with_translation = _translated()
    async with with_translation, engine.connect() as connection:
        try:
            raw = (await connection.get_raw_connection()).driver_connection
            assert isinstance(raw, _Connection)
            raw.answer_timeout_s = statement_timeout_s + 5
            await connection.exec_driver_sql(f"SET statement_timeout = '{statement_timeout_s}s'")
            await connection.commit()
            yield connection
        finally:
            await connection.invalidate()


@asynccontextmanager
async def _translated() -> AsyncIterator[None]:
    try:
        yield
    except (exc.OperationalError, exc.InterfaceError) as error:
        raise store_error(error.orig or error) from error
    except exc.InternalError as error:
        # Managed servers make a database read-only if its disk is nearly full.
        if not isinstance(error.orig, psycopg.errors.ReadOnlySqlTransaction):
            raise
        raise store_error(error.orig) from error
    except exc.TimeoutError as error:
        raise StoreBusyError("every connection of this process is in use") from error
    except (
        psycopg.OperationalError,
        psycopg.InterfaceError,
        psycopg.errors.ReadOnlySqlTransaction,
        OSError,
    ) as error:
        raise store_error(error) from error


def store_error(error: BaseException) -> StoreUnavailableError:
    """Return the error of this project that corresponds to an error of the driver."""
    reason = _first_line(error)
    if isinstance(error, psycopg.errors.DiskFull):
        return StoreFullError(reason)
    # While a connection is opened, the driver reports every refusal of the server with the same class, so the text is
    # searched too.
    if isinstance(error, psycopg.errors.TooManyConnections) or "too many clients already" in reason:
        return StoreBusyError(reason)
    return StoreUnavailableError(reason)


def is_lock_refused(error: StoreUnavailableError | exc.OperationalError) -> bool:
    """Return whether a statement failed because it did not get a lock in time, or because of a deadlock."""
    cause = error if isinstance(error, exc.OperationalError) else error.__cause__
    refused = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)
    return isinstance(cause, exc.OperationalError) and isinstance(cause.orig, refused)


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
