"""The routes for the links out of Barrierscope, and for what can be read from the process of a running subtask."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query

from backend.api import examples
from backend.api.deps import Given, JobId, Range
from backend.contracts.inspection import FlameGraphOut, ThreadDumpOut
from backend.contracts.links import LinksOut
from backend.domain.inspection import StackType
from backend.services.targets.inspecting import SubtaskKey
from backend.services.targets.links import LinkQuery

router = APIRouter(prefix="/jobs/{job}", tags=["links"])
_SUBTASK = "/vertices/{vertex}/subtasks/{subtask}"
_INT4_MAX = 2**31 - 1
_TEXT = r"^[^\x00]*$"
_VERTEX = "bc764cd8ddf7a0cff126f51c16239658"

Run = Annotated[str | None, Query(max_length=100, pattern=_TEXT, description="Another run than the current one.")]
Vertex = Annotated[str | None, Query(max_length=200, pattern=_TEXT, description="Id of a vertex.")]
Subtask = Annotated[int | None, Query(ge=0, le=_INT4_MAX, description="Index of a subtask of `vertex`.")]
Checkpoint = Annotated[int | None, Query(ge=0, le=2**63 - 1, description="Sets the time range in the links.")]
VertexId = Annotated[str, Path(max_length=200, pattern=_TEXT, description="Id of a vertex.", examples=[_VERTEX])]
SubtaskIndex = Annotated[int, Path(ge=0, le=_INT4_MAX, description="Index of a subtask, from 0.", examples=[2])]


def _subtask_key(job: JobId, vertex: VertexId, subtask: SubtaskIndex) -> SubtaskKey:
    return SubtaskKey(job, vertex, subtask)


Key = Annotated[SubtaskKey, Depends(_subtask_key)]


@router.get("/links", responses=examples.of("links"))
async def list_links(
    job: JobId,
    services: Given,
    wanted: Range,
    run: Run = None,
    vertex: Vertex = None,
    subtask: Subtask = None,
    checkpoint: Checkpoint = None,
) -> LinksOut:
    """List the links to the engine's web UI, and those of the target's templates, with all values filled in.

    A link that lacks a value has no `url`, and `reason` says why. ``from`` and ``to`` set the time range in the links.
    """
    return await services.links.of_job(job, LinkQuery(run, vertex, subtask, checkpoint), wanted)


@router.get(_SUBTASK + "/thread-dump", responses=examples.of("thread_dump"))
async def read_threads(
    key: Key,
    services: Given,
    has_all: Annotated[bool, Query(alias="all", description="All threads of the process.")] = False,
) -> ThreadDumpOut:
    """Read the threads of a running subtask from its engine. Nothing is stored.

    409 if the engine has no thread dumps, or if the job has ended.
    """
    return await services.inspection.threads(key, has_all=has_all)


@router.get(_SUBTASK + "/flame-graph", responses=examples.of("flame_graph"))
async def read_flame_graph(key: Key, services: Given, type: StackType = StackType.FULL) -> FlameGraphOut:
    """Read the sampled stacks of a running subtask from its engine. Nothing is stored.

    The first request makes the engine sample for some seconds; until then `is_sampling` is true. 409 if the engine has
    no flame graphs, or if a setting switches them off.
    """
    return await services.inspection.flame_graph(key, type)
