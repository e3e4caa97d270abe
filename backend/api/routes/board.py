"""The route that returns a range of rows of the fleet board."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from backend.api import examples
from backend.api.deps import LIMIT, Given, Limit
from backend.contracts.board import BoardOut, BoardSort
from backend.services.jobs.fleet import BoardWindow

router = APIRouter(prefix="/board", tags=["jobs"])

_NO_NUL = r"^[^\x00]*$"
Offset = Annotated[int, Query(ge=0, le=1_000_000, description="Number of rows before the window.")]
Search = Annotated[
    str | None,
    Query(
        max_length=200,
        pattern=_NO_NUL,
        description="Only jobs with a name, a target or a label (`name=value`) that contains this text.",
    ),
]
Since = Annotated[str | None, Query(max_length=100, description="`version` of the previous answer.")]
Known = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=100, pattern=_NO_NUL)]] | None,
    Query(max_length=500, description="With `since`: the ids of the jobs whose rows the client has."),
]
Ended = Annotated[bool, Query(description="Whether the window contains ended jobs. They come after all others.")]


@router.get("", responses=examples.of("board"))
async def read_board(
    services: Given,
    offset: Offset = 0,
    limit: Limit = LIMIT,
    sort: BoardSort = BoardSort.URGENCY,
    is_descending: bool = False,
    search: Search = None,
    since: Since = None,
    known: Known = None,
    ended: Ended = True,
) -> BoardOut:
    """Return a range of rows of the fleet board, without the rows that the client already has."""
    window = BoardWindow(offset, limit, sort, is_descending, search, since, frozenset(known or ()), has_ended=ended)
    return await services.fleet.window(window)
