"""Converts the events that Spark listeners push to observations, and stores these through ``IngestWriter``.

The first push of a deployment creates its target. No connection test is needed, because there is no address to test. No
further permission is needed, because pushing requires the same permission as adding a target. A push to a paused target
is refused. A target that was removed is created again by the next push.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from sqlalchemy.ext.asyncio import AsyncEngine

from backend.contracts import spark as wire
from backend.contracts.spark_events import RunEvents, job_observation, runs_of
from backend.domain.clock import Clock
from backend.domain.engines import SPARK
from backend.domain.errors import ConflictError
from backend.domain.micro_batch import KnownBatch
from backend.domain.observation import Observation, PollCost
from backend.domain.target import TargetOrigin
from backend.store.checkpoints.micro_batches import newest_batch
from backend.store.ingest import IngestWriter
from backend.store.postgres.connections import reading
from backend.store.targets.targets import NewTarget, TargetRecord, TargetRepository

DEPLOYMENTS_MAX: Final = 1_000
"""Targets that pushes have created. A listener whose deployment changes with each start would add one each time."""


class SparkIngestService:
    """Stores the events that Spark listeners push."""

    def __init__(self, engine: AsyncEngine, clock: Clock, writer: IngestWriter) -> None:
        self._engine = engine
        self._targets = TargetRepository(engine)
        self._clock = clock
        self._writer = writer

    async def push(self, push: wire.SparkPushIn) -> wire.SparkPushOut:
        """Store and commit the events. Pushing the same events again changes nothing.

        Raises:
            ConflictError: the target is paused, or too many deployments push; nothing is stored.
            StoreUnavailableError: PostgreSQL is unreachable; push again later.
        """
        target = await self._target(push.deployment)
        new_count = 0
        rejected: list[str] = []
        for run in runs_of(push.events):
            written = await self._writer.write(await self._observation(target, run, push))
            new_count += written.new_count
            rejected += written.rejected
        return wire.SparkPushOut(target_id=target.id, new_count=new_count, rejected=rejected)

    async def _target(self, deployment: str) -> TargetRecord:
        new = NewTarget(
            url=wire.PUSH_URL_ROOT + quote(deployment, safe=""),
            name=deployment,
            origin=TargetOrigin.PUSH,
            kind=SPARK.kind,
            labels={"deployment": deployment},
        )
        target = await self._targets.get_or_add(new, at=self._clock.now(), most=DEPLOYMENTS_MAX)
        if not target.is_enabled:
            raise ConflictError(f"{target.name} is paused: what its jobs push is not stored", kind="target-paused")
        return target

    async def _observation(self, target: TargetRecord, run: RunEvents, push: wire.SparkPushIn) -> Observation:
        now = self._clock.now()
        before = await self._batch_before(target, run) if run.needs_batch_before else None
        return Observation(
            target_id=target.id,
            observed_at=run.observed_at,
            engine=SPARK,
            engine_version=push.spark_version,
            jobs=(job_observation(run, push, before),),
            cost=PollCost(request_count=0, response_bytes=0, duration_ms=0),
            clock_offset_ms=round((push.sent_at - now).total_seconds() * 1000),
            received_at=now,
        )

    async def _batch_before(self, target: TargetRecord, run: RunEvents) -> KnownBatch | None:
        async with reading(self._engine) as connection:
            return await newest_batch(connection, target.id, query_id=run.query_id, engine_run_id=run.engine_run_id)
