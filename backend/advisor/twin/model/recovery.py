"""What a failure costs: the outage, the input that is read again, and the time until the backlog is gone (CM-7, CM-8).

With the rate ``r`` of the input, the capacity ``c``, the outage ``D``, the interval ``I`` of checkpoints and the share
``k`` of it that is read again, the backlog is gone after

    R = D + (D + k I) r / (c (1 - C / I) - r)

where ``C`` is the processing time that one checkpoint takes from the job. ``fitted`` finds the four values from
observed recoveries, and ``recovery_model_of`` derives or assumes them for the model of a job.

If only a share of the checkpoints completes, the newest completed one is older on average than ``k I`` says, by what
``backend.analysis.measures.replay_debt`` computes. If none completes, what is read again grows without end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import exp, log

import numpy as np
from numpy.typing import NDArray

from backend.advisor.advice import Interval
from backend.advisor.twin.model.model import CheckpointSettings, JobModel
from backend.advisor.twin.model.outages import LOST_WORKER_MS, RESTART_MS
from backend.advisor.twin.model.rates import throughput_of
from backend.analysis.measures.replay_debt import Cadence
from backend.domain.errors import FieldProblem, InvalidInputError
from backend.domain.replay_debt import ReplayBound
from backend.domain.verdict import Basis

RECOVERIES_MIN = 6
_NOTHING = Interval(0.0, 0.0, 0.0)
ALL_COMPLETE = Interval(1.0, 1.0, 1.0)
_ON_AVERAGE = Interval(0.5, 0.0, 1.0)
"""A failure strikes at any time within an interval: half of it is read again on average, and all of it at most."""
_COSTS_MS = (0.0, 100.0, 200.0, 300.0, 500.0, 700.0, 1000.0, 1400.0, 2000.0)
_CAPACITIES = 1.0 + 0.003 * 1.045 ** np.arange(160)
"""The capacities tried, as multiples of the smallest that every observed recovery allows."""
_ROUNDS = 30
"""More rounds change no published recovery's error by 0.1 %."""
_ERROR_MIN = 0.01
_COVERED = 0.9
_TAIL = 0.95
"""The quantile of the age of the newest completed checkpoint that is the upper end of what is read again."""

Floats = NDArray[np.float64]


class Failure(StrEnum):
    """What fails: a task, which the engine notices at once, or a worker, which it misses after some heartbeats."""

    TASK = "task"
    WORKER = "worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedRecovery:
    """One failure: the interval and the rate at that time, and the time until the job had caught up."""

    interval_ms: float
    rate_per_s: float
    recovery_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryModel:
    """How long a job needs to recover from a failure.

    After a failure, the input since the trigger of the newest completed checkpoint is read again. That is the duration
    of this checkpoint, ``duration_ms``, and ``replayed_ratio`` of an interval. ``completed_ratio`` is the share of the
    checkpoints that completes. ``failed_period_ms`` is the time from the trigger of a failed checkpoint to the next
    trigger, if that is longer than the interval.

    ``capacity_per_s`` is None if it is not known. The time to work off a backlog is then not known either. For the
    error, the model is fitted without the recoveries at one interval, and predicts these. In 9 of 10 cases, prediction
    and observation differ at most by the factor ``1 + error_ratio``. It is None if nothing was fitted.
    """

    outage_ms: Interval
    replayed_ratio: Interval
    capacity_per_s: float | None
    checkpoint_cost_ms: float = 0.0
    duration_ms: Interval = _NOTHING
    completed_ratio: Interval = ALL_COMPLETE
    failed_period_ms: float = 0.0
    basis: Basis = Basis.PREDICTED
    sample_count: int = 0
    error_ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureCost:
    """What one failure costs. Each interval holds 90 % of such failures.

    ``replay_ms`` is the time span of the input that is read again; None if no checkpoint completes, so that it grows
    without end (``replay_bound``). ``catch_up_ms`` is the time from the end of the outage until the backlog is gone,
    and ``recovery_ms`` the time from the failure until then. Both are None if the job never catches up, if its capacity
    is unknown, or if ``replay_ms`` is None.
    """

    outage_ms: Interval
    replay_ms: Interval | None
    catch_up_ms: Interval | None
    recovery_ms: Interval | None
    replay_bound: ReplayBound = ReplayBound.BOUNDED


@dataclass(frozen=True, slots=True, kw_only=True)
class KindOfFailure:
    """What a failure of one kind costs. ``how`` is a sentence on what the outage is taken from.

    ``basis`` is that of the outage: reconstructed from failures of this job, or predicted.
    """

    failure: Failure
    cost: FailureCost
    basis: Basis
    how: str


