"""The routes for checkpoints."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Query
from pydantic import Field

from backend.api import examples
from backend.api.deps import LIMIT, Cursor, Given, JobId, Key, Limit, Range
from backend.contracts import api
from backend.contracts.barriers import BarriersOut
from backend.contracts.checkpoint_actions import ActionIn, ActionTakenOut
from backend.contracts.progress import ProgressOut
from backend.contracts.space_time import SpaceTimeOut
from backend.contracts.subtask_matrix import MatrixGroup, SubtaskMatrixOut
from backend.contracts.subtasks import COLUMNS_MAX, CheckpointSubtasksOut
from backend.domain.checkpoint import CheckpointStatus, SubtaskMeasure
from backend.services.checkpoints.subtasks import Part
from backend.store.checkpoints.reader import CheckpointFilter

router = APIRouter(prefix="/jobs/{job}", tags=["checkpoints"])
_ONE = "/runs/{run}/checkpoints/{checkpoint}"

RunFilter = Annotated[
    str | None, Query(max_length=100, pattern=r"^[^\x00]*$", description="Only checkpoints of this run.")
]

VertexFilter = Annotated[
    str | None, Query(max_length=200, pattern=r"^[^\x00]*$", description="Only the subtasks of this vertex.")
]
Opened = Annotated[
    list[Annotated[str, Field(max_length=200, pattern=r"^[^\x00]*$")]],
    Query(
        alias="open",
        default_factory=list,
        max_length=60,
        description="Show the subtasks of this vertex even if the diagram is folded.",
    ),
]
Wanted = Annotated[ActionIn, Body(openapi_examples={"extend the timeout": {"value": examples.read("action_in")}})]
Vertices = Annotated[
    list[Annotated[str, Field(max_length=200, pattern=r"^[^\x00]*$")]],
    Query(default_factory=list, max_length=20, description="Only the subtasks of this vertex; may be repeated."),
]
First = Annotated[int, Query(ge=0, le=1_000_000, description="Index of the first subtask of each vertex.")]
SubtaskLimit = Annotated[int, Query(ge=1, le=COLUMNS_MAX, description="Number of subtasks of each vertex.")]
Columns = Annotated[int, Query(ge=1, le=500, description="Number of checkpoints.")]


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
    """List the checkpoints of all runs of a job, newest first. ``from`` and ``to`` bound the trigger time."""
    chosen = CheckpointFilter(status, wanted.since, wanted.until, run)
    return await services.checkpoints.page(job, chosen, cursor=cursor, limit=limit)


@router.get("/checkpoints/latest", responses=examples.of("checkpoint"))
async def read_latest(job: JobId, services: Given, status: CheckpointStatus | None = None) -> api.CheckpointOut:
    """Return the newest checkpoint, or the newest one with the given status."""
    return await services.checkpoints.latest(job, status)


@router.get("/subtask-matrix", responses=examples.of("subtask_matrix"))
async def read_subtask_matrix(
    job: JobId,
    services: Given,
    wanted: Range,
    measure: SubtaskMeasure = SubtaskMeasure.DURATION,
    vertex: VertexFilter = None,
    group: MatrixGroup = MatrixGroup.VERTEX,
    run: RunFilter = None,
    limit: Columns = 100,
) -> SubtaskMatrixOut:
    """Return one measure of all subtasks in the newest ended checkpoints: a row for each subtask, oldest first.

    If a job has more than 200 subtasks, each row is a vertex with the largest value of its subtasks. Request one
    vertex to get its subtasks. With ``group=host``, the subtasks are sorted by the hosts on which they ran when the job
    was last read, and each row of a job with more than 200 subtasks is a host. ``from`` and ``to``
    bound the trigger time.
    """
    chosen = CheckpointFilter(None, wanted.since, wanted.until, run)
    return await services.subtask_matrix.of_job(job, measure, chosen, vertex_id=vertex, group=group, limit=limit)


@router.get(_ONE, responses=examples.of("checkpoint_detail"))
async def read_checkpoint(key: Key, services: Given) -> api.CheckpointDetailOut:
    """Return one checkpoint with its subtasks, critical path and verdict."""
    return await services.checkpoints.detail(key)


@router.get(_ONE + "/subtasks", responses=examples.of("checkpoint_subtasks"))
async def read_subtasks(
    key: Key, services: Given, vertex: Vertices, first: First = 0, limit: SubtaskLimit = COLUMNS_MAX
) -> CheckpointSubtasksOut:
    """Return the subtasks of a checkpoint in columns, or those of some vertices.

    `first` and `limit` name a range of the subtasks of each vertex. An answer has at most 16,000 subtasks.
    """
    return await services.subtasks.of(key, Part(tuple(vertex), first, limit))


@router.get(_ONE + "/progress", responses=examples.of("progress"))
async def read_progress(key: Key, services: Given) -> ProgressOut:
    """Return the progress of a checkpoint: which subtasks it waits for, and whether it progresses, is slow or stuck."""
    return await services.progress.of(key)


@router.post(_ONE + "/actions", responses=examples.of("action_taken"))
async def take_action(key: Key, wanted: Wanted, services: Given) -> ActionTakenOut:
    """Take an action on a checkpoint in progress. `progress` lists the actions and the settings that each sets.

    409 if the action is not possible now, or if it would set other values than those in `settings`.
    """
    return await services.actions.take(key, wanted)


@router.get(_ONE + "/barriers", responses=examples.of("barriers"))
async def read_barriers(key: Key, services: Given, vertex: VertexFilter = None) -> BarriersOut:
    """Return the barrier events of a checkpoint.

    They are measured for each channel if the engine reports them, and reconstructed if it does not. If there are more
    than 12,000, name one vertex.
    """
    return await services.checkpoints.barriers(key, vertex)


@router.get(_ONE + "/space-time", responses=examples.of("space_time"))
async def read_space_time(key: Key, services: Given, opened: Opened) -> SpaceTimeOut:
    """Return the space-time diagram of a checkpoint: a lane for each subtask, the barriers between them, and the cut.

    The cut is checked from the trace. If the job has more than 60 subtasks, each vertex is folded into one lane, except
    the subtasks on the critical path and those of opened vertices.
    """
    return await services.space_time.of(key, opened)


@router.get(_ONE + "/verdict", responses=examples.of("verdict"))
async def read_checkpoint_verdict(key: Key, services: Given) -> api.VerdictOut:
    """Return the verdict on one checkpoint: which subtask held the barrier, in which phase, and why."""
    return await services.checkpoints.verdict(key)
