"""Reports the service's own health and the age of its data, even while the store is unreachable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from sqlalchemy.ext.asyncio import AsyncEngine

from backend.contracts.status import HistoryOut, PartialSourceOut, PipelineOut, RewritingOut, StatusOut, UnreadSourceOut
from backend.domain.clock import Clock
from backend.domain.errors import StoreBusyError, StoreUnavailableError
from backend.domain.target import TargetState
from backend.services.history_forecast import HistoryForecast
from backend.services.jobs.silent_jobs import hear
from backend.services.pipeline.presenting import pipeline_out, spark_demo_out
from backend.store.alerts.episodes import open_counts
from backend.store.alerts.lease import evaluator_record
from backend.store.downsampling import rewrite_in_progress
from backend.store.pipeline.log import read_pipeline, read_spark_demo
from backend.store.postgres.connections import reading
from backend.store.schema.partitions import Retention
from backend.store.targets.declared import FORGOTTEN_AFTER, TargetSource, list_sources
from backend.store.targets.leases import is_any_collector_alive
from backend.store.targets.targets import TargetRecord, TargetRepository

_UNWELL = (TargetState.UNREACHABLE, TargetState.MALFORMED, TargetState.PARTIAL, TargetState.SILENT)


class StatusService:
    """Builds the status of the service itself: the store, the targets, the roles, the alerts and the pipeline."""

    def __init__(self, engine: AsyncEngine, clock: Clock, version: str, retention: Retention | None = None) -> None:
        self._engine = engine
        self._clock = clock
        self._version = version
        self._history = HistoryForecast(engine, clock, retention or Retention())

    async def status(self) -> StatusOut:
        """Return the status. If the store is unreachable, the status reports this, and its counts are null."""
        try:
            targets = await TargetRepository(self._engine).list_all()
            roles = await self._roles()
            async with reading(self._engine) as connection:
                targets = await hear(connection, targets, self._clock.now())
                firing = (await open_counts(connection, self._clock.now())).get(None)
                pipeline = pipeline_out(await read_pipeline(connection))
                demo = spark_demo_out(await read_spark_demo(connection))
                draft = await rewrite_in_progress(connection)
                sources = await list_sources(connection)
            rewriting = None if draft is None else RewritingOut(day=draft.day, table=draft.table, percent=draft.percent)
            history = HistoryOut.of(await self._history.read(), rewriting=rewriting)
        except StoreBusyError:
            return self._out(None, {"api": "ok"}, None, store="busy")
        except StoreUnavailableError:
            return self._out(None, {"api": "ok"}, None, store="unreachable")
        counted = {
            "alerts_firing_count": firing.count if firing is not None else 0,
            "spark_demo": demo,
            "history": history,
            "unread_sources": self._unread(sources),
            "partial_sources": self._partial(sources),
        }
        return self._out(targets, roles, pipeline).model_copy(
            update=counted | {"alerts_severity": firing.severity if firing is not None else None}
        )

    def _out(
        self,
        targets: list[TargetRecord] | None,
        roles: Mapping[str, str],
        pipeline: PipelineOut | None,
        *,
        store: Literal["ok", "unreachable", "busy"] = "ok",
    ) -> StatusOut:
        successes = [t.last_success_at for t in targets or [] if t.last_success_at is not None]
        return StatusOut(
            version=self._version,
            as_of=self._clock.now(),
            store=store,
            targets_total=len(targets) if targets is not None else None,
            targets_unhealthy=sum(t.state in _UNWELL for t in targets) if targets is not None else None,
            newest_observation_at=max(successes, default=None),
            roles=dict(roles),
            pipeline=pipeline,
        )

    def _unread(self, sources: list[TargetSource]) -> list[UnreadSourceOut]:
        """Return the sources with a problem. One that no collector looks at any more declares nothing."""
        since = self._clock.now() - FORGOTTEN_AFTER
        return [
            UnreadSourceOut(
                source=s.source,
                place=s.place,
                problem=s.problem,
                since=s.problem_since or s.seen_at,
                read_at=s.read_at,
                target_count=s.target_count,
            )
            for s in sources
            if s.problem is not None and s.seen_at >= since
        ]

    def _partial(self, sources: list[TargetSource]) -> list[PartialSourceOut]:
        """Return the sources that left something out. Those that no collector looks at any more are not there."""
        since = self._clock.now() - FORGOTTEN_AFTER
        return [
            PartialSourceOut(source=s.source, place=s.place, left_out=s.left_out, history_problem=s.history_problem)
            for s in sources
            if (s.left_out or s.history_problem) is not None and s.seen_at >= since
        ]

    async def _roles(self) -> Mapping[str, str]:
        is_collecting = await is_any_collector_alive(self._engine)
        evaluator = await evaluator_record(self._engine)
        is_evaluating = evaluator is not None and evaluator.is_held
        return {
            "api": "ok",
            "collect": "ok" if is_collecting else "silent",
            "alert": "ok" if is_evaluating else "silent",
        }