def recovery_model_of(
    model: JobModel,
    *,
    duration_ms: Interval,
    persisted_bytes: float = 0.0,
    failure: Failure | None = None,
    completed_ratio: Interval = ALL_COMPLETE,
) -> RecoveryModel:
    """Return how a job recovers with checkpoints of this duration and this much in-flight data.

    ``completed_ratio`` is the share of the checkpoints that completes. The capacity is unknown (None) if a source reads
    as fast as it can.
    """
    rate, use = rate_per_s(model), throughput_of(model).use_ratio
    return RecoveryModel(
        outage_ms=outage_ms(model, persisted_bytes, failure),
        replayed_ratio=_ON_AVERAGE,
        capacity_per_s=None if rate is None or use <= 0 else rate / use,
        checkpoint_cost_ms=max((max(v.sync_ms, default=0.0) for v in model.vertices), default=0.0),
        duration_ms=duration_ms,
        completed_ratio=completed_ratio,
        failed_period_ms=failed_period_ms(model.settings),
        basis=Basis.PREDICTED if model.outage_ms is None else Basis.RECONSTRUCTED,
    )


def failed_period_ms(settings: CheckpointSettings) -> float:
    """Return the time from the trigger of an expired checkpoint to the next trigger.

    If one checkpoint runs at a time, an expired one holds the next one back until its timeout.
    """
    held_back = settings.timeout_ms + settings.min_pause_ms if settings.max_concurrent == 1 else 0.0
    return max(settings.interval_ms, held_back)


def cost_in(
    model: JobModel,
    *,
    duration_ms: Interval,
    persisted_bytes: float = 0.0,
    failure: Failure | None = None,
    completed_ratio: Interval = ALL_COMPLETE,
) -> FailureCost:
    """Return what a failure costs under the settings of a job's model, with these checkpoints."""
    recovery = recovery_model_of(
        model,
        duration_ms=duration_ms,
        persisted_bytes=persisted_bytes,
        failure=failure,
        completed_ratio=completed_ratio,
    )
    return cost_of_failure(recovery, interval_ms=model.settings.interval_ms, rate_per_s=rate_per_s(model) or 0.0)


def costs_by_kind(
    model: JobModel,
    *,
    duration_ms: Interval,
    persisted_bytes: float = 0.0,
    completed_ratio: Interval = ALL_COMPLETE,
) -> tuple[KindOfFailure, ...]:
    """Return what each kind of failure costs under the settings of a job's model, with these checkpoints.

    The loss of a worker is left out if nobody knows when the engine would notice it.
    """
    kinds = []
    for failure in Failure:
        has_known_heartbeats = model.engine is None or model.engine.is_flink_release
        if failure is Failure.WORKER and not (has_known_heartbeats or model.is_outage_of_lost_worker):
            continue
        basis, how = _outage_source(model, failure)
        cost = cost_in(
            model,
            duration_ms=duration_ms,
            persisted_bytes=persisted_bytes,
            failure=failure,
            completed_ratio=completed_ratio,
        )
        kinds.append(KindOfFailure(failure=failure, cost=cost, basis=basis, how=how))
    return tuple(kinds)


def _outage_source(model: JobModel, failure: Failure) -> tuple[Basis, str]:
    is_seen, is_lost, is_worker = model.outage_ms is not None, model.is_outage_of_lost_worker, failure is Failure.WORKER
    if is_seen and is_lost is is_worker:
        return Basis.RECONSTRUCTED, "the outage is taken from this job's recorded failures of this kind"
    notice = f"{LOST_WORKER_MS.low / 1000:.0f} to {LOST_WORKER_MS.high / 1000:.0f} s until the loss is noticed"
    restart = f"a restart of {RESTART_MS.low / 1000:g} to {RESTART_MS.high / 1000:g} s and the reading of the state"
    if is_worker and is_seen:
        return (
            Basis.PREDICTED,
            f"the outage is taken from this job's failed tasks, and {notice} are assumed in addition",
        )
    if is_worker:
        return Basis.PREDICTED, f"no failure is on record; the outage is assumed: {notice}, and {restart}"
    reason = "no failed task is on record" if is_seen else "no failure is on record"
    return Basis.PREDICTED, f"{reason}; the outage is assumed: {restart}"


def rate_per_s(model: JobModel) -> float | None:
    """Return the rate of the input over all sources; None if one reads as fast as it can."""
    rates = [v.source.rate_per_s for v in model.vertices if v.source is not None]
    return None if None in rates else sum(r for r in rates if r is not None)


