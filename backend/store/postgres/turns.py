"""Reads rows with long arrays a few at a time, so that the event loop serves other requests in between.

The driver converts all rows of a result at once, and a row with the values of a thousand subtasks takes as long as
hundreds of plain rows. With a cursor of the server, a part of the rows is fetched and converted at a time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from sqlalchemy import RowMapping, Select
from sqlalchemy.ext.asyncio import AsyncConnection

_AT_ONCE: Final = 25


async def rows_in_turns(
    connection: AsyncConnection, statement: Select[Any], values: Mapping[str, object], *, is_large: bool
) -> AsyncIterator[RowMapping]:
    """Execute the statement and yield its rows. Unless ``is_large``, read them at once."""
    if not is_large:
        for row in (await connection.execute(statement, values)).mappings():
            yield row
        return
    options = {"yield_per": _AT_ONCE}
    async with connection.stream(statement, values, execution_options=options) as found:
        async for row in found.mappings():
            yield row
