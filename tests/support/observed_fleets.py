"""Fleets in a store: a few jobs that were observed once, under as many names as asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy.ext.asyncio import AsyncEngine

from backend.analysis.measures.evidence import JobEvidence
from backend.domain.engines import RUNTIME
from backend.domain.target import TargetOrigin
from backend.store.ingest import IngestWriter
from backend.store.targets.targets import NewTarget, TargetRepository
from tests.support.failing_jobs import failing_job
from tests.support.observations import SteppingClock, observation

_JOBS_OF_A_TARGET = 50


async def fill_fleet(engine: AsyncEngine, clock: SteppingClock, seen: Sequence[JobEvidence], jobs: int) -> None:
    """Store so many jobs of the reference runtime. Each has the evidence of one of ``seen``, and failures on record."""
    writer = IngestWriter(engine, clock=clock)
    for first in range(0, jobs, _JOBS_OF_A_TARGET):
        url = f"http://127.0.0.1:{10_000 + first}"
        target = NewTarget(url=url, name=f"target-{first}", origin=TargetOrigin.API)
        added = await TargetRepository(engine).add(target, at=clock.at)
        rows = [
            failing_job(seen[number % len(seen)], name=f"job-{number}", run=f"{number:032x}")
            for number in range(first, min(jobs, first + _JOBS_OF_A_TARGET))
        ]
        told = observation(added.id, *rows, at=clock.at)
        await writer.write(replace(told, engine=RUNTIME, engine_version="0.1.0"))