def outage_ms(model: JobModel, persisted_bytes: float, failure: Failure | None = None) -> Interval:
    """Return the time from a failure until records flow again, with this much in-flight data to read (CM-7).

    Without ``failure``, it is a failure like the observed ones, or that of a task if none was observed. The bytes are
    those of all subtasks.
    """
    subtasks = sum(v.parallelism for v in model.vertices)
    in_flight = persisted_bytes / subtasks / model.store.bytes_per_ms
    seen, is_seen_lost = model.outage_ms, model.is_outage_of_lost_worker
    if seen is None or (is_seen_lost and failure is Failure.TASK):
        state = max((max(v.state_bytes, default=0.0) for v in model.vertices), default=0.0)
        read = state / model.store.bytes_per_ms + in_flight
        interval = Interval(RESTART_MS.value + read, RESTART_MS.low + read / 2, RESTART_MS.high + 2 * read)
        is_seen_lost = False
    else:
        interval = Interval(seen.value + in_flight, seen.low + in_flight / 2, seen.high + 2 * in_flight)
    if failure is not Failure.WORKER or is_seen_lost:
        return interval
    missed = LOST_WORKER_MS
    return Interval(interval.value + missed.value, interval.low + missed.low, interval.high + missed.high)


def cost_of_failure(recovery: RecoveryModel, *, interval_ms: float, rate_per_s: float) -> FailureCost:
    """Return what a failure costs at this interval of checkpoints and this rate of the input (CM-8)."""
    replay, bound = replay_of(recovery, interval_ms)
    pace = _pace(recovery, interval_ms, rate_per_s)
    out = recovery.outage_ms
    if replay is None or pace is None:
        return FailureCost(outage_ms=out, replay_ms=replay, catch_up_ms=None, recovery_ms=None, replay_bound=bound)
    factor = 1.0 + (recovery.error_ratio or 0.0)
    catch_up = Interval(
        (out.value + replay.value) * pace,
        (out.low + replay.low) * pace / factor,
        (out.high + replay.high) * pace * factor,
    )
    total = Interval(
        out.value + catch_up.value,
        (out.low + (out.low + replay.low) * pace) / factor,
        (out.high + (out.high + replay.high) * pace) * factor,
    )
    return FailureCost(outage_ms=out, replay_ms=replay, catch_up_ms=catch_up, recovery_ms=total, replay_bound=bound)


def replay_of(recovery: RecoveryModel, interval_ms: float) -> tuple[Interval | None, ReplayBound]:
    """Return the time span of the input that is read again, and whether it has a limit.

    It counts from the trigger of the newest completed checkpoint. The lower end assumes that all checkpoints complete,
    because a failure may follow a completed one at once. If it is possible that no checkpoint completes, the upper end
    follows from the likely share of completed ones, and the returned bound says that there is no limit.
    """
    share, took, done = recovery.replayed_ratio, recovery.duration_ms, recovery.completed_ratio
    likely, worst = (_cadence(recovery, interval_ms, ratio) for ratio in (done.value, done.low))
    mean, tail = likely.mean_wait_ms(), (likely if worst.is_endless else worst).wait_quantile_ms(_TAIL)
    if mean is None or tail is None:
        return None, ReplayBound.ENDLESS
    value = took.value + share.value * interval_ms + (mean - interval_ms / 2)
    high = took.high + max(share.high * interval_ms, tail)
    bound = ReplayBound.OPEN if worst.is_endless else ReplayBound.BOUNDED
    return Interval(value, took.low + share.low * interval_ms, max(value, high)), bound


def _cadence(recovery: RecoveryModel, interval_ms: float, completed_ratio: float) -> Cadence:
    failed_ms = max(interval_ms, recovery.failed_period_ms)
    return Cadence(completed_ratio=completed_ratio, period_ms=interval_ms, failed_period_ms=failed_ms)


def _pace(recovery: RecoveryModel, interval_ms: float, rate_per_s: float) -> float | None:
    """Return the time to process the backlog of a unit of time; None if it is unknown or never ends."""
    if recovery.capacity_per_s is None:
        return None
    free = recovery.capacity_per_s * (1.0 - recovery.checkpoint_cost_ms / interval_ms) - rate_per_s
    return rate_per_s / free if free > 0 else None


# --- the fit ----------------------------------------------------------------------------------------------------------


