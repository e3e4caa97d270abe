"""The routes for jobs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from backend.api import examples
from backend.api.deps import LIMIT, Cursor, Given, JobId, Limit, Range
from backend.contracts import api
from backend.contracts.backpressure import BackpressureOut
from backend.contracts.changes import ChangePointOut
from backend.contracts.pressure_history import PressureHistoryOut
from backend.domain.pressure import PressureMeasure
from backend.domain.verdict import Health
from backend.services.jobs.fleet import JobFilter

router = APIRouter(prefix="/jobs", tags=["jobs"])

VertexFilter = Annotated[
    str | None, Query(max_length=200, pattern=r"^[^\x00]*$", description="Also return the subtasks of this vertex.")
]
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
    """List all watched jobs, one item for each, most urgent first."""
    return await services.fleet.page(JobFilter(target, health), cursor=cursor, limit=limit)


@router.get("/{job}", responses=examples.of("job_detail"))
async def read_job(job: JobId, services: Given, vertex: VertexFilter = None) -> api.JobDetailOut:
    """Return one job with its graph, checkpoint settings and counters.

    If the job has more than 8,000 subtasks, only the named vertex has their hosts, TaskManagers, attempts and states.
    """
    return await services.jobs.detail(job, vertex)


@router.get("/{job}/verdict", responses=examples.of("diagnosis"))
async def read_job_verdict(job: JobId, services: Given) -> api.DiagnosisOut:
    """Return the verdict on a job: which subtask holds its barriers, and why.

    ``barrierscope diagnose`` prints the same verdict.
    """
    return await services.jobs.verdict(job)


@router.get("/{job}/runs", responses=examples.page_of("run"))
async def list_runs(job: JobId, services: Given, cursor: Cursor = None, limit: Limit = LIMIT) -> api.Page[api.RunOut]:
    """List the runs of a job at its engine, newest first."""
    return await services.jobs.runs(job, cursor=cursor, limit=limit)


@router.get("/{job}/events", responses=examples.page_of("job_event"))
async def list_events(
    job: JobId, services: Given, cursor: Cursor = None, limit: Limit = LIMIT
) -> api.Page[api.JobEventOut]:
    """List the events of a job, newest first: starts, ends, restarts, changed settings, exceptions."""
    return await services.jobs.events(job, cursor=cursor, limit=limit)


@router.get("/{job}/change-points", responses=examples.page_of("change_point"))
async def list_change_points(job: JobId, services: Given) -> api.Page[ChangePointOut]:
    """List the changes in the duration of the newest 500 checkpoints, newest first. Savepoints do not count."""
    return await services.changes.page(job)


@router.get("/{job}/backpressure", responses=examples.of("backpressure"))
async def read_backpressure(job: JobId, services: Given, wanted: Range, vertex: VertexFilter = None) -> BackpressureOut:
    """Return the latest reading of each vertex, or of one. With ``from`` or ``to``, also return means over that range.

    If the job has more than 10,000 subtasks and no vertex is named, each vertex has only its highest values.
    """
    return await services.jobs.backpressure(job, wanted, vertex)


@router.get("/{job}/backpressure/history", responses=examples.of("pressure_history"))
async def read_pressure_history(
    job: JobId,
    services: Given,
    wanted: Range,
    vertex: VertexFilter = None,
    measure: PressureMeasure = PressureMeasure.BACKPRESSURED,
) -> PressureHistoryOut:
    """Return the backpressure of each vertex over a time range, in at most 120 buckets, and the suspects at its end.

    Without ``to`` the range ends at the newest reading or, if it begins after that, now. Without ``from`` it is one
    hour long. With ``vertex``, the response also has ``measure`` for each subtask of that vertex.
    """
    return await services.pressure_history.of_job(job, wanted, vertex_id=vertex, measure=measure)
