"""The routes of jobs: parse, call and serialise only."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from backend.api import examples
from backend.api.deps import LIMIT, Cursor, Given, JobId, Limit, Range
from backend.contracts import api
from backend.contracts.backpressure import BackpressureOut
from backend.contracts.changes import ChangePointOut
from backend.domain.verdict import Health
from backend.services.jobs.fleet import JobFilter

router = APIRouter(prefix="/jobs", tags=["jobs"])

TargetFilter = Annotated[
    str | None, Query(max_length=100, pattern=r"^[^\x00]*$", description="Only jobs of this target.")
]


@router.get("", responses=examples.page_of("job"))
async def list_jobs(
    services: Given,
    target: TargetFilter = None,
    health: Health | None = None,
    cursor: Cursor = None,
    limit: Limit = LIMIT,
) -> api.Page[api.JobOut]:
    """All watched jobs, one row each, most urgent first."""
    return await services.fleet.page(JobFilter(target, health), cursor=cursor, limit=limit)


@router.get("/{job}", responses=examples.of("job_detail"))
async def read_job(job: JobId, services: Given) -> api.JobDetailOut:
    """One job with its graph, checkpoint settings and counters."""
    return await services.jobs.detail(job)


@router.get("/{job}/verdict", responses=examples.of("diagnosis"))
async def read_job_verdict(job: JobId, services: Given) -> api.DiagnosisOut:
    """The verdict on a job: which subtask holds its barriers, and why; the same as ``barrierscope diagnose``."""
    return await services.jobs.verdict(job)


@router.get("/{job}/runs", responses=examples.page_of("run"))
async def list_runs(job: JobId, services: Given, cursor: Cursor = None, limit: Limit = LIMIT) -> api.Page[api.RunOut]:
    """The runs of a job at its engine, newest first."""
    return await services.jobs.runs(job, cursor=cursor, limit=limit)


@router.get("/{job}/events", responses=examples.page_of("job_event"))
async def list_events(
    job: JobId, services: Given, cursor: Cursor = None, limit: Limit = LIMIT
) -> api.Page[api.JobEventOut]:
    """The events of a job, newest first: starts, ends, restarts, changed settings, exceptions."""
    return await services.jobs.events(job, cursor=cursor, limit=limit)


@router.get("/{job}/change-points", responses=examples.page_of("change_point"))
async def list_change_points(job: JobId, services: Given) -> api.Page[ChangePointOut]:
    """Changes in the duration of the newest 500 checkpoints, without savepoints; newest first."""
    return await services.changes.page(job)


@router.get("/{job}/backpressure", responses=examples.of("backpressure"))
async def read_backpressure(job: JobId, services: Given, wanted: Range) -> BackpressureOut:
    """The latest reading of each vertex. With ``from`` or ``to``, also means over that range."""
    return await services.jobs.backpressure(job, wanted)
