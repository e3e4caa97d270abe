"""The routes of checkpoints: parse, call and serialise only."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from backend.api import examples
from backend.api.deps import LIMIT, Cursor, Given, JobId, Key, Limit, Range
from backend.contracts import api
from backend.contracts.barriers import BarriersOut
from backend.contracts.progress import ProgressOut
from backend.domain.checkpoint import CheckpointStatus
from backend.store.checkpoints.reader import CheckpointFilter

router = APIRouter(prefix="/jobs/{job}", tags=["checkpoints"])
_ONE = "/runs/{run}/checkpoints/{checkpoint}"

RunFilter = Annotated[
    str | None, Query(max_length=100, pattern=r"^[^\x00]*$", description="Only checkpoints of this run.")
]


@router.get("/checkpoints", responses=examples.page_of("checkpoint"))
async def list_checkpoints(
    job: JobId,
    services: Given,
    wanted: Range,
    status: CheckpointStatus | None = None,
    run: RunFilter = None,
    cursor: Cursor = None,
    limit: Limit = LIMIT,
) -> api.Page[api.CheckpointOut]:
    """Checkpoints of all runs of a job, newest first. ``from`` and ``to`` bound the trigger time."""
    chosen = CheckpointFilter(status, wanted.since, wanted.until, run)
    return await services.checkpoints.page(job, chosen, cursor=cursor, limit=limit)


@router.get("/checkpoints/latest", responses=examples.of("checkpoint"))
async def read_latest(job: JobId, services: Given, status: CheckpointStatus | None = None) -> api.CheckpointOut:
    """The newest checkpoint, or the newest with one status."""
    return await services.checkpoints.latest(job, status)


@router.get(_ONE, responses=examples.of("checkpoint_detail"))
async def read_checkpoint(key: Key, services: Given) -> api.CheckpointDetailOut:
    """One checkpoint with its subtasks, critical path and verdict."""
    return await services.checkpoints.detail(key)


@router.get(_ONE + "/progress", responses=examples.of("progress"))
async def read_progress(key: Key, services: Given) -> ProgressOut:
    """The progress of a checkpoint, the subtasks it waits for, and whether it progresses, is slow or is stuck."""
    return await services.progress.of(key)


@router.get(_ONE + "/barriers", responses=examples.of("barriers"))
async def read_barriers(key: Key, services: Given) -> BarriersOut:
    """The barrier events of a checkpoint: measured per channel if the engine reports them, else reconstructed."""
    return await services.checkpoints.barriers(key)


@router.get(_ONE + "/verdict", responses=examples.of("verdict"))
async def read_checkpoint_verdict(key: Key, services: Given) -> api.VerdictOut:
    """The verdict on one checkpoint: which subtask held it, in which phase, and why."""
    return await services.checkpoints.verdict(key)
