"""The route for the service's own state."""

from __future__ import annotations

from fastapi import APIRouter

from backend.api import examples
from backend.api.deps import Given
from backend.contracts.status import StatusOut

router = APIRouter(tags=["status"])


@router.get("/status", responses=examples.of("status"))
async def read_status(services: Given) -> StatusOut:
    """Return the state of the service and the age of its data. The status is 200 even if the store does not respond."""
    return await services.status.status()
