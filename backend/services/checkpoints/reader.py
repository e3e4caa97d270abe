"""One checkpoint (its subtasks' phases, critical path, verdict and barriers), and lists of checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast

import anyio.to_thread
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.analysis.critical_path import CriticalPath, critical_path, with_persistence
from backend.analysis.evidence import JobEvidence
from backend.analysis.health import slow_limit_ms
from backend.analysis.phases import checkpoint_phases
from backend.analysis.verdict import checkpoint_verdict
from backend.contracts import api
from backend.contracts.barriers import BarrierEventOut, BarriersOut
from backend.domain.checkpoint import Checkpoint, CheckpointStatus, LateBarrier
from backend.domain.clock import Clock
from backend.domain.errors import UnknownEntityError
from backend.domain.verdict import Basis, Verdict
from backend.services.checkpoints.reconstruction import reconstructed_events
from backend.services.checkpoints.restoring import restoring_out
from backend.services.jobs.evidence import EvidenceReader, is_lost
from backend.services.micro_batches import batch_out
from backend.services.paging import decode_cursor, page_of
from backend.services.presenting import checkpoint_link, checkpoint_out, phases_out
from backend.store.checkpoints.reader import (
    CheckpointFilter,
    CheckpointRecord,
    LiveRecord,
    barriers_of,
    get_checkpoint,
    has_barriers,
    last_completed_before,
    list_around,
    list_checkpoints,
    live_of,
)
from backend.store.jobs.reader import JobRecord, RunRecord, get_job, get_run
from backend.store.postgres.connections import reading

_NOT_MEASURED = (
    "reconstructed from what this engine's REST reports of each subtask (first barrier, snapshot, acknowledgement);"
    " it does not report channels"
)


@dataclass(frozen=True, slots=True)
class CheckpointKey:
    """The key of a checkpoint in the API."""

    job_id: str
    run_id: str
    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class Opened:
    """A checkpoint with its job, its run, its last live reading and the evidence for its verdict."""

    job: JobRecord
    run: RunRecord
    record: CheckpointRecord
    checkpoint: Checkpoint
    live: LiveRecord | None
    evidence: JobEvidence

    @property
    def late(self) -> tuple[LateBarrier, ...]:
        """Known first barriers of subtasks that had not acknowledged."""
        return self.evidence.late(self.record.header.checkpoint_id)


class CheckpointService:
    """Answers requests about checkpoints."""

    def __init__(self, engine: AsyncEngine, clock: Clock, evidence: EvidenceReader) -> None:
        self._engine = engine
        self._clock = clock
        self._evidence = evidence

    async def page(
        self, job_id: str, wanted: CheckpointFilter, *, cursor: str | None, limit: int
    ) -> api.Page[api.CheckpointOut]:
        """Return one page of a job's checkpoints over all its runs, newest first.

        Raises:
            UnknownEntityError: there is no such job.
            InvalidInputError: the cursor does not belong to this list.

        """
        before = cast("tuple[datetime, int, str] | None", decode_cursor(cursor, (datetime, int, str)))
        async with reading(self._engine) as connection:
            await get_job(connection, job_id)
            records = await list_checkpoints(connection, job_id, wanted, before=before, limit=limit + 1)
            items, following = page_of(records, limit, lambda r: r.cursor)
            found = await _shown(connection, items)
        return api.Page[api.CheckpointOut](items=found, next=following, as_of=self._clock.now())

    async def latest(self, job_id: str, status: CheckpointStatus | None) -> api.CheckpointOut:
        """Return a job's newest checkpoint, or its newest with ``status``.

        Raises:
            UnknownEntityError: there is no such job, or it has no such checkpoint.

        """
        async with reading(self._engine) as connection:
            await get_job(connection, job_id)
            records = await list_checkpoints(connection, job_id, CheckpointFilter(status), before=None, limit=1)
            if not records:
                raise UnknownEntityError(kind="checkpoint", id=f"latest {status.value}" if status else "latest")
            return (await _shown(connection, records))[0]

    async def detail(self, key: CheckpointKey) -> api.CheckpointDetailOut:
        """Return one checkpoint down to its subtasks.

        Raises:
            UnknownEntityError: there is no such job, run or checkpoint.

        """
        async with reading(self._engine) as connection:
            opened = await self.open(connection, key)
            has_events = await has_barriers(connection, opened.record.place)
            around = await list_around(connection, opened.record, before=1, after=1)
            limit = slow_limit_ms(opened.evidence.config)
            healthy = await last_completed_before(
                connection, opened.record, faster_than_ms=int(limit) if limit is not None else None
            )
        path, verdict = await anyio.to_thread.run_sync(_judge, opened)
        config = opened.evidence.config
        ids = [r.header.checkpoint_id for r in around]
        at = next(i for i, r in enumerate(around) if r.place == opened.record.place)
        phases = checkpoint_phases(opened.checkpoint, config, opened.late)
        return api.CheckpointDetailOut(
            **dict(checkpoint_out(opened.record, is_lost=is_lost(opened.record, opened.run))),
            job=opened.job.name,
            timeout_ms=config.timeout_ms if config is not None else None,
            aligned_timeout_ms=config.aligned_timeout_ms if config is not None else None,
            vertices=phases_out(opened.evidence.topology, opened.run.placements, phases),
            critical_path=None if path is None else api.CriticalPathOut.model_validate(path),
            verdict=api.VerdictOut.model_validate(verdict),
            has_barriers=has_events,
            engine=opened.run.engine.kind,
            capabilities=opened.run.engine,
            batch=None if opened.checkpoint.batch is None else batch_out(opened.record, opened.checkpoint.batch),
            restoring=restoring_out(opened.checkpoint, opened.run.engine, opened.evidence.topology),
            last_healthy_link=_link(healthy),
            previous_id=ids[at - 1] if at > 0 else None,
            next_id=ids[at + 1] if at + 1 < len(ids) else None,
            observed_at=opened.record.observed_at,
        )

    async def verdict(self, key: CheckpointKey) -> api.VerdictOut:
        """Return the verdict on one checkpoint: what delayed it.

        Raises:
            UnknownEntityError: there is no such job, run or checkpoint.

        """
        async with reading(self._engine) as connection:
            opened = await self.open(connection, key)
        _, verdict = await anyio.to_thread.run_sync(_judge, opened)
        return api.VerdictOut.model_validate(verdict)

    async def barriers(self, key: CheckpointKey) -> BarriersOut:
        """Return a checkpoint's barrier events: measured if the engine reports them, else reconstructed from its REST.

        Raises:
            UnknownEntityError: there is no such job, run or checkpoint.

        """
        async with reading(self._engine) as connection:
            opened = await self.open(connection, key)
            events = await barriers_of(connection, opened.record.place)
        if events is None:
            found = reconstructed_events(opened.checkpoint, opened.evidence, opened.late)
            return BarriersOut(basis=Basis.RECONSTRUCTED, events=found, note=_NOT_MEASURED)
        return BarriersOut(
            basis=Basis.MEASURED,
            events=[BarrierEventOut.of(e, at_ms=e.at_us / 1000) for e in events],
        )

    async def open(self, connection: AsyncConnection, key: CheckpointKey) -> Opened:
        """Read a checkpoint, its live reading and its evidence."""
        job = await get_job(connection, key.job_id)
        run = await get_run(connection, key.job_id, key.run_id)
        record = await get_checkpoint(connection, key.run_id, key.checkpoint_id)
        evidence = await self._evidence.of_checkpoint(connection, job, run, record)
        live = await live_of(connection, run.id, key.checkpoint_id)
        own = next((c for c in evidence.checkpoints if c.header == record.header), Checkpoint(record.header))
        if not record.header.status.is_terminal and not own.details and live is not None:
            own = Checkpoint(record.header, live.details)
        return Opened(job, run, record, own, live, evidence)


async def _shown(connection: AsyncConnection, records: Sequence[CheckpointRecord]) -> list[api.CheckpointOut]:
    # Only open checkpoints, which are few, need their run: it shows whether they are lost.
    opened = {r.run_id: r.job_id for r in records if not r.header.status.is_terminal}
    runs = {run_id: await get_run(connection, job_id, run_id) for run_id, job_id in opened.items()}
    return [checkpoint_out(r, is_lost=r.run_id in runs and is_lost(r, runs[r.run_id])) for r in records]


def _judge(opened: Opened) -> tuple[CriticalPath | None, Verdict]:
    evidence = opened.evidence
    verdict = checkpoint_verdict(opened.checkpoint, evidence)
    path = critical_path(opened.checkpoint, evidence.topology, evidence.config, opened.late)
    if path is not None:
        ended = [c for c in evidence.checkpoints if c.header.status.is_terminal]
        path = with_persistence(path, ended, evidence.topology, evidence.config, evidence.late_barriers)
    return path, verdict


def _link(record: CheckpointRecord | None) -> str | None:
    if record is None:
        return None
    return checkpoint_link(record.job_id, record.run_id, record.header.checkpoint_id)
