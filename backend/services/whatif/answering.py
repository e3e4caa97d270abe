"""Answers what-ifs: predicts a job's checkpoints under other settings, confirms them on the runtime, and applies them.

A quick tier answers within a bounded time, in a bounded number of threads. The confirmation takes seconds to minutes,
so it goes into the queue of simulations, from which a process of the role ``lab`` takes it. The request in the queue
holds the job's model, so the result does not depend on what is collected meanwhile.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import anyio
import anyio.to_thread

from backend.advisor.exporting import exports_of
from backend.advisor.twin.asking.applying import Application, application
from backend.advisor.twin.asking.asking import Asked, Name, asked_of, names_of, settings_of, varied
from backend.advisor.twin.asking.changes import WhatIf
from backend.advisor.twin.model.model import JobModel
from backend.advisor.twin.model.outcomes import Outcome
from backend.advisor.twin.model.outcomes import Tier as QuickTier
from backend.advisor.twin.tiers import tiers
from backend.advisor.twin.tiers.tiers import TieredModel
from backend.contracts.advice import CardOut, ChangeOut, DryRunOut, ExportOut, HowToOut
from backend.contracts.simulations import SimulatedCheckpointOut, SimulationState
from backend.contracts.whatif import (
    AssumptionOut,
    ConfirmationOut,
    PredictionOut,
    Tier,
    WhatIfIn,
    WhatIfOut,
    WhatIfSettingOut,
)
from backend.domain.advice import Mode, Topic
from backend.domain.clock import Clock
from backend.domain.errors import ConflictError, DomainError, InvalidInputError, TooLargeError, UnknownEntityError
from backend.services.advice.cards import AdviceService
from backend.services.simulations.queueing import SimulationQueue
from backend.services.simulations.simulating import unpacked
from backend.services.whatif.advising import recommendation_of
from backend.services.whatif.confirming import document_of, id_of
from backend.services.whatif.models import JobModels, ModelledJob
from backend.services.whatif.presenting import (
    calibration_of,
    checked,
    measured_of,
    prediction_of,
    unpredicted,
    with_front,
    with_trend,
)
from backend.store.simulations.simulations import SimulationRecord

Predict = Callable[[TieredModel, WhatIf, QuickTier], Outcome]
"""Predicts one what-if with a quick tier. Raises ``DomainError`` if it cannot."""

_BUDGET_S: Final = 3.0
"""After this time, the what-ifs that are left get no prediction."""
_FIRST: Final = 2
"""The job as it is and what was asked, which are predicted in any case."""
_THREADS: Final = 2
"""So many what-ifs of a request are predicted at a time. Compiled code runs beside the interpreter."""
_OF_THE_MODE: Final[Mapping[str, tuple[str, ...]]] = {
    Mode.ALIGNED.value: (Name.ALIGNED_TIMEOUT.value, Name.CAP.value),
    Mode.UNALIGNED.value: (Name.ALIGNED_TIMEOUT.value,),
}
"""The settings that a mode does not have."""
_NOTHING_TO_KEEP: Final = "there is no prediction to keep: {}"


class WhatIfService:
    """Answers what-ifs. Each process has one instance."""

    def __init__(
        self,
        clock: Clock,
        models: JobModels,
        queue: SimulationQueue,
        advice: AdviceService,
        *,
        predict: Predict = tiers.predict,
    ) -> None:
        self._clock = clock
        self._models = models
        self._predict = predict
        self._queue = queue
        self._advice = advice
        # Predictions use whole cores, so they are computed one request at a time.
        self._turn = anyio.Lock()
        self._threads = anyio.CapacityLimiter(min(_THREADS, os.cpu_count() or 1))

    async def answer(self, job_id: str, wanted: WhatIfIn, *, caller: str) -> WhatIfOut:
        """Predict what ``wanted`` asks for, and queue its confirmation if it asks for one.

        Raises:
            UnknownEntityError: there is no such job.
            NotModelledError: the job cannot be modelled.
            InvalidInputError: a setting is unknown or does not apply to this job.
            TooLargeError: the confirmation would exceed a limit.
            RateLimitedError: the queue of confirmations is full.
        """
        job = await self._models.of_job(job_id)
        asked = asked_of(job.model, wanted.settings)
        others = [_added(job.model, asked, more, where=f"candidates.{i}") for i, more in _more(job, wanted)]
        measured, ids = measured_of(job)
        predictions = await self._predictions(job, [Asked(WhatIf(), {}), asked, *others])
        # The front rests only on what is shown.
        current, first, *rest = with_front(checked(with_trend(predictions, measured), measured, len(ids)))
        model = job.tiered.by_tier[QuickTier(first.tier.value)]
        plan = application(job.model, asked.what_if, job.record.run.engine)
        confirmation = None
        if wanted.confirm:
            if first.problem is not None:
                raise ConflictError(f"it cannot be confirmed: {first.problem}", kind="what-if-not-predicted")
            confirmation = await self._confirm(job, asked, caller)
        can_apply, why_not = _can_apply(job, asked, plan)
        return WhatIfOut(
            job=job.record.name,
            job_id=job.record.id,
            run_id=job.record.run.id,
            engine=job.record.run.engine.kind,
            model_id=job.id,
            measured=measured,
            checkpoint_ids=ids,
            current=current,
            asked=first,
            is_better_tier_coming=first.tier is Tier.FORMULAS and self._models.is_better_tier_coming,
            others=rest,
            calibration=calibration_of(model),
            assumptions=[AssumptionOut.model_validate(a) for a in model.assumptions],
            settings=[WhatIfSettingOut.of(s, unit=s.unit.value, values=list(s.values)) for s in settings_of(job.model)],
            changes=[ChangeOut.model_validate(c) for c in plan.changes],
            how_to=HowToOut.of(
                plan.how_to, patch=dict(plan.how_to.patch), rollback_patch=dict(plan.how_to.rollback_patch)
            ),
            exports=[ExportOut.model_validate(e) for e in exports_of(job.record.run.engine, plan.changes)],
            by_hand=list(plan.by_hand),
            can_apply=can_apply,
            why_not_apply=why_not,
            proposed=await self._proposed(job),
            confirmation=confirmation,
            as_of=self._clock.now(),
            **await self._models.debt(job.record.id),
        )

    async def confirmation(self, job_id: str, confirmation_id: str) -> ConfirmationOut:
        """Return the state of a confirmation and, if it is completed, its result.

        Raises:
            UnknownEntityError: there is no such confirmation of this job, or it has expired.
        """
        return self._out(*await self._known(job_id, confirmation_id))

    async def checkpoint(
        self, job_id: str, confirmation_id: str, run: int, checkpoint_id: int
    ) -> SimulatedCheckpointOut:
        """Return one simulated checkpoint of the job as it is (run 0) or of the changed job (run 1).

        Raises:
            UnknownEntityError: there is no such confirmation or checkpoint, or it has expired.
        """
        await self._known(job_id, confirmation_id)
        found = await self._queue.checkpoint(confirmation_id, run, checkpoint_id)
        return await anyio.to_thread.run_sync(unpacked, found)

    async def cancel(self, job_id: str, confirmation_id: str) -> None:
        """Cancel a confirmation. A running one stops within seconds; nothing happens to an ended one.

        Raises:
            UnknownEntityError: there is no such confirmation of this job, or it has expired.
        """
        await self._known(job_id, confirmation_id)
        await self._queue.cancel(confirmation_id)

    async def dry_run(self, job_id: str, settings: Mapping[str, str]) -> DryRunOut:
        """Return what ``apply`` would send where, and what would refuse it. Nothing changes.

        Raises:
            UnknownEntityError, NotModelledError, InvalidInputError: as ``answer``.
            UnknownEntityError: the target of the job was removed.
        """
        job = await self._models.of_job(job_id)
        asked = asked_of(job.model, settings)
        plan = application(job.model, asked.what_if, job.record.run.engine)
        can_apply, why_not = _can_apply(job, asked, plan)
        refusals = [] if can_apply else [why_not or "nothing would change", *(w.rstrip(".") for w in plan.by_hand)]
        if can_apply:
            _, first = await self._predictions(job, [Asked(WhatIf(), {}), asked])
            refusals = [] if first.problem is None else [_NOTHING_TO_KEEP.format(first.problem)]
        return await self._advice.dry_run_what_if(job.record, plan.how_to, plan.changes, refusals)

    async def apply(
        self,
        job_id: str,
        settings: Mapping[str, str],
        *,
        is_sent: bool,
        model_id: str | None = None,
        is_guarded: bool = False,
        author: str | None = None,
    ) -> CardOut:
        """Keep the prediction of a what-if as a card, whose effect is measured once the engine reports the settings.

        If ``is_sent``, change the settings of the running job; otherwise a person changes them. If ``is_guarded``, a
        sent change is rolled back by itself if the checkpoints are worse after it. With ``model_id``, the
        prediction of the answer with this id is kept, as it was shown.

        Raises:
            UnknownEntityError, NotModelledError, InvalidInputError: as ``answer``.
            ConflictError: nothing would change, a part is no setting, the change needs a restart, an earlier what-if of
                this job is still open, or the prediction that was shown is no longer kept.
            InvalidInputError: the target's address is no longer allowed, or the target refuses the values.
            TargetUnavailableError: the target does not respond.
            TargetProtocolError: the target's response is malformed.
        """
        job = await self._models.of_job(job_id, model_id)
        asked = asked_of(job.model, settings)
        plan = application(job.model, asked.what_if, job.record.run.engine)
        can_apply, why_not = _can_apply(job, asked, plan)
        if not plan.changes or plan.is_question or plan.by_hand:
            raise ConflictError(why_not or "nothing would change", kind="what-if-not-applicable")
        if is_sent and not can_apply:
            raise ConflictError(why_not or "the change needs a restart", kind="restart-needed")
        measured, ids = measured_of(job)
        predictions = await self._predictions(job, [Asked(WhatIf(), {}), asked])
        current, first = checked(with_trend(predictions, measured), measured, len(ids))
        if first.problem is not None:
            raise ConflictError(_NOTHING_TO_KEEP.format(first.problem), kind="what-if-not-predicted")
        advice = recommendation_of(job, plan, current, first)
        return await self._advice.keep_what_if(
            job.record, advice, is_sent=is_sent, is_guarded=is_guarded, author=author
        )

    async def _predictions(self, job: ModelledJob, wanted: Sequence[Asked]) -> list[PredictionOut]:
        """Predict what-ifs in one tier: the job as it is, what was asked, and its candidates.

        Raises:
            InvalidInputError: a change does not apply to this job.
        """
        async with self._turn:
            tier, why_not = await anyio.to_thread.run_sync(tiers.choose, job.tiered, [a.what_if for a in wanted])
            try:
                return await self._predicted(job, wanted, tier, why_not)
            except TooLargeError as error:
                if tier is QuickTier.FORMULAS:
                    raise
                return await self._predicted(job, wanted, QuickTier.FORMULAS, tiers.fallback(error.problem))

    async def _predicted(
        self, job: ModelledJob, wanted: Sequence[Asked], tier: QuickTier, why_not: str | None
    ) -> list[PredictionOut]:
        end_s = self._clock.monotonic_s() + _BUDGET_S
        found: dict[int, PredictionOut | DomainError] = {}

        async def one(i: int, asked: Asked) -> None:
            until_s = math.inf if i < _FIRST else end_s
            found[i] = await anyio.to_thread.run_sync(self._one, job, asked, tier, until_s, limiter=self._threads)

        async with anyio.create_task_group() as group:
            for i, asked in enumerate(wanted):
                group.start_soon(one, i, asked)
        predictions = []
        for i, asked in enumerate(wanted):
            answer = found[i]
            if isinstance(answer, TooLargeError) and tier is not QuickTier.FORMULAS:
                raise answer
            if isinstance(answer, InvalidInputError):
                problems = list(names_of(answer.problems, asked.settings))
                if i < _FIRST:
                    raise InvalidInputError(problems, what="what-if")
                answer = unpredicted(asked.settings, Tier(tier.value), "; ".join(map(str, problems)))
            elif isinstance(answer, DomainError):
                answer = unpredicted(asked.settings, Tier(tier.value), str(answer))
            notes = [*answer.notes, why_not] if why_not is not None else answer.notes
            predictions.append(answer.model_copy(update={"settings": dict(asked.settings), "notes": notes}))
        return predictions

    def _one(self, job: ModelledJob, asked: Asked, tier: QuickTier, until_s: float) -> PredictionOut | DomainError:
        """Predict one what-if. An error is returned, because the tasks of a group would be cancelled by it."""
        key = tier, asked.what_if
        known = job.predictions.get(key)
        if known is not None:
            return known
        if self._clock.monotonic_s() > until_s:
            problem = f"the quick answer ended after {_BUDGET_S:g} s; ask for fewer candidates"
            return unpredicted(asked.settings, Tier(tier.value), problem)
        try:
            outcome = self._predict(job.tiered, asked.what_if, tier)
        except DomainError as error:
            return error
        job.predictions[key] = prediction_of(job.tiered.by_tier[tier], asked.settings, outcome)
        return job.predictions[key]

    async def _confirm(self, job: ModelledJob, asked: Asked, caller: str) -> ConfirmationOut:
        document = await anyio.to_thread.run_sync(document_of, job, asked)
        return self._out(*await self._queue.put(id_of(document), document, caller=caller))

    async def _known(self, job_id: str, confirmation_id: str) -> tuple[SimulationRecord, int | None]:
        record, position = await self._queue.get(confirmation_id)
        if record.request["job_id"] != job_id:
            raise UnknownEntityError(kind="simulation", id=confirmation_id)
        return record, position

    def _out(self, record: SimulationRecord, position: int | None) -> ConfirmationOut:
        result: Mapping[str, Any] = record.runs[0] if record.runs else {}
        is_completed = record.state is SimulationState.COMPLETED
        return ConfirmationOut.of(
            record,
            job_id=record.request["job_id"],
            settings=record.request["settings"],
            queue_position=position,
            as_of=self._clock.now(),
            **({"runs": []} | (dict(result) if is_completed else {})),
        )

    async def _proposed(self, job: ModelledJob) -> dict[str, str] | None:
        open_ones = await self._advice.open_proposals(job.record.id)
        proposed = next((setting for topic, setting in open_ones if topic is Topic.MODE), None)
        if proposed is None or proposed.mode is None:
            return None
        timeout = proposed.aligned_timeout_ms
        return {"mode": proposed.mode.value} | ({"aligned-timeout": f"{timeout} ms"} if timeout else {})


def _added(model: JobModel, asked: Asked, more: Mapping[str, str], *, where: str) -> Asked:
    """Return what was asked with the settings of a candidate added.

    If the candidate names a mode, the settings that this mode does not have are left out of what was asked. Otherwise
    plain unaligned checkpoints could not be compared with an aligned timeout.
    """
    candidate = asked_of(model, more, where=where).settings
    unused = _OF_THE_MODE.get(candidate.get(Name.MODE.value, ""), ())
    kept = {name: value for name, value in asked.settings.items() if name not in unused}
    return asked_of(model, {**kept, **candidate}, where=where)


def _more(job: ModelledJob, wanted: WhatIfIn) -> list[tuple[int, Mapping[str, str]]]:
    found: list[Mapping[str, str]] = list(wanted.candidates)
    if wanted.vary is not None:
        vary = wanted.vary
        found += varied(job.model, vary.key, vary.low, vary.high, vary.count)
    return list(enumerate(found))


def _can_apply(job: ModelledJob, asked: Asked, plan: Application) -> tuple[bool, str | None]:
    engine = job.record.run.engine
    if not asked.settings or (not plan.changes and not plan.by_hand):
        return False, "nothing would change"
    if plan.is_question or plan.by_hand:
        return False, "a part of it is no setting of the running job"
    if not engine.can_apply_settings_live:
        return False, f"{engine.name} takes these settings when the job starts: change them and restart it"
    return True, None
