"""A fake of the API's what-ifs: the real tiers on the model of a small made-up job, and a queue without a worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import httpx

from backend.advisor.exporting import exports_of
from backend.advisor.twin.asking.applying import application, headline_of
from backend.advisor.twin.asking.asking import asked_of, settings_of, varied
from backend.advisor.twin.model.model import Assumption, Calibration, JobModel, MeasureError, NetworkModel
from backend.advisor.twin.model.outcomes import Tier as Predictor
from backend.advisor.twin.tiers.calibration import Measured, Rehearsal
from backend.advisor.twin.tiers.predicting import predict
from backend.contracts.advice import CardOut, ChangeOut, DryRunOut, ExportOut, HowToOut, LifeEventOut
from backend.contracts.api import Page
from backend.contracts.simulations import SimulationState
from backend.contracts.whatif import (
    PREDICTION_GONE,
    AssumptionOut,
    ConfirmationOut,
    Measure,
    MeasuredNowOut,
    PredictionOut,
    Tier,
    WhatIfApplyIn,
    WhatIfIn,
    WhatIfOut,
    WhatIfSettingOut,
)
from backend.domain.advice import AdviceState, AdviceStep, Topic
from backend.domain.engines import RUNTIME
from backend.domain.errors import ConflictError
from backend.services.simulations.catalog import LIMITS
from backend.services.simulations.simulating import Progress, Result, unpacked
from backend.services.whatif import confirming
from backend.services.whatif.presenting import calibration_of, prediction_of, with_front
from tests.support.api_examples import example
from tests.support.made_up_queues import MadeUpQueue
from tests.support.twin_models import ALIGNED, edge, vertex

_DURATIONS_MS = [3_720.0, 3_655.0, 3_790.0, 3_701.0, 3_688.0, 3_745.0, 3_760.0, 3_640.0]
PROPOSED = {"mode": "unaligned"}


@cache
def small_model() -> JobModel:
    """Return the model of a job whose last vertex is slow, so that barriers wait behind its input."""
    from backend.advisor.advice import Interval
    from backend.advisor.twin.model.model import SourceModel, StoreModel

    return JobModel(
        vertices=(
            vertex("orders", 2, 50.0, source=SourceModel(rate_per_s=None)),
            vertex("enrich", 2, 50.0),
            vertex("aggregate", 2, 4_400.0, output_ratio=0.0, input_shares=(0.6, 0.4), sync_ms=(2.0, 2.0)),
        ),
        edges=(edge("orders", "enrich"), edge("enrich", "aggregate")),
        network=NetworkModel(floating_buffers_per_gate=4),
        store=StoreModel(bytes_per_ms=40_000.0, latency_ms=5.0),
        settings=replace(ALIGNED, interval_ms=5_000.0, timeout_ms=60_000.0),
        trigger_delay_ms=Interval(5.0, 1.0, 20.0),
        assumptions=(
            Assumption(
                subject="speed of the store", taken="40 MB/s", reason="no upload was large enough to measure it"
            ),
        ),
        calibration=Calibration(
            fitted_ids=tuple(range(1, 13)),
            scored_ids=tuple(range(13, 21)),
            errors=(
                MeasureError(measure="duration_ms", unit="ms", measured=3_710.0, predicted=3_880.0, sample_count=8),
                MeasureError(measure="sync_pause_ms", unit="ms", measured=2.0, predicted=2.0, sample_count=8),
            ),
        ),
        age_ms=60_000.0,
        engine=RUNTIME,
    )


def rehearsal() -> Rehearsal:
    """Return how to score a tier on later checkpoints of the small job."""
    return Rehearsal(
        model=replace(small_model(), calibration=None),
        fitted_ids=tuple(range(1, 13)),
        scored_ids=tuple(range(13, 21)),
        measured=(Measured("duration_ms", "ms", (3_600.0, 3_710.0, 3_900.0)),),
    )


@cache
def _confirmed(settings: tuple[tuple[str, str], ...]) -> Result:
    asked = asked_of(small_model(), dict(settings))
    return confirming.run(_document(dict(settings), asked.what_if), Progress(), LIMITS)


def _document(settings: Mapping[str, str], what_if: Any) -> Mapping[str, Any]:
    return confirming.document("jruntime", "rruntime", small_model(), settings, what_if, rehearsal())


def _named(prediction: PredictionOut, tier: Tier) -> PredictionOut:
    """Return the prediction as if another tier had made it. Closed formulas are quick, whichever tier is named."""
    estimates = [e.model_copy(update={"tier": tier}) for e in prediction.estimates]
    return prediction.model_copy(update={"tier": tier, "estimates": estimates})


class MadeUpWhatIfs(MadeUpQueue[ConfirmationOut]):
    """Fake what-ifs, and the confirmations of their answers."""

    what = "confirmation"

    def __init__(self, *, now: Callable[[], datetime]) -> None:
        super().__init__(now=now)
        self.is_refused = False
        self.tier = Tier.FAST
        """The tier that the answers name. With closed formulas, they say that a better one is coming."""
        self.model_id = "a1"
        """The only model whose prediction can be kept."""
        self.sent: list[dict[str, str]] = []
        self.named: list[str | None] = []
        """The models that the applied what-ifs named."""
        self.authors: list[str | None] = []
        """The names that came with the applied and the accepted what-ifs."""
        self.kept: list[CardOut] = []
        """The cards of the what-ifs that were applied, newest first."""
        self.first_id = 13
        """The first of the checkpoints that the answers are about."""

    def answer(self, method: str, parts: list[str], body: bytes) -> Any:
        """Respond to a request, or return None if it is not about what-ifs."""
        match method, parts:
            case "POST", ["jobs", job, "whatif"]:
                return self._answer(job, WhatIfIn.model_validate_json(body))
            case "POST", ["jobs", _, "whatif", "apply" | "accept"]:
                wanted = WhatIfApplyIn.model_validate_json(body)
                self.named.append(wanted.model_id)
                self.authors.append(wanted.author)
                if wanted.model_id != self.model_id:
                    raise ConflictError(
                        "the prediction of this answer is no longer kept; ask again", kind=PREDICTION_GONE
                    )
                return self._apply(dict(wanted.settings))
            case "POST", ["jobs", job, "whatif", "dry-run"]:
                return self._try(job, dict(WhatIfApplyIn.model_validate_json(body).settings))
            case "GET", ["jobs", _, "recommendations"] if self.kept:
                return Page[CardOut](items=list(self.kept), as_of=self._now())
            case "GET", ["jobs", _, "whatif", "confirmations", name]:
                return self.read(name)
            case "DELETE", ["jobs", _, "whatif", "confirmations", name]:
                self.cancel(name)
                return httpx.Response(204)
            case "GET", ["jobs", _, "whatif", "confirmations", name, "runs", run, "checkpoints", number]:
                stored = _confirmed(tuple(sorted(self.of(name).settings.items()))).checkpoints
                found = [s for s in stored if (s.run, s.checkpoint_id) == (int(run), int(number))]
                return unpacked(found[0].document)
            case _:
                return None

    def add_completed(self, settings: Mapping[str, str]) -> str:
        """Add a completed confirmation, and return its id."""
        name = self._queue(dict(settings)).id
        self.complete(name)
        return name

    def _answer(self, job: str, wanted: WhatIfIn) -> WhatIfOut:
        model = small_model()
        more = list(wanted.candidates)
        if wanted.vary is not None:
            more += varied(model, wanted.vary.key, wanted.vary.low, wanted.vary.high, wanted.vary.count)
        sets = [{}, dict(wanted.settings), *({**wanted.settings, **m} for m in more)]
        asked = [asked_of(model, s) for s in sets]
        found = with_front(
            [prediction_of(model, a.settings, predict(model, a.what_if, Predictor.FORMULAS)) for a in asked]
        )
        found = [_named(p, self.tier) for p in found]
        plan = application(model, asked[1].what_if, RUNTIME)
        changed = bool(plan.changes) and not plan.by_hand
        return WhatIfOut(
            job="demo-backpressured",
            job_id=job,
            run_id="rruntime",
            engine=RUNTIME.kind,
            model_id=self.model_id,
            measured=[
                MeasuredNowOut(
                    measure=Measure.DURATION,
                    unit="ms",
                    value=3_710.0,
                    low=3_645.0,
                    high=3_780.0,
                    values=list(_DURATIONS_MS),
                ),
                MeasuredNowOut(measure=Measure.EXPIRED, unit="ratio", value=0.0, low=0.0, high=0.253),
                MeasuredNowOut(measure=Measure.PERSISTED, unit="bytes", value=0.0, low=0.0, high=0.0),
                MeasuredNowOut(measure=Measure.THROUGHPUT, unit="records/s", value=376.0, low=361.0, high=392.0),
                MeasuredNowOut(measure=Measure.SYNC, unit="ms", value=2.0, low=2.0, high=3.0),
            ],
            checkpoint_ids=list(range(self.first_id, self.first_id + 8)),
            current=found[0],
            asked=found[1],
            is_better_tier_coming=self.tier is Tier.FORMULAS,
            others=found[2:],
            calibration=calibration_of(model),
            assumptions=[AssumptionOut.model_validate(a) for a in model.assumptions],
            settings=[WhatIfSettingOut.of(s, unit=s.unit.value, values=list(s.values)) for s in settings_of(model)],
            changes=[ChangeOut.model_validate(c) for c in plan.changes],
            how_to=HowToOut.of(plan.how_to, patch=dict(plan.how_to.patch), rollback_patch={}),
            exports=[ExportOut.model_validate(e) for e in exports_of(RUNTIME, plan.changes)],
            by_hand=list(plan.by_hand),
            can_apply=changed,
            why_not_apply=None if changed else "nothing would change",
            proposed=PROPOSED,
            confirmation=self._queue(dict(found[1].settings)) if wanted.confirm else None,
            as_of=self._now(),
        )

    def _try(self, job: str, settings: Mapping[str, str]) -> DryRunOut:
        plan = application(small_model(), asked_of(small_model(), settings).what_if, RUNTIME)
        refusals = list(plan.by_hand) + (["it fails a rule of the target"] if self.is_refused else [])
        return DryRunOut(
            job_id=job,
            target="demo",
            url="http://127.0.0.1:8050/runtime/v1",
            engine_run_id="0001",
            changes=[ChangeOut.model_validate(c) for c in plan.changes],
            is_accepted=not refusals,
            is_checked=not plan.by_hand,
            refusals=refusals,
            as_of=self._now(),
        )

    def _queue(self, settings: dict[str, str]) -> ConfirmationOut:
        name = confirming.id_of(_document(settings, asked_of(small_model(), settings).what_if))
        if name not in self.known or self.known[name].state is SimulationState.CANCELLED:
            self.known[name] = ConfirmationOut(
                id=name, job_id="jruntime", settings=settings, state=SimulationState.QUEUED, progress_ratio=0.0,
                queue_position=0, queued_at=self._now(), started_at=None, ended_at=None, expires_at=None,
                as_of=self._now(),
            )  # fmt: skip
        return self.known[name]

    def complete(self, name: str) -> None:
        """Give a confirmation its result."""
        (result,) = _confirmed(tuple(sorted(self.of(name).settings.items()))).runs
        assert isinstance(result, confirming.ConfirmedOut)
        now = self._now()
        ended = {"ended_at": now, "expires_at": now + timedelta(hours=24), "queue_position": None}
        fields = {"predictions": result.predictions, "runs": result.runs, "typical_ids": result.typical_ids}
        fields["calibration"] = result.calibration
        self.set(name, state=SimulationState.COMPLETED, progress_ratio=1.0, started_at=now, **ended, **fields)

    def _apply(self, settings: dict[str, str]) -> CardOut:
        self.sent.append(settings)
        plan = application(small_model(), asked_of(small_model(), settings).what_if, RUNTIME)
        card: CardOut = example("card")
        about = {"topic": Topic.WHAT_IF, "headline": headline_of(plan), "checkpoint_ids": list(range(13, 21))}
        now, reason = self._now(), "sent to the target; waiting for the engine to report the settings"
        sent = LifeEventOut(at=now, kind=AdviceStep.APPLY, state=AdviceState.ACCEPTED, reason=reason)
        kept = {
            "state": AdviceState.ACCEPTED,
            "state_reason": reason,
            "created_at": now,
            "applied_at": None,
            "history": (sent,),
            "measured": (),
            "recommendation": card.recommendation.model_copy(update=about),
        }
        self.kept.insert(0, card.model_copy(update=kept))
        return self.kept[0]

    def measure(self) -> None:
        """Measure the effect of the newest kept what-if: its change is in force, and later checkpoints are measured."""
        update = {"state": AdviceState.VERIFIED, "state_reason": "the predictions held"}
        self.kept[0] = self.kept[0].model_copy(update=update)
        self.first_id = 30
