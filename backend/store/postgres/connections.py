"""Connections to PostgreSQL; translates their errors into ``StoreUnavailableError``.

Every statement and every wait for a lock has a timeout, so a stuck server causes an error instead of a hang.
``reading`` and ``writing`` are the only ways to get a connection; ``writing`` commits at its end, or rolls back.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
from sqlalchemy import exc
from sqlalchemy.engine import URL, make_url
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from backend.domain.errors import FieldProblem, InvalidInputError, StoreUnavailableError
from backend.store.postgres.encoding import dump

_CONNECT_TIMEOUT_S = 5
_POOL_TIMEOUT_S = 10
_POOL_SIZE = 5
_POOL_OVERFLOW = 10
_STATEMENT_TIMEOUT_MS = 30_000
_LOCK_TIMEOUT_MS = 10_000


def store_url(url: str) -> URL:
    """Return ``url`` with this project's driver.

    Raises:
        InvalidInputError: ``url`` is not a PostgreSQL URL. The error does not repeat it, since it may hold a password.

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


def create_store_engine(
    url: str,
    *,
    pool_size: int = _POOL_SIZE,
    pool_overflow: int = _POOL_OVERFLOW,
    pool_timeout_s: float = _POOL_TIMEOUT_S,
) -> AsyncEngine:
    """A pool of connections to the database at ``url`` (``postgresql://...``); the caller disposes of it."""
    options = f"-c statement_timeout={_STATEMENT_TIMEOUT_MS} -c lock_timeout={_LOCK_TIMEOUT_MS} -c timezone=UTC"
    return create_async_engine(
        store_url(url),
        pool_size=pool_size,
        max_overflow=pool_overflow,
        pool_timeout=pool_timeout_s,
        pool_pre_ping=True,
        hide_parameters=True,
        json_serializer=dump,
        connect_args={
            "connect_timeout": _CONNECT_TIMEOUT_S,
            "options": options,
            "application_name": "barrierscope",
            # Plans are cached per connection; our queries are few and repeat.
            "prepare_threshold": 3,
        },
    )


@asynccontextmanager
async def reading(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Open a connection; its transaction is rolled back at the end.

    Raises:
        StoreUnavailableError: PostgreSQL is unreachable.

    """
    with_translation = _translated()
    async with with_translation, engine.connect() as connection:
        yield connection


@asynccontextmanager
async def writing(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Open a connection; its transaction is committed before the context ends.

    Raises:
        StoreUnavailableError: PostgreSQL is unreachable. It is unknown whether an interrupted commit took place: write
            again, since every write is idempotent.

    """
    with_translation = _translated()
    async with with_translation, engine.begin() as connection:
        yield connection


@asynccontextmanager
async def _translated() -> AsyncIterator[None]:
    try:
        yield
    except (exc.OperationalError, exc.InterfaceError) as error:
        raise StoreUnavailableError(_first_line(error.orig or error)) from error
    except exc.TimeoutError as error:
        raise StoreUnavailableError("every connection of this process is in use") from error
    except (psycopg.OperationalError, psycopg.InterfaceError, OSError) as error:
        raise StoreUnavailableError(_first_line(error)) from error


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
