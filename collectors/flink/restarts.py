"""Reads how often a job was restarted. The request also makes Flink fetch its metrics (``freshness``)."""

from __future__ import annotations

from backend.contracts import flink
from backend.domain.ids import EngineRunId
from collectors.flink import parse_metrics
from collectors.flink.reading import EngineFacts, RunMemory
from collectors.flink.requests import Requests


async def read_restarts(requests: Requests, job_id: EngineRunId, memory: RunMemory, *, engine: EngineFacts) -> None:
    """Read the number of restarts into ``memory``, which also notes that the engine fetches its metrics now."""
    asked_at = requests.at()
    metrics = parse_metrics.job_metrics(await requests.get(flink.job_metrics(job_id, flink.RESTARTS)))
    # A request that failed made the engine fetch nothing.
    memory.freshness = memory.freshness.prepared(asked_at, engine.fetch_interval)
    value = next((metrics[name] for name in flink.RESTARTS if name in metrics), None)
    if value is not None and value >= 0:
        memory.restart_count = int(value)
