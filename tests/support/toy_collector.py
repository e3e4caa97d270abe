"""A collector for a toy engine that no product file mentions. It reads one JSON page, and cannot change settings.

The page is ``{"version", "jobs": [{"id", "name", "started_ms", "checkpoints": [{"id", "at_ms", "took_ms"}]}]}``.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import orjson

from backend.domain.checkpoint import Checkpoint, CheckpointHeader, CheckpointKind, CheckpointStatus
from backend.domain.connection import Reach
from backend.domain.engines import EngineCapabilities
from backend.domain.errors import TargetProtocolError
from backend.domain.ids import EngineRunId, TargetId
from backend.domain.observation import JobObservation, JobState, Observation, PollCost
from collectors.base import Collector, CollectorKind, Effort, FlinkTransport, KnownRuns, Probed, TargetRow
from collectors.flink.client import open_transport

TIMEOUT_S = 5.0
ENGINE = EngineCapabilities(kind="toy", name="Toy", source="the page of a toy")


class ToyCollector:
    """A ``Collector`` for one toy engine."""

    poll_within_s: float | None = None

    def __init__(self, transport: FlinkTransport, target_id: TargetId, known: KnownRuns) -> None:
        self._transport = transport
        self._target_id = target_id
        self._runs = {key: run.name for key, run in known.items()}
        self._seen: set[tuple[EngineRunId, int]] = set()

    async def collect(self, now: datetime, *, effort: Effort = Effort.FULL) -> Observation:
        """Poll once, as ``Collector`` requires: return all jobs with their new checkpoints."""
        began_s = time.monotonic()
        body = await _page(self._transport)
        try:
            version, jobs = str(body["version"]), tuple(_job(row) for row in body["jobs"])
        except (KeyError, TypeError, ValueError) as error:
            raise TargetProtocolError(url=self._transport.url, reason=f"no toy: {error!r}") from None
        runs = {(j.engine_run_id, j.started_at): j.name for j in jobs}
        gone = tuple(
            JobObservation(run_id, name, JobState.ENDED, "gone", started_at)
            for (run_id, started_at), name in self._runs.items()
            if (run_id, started_at) not in runs
        )
        news = tuple(_only_new(job, self._seen) for job in jobs)
        self._runs = runs
        self._seen = {(j.engine_run_id, c.header.checkpoint_id) for j in jobs for c in j.checkpoints}
        cost = PollCost(1, len(str(body)), round((time.monotonic() - began_s) * 1000))
        return Observation(self._target_id, now, ENGINE, version, (*news, *gone), cost)

    def forget(self) -> None:
        """Read all checkpoints again at the next poll."""
        self._seen = set()


async def _page(transport: FlinkTransport) -> dict[str, Any]:
    try:
        body = orjson.loads(await transport.get("/toy.json"))
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise TargetProtocolError(url=transport.url, reason="no JSON page")
    return body


def _job(row: dict[str, Any]) -> JobObservation:
    checkpoints = tuple(
        Checkpoint(
            CheckpointHeader(
                checkpoint_id=int(c["id"]),
                kind=CheckpointKind.CHECKPOINT,
                status=CheckpointStatus.COMPLETED,
                triggered_at=_instant(c["at_ms"]),
                end_to_end_duration_ms=int(c["took_ms"]),
            )
        )
        for c in row["checkpoints"]
    )
    run_id, started_at = EngineRunId(str(row["id"])), _instant(row["started_ms"])
    return JobObservation(run_id, str(row["name"]), JobState.RUNNING, "playing", started_at, checkpoints=checkpoints)


def _only_new(job: JobObservation, seen: set[tuple[EngineRunId, int]]) -> JobObservation:
    new = tuple(c for c in job.checkpoints if (job.engine_run_id, c.header.checkpoint_id) not in seen)
    return JobObservation(job.engine_run_id, job.name, job.state, job.engine_state, job.started_at, checkpoints=new)


def _instant(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


@asynccontextmanager
async def open_target(target: TargetRow, known: KnownRuns, *, reach: Reach) -> AsyncIterator[Collector]:
    """Yield a collector with its own connections."""
    async with open_transport(target.url, timeout_s=TIMEOUT_S, reach=reach) as transport:
        yield ToyCollector(transport, target.id, known)


async def probe(url: str, timeout_s: float, *, reach: Reach) -> Probed:
    """Request the page once, and return the version and the names of the jobs."""
    async with open_transport(url, timeout_s=timeout_s, reach=reach) as transport:
        body = await _page(transport)
    return Probed(ENGINE, str(body.get("version")), tuple(sorted(str(j["name"]) for j in body.get("jobs", []))))


TOY = CollectorKind(kind="toy", engines=(ENGINE,), open=open_target, probe=probe)
