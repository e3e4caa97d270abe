"""Reads rows with long arrays a few at a time, and frees their values so, too: the event loop runs in between.

The driver converts all rows of a result at once, and a row with the values of a thousand subtasks takes as long as
hundreds of plain rows. With a cursor of the server, a part of the rows is fetched and converted at a time.

While Python frees an object with all its parts, no other thread runs. For the values of three checkpoints of 100,000
subtasks, this takes 70 ms.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from sqlalchemy import RowMapping, Select
from sqlalchemy.ext.asyncio import AsyncConnection

_T = TypeVar("_T")

_AT_ONCE: Final = 25


class _FreedInTurns(tuple[_T, ...]):
    """A tuple whose items are freed a few at a time, in the event loop, after its last use in any thread."""

    loop: asyncio.AbstractEventLoop

    def __del__(self) -> None:
        # The loop is closed when the process ends.
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(_free, self.loop, list[object](self))


def _free(loop: asyncio.AbstractEventLoop, items: list[object]) -> None:
    del items[-_AT_ONCE:]
    if items:
        loop.call_soon(_free, loop, items)


def kept(values: Iterable[_T], *, is_large: bool) -> tuple[_T, ...]:
    """Return a tuple of values with long arrays. If ``is_large``, its items are freed in turns."""
    if not is_large:
        return tuple(values)
    made = _FreedInTurns(values)
    made.loop = asyncio.get_running_loop()
    return made


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
