"""Reads rows in PostgreSQL's binary format.

The usual format is text, and the conversion of a time to text and back costs more than reading the row. The binary
format suits long lists of plain columns. The driver must have a binary loader for each of their types.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import psycopg
from sqlalchemy import Select
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.store.postgres.statements import sql_of


async def binary_rows(
    connection: AsyncConnection, statement: Select[Any], values: Mapping[str, object]
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Execute a statement that is built once, with these values bound, and return its columns' names and its rows."""
    raw = (await connection.get_raw_connection()).driver_connection
    assert isinstance(raw, psycopg.AsyncConnection)
    cursor = await raw.cursor(binary=True).execute(_text(statement), values, prepare=True)
    return [column.name for column in cursor.description or ()], await cursor.fetchall()


@lru_cache(maxsize=128)
def _text(statement: Select[Any]) -> bytes:
    return sql_of(statement)
