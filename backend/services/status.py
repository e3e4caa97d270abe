"""The service's own health and the age of its data. Also answers while the store is unreachable."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.contracts import api
from backend.domain.clock import Clock
from backend.domain.errors import StoreUnavailableError
from backend.domain.target import TargetState
from backend.services.jobs.silent_jobs import hear
from backend.services.pipeline.presenting import pipeline_out, spark_demo_out
from backend.store.alerts.episodes import open_counts
from backend.store.alerts.lease import evaluator_record
from backend.store.pipeline.log import read_pipeline, read_spark_demo
from backend.store.postgres.connections import reading
from backend.store.targets.targets import TargetRecord, TargetRepository

_UNWELL = (TargetState.UNREACHABLE, TargetState.MALFORMED, TargetState.SILENT)


class StatusService:
    """Answers for the service itself."""

    def __init__(self, engine: AsyncEngine, clock: Clock, version: str) -> None:
        self._engine = engine
        self._clock = clock
        self._version = version

    async def status(self) -> api.StatusOut:
        """Return the status. If the store is unreachable, say so with null counts instead of raising."""
        try:
            targets = await TargetRepository(self._engine).list_all()
            roles = await self._roles()
            async with reading(self._engine) as connection:
                targets = await hear(connection, targets, self._clock.now())
                firing = (await open_counts(connection)).get(None)
                pipeline = pipeline_out(await read_pipeline(connection))
                demo = spark_demo_out(await read_spark_demo(connection))
        except StoreUnavailableError:
            return self._out(None, {"api": "ok"}, None)
        counted = {"alerts_firing_count": firing.count if firing is not None else 0, "spark_demo": demo}
        return self._out(targets, roles, pipeline).model_copy(
            update=counted | {"alerts_severity": firing.severity if firing is not None else None}
        )

    def _out(
        self, targets: list[TargetRecord] | None, roles: Mapping[str, str], pipeline: api.PipelineOut | None
    ) -> api.StatusOut:
        successes = [t.last_success_at for t in targets or [] if t.last_success_at is not None]
        return api.StatusOut(
            version=self._version,
            as_of=self._clock.now(),
            store="ok" if targets is not None else "unreachable",
            targets_total=len(targets) if targets is not None else None,
            targets_unhealthy=sum(t.state in _UNWELL for t in targets) if targets is not None else None,
            newest_observation_at=max(successes, default=None),
            roles=dict(roles),
            pipeline=pipeline,
        )

    async def _roles(self) -> Mapping[str, str]:
        # A collector holds a lease on each target that it reads, and renews it while it runs.
        query = text("SELECT bool_or(expires_at > now()) FROM target_leases")
        async with reading(self._engine) as connection:
            is_collecting = (await connection.execute(query)).scalar_one()
        evaluator = await evaluator_record(self._engine)
        is_evaluating = evaluator is not None and evaluator.is_held
        return {
            "api": "ok",
            "collect": "ok" if is_collecting else "silent",
            "alert": "ok" if is_evaluating else "silent",
        }
