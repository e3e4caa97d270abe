"""Predicts the checkpoints of a changed job: the one entry for callers.

The interval of a measure holds 90 % of what the next checkpoints may show. It combines, on a logarithmic scale because
errors are factors:

* the spread between the simulated checkpoints, over all seeds (5 % to 95 % quantile)
* the calibration error: the distance of the model's prediction from checkpoints that it had not seen, as a standard
  deviation, and the part of their spread that the simulation does not have
* what a model of this tier cannot know about another mode than the one it was calibrated in (``_TIER_ERROR``, and for
  throughput ``_RATE_ERROR``)

How long writes to the store hang is not simulated. It is measured, and added to the durations (``hangs``). The interval
of the share that expires then also allows for chance: the next checkpoints are few, and alike.

A half width is the square root of the sum of the squares, with 1.645 standard deviations for the errors. Durations get
``_JITTER_MS`` on top: threads of a real engine share processors.

Unaligned checkpoints of tens of milliseconds are mostly what the host does: when it runs a thread, and how long the
record takes that a subtask is processing. The model knows neither, so their intervals are wider (``_with_host``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import exp, hypot, log
from statistics import NormalDist

import numpy as np

from backend.advisor.advice import Interval
from backend.advisor.proposing import share_interval
from backend.advisor.twin.asking.changes import WhatIf
from backend.advisor.twin.asking.changing import changed
from backend.advisor.twin.fast.fast import simulate_fast
from backend.advisor.twin.model import recovery
from backend.advisor.twin.model.hidden_shares import chosen
from backend.advisor.twin.model.model import Calibration, JobModel, MeasureError
from backend.advisor.twin.model.observed import terminal_checkpoints
from backend.advisor.twin.model.outcomes import Outcome, Simulated, SimulatedCheckpoint, Tier
from backend.advisor.twin.tiers import formulas, runtime_tier
from backend.advisor.twin.tiers.runtime_tier import OnProgress
from backend.analysis.measures.evidence import JobEvidence
from backend.domain.advice import Mode
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.replay_debt import ReplayBound

DURATION, PERSISTED, RATE, SYNC = "duration_ms", "persisted_bytes", "records_per_s", "sync_pause_ms"
EXPIRED = "expired_ratio"
"""The names of the measures in ``MeasureError``."""
RUNTIME_SEEDS = (1, 2)
_NINETY = 1.645
_TIER_ERROR = {Tier.RUNTIME: 0.05, Tier.FAST: 0.07, Tier.FORMULAS: 0.35}
_RATE_ERROR = {Tier.RUNTIME: 0.02, Tier.FAST: 0.02, Tier.FORMULAS: 0.03}
"""What a job reads depends on its capacity and little on its queues, so its prediction is more exact.

Measured on the recorded pairs of ``docs/evidence/twin.md``: of the tuning half, 5 % are off by more than 4 %.
"""
_OTHER_MODE_ERROR = 0.1
_UNCALIBRATED_ERROR = 0.3
_UNSEEN_BYTES_ERROR = 0.1
"""The error of persisted bytes that are predicted from aligned checkpoints, beyond that of the durations.

Measured on the same pairs: with this value, the intervals hold 98 % of the medians and 92 % of the checkpoints.
"""
_JITTER_MS = 15.0
_HOST_MS = 30.0
"""What the host may add to an unaligned checkpoint that takes tens of milliseconds, beyond one record in progress."""
_HOST_TIMES = 4.0
"""Such a checkpoint may be this many times as short as the interval says otherwise.

