"""The routes for hourly rollups."""

from __future__ import annotations

from fastapi import APIRouter

from backend.api import examples
from backend.api.deps import LIMIT, Cursor, Given, JobId, Limit, Range
from backend.contracts.api import Page
from backend.contracts.rollups import RollupHourOut

router = APIRouter(prefix="/jobs/{job}", tags=["rollups"])


@router.get("/rollups", responses=examples.page_of("rollup_hour"))
async def list_rollups(
    job: JobId, services: Given, wanted: Range, cursor: Cursor = None, limit: Limit = LIMIT
) -> Page[RollupHourOut]:
    """List the hours that begin between ``from`` and ``to``, newest first. The default is the last 7 days.

    The result is complete even if the Spark pipeline does not run.
    """
    return await services.rollups.page(job, wanted, cursor=cursor, limit=limit)
