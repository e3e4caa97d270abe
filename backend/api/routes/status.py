"""The route of the service's own state: parse, call and serialise only."""

from __future__ import annotations

from fastapi import APIRouter

from backend.api import examples
from backend.api.deps import Given
from backend.contracts import api

router = APIRouter(tags=["status"])


@router.get("/status", responses=examples.of("status"))
async def read_status(services: Given) -> api.StatusOut:
    """The state of the service and the age of its data. Returns 200 also if the store does not answer."""
    return await services.status.status()
