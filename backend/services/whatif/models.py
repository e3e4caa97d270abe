"""Builds the model of a job from the store, and keeps the newest models of this process.

Building a model takes up to a few seconds of CPU, and a person who moves a slider asks many times a minute. So a model
is kept for ``_KEPT_S``, or until the job has another run or other settings, or another tier can answer. A model that
predicted what somebody saw is kept longer, so that this prediction can be kept with the change. A better tier does not
end it.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

import anyio
import anyio.to_thread
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.advisor.twin.asking.changes import WhatIf
from backend.advisor.twin.model.model import JobModel
from backend.advisor.twin.model.outcomes import Tier
from backend.advisor.twin.tiers.tiers import QuickTiers, TieredModel
from backend.analysis.measures.evidence import JobEvidence
from backend.contracts.whatif import PREDICTION_GONE, PredictionOut
from backend.domain.clock import Clock
from backend.domain.errors import ConflictError, NotModelledError
from backend.domain.ids import JobId
from backend.domain.observation import JobState
from backend.services.jobs.evidence import EvidenceReader
from backend.services.jobs.replay_debt import DebtFields, debt_fields
from backend.services.whatif.kept_parts import dropped_count, shown_part, subtask_count
from backend.store.jobs.reader import JobRecord, config_since, get_job
from backend.store.postgres.connections import reading

_KEPT_S = 60.0
_KEPT_COUNT = 16
_SHOWN_S = 600.0
"""A model whose answer was shown can be named for this time, so that what is kept is what was shown."""
_SHOWN_COUNT = 32
_GONE: Final = (
    f"the prediction of this answer is no longer kept: it is older than {_SHOWN_S / 60:g} min, the job was restarted or"
    " changed after it, or another replica of the API gave it; ask again"
)


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
        """Return a job with its newest model, or with the model of a shown answer, whose id is ``model_id``.

        Raises:
            UnknownEntityError: there is no such job.
            ConflictError: this process no longer has that model, or the job was restarted or changed after it.
            NotModelledError: the job cannot be modelled; the message has what is missing, and what would help.
        """
        async with self._turn:
            async with reading(self._engine) as connection:
                record = await get_job(connection, job_id)
                _refuse(record)
                changed_at = (await config_since(connection, [record.run.id])).get(record.run.id)
                version = record.run.id, record.run.restart_count, record.run.state, changed_at
                if model_id is not None:
                    return self._shown_one(model_id, version)
                known = self._kept.get(record.id)
                if (
                    known is not None
                    and self._clock.monotonic_s() < known[1]
                    and known[0] == (version, self._tiers.tier)
                ):
                    return self._noted(version, known[2])
                tier = self._tiers.tier
                evidence = await self._evidence.under_current_settings(connection, record)
            engine = record.run.engine
            tiered = await anyio.to_thread.run_sync(self._tiers.build, evidence, engine, record.engine_version)
            job = ModelledJob(record, shown_part(evidence), tiered)
            self._kept[record.id] = (version, tier), self._clock.monotonic_s() + _KEPT_S, job
            self._kept.move_to_end(record.id)
            if len(self._kept) > _KEPT_COUNT:
                self._kept.popitem(last=False)
            return self._noted(version, job)

    async def debt(self, job_id: JobId) -> DebtFields:
        """Return the replay debt of the job as it is now, which a model that is kept does not know."""
        async with reading(self._engine) as connection:
            record = await get_job(connection, job_id)
            (head,) = await self._evidence.heads(connection, [record])
        return debt_fields(head, None, self._clock.now())

    def _noted(self, version: object, job: ModelledJob) -> ModelledJob:
        """Note that the model answers now, so that its prediction can be kept for ``_SHOWN_S``."""
        self._shown[job.id] = version, self._clock.monotonic_s() + _SHOWN_S, job
        self._shown.move_to_end(job.id)
        if len(self._shown) > _SHOWN_COUNT:
            self._shown.popitem(last=False)
        self._drop_large()
        return job

    def _shown_one(self, model_id: str, version: object) -> ModelledJob:
        known = self._shown.get(model_id)
        if known is None or self._clock.monotonic_s() >= known[1] or known[0] != version:
            raise ConflictError(_GONE, kind=PREDICTION_GONE)
        return known[2]

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
