"""Evidence about jobs for tests of the twin: from recordings of Flink, and from jobs of the reference runtime."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import cache

from backend.analysis.measures.evidence import JobEvidence
from backend.domain.ids import TargetId
from backend.runtime.engine.jobfile import JobSpec
from collectors.flink.collector import FlinkCollector
from collectors.readings import Gathered
from tests.support.recorded_flink import RECORDINGS, RecordedFlink
from tests.support.simulated_target import SimulatedTarget

_POLL_S = 2.0


@cache
def recorded_evidence(name: str) -> JobEvidence:
    """Return what a collector gathers from a whole recording of Flink."""
    return asyncio.run(_recorded(name))


async def _recorded(name: str) -> JobEvidence:
    flink = RecordedFlink(RECORDINGS / name)
    flink.at_s = flink.recording.begins_s
    collector = FlinkCollector(flink, target_id=TargetId(name), monotonic_s=flink.monotonic_s)
    gathered: Gathered | None = None
    while flink.at_s <= flink.recording.last_running_s:
        observation = await collector.collect(flink.now)
        (job,) = observation.jobs
        gathered = gathered or Gathered(job)
        gathered.add(job, observation.observed_at, timedelta(0))
        flink.at_s += _POLL_S
    assert gathered is not None
    return gathered.evidence()


async def _watched(spec: JobSpec, run_s: float, every_s: float) -> JobEvidence:
    async with SimulatedTarget([spec]) as target:
        gathered = await target.watched(polls=round(run_s / every_s), every_s=every_s)
    return gathered.evidence()


def runtime_evidence(spec: JobSpec, *, run_s: float, every_s: float = 5.0) -> JobEvidence:
    """Run a job on the live runtime in virtual time, and return what a collector gathers from its REST API."""
    return asyncio.run(_watched(spec, run_s, every_s))
