"""The route for the pages of causes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from backend.api import examples
from backend.contracts.causes import CausePageOut
from backend.services.causes import cause_page

router = APIRouter(prefix="/causes", tags=["causes"])

CauseId = Annotated[
    str,
    Path(max_length=100, pattern=r"^[^\x00]*$", description="A kind of verdict, or `growth`.", examples=["capacity"]),
]


@router.get("/{cause}", responses=examples.of("cause_page"))
async def read_cause(cause: CauseId) -> CausePageOut:
    """Return the page of a cause: how it looks, how it differs from others, what cures it and what does not."""
    return cause_page(cause)
