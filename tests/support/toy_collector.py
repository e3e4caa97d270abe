"""A collector for an engine that no product file knows. It reads one JSON page and changes nothing.

The page is ``{"version", "jobs": [{"id", "name", "started_ms", "checkpoints": [{"id", "at_ms", "took_ms"}]}]}``.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import httpx

from backend.domain.checkpoint import Checkpoint, CheckpointHeader, CheckpointKind, CheckpointStatus
from backend.domain.engines import EngineCapabilities
from backend.domain.errors import TargetProtocolError, TargetUnavailableError
from backend.domain.ids import EngineRunId, TargetId
from backend.domain.observation import JobObservation, JobState, Observation, PollCost
from collectors.base import Collector, CollectorKind, KnownRuns, Probed, TargetRow

TIMEOUT_S = 5.0
ENGINE = EngineCapabilities(kind="toy", name="Toy", source="the page of a toy")


class ToyCollector:
    """A ``Collector`` for one toy."""

    poll_within_s: float | None = None

    def __init__(self, client: httpx.AsyncClient, target_id: TargetId, known: KnownRuns) -> None:
        self._client = client
        self._target_id = target_id
        self._runs = dict(known)
        self._seen: set[tuple[EngineRunId, int]] = set()

    async def collect(self, now: datetime) -> Observation:
        """One poll; see ``Collector``."""
        began_s = time.monotonic()
        body = await _page(self._client)
        try:
            version, jobs = str(body["version"]), tuple(_job(row) for row in body["jobs"])
        except (KeyError, TypeError, ValueError) as error:
            raise TargetProtocolError(url=str(self._client.base_url), reason=f"no toy: {error!r}") from None
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
        """Read everything again at the next poll."""
        self._seen = set()


async def _page(client: httpx.AsyncClient) -> dict[str, Any]:
    url = str(client.base_url)
    try:
        answer = await client.get("/toy.json")
    except httpx.TransportError as error:
        raise TargetUnavailableError(url=url, reason=type(error).__name__) from None
    try:
        body = answer.json() if answer.status_code == 200 else None
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise TargetProtocolError(url=url, reason="no JSON page", status=answer.status_code)
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


def _client(url: str, timeout_s: float) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, timeout=timeout_s, trust_env=False)


@asynccontextmanager
async def open_target(target: TargetRow, known: KnownRuns) -> AsyncIterator[Collector]:
    """A collector with its own connection."""
    async with _client(target.url, TIMEOUT_S) as client:
        yield ToyCollector(client, target.id, known)


async def probe(url: str, timeout_s: float) -> Probed:
    """Query the toy once."""
    async with _client(url, timeout_s) as client:
        body = await _page(client)
    return Probed(ENGINE, str(body.get("version")), tuple(sorted(str(j["name"]) for j in body.get("jobs", []))))


TOY = CollectorKind(kind="toy", engines=(ENGINE,), open=open_target, probe=probe)
