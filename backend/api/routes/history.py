"""The routes for the history of a job in a range."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from backend.api import examples
from backend.api.deps import Given, Instant, JobId, Range
from backend.contracts.history import HistoryOut, UsualOut

router = APIRouter(prefix="/jobs/{job}", tags=["checkpoints"])

Most = Annotated[int, Query(alias="max", ge=1, le=2000, description="The most single checkpoints to return.")]
Before = Annotated[Instant | None, Query(alias="to", description="The end of the 7 days; the default is now.")]


@router.get("/history", responses=examples.of("history"))
async def read_history(job: JobId, services: Given, wanted: Range, most: Most = 1000) -> HistoryOut:
    """Return every checkpoint between ``from`` and ``to``, or steps of at least an hour if there are more than ``max``.

    Steps are read from the hourly rollups. The response has at most 2,000 values for a range of any length, and
    reaches back at most 400 days.
    """
    return await services.history.of_job(job, wanted, most=most)


@router.get("/usual-range", responses=examples.of("usual_range"))
async def read_usual_range(job: JobId, services: Given, until: Before = None) -> UsualOut:
    """Return the usual range of checkpoint durations: p10 to p90 of the 7 days before ``to``, from the rollups.

    ``usual`` is null if fewer than 24 hours or fewer than 100 checkpoints of these days are rolled up.
    """
    return await services.history.usual(job, until)
