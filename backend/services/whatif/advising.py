"""Turns a what-if into a recommendation, so that its card keeps the prediction until the effect is measured."""

from __future__ import annotations

from backend.advisor.advice import Candidate, EvidenceRow, Expected, Interval, Recommendation
from backend.advisor.predictor import method_of
from backend.advisor.twin.asking.applying import Application, headline_of
from backend.advisor.twin.model.model import JobModel
from backend.advisor.twin.model.outcomes import Tier
from backend.analysis.words import sentences as say
from backend.contracts.whatif import Measure, PredictionOut
from backend.domain.advice import Metric, Topic
from backend.domain.verdict import Basis, Confidence
from backend.services.whatif.models import ModelledJob
from backend.services.whatif.presenting import measured_of

_HIGH_RATIO, _MEDIUM_RATIO = 0.2, 0.5
_METRICS = (
    (Measure.DURATION, Metric.DURATION),
    (Measure.PERSISTED, Metric.PERSISTED),
    (Measure.EXPIRED, Metric.EXPIRED),
)


def recommendation_of(
    job: ModelledJob, plan: Application, current: PredictionOut, wanted: PredictionOut
) -> Recommendation:
    """Return the card's content: the change, and what was predicted for it."""
    measured, ids = measured_of(job)
    before = {m.measure: m for m in measured}
    model = job.tiered.by_tier[Tier(wanted.tier.value)]
    duration = _interval(wanted, Measure.DURATION)
    confidence, why = _confidence(model)
    method = method_of(Tier(wanted.tier.value))
    expected = tuple(
        Expected(
            metric=metric,
            unit=before[measure].unit,
            before=before[measure].value,
            predicted=predicted,
            method=method,
            before_values=tuple(before[measure].values),
        )
        for measure, metric in _METRICS
        if (predicted := _interval(wanted, measure)) is not None
    )
    took = before[Measure.DURATION].value
    words = f"would take {_span(duration)}" if duration is not None else "were not predicted"
    now = f"took {say.duration(took)}" if took is not None else "had no measured duration"
    return Recommendation(
        topic=Topic.WHAT_IF,
        rules=(),
        headline=headline_of(plan),
        reason=f"A person chose this change. Checkpoints {now}, and {words} afterwards.",
        current=plan.current,
        proposed=plan.proposed,
        changes=plan.changes,
        expected=expected,
        candidates=_candidates(job, plan, current, wanted),
        evidence=_evidence(model),
        confidence=confidence,
        confidence_reason=why,
        preconditions=(),
        risks=tuple(wanted.notes),
        will_not_cure=(),
        withdrawn_if=(),
        how_to=plan.how_to,
        checkpoint_ids=tuple(ids),
    )


def _interval(prediction: PredictionOut, measure: Measure) -> Interval | None:
    predicted = next((e.predicted for e in prediction.estimates if e.measure is measure), None)
    return None if predicted is None else Interval(predicted.value, predicted.low, predicted.high)


def _span(interval: Interval) -> str:
    return f"{say.duration(interval.low)} to {say.duration(interval.high)}"


def _candidates(
    job: ModelledJob, plan: Application, current: PredictionOut, wanted: PredictionOut
) -> tuple[Candidate, ...]:
    """Return the job as it is and as changed, if the change is one of the mode."""
    if plan.proposed.mode is None:
        return ()
    now = job.model.settings
    candidates = (
        (now.mode, now.aligned_timeout_ms, current, True),
        (plan.proposed.mode, plan.proposed.aligned_timeout_ms, wanted, False),
    )
    return tuple(
        Candidate(
            mode=mode,
            aligned_timeout_ms=None if timeout is None else round(timeout),
            duration_ms=_interval(prediction, Measure.DURATION),
            persisted_bytes=_interval(prediction, Measure.PERSISTED),
            expired_ratio=None if (e := _interval(prediction, Measure.EXPIRED)) is None else e.value,
            is_current=is_current,
            is_proposed=not is_current,
        )
        for mode, timeout, prediction, is_current in candidates
    )


def _evidence(model: JobModel) -> tuple[EvidenceRow, ...]:
    if model.calibration is None:
        return ()
    return tuple(
        EvidenceRow(
            f"{e.measure} of {e.sample_count} later checkpoints: {e.predicted:g} {e.unit} predicted",
            "calibration",
            Basis.MEASURED,
            e.measured,
            e.unit,
            checkpoint_ids=model.calibration.scored_ids,
        )
        for e in model.calibration.errors
    )


def _confidence(model: JobModel) -> tuple[Confidence, str]:
    errors = model.calibration.errors if model.calibration is not None else ()
    duration = next((e for e in errors if e.measure == "duration_ms"), None)
    if duration is None or duration.error_ratio is None:
        return Confidence.LOW, "the model could not be scored on checkpoints that it was not fitted on"
    error = abs(duration.error_ratio)
    text = (
        f"the model was {say.percent(error)} from the durations of {duration.sample_count} checkpoints"
        " that it had not seen"
    )
    if error <= _HIGH_RATIO:
        return Confidence.HIGH, text
    return (Confidence.MEDIUM if error <= _MEDIUM_RATIO else Confidence.LOW), text