def fitted(recoveries: Sequence[ObservedRecovery]) -> RecoveryModel:
    """Return the model that fits observed recoveries best: with the smallest sum of absolute errors on a log scale.

    The error is estimated by leaving out all recoveries of one interval at a time, so ``error_ratio`` is None with
    fewer than three intervals.

    Raises:
        InvalidInputError: there are too few recoveries, or all have the same interval.
    """
    intervals = sorted({r.interval_ms for r in recoveries})
    if len(recoveries) < RECOVERIES_MIN or len(intervals) < 2:
        raise InvalidInputError(
            [FieldProblem("recoveries", f"at least {RECOVERIES_MIN} recoveries at two intervals or more are needed")]
        )
    if any(min(r.interval_ms, r.rate_per_s, r.recovery_ms) <= 0 for r in recoveries):
        raise InvalidInputError([FieldProblem("recoveries", "intervals, rates and times must be positive")])
    off = [abs(log(max(e, 1e-9))) for _, e in left_out(recoveries)] if len(intervals) > 2 else []
    model = _best(recoveries)
    error = exp(float(np.quantile(off, _COVERED))) - 1.0 if off else None
    return _model(model, len(recoveries), error)


def left_out(recoveries: Sequence[ObservedRecovery]) -> list[tuple[ObservedRecovery, float]]:
    """Predict each recovery from those at other intervals. Return it with predicted / observed.

    The ratio is infinite if the model says that the job never catches up.
    """
    found = []
    for interval in sorted({r.interval_ms for r in recoveries}):
        model = _model(_best([r for r in recoveries if r.interval_ms != interval]), len(recoveries), None)
        for one in (r for r in recoveries if r.interval_ms == interval):
            cost = cost_of_failure(model, interval_ms=one.interval_ms, rate_per_s=one.rate_per_s).recovery_ms
            found.append((one, float("inf") if cost is None else cost.value / one.recovery_ms))
    return found


@dataclass(frozen=True, slots=True)
class _Fit:
    capacity_per_s: float
    outage_ms: float
    replayed: float
    cost_ms: float


def _model(found: _Fit, count: int, error_ratio: float | None) -> RecoveryModel:
    return RecoveryModel(
        outage_ms=Interval(found.outage_ms, found.outage_ms, found.outage_ms),
        replayed_ratio=Interval(found.replayed, found.replayed, found.replayed),
        capacity_per_s=found.capacity_per_s,
        checkpoint_cost_ms=found.cost_ms,
        basis=Basis.RECONSTRUCTED,
        sample_count=count,
        error_ratio=error_ratio,
    )


def _best(recoveries: Sequence[ObservedRecovery]) -> _Fit:
    """Return the best fit of a grid of capacities and costs, each with its best outage and share.

    The outage and the share enter linearly. Iteratively reweighted least squares minimizes absolute errors.
    """
    interval = np.array([r.interval_ms for r in recoveries])
    rate = np.array([r.rate_per_s for r in recoveries])
    observed = np.array([r.recovery_ms for r in recoveries])
    costs = np.array([c for c in _COSTS_MS if c < interval.min() / 2])[:, None]
    needed = (rate / (1 - costs / interval)).max(axis=1)
    capacity = needed[:, None] * _CAPACITIES
    pace = rate / (capacity[..., None] * (1 - costs[..., None] / interval) - rate)
    outage, replayed, errors = _lines(1 + pace, interval * pace, observed)
    row, column = np.unravel_index(int(np.argmin(errors)), errors.shape)
    return _Fit(
        float(capacity[row, column]),
        float(outage[row, column]),
        float(replayed[row, column]),
        float(costs[row, 0]),
    )


def _lines(x: Floats, y: Floats, observed: Floats) -> tuple[Floats, Floats, Floats]:
    """Return ``a`` and ``b`` (>= 0) of the ``a x + b y`` nearest to the observed values, and the sums of log errors."""
    weight = np.ones_like(x) / observed**2
    for _ in range(_ROUNDS):
        xx, xy, yy = ((weight * v).sum(axis=-1) for v in (x * x, x * y, y * y))
        xo, yo = ((weight * v * observed).sum(axis=-1) for v in (x, y))
        det = xx * yy - xy * xy
        is_flat = det <= 1e-12 * xx * yy
        det = np.where(is_flat, 1.0, det)
        a, b = (xo * yy - yo * xy) / det, (xx * yo - xy * xo) / det
        only_x, only_y = is_flat | (b < 0), ~is_flat & (a < 0)
        a = np.where(only_x, xo / xx, np.where(only_y, 0.0, a))
        b = np.where(only_x, 0.0, np.where(only_y, yo / yy, b))
        predicted = np.maximum(a[..., None] * x + b[..., None] * y, 1e-9)
        off = np.abs(np.log(predicted / observed))
        weight = 1 / (predicted * observed) / np.maximum(off, _ERROR_MIN)
    return a, b, off.sum(axis=-1)
