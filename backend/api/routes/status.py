"""The service itself. Parse, call, serialise; decide nothing here."""

from __future__ import annotations

from fastapi import APIRouter

from backend.api import examples
from backend.api.deps import Given
from backend.contracts import api

router = APIRouter(tags=["status"])


@router.get("/status", responses=examples.of("status"))
async def read_status(services: Given) -> api.StatusOut:
    """Is the service well, and how old is what it shows? Answers 200 also while the store is away, and says so."""
    return await services.status.status()
