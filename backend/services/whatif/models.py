"""Builds the model of a job from the store, and keeps the newest models of this process.

Building a model takes up to a few seconds of CPU, and a person who moves a slider asks many times a minute. So a model
is kept for ``_KEPT_S``, or until the job has another run or other settings, or another tier can answer.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from uuid import uuid4

import anyio
import anyio.to_thread
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.advisor.twin.changes import WhatIf
from backend.advisor.twin.model import JobModel
from backend.advisor.twin.outcomes import Tier
from backend.analysis.evidence import MODEL_WINDOW, JobEvidence
from backend.contracts.whatif import PredictionOut
from backend.domain.clock import Clock
from backend.domain.errors import NotModelledError
from backend.domain.ids import JobId
from backend.domain.observation import JobState
from backend.services.jobs.evidence import EvidenceReader
from backend.services.whatif.kept_parts import dropped_count, shown_part, subtask_count
from backend.services.whatif.tiers import QuickTiers, TieredModel
from backend.store.jobs.reader import JobRecord, config_since, get_job
from backend.store.postgres.connections import reading

_CHECKPOINTS_COUNT = 40
_KEPT_S = 60.0
_KEPT_COUNT = 16
_SHOWN_S = 600.0
"""A model whose answer was shown can be named for this time, so that what is kept is what was shown."""
_SHOWN_COUNT = 32


@dataclass(frozen=True, slots=True)
class ModelledJob:
    """A job with its model, and the part of the evidence that answers show (``kept_parts.shown_part``).

    ``predictions`` keeps what was predicted with this model, so that it is computed once.
    """

    record: JobRecord
    evidence: JobEvidence
    tiered: TieredModel
    id: str = field(default_factory=lambda: uuid4().hex)
    predictions: dict[tuple[Tier, WhatIf], PredictionOut] = field(default_factory=dict)

    @property
    def model(self) -> JobModel:
        """The model, with the calibration of the tier that usually answers."""
        return self.tiered.best


class JobModels:
    """Builds and keeps the models of jobs. Each process has one instance."""

    def __init__(self, engine: AsyncEngine, clock: Clock, evidence: EvidenceReader, tiers: QuickTiers) -> None:
        self._engine = engine
        self._clock = clock
        self._evidence = evidence
        self._tiers = tiers
        self._kept: OrderedDict[JobId, tuple[object, float, ModelledJob]] = OrderedDict()
        self._shown: OrderedDict[str, tuple[object, float, ModelledJob]] = OrderedDict()
        # Models are built one at a time, so that requests for them leave processor time to the rest of the API.
        self._turn = anyio.Lock()

    @property
    def is_better_tier_coming(self) -> bool:
        """Whether the fast tier is being compiled, so that a later answer may be more exact."""
        return self._tiers.is_coming

    async def of_job(self, job_id: str, model_id: str | None = None) -> ModelledJob:
        """Return a job with its model: that with the id ``model_id`` if this process still has it, or else the newest.

        Raises:
            UnknownEntityError: there is no such job.
            NotModelledError: the job cannot be modelled; the message has what is missing, and what would help.
        """
        async with self._turn:
            async with reading(self._engine) as connection:
                record = await get_job(connection, job_id)
                _refuse(record)
                changed_at = (await config_since(connection, [record.run.id])).get(record.run.id)
                version = record.run.id, record.run.restart_count, record.run.state, changed_at, self._tiers.tier
                for known in (self._shown.get(model_id or ""), self._kept.get(record.id)):
                    if known is not None and self._clock.monotonic_s() < known[1] and known[0] == version:
                        return known[2]
                evidence = await self._evidence.under_current_settings(
                    connection, record, limit=_CHECKPOINTS_COUNT, window=MODEL_WINDOW
                )
            engine = record.run.engine
            tiered = await anyio.to_thread.run_sync(self._tiers.build, evidence, engine, record.engine_version)
            job = ModelledJob(record, shown_part(evidence), tiered)
            self._kept[record.id] = version, self._clock.monotonic_s() + _KEPT_S, job
            self._kept.move_to_end(record.id)
            if len(self._kept) > _KEPT_COUNT:
                self._kept.popitem(last=False)
            self._shown[job.id] = version, self._clock.monotonic_s() + _SHOWN_S, job
            if len(self._shown) > _SHOWN_COUNT:
                self._shown.popitem(last=False)
            self._drop_large()
            return job

    def _drop_large(self) -> None:
        """Drop the models that answered longest ago, until the others are small enough together."""
        sizes = [subtask_count(job.evidence) for *_, job in self._shown.values()]
        for _ in range(dropped_count(sizes)):
            *_, job = self._shown.popitem(last=False)[1]
            kept = self._kept.get(job.record.id)
            if kept is not None and kept[2] is job:
                del self._kept[job.record.id]


def _refuse(record: JobRecord) -> None:
    run = record.run
    if run.engine.is_micro_batched or not run.engine.has_barriers:
        raise NotModelledError(
            f"{run.engine.name} has no barriers, so no setting here applies to it",
            fix="its micro-batches are judged on the job's page",
        )
    if run.state is JobState.ENDED:
        raise NotModelledError("it has ended", fix="start it, and ask when five checkpoints have ended")