A delay of the trigger that the job shows now is mostly the host's, and need not come again. Measured on 109 recorded
pairs whose changed run is unaligned: the intervals hold 96 % of the checkpoints, and held 86 % before they allowed for
the host.
"""
_HOST_FROM_MS = 200.0
"""From this duration on, the host counts less. At ``_SHORT_MS`` and above, it no longer counts."""
_ERROR_MAX = 1.5
_SHORT_MS = 1000.0
_SHOWN = 100
"""So many durations show the distribution if writes to the store hang in some checkpoints only."""
_SHARE_SLACK = 0.1
_UNEXPLAINED = "the model does not explain why checkpoints expire, so it predicts no share that would"


def predict(
    model: JobModel,
    what_if: WhatIf,
    tier: Tier = Tier.RUNTIME,
    *,
    seeds: Sequence[int] | None = None,
    on_progress: OnProgress | None = None,
) -> Outcome:
    """Predict the next checkpoints of the changed job.

    Raises:
        InvalidInputError: a change does not apply to this job.
        TooLargeError: the job is too large for the tier.
    """
    new = changed(model, what_if)
    return outcome_of(
        new, simulated(new, tier, seeds=seeds, on_progress=on_progress), calibrated_mode=model.settings.mode
    )


def simulated(
    model: JobModel,
    tier: Tier = Tier.RUNTIME,
    *,
    seeds: Sequence[int] | None = None,
    on_progress: OnProgress | None = None,
) -> list[Simulated]:
    """Run a model in a tier, once with each seed. Raises ``TooLargeError`` if it is too large for the tier.

    Without ``seeds``, the runtime gets two, and the fast tier one, or two if the model has guesses of shares.
    """
    if seeds is None:
        is_quick = tier is Tier.FAST and not any(v.share_guesses for v in model.vertices)
        seeds = RUNTIME_SEEDS[:1] if is_quick else RUNTIME_SEEDS
    if tier is Tier.FORMULAS:
        return [formulas.simulate(model)]
    guessed = [with_guess(model, number, len(seeds)) for number in range(len(seeds))]
    if tier is Tier.FAST:
        return [simulate_fast(of, seed=seed) for of, seed in zip(guessed, seeds, strict=True)]
    runs = []
    for number, seed in enumerate(seeds):
        report = None if on_progress is None else _part_of(on_progress, number, len(seeds))
        runs.append(runtime_tier.simulate(guessed[number], seed=seed, on_progress=report))
    return runs


def outcome_of(model: JobModel, runs: Sequence[Simulated], *, calibrated_mode: Mode | None = None) -> Outcome:
    """Return what runs of one tier predict for the next checkpoints of ``model``.

    ``calibrated_mode`` is the mode of the job as it is, if ``model`` is a changed one.
    """
    tier = runs[0].tier
    checkpoints = [c for one in runs for c in one.checkpoints]
    notes = tuple(dict.fromkeys(n for one in runs for n in one.notes))
    if model.calibration is None:
        notes = (*notes, "the model could not be scored on checkpoints that it had not seen, so intervals are wide")
    if not checkpoints:
        text = "no checkpoint ended in the simulated time"
        return Outcome(
            tier=tier,
            duration_ms=None,
            expired_ratio=None,
            persisted_bytes=None,
            records_per_s=None,
            sync_pause_ms=None,
            notes=(*notes, text),
        )
    is_other = calibrated_mode is not None and calibrated_mode is not model.settings.mode
    timeout = model.settings.timeout_ms
    durations = [c.duration_ms for c in checkpoints]
    duration = _interval(durations, model.calibration, DURATION, tier, is_other=is_other, jitter=_JITTER_MS)
    spread = _spread(model.calibration, DURATION, duration.value, tier, is_other=is_other)
    if model.settings.mode is Mode.UNALIGNED:
        duration = _with_host(duration, model)
    duration = Interval(*(min(v, timeout) for v in (duration.value, duration.low, duration.high)))
    hangs, when = model.store.hangs, model.settings.schedule
    if is_other and model.settings.mode is not Mode.ALIGNED:
        # Barriers of aligned checkpoints come late, and hide the hangs of writes that began before.
        hangs = hangs.uncovered(float(np.median([c.travel_ms for c in checkpoints])))
    expired = hangs.expired_ratio(_expired(checkpoints, spread, timeout), duration, when)
    duration = hangs.durations(duration, when)
    persisted = [c.persisted_bytes for c in checkpoints if not c.is_expired] or [0.0]
    written = _interval(persisted, model.calibration, PERSISTED, tier, is_other=is_other)
    done = Interval(1.0 - expired.value, 1.0 - expired.high, 1.0 - expired.low)
    took = _of_completed(checkpoints, duration)
    failure = recovery.cost_in(model, duration_ms=took, persisted_bytes=written.value, completed_ratio=done)
    return Outcome(
        tier=tier,
        duration_ms=duration,
        expired_ratio=expired,
        persisted_bytes=written,
        records_per_s=_interval([r.records_per_s for r in runs], model.calibration, RATE, tier, is_other=False),
        sync_pause_ms=_interval(
            [c.sync_ms for c in checkpoints], model.calibration, SYNC, tier, is_other=False, jitter=1.0
        ),
        restore_ms=failure.outage_ms,
        replay_ms=failure.replay_ms,
        replay_bound=failure.replay_bound,
        catch_up_ms=failure.catch_up_ms,
        failures=recovery.costs_by_kind(model, duration_ms=took, persisted_bytes=written.value, completed_ratio=done),
        durations_ms=hangs.on(durations, when, count=_SHOWN),
        persisted_mean_bytes=float(np.mean(persisted)),
        notes=notes,
    )


def _of_completed(checkpoints: Sequence[SimulatedCheckpoint], duration: Interval) -> Interval:
    """Return the duration of the checkpoints that complete: a failure restores one of these, and no expired one."""
    done = [c.duration_ms for c in checkpoints if not c.is_expired]
    if len(done) in (0, len(checkpoints)):
        return duration
    middle = min(float(np.median(done)), duration.high)
    return Interval(middle, min(duration.low, middle), duration.high)


def explains_expired(predicted: Interval, measured_ratio: float, count: int) -> bool:
    """Return whether the share of expired checkpoints that is predicted for the job as it is agrees with the measured.

    ``measured_ratio`` is the share of the newest ``count`` checkpoints that expired.
    """
    likely = share_interval(round(measured_ratio * count), count)
    return predicted.low <= likely.high + _SHARE_SLACK and likely.low <= predicted.high + _SHARE_SLACK


def believed_share(share: Interval | None, current: Interval, measured_ratio: float, count: int) -> Interval | None:
    """Return the predicted share of expired checkpoints of a what-if; None if the measured share contradicts the model.

    ``current`` is the share that is predicted for the job as it is. If the model lets too many checkpoints expire, a
    what-if in which none does is believed all the same.
    """
    if share is None or explains_expired(current, measured_ratio, count):
        return share
    return share if current.value > measured_ratio and share.value == 0 else None


def believed(outcome: Outcome, current: Outcome, evidence: JobEvidence) -> Outcome:
    """Return a prediction without a share of expired checkpoints that the measured share of ``evidence`` contradicts.

    ``current`` is the prediction for the job as it is. What a failure reads again follows from the share, so it is left
    out too.
    """
    ended, now = terminal_checkpoints(evidence), current.expired_ratio
    if now is None or not ended:
        return outcome
    measured_ratio = sum(c.header.status is CheckpointStatus.FAILED for c in ended) / len(ended)
    if explains_expired(now, measured_ratio, len(ended)):
        return outcome
    noted = replace(outcome, notes=(*outcome.notes, _UNEXPLAINED))
    if believed_share(outcome.expired_ratio, now, measured_ratio, len(ended)) is not None:
        return noted
    return replace(
        noted, expired_ratio=None, replay_ms=None, catch_up_ms=None, replay_bound=ReplayBound.BOUNDED, failures=()
    )


def _part_of(on_progress: OnProgress, number: int, count: int) -> OnProgress:
    return lambda share: on_progress((number + share) / count)


def with_guess(model: JobModel, number: int = 0, count: int = 1) -> JobModel:
    """Return the model for the simulation ``number`` of ``count``: each has another guess of unknown shares.

    The only simulation gets the guess in the middle.
    """
    return replace(
        model,
        vertices=tuple(
            replace(v, input_shares=v.share_guesses[chosen(len(v.share_guesses), number, count)])
            if v.share_guesses
            else v
            for v in model.vertices
        ),
    )


def _error_of(calibration: Calibration | None, measure: str) -> MeasureError | None:
    return next((e for e in calibration.errors if e.measure == measure), None) if calibration is not None else None


def _interval(
    values: Sequence[float],
    calibration: Calibration | None,
    measure: str,
    tier: Tier,
    *,
    is_other: bool,
    jitter: float = 0.0,
) -> Interval:
    low, value, high = (float(q) for q in np.quantile(values, (0.05, 0.5, 0.95)))
    if value <= 0:
        return Interval(value, low, high + jitter)
    spread = _spread(calibration, measure, value, tier, is_other=is_other)
    up, down = log(max(high, value) / value), log(value / min(max(low, 1e-9), value)) if low > 0 else log(2.0)
    widest = value * exp(hypot(up, spread)), value * exp(-hypot(down, spread))
    # Jitter delays. It shortens no part of a checkpoint below what the simulation has, except its own trigger.
    return Interval(value, max(0.0, widest[1] - jitter / 2), widest[0] + jitter * _NINETY)


def _with_host(duration: Interval, model: JobModel) -> Interval:
    """Return the duration of an unaligned checkpoint with an interval that allows for what the host does.

    A barrier that overtakes queues still waits for the record in progress, which the slowest vertex holds longest.
    """
    part = min(1.0, max(0.0, (_SHORT_MS - duration.value) / (_SHORT_MS - _HOST_FROM_MS)))
    record_ms = max((us for v in model.vertices for us in v.service_us), default=0.0) / 1000
    return Interval(
        duration.value,
        duration.low / _HOST_TIMES**part,
        duration.high + (_HOST_MS + record_ms) * part,
    )


def _spread(calibration: Calibration | None, measure: str, value: float, tier: Tier, *, is_other: bool) -> float:
    """Return how far a prediction may be off on a logarithmic scale, in 90 % of cases."""
    # Bytes that barriers overtake follow from the queues, which the model has in each mode.
    of_mode = _OTHER_MODE_ERROR if is_other and measure != PERSISTED else 0.0
    of_tier = (_RATE_ERROR if measure == RATE else _TIER_ERROR)[tier]
    return _NINETY * hypot(_log_error(calibration, measure, value), of_tier, of_mode)


def _log_error(calibration: Calibration | None, measure: str, value: float) -> float:
    """Return the calibration error of a measure as a standard deviation of its logarithm.

    Short durations are off by some milliseconds, which may be a large share of them. So an error that was measured on a
    short duration is not multiplied if a long one is predicted. A measure that was not scored gets the error of an
    unscored model, because nothing of this job supports a narrow interval. Aligned checkpoints persist nothing to
    score, but their durations show how well the model knows the queues.
    """
    error = _error_of(calibration, measure)
    if error is None or error.measured <= 0 or error.predicted <= 0:
        is_nothing = error is not None and error.measured == error.predicted == 0
        if measure == PERSISTED and is_nothing and _error_of(calibration, DURATION) is not None:
            return hypot(_log_error(calibration, DURATION, 0.0), _UNSEEN_BYTES_ERROR)
        return _UNCALIBRATED_ERROR
    distance = log(error.predicted / error.measured)
    log_error = min(_ERROR_MAX, hypot(distance, error.unexplained_spread))
    if measure == DURATION and error.measured < _SHORT_MS and value > error.measured:
        return log_error * error.measured / min(value, _SHORT_MS)
    return log_error


def _expired(checkpoints: Sequence[SimulatedCheckpoint], spread: float, timeout_ms: float) -> Interval:
    """Return the share of checkpoints that expire, with its 90 % interval.

    The interval is Wilson's, and reaches to the shares that follow if all durations are off by ``spread`` (logarithmic)
    in one direction: durations a little below the timeout may all be above it.
    """
    total, count = len(checkpoints), sum(c.is_expired for c in checkpoints)
    later = sum(c.is_expired or c.duration_ms * exp(spread) + _JITTER_MS * _NINETY >= timeout_ms for c in checkpoints)
    if not later:
        return Interval(0.0, 0.0, 0.0)
    low, high = share_interval(count, total).low, share_interval(later, total).high
    done = sorted(c.duration_ms for c in checkpoints if not c.is_expired)
    if count and done:
        low = min(low, _share_if_shorter(done, total, spread, timeout_ms))
    return Interval(count / total, low, high)


def _share_if_shorter(done: Sequence[float], total: int, spread: float, timeout_ms: float) -> float:
    """Return the share that expires if all durations are shorter by ``spread``.

    How long the expired checkpoints would have taken is not known. The durations of the others, ``done``, continue as a
    log-normal distribution.
    """
    normal = NormalDist()
    at_timeout = normal.inv_cdf(len(done) / total)
    below = sum(log(timeout_ms / max(ms, 1e-9)) for ms in done)
    width = below / sum(at_timeout - normal.inv_cdf((n + 0.5) / total) for n in range(len(done)))
    return 1 - normal.cdf(at_timeout + spread / max(width, 1e-9))
