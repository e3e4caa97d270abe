"""Converts models and predictions to the API's shapes, and chooses the Pareto front."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median_high
from typing import Final

from backend.advisor.advice import Interval
from backend.advisor.proposing import middle_of, share_interval
from backend.advisor.twin.model.model import JobModel
from backend.advisor.twin.model.observed import terminal_checkpoints
from backend.advisor.twin.model.outcomes import Outcome
from backend.advisor.twin.model.snapshots import duration_ms
from backend.advisor.twin.tiers.predicting import believed_share, explains_expired
from backend.analysis.measures.input_rates import began_anew, counted, metered
from backend.analysis.numbers.statistics import reached
from backend.analysis.words import sentences as say
from backend.contracts.advice import IntervalOut
from backend.contracts.whatif import (
    POINTS_MAX,
    CalibrationOut,
    EstimateOut,
    FailureCostOut,
    FailureKind,
    Measure,
    MeasuredNowOut,
    MeasureErrorOut,
    PredictionOut,
    Tier,
)
from backend.contracts.whatif_scores import SCORED_AS
from backend.domain.checkpoint import CheckpointStatus, largest
from backend.domain.pressure import VertexPressure
from backend.domain.replay_debt import ReplayBound
from backend.domain.rollup import is_lower_bound
from backend.domain.verdict import Basis
from backend.services.whatif.models import ModelledJob

UNITS: Final[Mapping[Measure, str]] = {
    Measure.DURATION: "ms",
    Measure.EXPIRED: "ratio",
    Measure.PERSISTED: "bytes",
    Measure.THROUGHPUT: "records/s",
    Measure.SYNC: "ms",
    Measure.RESTORE: "ms",
    Measure.REPLAY: "ms",
    Measure.CATCH_UP: "ms",
}
_FROM_REPLAY: Final = (Measure.REPLAY, Measure.CATCH_UP)
"""What follows from the share of the checkpoints that completes."""
_TREND_MIN_COUNT: Final = 3
_TREND_FACTOR: Final = 1.1


def prediction_of(model: JobModel, settings: Mapping[str, str], outcome: Outcome) -> PredictionOut:
    """Convert the outcome of one what-if."""
    predicted: dict[Measure, Interval | None] = {
        Measure.DURATION: outcome.duration_ms,
        Measure.EXPIRED: outcome.expired_ratio,
        Measure.PERSISTED: outcome.persisted_bytes,
        Measure.THROUGHPUT: outcome.records_per_s,
        Measure.SYNC: outcome.sync_pause_ms,
        Measure.RESTORE: outcome.restore_ms,
        Measure.REPLAY: outcome.replay_ms,
        Measure.CATCH_UP: outcome.catch_up_ms,
    }
    errors = {e.measure: e.error_ratio for e in model.calibration.errors} if model.calibration is not None else {}
    return PredictionOut(
        settings=dict(settings),
        tier=Tier(outcome.tier.value),
        estimates=[
            EstimateOut(
                measure=measure,
                unit=UNITS[measure],
                predicted=_interval(value),
                tier=Tier(outcome.tier.value),
                error_ratio=errors.get(SCORED_AS.get(measure, "")),
                bound=outcome.replay_bound if measure in _FROM_REPLAY else ReplayBound.BOUNDED,
            )
            for measure, value in predicted.items()
        ],
        failures=[
            FailureCostOut(
                failure=FailureKind(f.failure.value),
                outage_ms=IntervalOut.model_validate(f.cost.outage_ms),
                replay_ms=_interval(f.cost.replay_ms),
                replay_bound=f.cost.replay_bound,
                catch_up_ms=_interval(f.cost.catch_up_ms),
                recovery_ms=_interval(f.cost.recovery_ms),
                outage_basis=f.basis,
                how=f.how,
            )
            for f in outcome.failures
        ],
        durations_ms=[round(d, 3) for d in outcome.durations_ms[:POINTS_MAX]],
        notes=list(outcome.notes),
    )


def _interval(interval: Interval | None) -> IntervalOut | None:
    return None if interval is None else IntervalOut.model_validate(interval)


def unpredicted(settings: Mapping[str, str], tier: Tier, problem: str) -> PredictionOut:
    """Return a what-if for which there is no prediction, with the reason."""
    return PredictionOut(settings=dict(settings), tier=tier, estimates=[], problem=problem)


def with_front(predictions: Sequence[PredictionOut]) -> list[PredictionOut]:
    """Mark the what-ifs that no other one beats in both the duration and the persisted bytes (the Pareto front).

    The expired share counts first: a setting under which fewer checkpoints expire is not beaten by one under which more
    do.
    """
    costs = [_costs(p) for p in predictions]
    known = [c for c in costs if c is not None]
    return [
        p.model_copy(update={"is_on_front": mine is not None and not any(_beats(c, mine) for c in known)})
        for p, mine in zip(predictions, costs, strict=True)
    ]


def value_of(prediction: PredictionOut, measure: Measure) -> float | None:
    """Return the predicted value of a measure; None if there is none."""
    predicted = next((e.predicted for e in prediction.estimates if e.measure is measure), None)
    return None if predicted is None else predicted.value


def checked(
    predictions: Sequence[PredictionOut], measured: Sequence[MeasuredNowOut], count: int
) -> list[PredictionOut]:
    """Return the predictions without shares of expired checkpoints that the measured share contradicts.

    The first prediction is that of the job as it is. If its share is clearly another one than that of the ``count``
    measured checkpoints, the model does not explain why they expire, and a note says so. If the model lets too few
    expire, no prediction keeps a share; if it lets too many expire, only those without any expired checkpoint do.
    """
    current = next((e.predicted for e in predictions[0].estimates if e.measure is Measure.EXPIRED), None)
    share = next((m.value for m in measured if m.measure is Measure.EXPIRED), None)
    if current is None or share is None or not count:
        return list(predictions)
    now = Interval(current.value, current.low, current.high)
    if explains_expired(now, share, count):
        return list(predictions)
    note = (
        f"with the present settings the model lets {say.percent(current.value)} of the checkpoints expire, and"
        f" {say.percent(share)} of the last {count} did. A model that does not explain them predicts neither"
        " this share nor what a failure would read again, which follows from it. In a young job, queues may still be"
        " filling: ask again in some minutes"
    )
    first, *rest = (_without_expired(p, note, now, share, count) for p in predictions)
    # What was measured is known of the job as it is: if no checkpoint completed, what is read again has no limit.
    return [_endless(first) if share >= 1 else first, *rest]


def with_trend(predictions: Sequence[PredictionOut], measured: Sequence[MeasuredNowOut]) -> list[PredictionOut]:
    """Return the predictions with a note if the durations of the measured checkpoints clearly rise or fall.

    The median of all of them then differs from that of the next ones, which are predicted. The queues of a young job
    rise in this way. Durations rise if each of the newest third is longer than each of the oldest third, by more than a
    tenth in the median.
    """
    durations = next((m.values for m in measured if m.measure is Measure.DURATION), [])
    took = [v for v in durations if v is not None]
    third = len(took) // 3
    if third < _TREND_MIN_COUNT:
        return list(predictions)
    first, last = took[:third], took[-third:]
    change = median_high(last) / max(1.0, median_high(first))
    rises = min(last) > max(first) and change > _TREND_FACTOR
    falls = max(last) < min(first) and change < 1 / _TREND_FACTOR
    if not rises and not falls:
        return list(predictions)
    note = (
        f"the durations of the measured checkpoints {'rise' if rises else 'fall'}: the newest {third} took"
        f" {say.duration(median_high(last))} in the median, and the oldest {third} {say.duration(median_high(first))};"
        " the next checkpoints are predicted"
    )
    return [p.model_copy(update={"notes": [*p.notes, note]}) for p in predictions]


def _without_expired(
    prediction: PredictionOut, note: str, current: Interval, measured_ratio: float, count: int
) -> PredictionOut:
    predicted = next((e.predicted for e in prediction.estimates if e.measure is Measure.EXPIRED), None)
    share = None if predicted is None else Interval(predicted.value, predicted.low, predicted.high)
    if believed_share(share, current, measured_ratio, count) is not None:
        return prediction.model_copy(update={"notes": [*prediction.notes, note]})
    # What a failure reads again follows from the share of the checkpoints that completes.
    unknown = (Measure.EXPIRED, *_FROM_REPLAY)
    unbelieved = {"predicted": None, "bound": ReplayBound.BOUNDED}
    costs = {"replay_ms": None, "catch_up_ms": None, "recovery_ms": None, "replay_bound": ReplayBound.BOUNDED}
    return prediction.model_copy(
        update={
            "estimates": [e.model_copy(update=unbelieved) if e.measure in unknown else e for e in prediction.estimates],
            "failures": [f.model_copy(update=costs) for f in prediction.failures],
            "notes": [*prediction.notes, note],
        }
    )


def _endless(prediction: PredictionOut) -> PredictionOut:
    endless = ReplayBound.ENDLESS
    return prediction.model_copy(
        update={
            "estimates": [
                e.model_copy(update={"bound": endless}) if e.measure in _FROM_REPLAY else e
                for e in prediction.estimates
            ],
            "failures": [f.model_copy(update={"replay_bound": endless}) for f in prediction.failures],
        }
    )


def _costs(prediction: PredictionOut) -> tuple[float, ...] | None:
    duration, persisted = value_of(prediction, Measure.DURATION), value_of(prediction, Measure.PERSISTED)
    if duration is None:
        return None
    return value_of(prediction, Measure.EXPIRED) or 0.0, duration, persisted or 0.0


def _beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def measured_of(job: ModelledJob) -> tuple[list[MeasuredNowOut], list[int]]:
    """Return what was measured on the checkpoints of the evidence, and their ids."""
    checkpoints = terminal_checkpoints(job.evidence)
    expired = [c.header.status is CheckpointStatus.FAILED for c in checkpoints]
    durations = [duration_ms(c) for c in checkpoints]
    persisted = [None if e else _float(c.header.persisted_bytes) for c, e in zip(checkpoints, expired, strict=True)]
    syncs = [_float(largest([v for d in c.details for v in d.sync_duration_ms])) for c in checkpoints]
    share = share_interval(sum(expired), len(checkpoints)) if checkpoints else None
    throughput, basis = _records_per_s(job)
    rows: list[tuple[Measure, Interval | None, list[float | None]]] = [
        (Measure.DURATION, middle_of(durations), durations),
        (Measure.EXPIRED, share, []),
        (Measure.PERSISTED, middle_of(persisted), persisted),
        (Measure.THROUGHPUT, throughput, []),
        (Measure.SYNC, middle_of(syncs), syncs),
    ]
    bases = {Measure.THROUGHPUT: basis}
    shown = [_now(*row, bases.get(row[0], Basis.MEASURED), expired) for row in rows]
    return shown, [c.header.checkpoint_id for c in checkpoints]


def _now(
    measure: Measure, interval: Interval | None, values: list[float | None], basis: Basis, expired: Sequence[bool]
) -> MeasuredNowOut:
    value, low, high = (None, None, None) if interval is None else (interval.value, interval.low, interval.high)
    # The values of expired checkpoints are lower bounds.
    least = min((v for v, e in zip(values, expired, strict=False) if e and v is not None), default=None)
    return MeasuredNowOut(
        measure=measure,
        unit=UNITS[measure],
        value=value,
        low=low,
        high=high,
        is_lower_bound=is_lower_bound(reached(values, 0.5), least),
        values=values,
        basis=basis,
    )


def calibration_of(model: JobModel) -> CalibrationOut | None:
    """Convert the calibration of a model; None if it could not be scored."""
    calibration = model.calibration
    if calibration is None:
        return None
    return CalibrationOut(
        fitted_ids=list(calibration.fitted_ids),
        scored_ids=list(calibration.scored_ids),
        errors=[MeasureErrorOut.of(e, error_ratio=e.error_ratio) for e in calibration.errors],
    )


def _records_per_s(job: ModelledJob) -> tuple[Interval | None, Basis]:
    """Return the records that all sources emitted in a second, with the middle 90 % of the rates, and the basis.

    The ends of several sources are added, which makes the interval wider. The sum is measured if each part is.
    """
    sources = [v.id for v in job.model.vertices if v.source is not None]
    readings = [[r for r in job.evidence.pressure if r.vertex_id == source] for source in sources]
    rates = [rates_of(of) for of in readings]
    known = [r for r in rates if r is not None]
    basis = Basis.MEASURED if all(metered(of) for of in readings) else Basis.RECONSTRUCTED
    if not known or len(known) < len(rates):
        return None, basis
    return Interval(sum(r.value for r in known), sum(r.low for r in known), sum(r.high for r in known)), basis


def rates_of(readings: Sequence[VertexPressure]) -> Interval | None:
    """Return the records that a source emitted in a second, with the middle 90 % of the engine's rates.

    ``readings`` are in the order of their times. Without rates of the engine, the counts of two readings show one. None
    if the count is not known, or if it began anew between any two of the readings: what was emitted before the restart
    is then missing.
    """
    if len(readings) < 2 or began_anew(readings):
        return None
    rates = metered(readings)
    of_engine = middle_of(rates)
    if of_engine is not None:
        mean = fmean(rates)
        return Interval(mean, min(mean, of_engine.low), max(mean, of_engine.high))
    steps = [counted(before, after) for before, after in pairwise(readings)]
    whole, middle = counted(readings[0], readings[-1]), middle_of(steps)
    if whole is None or middle is None:
        return None
    return Interval(whole, min(whole, middle.low), max(whole, middle.high))


def _float(value: int | None) -> float | None:
    return None if value is None else float(value)
