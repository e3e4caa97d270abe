"""Lets the fast simulation choose mode, aligned timeout, cap and interval for a job whose failures are known (R-INT-1).

First each mode is simulated at the present interval. From these runs, a closed form gives the interval with the least
loss under each mode. The most promising settings are then simulated as they are, with the next shorter and longer
intervals of the best ones. These are at most ``SETTINGS_MAX`` settings: some seconds of processor time.

The loss is that of ``losses``: work and replay. The hard bounds come first: expired checkpoints, in-flight data that
the store cannot write in time, and the limits on intervals and aligned timeouts. The same evidence gives the same
choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf, log
from statistics import NormalDist
from typing import Final

import numpy as np

from backend.advisor.advice import Interval
from backend.advisor.choice.late_barriers import LateBarriers
from backend.advisor.choice.uneven_queues import Uneven
from backend.advisor.losses import BOUND_SLACK, Losses
from backend.advisor.proposing import share_interval
from backend.advisor.rules import aligned_timeout
from backend.advisor.rules.checkpoint_mode import refusal_of_modes, refusal_of_settings
from backend.advisor.situation import Situation
from backend.advisor.thresholds import (
    CAP_WRITE_RATIO,
    LOSS_EVEN_RATIO,
    LOSS_GAIN_MIN_RATIO,
    LOST_MIN_RATIO,
    OPEN_MAX_RATIO,
    STORE_PRICE,
    TIMEOUT_MARGIN,
)
from backend.advisor.tier_choice import EXPIRED_ERROR_MAX, Chosen, Scored, TierChoice
from backend.advisor.twin.asking.changes import WhatIf
from backend.advisor.twin.asking.changing import changed
from backend.advisor.twin.fast import fast
from backend.advisor.twin.model.hangs import NO_HANGS, Hangs
from backend.advisor.twin.model.model import JobModel
from backend.advisor.twin.model.outcomes import Outcome, Tier
from backend.advisor.twin.tiers.calibration import calibrated
from backend.advisor.twin.tiers.predicting import DURATION, predict
from backend.analysis.numbers.arrays import Floats
from backend.analysis.words import sentences as say
from backend.domain.advice import Mode
from backend.domain.errors import DomainError

SETTINGS_MAX: Final = 50
"""The largest number of settings that are simulated for one choice."""
STEPS_MAX: Final = 10_000_000.0
"""About the largest number of steps that the simulations for one choice have together: some ten seconds."""
_TIMEOUTS_MS: Final = (200, 500, 1_000, 2_000, 5_000, 10_000)
_CAPS_BYTES: Final = (131_072, 524_288)
_PROMISING_COUNT: Final = 6
_NEIGHBOURS_OF: Final = 2
_EXPIRED_MAX: Final = 0.95
_NEAR_RATIO: Final = 0.75
_EVEN_IF_HUNG_RATIO: Final = 0.05
"""If writes hang, a smaller difference of losses does not decide between intervals: how often is roughly known."""


@dataclass(frozen=True)
class _Job:
    """A job's model, and what its losses depend on beside that.

    The model has no hanging writes: ``hangs`` are added to what was simulated, for any interval.
    """

    situation: Situation
    model: JobModel
    losses: Losses
    present: Chosen
    bytes_per_ms: float
    hangs: Hangs
    late: LateBarriers
    uneven: Uneven
    interval_max_ms: int | None = None
    """No longer interval is chosen, because it is not known how many checkpoints would expire; None if it is known."""

    @property
    def upload_bytes(self) -> float:
        """What a checkpoint writes beside in-flight data."""
        return sum(sum(v.upload_bytes) for v in self.model.vertices)

    def limit_bytes(self, interval_ms: int) -> float:
        """Return what the store can write in the time that R-CAP-1 allows at an interval.

        A longer interval gives more time, but only after the interval has been changed. While a series of choices is
        followed, the limit does not rise, because the steps of the series may be taken back one by one.
        """
        limits = min(interval_ms, self.present.interval_ms) / 2, self.model.settings.timeout_ms / 3
        found = self.bytes_per_ms * CAP_WRITE_RATIO * min(limits)
        return found if self.situation.series is None else min(found, self.situation.series.limit_bytes)

    def heavy_ratio(self, chosen: Chosen, persisted_bytes: Interval, mean_bytes: float) -> float:
        """Return the share of the checkpoints that persist more than the limit, ``mean_bytes`` on average.

        The larger share counts: that of the simulation, or that of checkpoints as uneven as the recorded ones.
        """
        limit, cap = self.limit_bytes(chosen.interval_ms), chosen.inflight_cap_bytes
        most_bytes = inf if cap is None else float(cap * sum(len(v.upload_bytes) for v in self.model.vertices))
        return max(_share_above(limit, persisted_bytes), self.uneven.share_above(limit, mean_bytes, most_bytes))


def choose(
    situation: Situation,
    *,
    model_of: Callable[[Situation], JobModel] | None = None,
    predict_with: Callable[[JobModel, WhatIf], Outcome] | None = None,
) -> TierChoice:
    """Return the choice of the fast simulation for a job, or why it cannot choose.

    The caller sees to it that the simulation is compiled. ``model_of`` builds the job's model, and ``predict_with``
    predicts one setting; both use the fast tier by default.
    """
    nothing = refused(situation, None)
    refusal, losses = refusal_of_settings(situation), Losses.of_job(situation)
    if refusal is not None or losses is None:
        return replace(nothing, why_not=refusal or "the time between failures is not known")
    try:
        model = (model_of or _calibrated)(situation)
        problem = fast.size_problem(model)
        if problem is not None:
            return replace(nothing, why_not=problem)
        return _choice(nothing, _job(situation, model, losses), predict_with or _in_fast)
    except DomainError as error:
        return replace(nothing, why_not=str(error))


def refused(situation: Situation, why_not: str | None) -> TierChoice:
    """Return a choice that chose nothing, with the reason."""
    newest = max((r.id for r in situation.recorded), default=0)
    evidence = situation.evidence
    return TierChoice(
        made_at=evidence.now, newest_id=newest, config=evidence.config, why_not=why_not, series=situation.series
    )


def _job(situation: Situation, model: JobModel, losses: Losses) -> _Job:
    present = Chosen(
        mode=model.settings.mode,
        aligned_timeout_ms=situation.aligned_timeout_ms,
        inflight_cap_bytes=model.settings.inflight_cap_bytes,
        interval_ms=round(model.settings.interval_ms),
    )
    seen = model.store.shared_bytes_per_ms or model.store.small_bytes_per_ms
    speed = seen or situation.store_bytes_per_ms or losses.bytes_per_ms
    bare = replace(model, store=replace(model.store, hangs=NO_HANGS))
    hangs = model.store.hangs.without_endless()
    return _Job(
        situation, bare, losses, present, speed, hangs, LateBarriers.none(), Uneven.of(losses.recorded, situation.mode)
    )


def _calibrated(situation: Situation) -> JobModel:
    return calibrated(
        situation.modelled or situation.evidence, engine=situation.engine, version=situation.version, tier=Tier.FAST
    )


def _in_fast(model: JobModel, what_if: WhatIf) -> Outcome:
    return predict(model, what_if, Tier.FAST)


def _choice(nothing: TierChoice, job: _Job, predict_with: Callable[[JobModel, WhatIf], Outcome]) -> TierChoice:
    scored: dict[Chosen, Scored | None] = {}
    outcomes: dict[Chosen, Outcome] = {}
    steps_left = STEPS_MAX

    def ask(wanted: Iterable[Chosen]) -> list[Scored]:
        nonlocal steps_left
        for one in wanted:
            if one in scored or len(scored) >= SETTINGS_MAX:
                continue
            what_if = _what_if(job.present, one)
            steps = fast.steps_of(changed(job.model, what_if))
            # The present settings come first, and are known to be small enough.
            if not scored or steps <= min(steps_left, fast.STEPS_QUICK_MAX):
                steps_left -= steps
                try:
                    outcomes[one] = predict_with(job.model, what_if)
                except fast.FullQueueError:
                    # Without the present settings, nothing can be compared. Others are left out.
                    if one == job.present:
                        raise
                    scored[one] = None
                    continue
                scored[one] = _scored(job, one, outcomes[one])
        return [s for s in scored.values() if s is not None]

    ask([job.present])
    measured, now = _expired_ratio(job.losses), scored[job.present]
    if now is not None:
        simulated = _mean_ms(outcomes[job.present], job.model.settings.timeout_ms)
        job = replace(job, late=LateBarriers.of(job.situation, job.losses.recorded, simulated))
        scored[job.present] = now = _scored(job, job.present, outcomes[job.present])
    if now is not None:
        # What expires now, although the simulation explains it neither by the model nor by the writes that hung.
        job = replace(job, hangs=job.hangs.explaining(now.expired_ratio.value))
        # Two hangs of half of the timeout in a longer interval reach it, and how often they meet is known from some
        # twenty checkpoints only.
        is_long = job.hangs.longest_ms * TIMEOUT_MARGIN >= job.model.settings.timeout_ms
        if is_long or _is_unexplained(job, outcomes[job.present]):
            job = replace(job, interval_max_ms=job.present.interval_ms)
        scored[job.present] = now = _scored(job, job.present, outcomes[job.present])
    if now is None:
        return replace(nothing, why_not="no checkpoint of the simulated job ended")
    # Where checkpoints take nearly as long as the timeout, small errors of the model decide how many expire.
    is_near = now.duration_ms.value >= _NEAR_RATIO * job.model.settings.timeout_ms
    if measured - now.expired_ratio.value > EXPIRED_ERROR_MAX and not is_near:
        text = (
            f"{say.percent(measured)} of the job's checkpoints expired, and {say.percent(now.expired_ratio.value)} of"
            " the simulated ones: the model lacks their cause"
        )
        return replace(nothing, why_not=text)
    first = ask([job.present, *_modes(job)])
    # The closed form: another interval leaves the simulated durations as they are.
    closed = (_with_best_interval(job, one.chosen, outcomes[one.chosen]) for one in first)
    promising = _ranked([best for best in closed if best is not None])
    second = _ranked(_allowed(job, ask(s.chosen for s in promising[:_PROMISING_COUNT])))
    if _order(second)(second[0])[0] > 0:
        # The closed form has the in-flight data of another interval, so others than the promising may keep the bounds.
        second = _ranked(_allowed(job, ask(s.chosen for s in promising)))
    found = ask(c for s in second[:_NEIGHBOURS_OF] for c in _neighbours(job, s.chosen))
    allowed = _ranked(_allowed(job, found))
    modes: dict[tuple[object, ...], Scored] = {}
    for one in (*allowed, *_ranked(found)):
        modes.setdefault((one.chosen.aligned_timeout_ms, one.chosen.inflight_cap_bytes), one)
    error, words = _error_ratio(job.model)
    return replace(
        nothing,
        now=now,
        best=_preferred(job, allowed),
        by_mode=tuple(modes.values()),
        limit_bytes=job.limit_bytes(job.present.interval_ms),
        setting_count=len(scored),
        error_ratio=error,
        error_words=words,
    )


def _expired_ratio(losses: Losses) -> float:
    """Return the share of expired checkpoints among all those that show how often writes hang.

    The newest checkpoints alone are too few for this. One bad or good minute among them would count as what the job
    always does.
    """
    return sum(r.is_expired for r in losses.recorded) / len(losses.recorded)


def _is_unexplained(job: _Job, outcome: Outcome) -> bool:
    """Return whether clearly more checkpoints expired than the model explains: more than chance allows for.

    It is enough if the newest checkpoints show this, because its cause may be new, or if all checkpoints together do.
    """
    if outcome.expired_ratio is None:
        return False
    least = outcome.expired_ratio.value + BOUND_SLACK
    counted = (job.situation.recorded, job.losses.recorded)
    return any(rows and share_interval(sum(r.is_expired for r in rows), len(rows)).low > least for rows in counted)


# --- candidates -----------------------------------------------------------------------------------------------------


def _modes(job: _Job) -> list[Chosen]:
    """Return a candidate for each mode, at the present interval or at the next that its aligned timeout allows."""
    situation, present = job.situation, job.present
    if refusal_of_modes(situation) is not None:
        return []
    cap = present.inflight_cap_bytes
    chosen = [replace(present, mode=Mode.ALIGNED, aligned_timeout_ms=None)]
    always = replace(present, mode=Mode.UNALIGNED, aligned_timeout_ms=0)
    chosen.append(always)
    if situation.engine.has_in_flight_cap:
        chosen += [replace(always, inflight_cap_bytes=c) for c in (*_CAPS_BYTES, None) if c != cap]
    if situation.engine.has_aligned_timeout:
        low = aligned_timeout.bounds(situation, 0.0).low_ms
        high = job.model.settings.timeout_ms / TIMEOUT_MARGIN
        for timeout in (t for t in _TIMEOUTS_MS if low <= t <= high):
            fits = [ms for ms in _intervals(job, timeout) if ms >= present.interval_ms]
            if fits:
                mode = Mode.ALIGNED_WITH_TIMEOUT
                chosen.append(replace(present, mode=mode, aligned_timeout_ms=timeout, interval_ms=fits[0]))
    return chosen


def _intervals(job: _Job, aligned_timeout_ms: int | None) -> list[int]:
    """Return the intervals within the hard bounds."""
    intervals = job.losses.intervals(aligned_timeout_ms or 0)
    return [ms for ms in intervals if job.interval_max_ms is None or ms <= job.interval_max_ms]


def _neighbours(job: _Job, chosen: Chosen) -> list[Chosen]:
    """Return the settings with the next shorter and the next longer interval."""
    all_ms = _intervals(job, chosen.aligned_timeout_ms)
    shorter, longer = [ms for ms in all_ms if ms < chosen.interval_ms], [ms for ms in all_ms if ms > chosen.interval_ms]
    return [replace(chosen, interval_ms=ms) for ms in (*shorter[-1:], *longer[:1])]


def _what_if(present: Chosen, one: Chosen) -> WhatIf:
    is_other_cap = one.inflight_cap_bytes != present.inflight_cap_bytes
    return WhatIf(
        mode=one.mode,
        aligned_timeout_ms=one.aligned_timeout_ms,
        inflight_cap_bytes=one.inflight_cap_bytes if is_other_cap else None,
        is_uncapped=is_other_cap and one.inflight_cap_bytes is None,
        interval_ms=float(one.interval_ms),
    )


# --- losses ---------------------------------------------------------------------------------------------------------


def _scored(job: _Job, chosen: Chosen, outcome: Outcome) -> Scored | None:
    if outcome.duration_ms is None or outcome.persisted_bytes is None or outcome.expired_ratio is None:
        return None
    sync = 0.0 if outcome.sync_pause_ms is None else outcome.sync_pause_ms.value
    interval, timeout = chosen.interval_ms, job.model.settings.timeout_ms
    mode = chosen.aligned_timeout_ms, chosen.inflight_cap_bytes
    waits = job.late.waits_ms(*mode)
    simulated = job.late.durations(outcome.duration_ms, waits, timeout)
    expired = job.late.expired_ratio(outcome.expired_ratio, outcome.duration_ms.value, waits, timeout)
    overtaken = job.late.overtaken_bytes(*mode)
    persisted = job.late.persisted(outcome.persisted_bytes, overtaken)
    # That fewer writes hang in a shorter interval is an assumption. Neither the loss nor a bound rests on it: if a
    # store hangs for seconds whenever it is written to, each checkpoint of a shorter interval hangs as long.
    when = replace(job.model.settings.schedule, interval_ms=float(interval))
    no_shorter = replace(when, interval_ms=float(max(interval, job.present.interval_ms)))
    # What is lost follows from means: a few slow or large checkpoints can cost more than all others.
    more = _mean_ms(outcome, timeout) + _mean(waits) - simulated.value
    written = outcome.persisted_mean_bytes
    written = (outcome.persisted_bytes.value if written is None else written) + _mean(overtaken)
    scored = Scored(
        chosen=chosen,
        lost_ratio=0.0,
        heavy_ratio=job.heavy_ratio(chosen, persisted, written),
        sync_ms=sync,
        duration_ms=job.hangs.durations(simulated, when),
        usual_ms=simulated.value,
        persisted_bytes=persisted,
        expired_ratio=job.hangs.expired_ratio(expired, simulated, when),
        bound_ratio=job.hangs.expired_ratio(expired, simulated, no_shorter).value,
    )
    durations = job.hangs.samples(simulated.value, no_shorter) + more
    return replace(scored, lost_ratio=_loss(job, scored, durations, written))


def _mean_ms(outcome: Outcome, timeout_ms: float) -> float:
    """Return the mean duration of the simulated checkpoints; the predicted value, if no single ones are known."""
    assert outcome.duration_ms is not None
    if not outcome.durations_ms:
        return outcome.duration_ms.value
    return float(np.minimum(outcome.durations_ms, timeout_ms).mean())


def _mean(values: Floats) -> float:
    return float(values.mean()) if values.size else 0.0


def _loss(job: _Job, one: Scored, durations: Floats, persisted: float) -> float:
    """Return the share of the time that is lost under these settings.

    ``durations`` are those of single checkpoints in milliseconds. They persist ``persisted`` bytes on average.
    """
    per_ms = job.bytes_per_ms
    expired = min(_EXPIRED_MAX, one.bound_ratio)
    # Checkpoints in which a write hangs delay the next one, and the others do not make up for that.
    period = float(np.maximum(one.chosen.interval_ms, durations + job.model.settings.min_pause_ms).mean())
    work = (one.sync_ms + STORE_PRICE * (persisted + job.upload_bytes) / per_ms) / period
    # A checkpoint that expires is followed by another one, so the newest completed one gets older by a period.
    age = period * (1 + expired) / (2 * (1 - expired)) + float(durations.mean())
    return work + (age + persisted / per_ms) / job.losses.between.value


def _share_above(limit: float, interval: Interval) -> float:
    """Return the share of checkpoints above a limit. They are log-normal, and ``found`` holds 90 % of them."""
    if interval.value <= 0 or interval.high <= interval.value:
        return float(interval.value > limit)
    spread = max(1e-9, log(interval.high / interval.value)) / NormalDist().inv_cdf(0.95)
    return 1 - NormalDist(log(interval.value), spread).cdf(log(limit))


def _with_best_interval(job: _Job, chosen: Chosen, outcome: Outcome) -> Scored | None:
    """Return the settings at the interval with the least loss, by the closed form; None if no interval fits."""
    moved = (replace(chosen, interval_ms=ms) for ms in _intervals(job, chosen.aligned_timeout_ms))
    candidates = [s for one in moved if (s := _scored(job, one, outcome)) is not None]
    calm = _calm(job, candidates)
    best = min(calm, key=_order(candidates), default=None)
    return None if best is None else _nearest(job, best, calm)


def _nearest(job: _Job, best: Scored, scored: Sequence[Scored]) -> Scored:
    """Return the best settings, or those that lose hardly more at an interval nearer to the present one.

    The nearer interval is taken only if writes hang now and then. How often they hang is known from only some twenty
    checkpoints, so a small difference in loss may be chance.
    """
    if not job.hangs.count:
        return best
    order = _order(scored)
    limit, most = order(best)[0], best.lost_ratio * (1 + _EVEN_IF_HUNG_RATIO)
    even = [s for s in scored if _mode_of(s.chosen) == _mode_of(best.chosen) and s.lost_ratio <= most]
    even = [s for s in even if order(s)[0] <= limit]
    return min(even, key=lambda s: abs(log(s.chosen.interval_ms / job.present.interval_ms)))


def _allowed(job: _Job, scored: Sequence[Scored]) -> list[Scored]:
    """Return the settings that may be chosen: the present ones, and those that R-INT-3 allows.

    That rule is no hard bound. If all settings that it allows break the hard bounds, others may be chosen that break
    them clearly less, if their checkpoints end before the next is due and their interval is not shorter than now.
    """
    calm, order = _calm(job, scored), _order(scored)
    least = min((order(s)[0] for s in calm), default=0.0) - 2 * BOUND_SLACK

    def is_allowed(one: Scored) -> bool:
        if one in calm or one.chosen == job.present:
            return True
        is_open = one.usual_ms > one.chosen.interval_ms or one.chosen.interval_ms < job.present.interval_ms
        return order(one)[0] < least and not is_open

    return [s for s in scored if is_allowed(s)]


def _calm(job: _Job, scored: Sequence[Scored]) -> list[Scored]:
    """Return the settings whose checkpoints run for at most half of the time (R-INT-3).

    If there are none, return those whose interval is not shorter than now.
    """
    calm = [s for s in scored if s.usual_ms <= OPEN_MAX_RATIO * s.chosen.interval_ms]
    return calm or [s for s in scored if s.chosen.interval_ms >= job.present.interval_ms]


# --- the choice -----------------------------------------------------------------------------------------------------


def _ranked(scored: Sequence[Scored]) -> list[Scored]:
    """Return the settings, best first: those that break a hard bound least, and among these the least loss."""
    return sorted(scored, key=_order(scored))


def _order(scored: Sequence[Scored]) -> Callable[[Scored], tuple[float, float]]:
    """Return the key by which settings are compared: first how far they exceed the bounds, then what they lose.

    The bounds are the smallest shares among all settings, plus some slack.
    """
    expired = min((s.bound_ratio for s in scored), default=0.0) + BOUND_SLACK
    heavy = min((s.heavy_ratio for s in scored), default=0.0) + 2 * BOUND_SLACK
    return lambda s: (max(0.0, s.bound_ratio - expired) + max(0.0, s.heavy_ratio - heavy), s.lost_ratio)


def _preferred(job: _Job, ranked: Sequence[Scored]) -> Scored:
    """Return the best settings, or others that lose hardly more and change less.

    The mode stays if another one saves too little, then the cap, then the interval. Of two modes that lose the same,
    the one with an aligned timeout is taken, because it persists nothing while barriers are quick.
    """
    order, present = _order(ranked), job.present

    def least(scored: Iterable[Scored], above: float) -> Scored | None:
        """Return the best of ``found``, if it breaks no more bounds than the best and loses hardly more."""
        one = min(scored, key=order, default=None)
        limit = order(ranked[0])
        is_even = one is not None and order(one)[0] <= limit[0] and one.lost_ratio - limit[1] < above
        return one if is_even else None

    loss = ranked[0].lost_ratio
    worth = max(LOSS_GAIN_MIN_RATIO * loss, LOST_MIN_RATIO)
    now = [s for s in ranked if _mode_of(s.chosen) == _mode_of(present)]
    kept = (
        least(now, worth)
        or least((s for s in ranked if s.chosen.aligned_timeout_ms and _has_cap_of(s, present)), LOSS_EVEN_RATIO * loss)
        or least((s for s in ranked if _has_cap_of(s, present)), LOSS_EVEN_RATIO * loss)
        or ranked[0]
    )
    same = (s for s in ranked if s.chosen == replace(kept.chosen, interval_ms=present.interval_ms))
    return least(same, LOSS_GAIN_MIN_RATIO * loss) or _nearest(job, kept, ranked)


def _mode_of(chosen: Chosen) -> tuple[int | None, int | None]:
    return chosen.aligned_timeout_ms, chosen.inflight_cap_bytes


def _has_cap_of(one: Scored, present: Chosen) -> bool:
    return one.chosen.inflight_cap_bytes == present.inflight_cap_bytes


def _error_ratio(model: JobModel) -> tuple[float | None, str]:
    """Return how far the model was from the durations of checkpoints that it had not seen, and a text about that."""
    errors = model.calibration.errors if model.calibration is not None else ()
    error = next((e for e in errors if e.measure == DURATION), None)
    if error is None or error.error_ratio is None:
        return None, "the model could not be scored on checkpoints that it had not seen"
    count = say.checkpoints(error.sample_count)
    text = f"the model was {say.percent(abs(error.error_ratio))} from the durations of {count} that it had not seen"
    return error.error_ratio, text
