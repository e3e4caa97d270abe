"""Reads the threads and the sampled stacks of a running subtask from its engine. Nothing is stored.

Each request costs the engine something: a thread dump stops a TaskManager for some milliseconds, and a flame graph
samples a task for some seconds. So only a few requests run at the same time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from sqlalchemy.ext.asyncio import AsyncEngine

from backend.contracts.inspection import FlameGraphOut, FrameOut, ThreadDumpOut, ThreadOut
from backend.domain.clock import Clock
from backend.domain.connection import Reach
from backend.domain.errors import ConflictError, RateLimitedError
from backend.domain.inspection import (
    FlameGraph,
    Inspected,
    InspectionRequest,
    ReadThreads,
    SampleStacks,
    StackType,
    ThreadDump,
)
from backend.domain.observation import JobState
from backend.services.targets.changing import reachable
from backend.services.targets.places import Place, place_of
from backend.store.jobs.reader import RunRecord, get_job
from backend.store.postgres.connections import reading

_TIMEOUT_S = 8.0
_AT_ONCE_MAX = 4


class Inspect(Protocol):
    """Reads threads or stacks of a job that runs as ``engine_run_id`` on the target of ``kind`` at ``url``."""

    async def __call__(
        self,
        url: str,
        engine_run_id: str,
        request: InspectionRequest,
        timeout_s: float,
        *,
        kind: str,
        reach: Reach,
    ) -> Inspected:
        """Return what ``request`` asks for. ``reach`` has the allowed addresses and credentials.

        Raises:
            ConflictError: the engine does not offer it, or a setting of the engine switches it off.
            UpstreamError: the target does not respond, or its response is malformed.
        """
        ...


@dataclass(frozen=True, slots=True)
class SubtaskKey:
    """Identifies a subtask of a job's current run."""

    job_id: str
    vertex_id: str
    subtask: int


class InspectionService:
    """Handles requests for thread dumps and flame graphs."""

    def __init__(self, engine: AsyncEngine, clock: Clock, limits: Reach, inspect: Inspect | None) -> None:
        self._engine = engine
        self._clock = clock
        self._limits = limits
        self._inspect = inspect
        self._running_count = 0

    async def threads(self, key: SubtaskKey, *, has_all: bool) -> ThreadDumpOut:
        """Return the threads of a subtask or, if ``has_all``, all threads of the process that runs it.

        Raises:
            UnknownEntityError: there is no such job, vertex or subtask.
            ConflictError: the engine has no thread dumps, the job has ended, or its TaskManager is not known.
            InvalidInputError: the target's address is no longer allowed.
            RateLimitedError: too many requests of this kind run now.
            TargetUnavailableError, TargetProtocolError: the target does not respond as it should.
        """
        run, place = await self._place(key)
        if not run.engine.can_dump_threads:
            raise _not_offered(run, "thread dumps")
        if place.task_manager is None:
            raise ConflictError("the engine does not report the TaskManager of this subtask", kind="place-not-known")
        request = ReadThreads(place.task_manager, place.vertex.name, key.subtask, place.vertex.parallelism)
        found = await self._ask(run, request)
        assert isinstance(found, ThreadDump)
        return ThreadDumpOut(
            vertex=place.vertex.name,
            subtask=key.subtask,
            host=place.host,
            task_manager=place.task_manager,
            threads=[ThreadOut.model_validate(t) for t in found.threads if has_all or t.is_of_subtask],
            thread_count=len(found.threads),
            as_of=self._clock.now(),
        )

    async def flame_graph(self, key: SubtaskKey, kind: StackType) -> FlameGraphOut:
        """Return the sampled stacks of a subtask. While the engine is sampling, the response has no frames.

        Raises:
            ConflictError: the engine has no flame graphs, a setting switches them off, or the job has ended.
            UnknownEntityError, InvalidInputError, RateLimitedError, TargetUnavailableError, TargetProtocolError: as
                ``threads``.
        """
        run, place = await self._place(key)
        if not run.engine.can_sample_stacks:
            raise _not_offered(run, "flame graphs of subtasks")
        found = await self._ask(run, SampleStacks(place.vertex.id, key.subtask, kind))
        assert isinstance(found, FlameGraph)
        return FlameGraphOut(
            vertex=place.vertex.name,
            subtask=key.subtask,
            type=kind,
            is_sampling=found.sampled_at is None,
            sampled_at=found.sampled_at,
            sample_count=found.frames[0].sample_count if found.frames else 0,
            frames=[FrameOut.model_validate(f) for f in found.frames],
            left_out_count=found.left_out_count,
            as_of=self._clock.now(),
        )

    async def _place(self, key: SubtaskKey) -> tuple[RunRecord, Place]:
        async with reading(self._engine) as connection:
            run = (await get_job(connection, key.job_id)).run
            place = await place_of(connection, run, key.vertex_id, key.subtask)
        return run, place

    async def _ask(self, run: RunRecord, request: InspectionRequest) -> Inspected:
        if run.state is JobState.ENDED:
            raise ConflictError("the job has ended, so its subtasks have no threads", kind="job-ended")
        target, reach = await reachable(self._engine, self._limits, run.target_id)
        if self._inspect is None:
            raise ConflictError("this process cannot read threads of targets", kind="inspection-unavailable")
        async with self._turn():
            return await self._inspect(
                target.url, run.engine_run_id, request, _TIMEOUT_S, kind=target.kind, reach=reach
            )

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        if self._running_count >= _AT_ONCE_MAX:
            raise RateLimitedError("too many thread dumps and flame graphs are requested now", retry_after_s=3)
        self._running_count += 1
        try:
            yield
        finally:
            self._running_count -= 1


def _not_offered(run: RunRecord, what: str) -> ConflictError:
    return ConflictError(f"{run.engine.name} has no request for {what}", kind="inspection-not-available")
