"""Read recordings of a real Flink poll by poll into a real PostgreSQL, to test what is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.domain.ids import TargetId
from backend.domain.observation import Observation
from backend.domain.target import TargetOrigin
from backend.store.checkpoints.reader import CheckpointFilter, CheckpointRecord, list_checkpoints
from backend.store.ingest import IngestWriter
from backend.store.jobs.reader import JobRecord, list_current
from backend.store.postgres.connections import create_store_engine
from backend.store.targets.targets import NewTarget, TargetRepository
from collectors.flink.collector import FlinkCollector
from tests.support.databases import Databases
from tests.support.observations import SteppingClock
from tests.support.recorded_flink import RECORDINGS, RecordedFlink, Recording

STEP_S = 2.0


@dataclass
class Stored:
    """One recording and the database into which its polls are written."""

    engine: AsyncEngine
    recording: Recording
    target_id: TargetId
    observations: list[Observation]
    writer: IngestWriter
    clock: SteppingClock

    async def job(self) -> JobRecord:
        async with self.engine.connect() as connection:
            (job,) = await list_current(connection)
        assert job.run.engine_run_id == self.recording.job_id
        return job

    async def checkpoints(self) -> list[CheckpointRecord]:
        async with self.engine.connect() as connection:
            job = await self.job()
            return await list_checkpoints(connection, job.id, CheckpointFilter(), before=None, limit=1000)

    async def rows(self, query: str) -> Sequence[tuple[Any, ...]]:
        async with self.engine.connect() as connection:
            return [tuple(row) for row in await connection.execute(text(query))]

    async def contents(self) -> dict[str, list[tuple[Any, ...]]]:
        """Return everything that the polls stored, in a fixed order.

        ``observed_at`` of a checkpoint is left out, because it is only the time of the last reading.
        """
        queries = {
            "checkpoints": "SELECT to_jsonb(c) - 'observed_at' FROM checkpoints c ORDER BY run_id, checkpoint_id",
            "details": "SELECT to_jsonb(d) FROM checkpoint_details d ORDER BY run_id, checkpoint_id, vertex_id",
            "pressure": "SELECT to_jsonb(p) FROM pressure p ORDER BY run_id, observed_at, vertex_id",
            "late": "SELECT to_jsonb(l) FROM late_barriers l ORDER BY run_id, checkpoint_id, vertex_id, subtask",
            "points": "SELECT to_jsonb(p) FROM progress_points p ORDER BY run_id, checkpoint_id, observed_at",
            "events": "SELECT to_jsonb(e) FROM job_events e ORDER BY run_id, kind, key",
            "runs": "SELECT failed_listed_count, failed_unlisted_past, checkpoint_count, counts FROM runs ORDER BY id",
        }
        return {name: list(await self.rows(query)) for name, query in queries.items()}


@asynccontextmanager
async def opened(database: str, name: str) -> AsyncIterator[Stored]:
    engine = create_store_engine(database)
    flink = RecordedFlink(RECORDINGS / name)
    clock = SteppingClock(flink.now)
    new = NewTarget(url=f"http://{name.lower()}:8081", name=name, origin=TargetOrigin.API)
    target = await TargetRepository(engine).add(new, at=flink.now)
    try:
        yield Stored(engine, flink.recording, target.id, [], IngestWriter(engine, clock=clock), clock)
    finally:
        await engine.dispose()


async def read(
    stored: Stored, *, step_s: float = STEP_S, from_s: float | None = None, until_s: float | None = None
) -> None:
    """Poll the recording up to its end, or up to ``until_s``, and write each observation."""
    flink = RecordedFlink(stored.recording.folder)
    collector = FlinkCollector(flink, target_id=stored.target_id, monotonic_s=flink.monotonic_s)
    flink.at_s = flink.recording.begins_s if from_s is None else from_s
    end_s = flink.recording.end_s + step_s if until_s is None else until_s
    while flink.at_s <= end_s:
        observation = await collector.collect(flink.now)
        await stored.writer.write(observation)
        stored.observations.append(observation)
        flink.at_s += step_s


class Readings:
    """Databases with completely read recordings.

    Each recording is read only once. Each caller gets a copy of the resulting database.
    """

    def __init__(self, databases: Databases, kept: ExitStack) -> None:
        self._databases = databases
        self._kept = kept
        self._read: dict[str, tuple[str, Stored]] = {}

    @asynccontextmanager
    async def copied(self, name: str) -> AsyncIterator[Stored]:
        if name not in self._read:
            url = self._kept.enter_context(self._databases.migrated())
            async with opened(url, name) as stored:
                await read(stored)
            self._read[name] = url, stored
        url, first = self._read[name]
        with self._databases.copy_of(url) as database:
            engine = create_store_engine(database)
            clock = SteppingClock(first.clock.at)
            try:
                yield replace(
                    first,
                    engine=engine,
                    observations=list(first.observations),
                    writer=IngestWriter(engine, clock=clock),
                    clock=clock,
                )
            finally:
                await engine.dispose()
