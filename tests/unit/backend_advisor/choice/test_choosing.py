"""Tests of the choice of settings by the fast simulation (R-INT-1)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from backend.advisor.advice import Interval
from backend.advisor.choice import choosing
from backend.advisor.choice.choosing import SETTINGS_MAX, choose
from backend.advisor.choice.late_barriers import LateBarriers
from backend.advisor.choice.uneven_queues import Uneven
from backend.advisor.losses import Losses
from backend.advisor.situation import situation
from backend.advisor.thresholds import OPEN_MAX_RATIO
from backend.advisor.tier_choice import HOLDS, Scored, Series
from backend.advisor.twin.asking.changes import WhatIf
from backend.advisor.twin.fast import fast
from backend.advisor.twin.model.building import build
from backend.advisor.twin.model.model import JobModel
from backend.advisor.twin.model.outcomes import Outcome
from backend.domain.advice import Mode, Topic
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.engines import RUNTIME, flink
from backend.domain.failure import FailureReason
from backend.domain.verdict import Confidence, VerdictKind
from tests.simulators.regret_jobs import Drawn
from tests.support.advised_jobs import on
from tests.support.chosen_jobs import NOTHING, QUICK, SLOW, Predicted, advised, chosen, outcome, uncalibrated

_FAILURES = 5
_DRAWN = Drawn.of("light/1")


@pytest.fixture
def often(known):
    """The job, with a failure every 40 seconds: the least is lost at short intervals."""
    times = [known.evidence.now - timedelta(seconds=40 * n) for n in range(_FAILURES, 0, -1)]
    return replace(known, evidence=replace(known.evidence, exceptions=tuple((at, "a lost host") for at in times)))


# --- the choice ---


def test_the_settings_with_the_least_loss_are_chosen(known):
    choice = chosen(known)

    assert choice.now.chosen.mode is Mode.ALIGNED
    assert choice.best.chosen.mode is not Mode.ALIGNED
    assert choice.best.lost_ratio < choice.now.lost_ratio
    assert choice.best.lost_ratio <= 1.01 * min(s.lost_ratio for s in choice.by_mode)
    assert choice.config == known.evidence.config
    assert choice.newest_id == max(known.ids)


def test_few_settings_are_simulated_and_each_once(known):
    predicted = Predicted(outcome(SLOW), outcome(QUICK, 20_000.0))
    choice = choose(known, model_of=uncalibrated, predict_with=predicted)

    assert len(set(predicted.asked)) == len(predicted.asked) == choice.setting_count <= SETTINGS_MAX
    assert choose(known, model_of=uncalibrated, predict_with=predicted) == choice


@pytest.mark.parametrize("unaligned", [outcome(QUICK, 1e12), outcome(QUICK, 20_000.0, expired=0.2)])
def test_settings_that_break_a_hard_bound_are_not_chosen(known, unaligned):
    assert chosen(known, outcome(SLOW), unaligned).best.chosen.mode is Mode.ALIGNED


def test_a_shorter_interval_leaves_less_time_to_write_in_flight_data(known, often):
    present_ms = known.evidence.config.interval_ms

    def best(persisted: float) -> Scored:
        written = outcome(QUICK, 20_000.0)
        return chosen(often, None, replace(written, persisted_bytes=Interval(*(persisted,) * 3))).best

    # The store takes a fifth of the present interval to write as much.
    light, heavy = best(20_000.0), best(uncalibrated(known).store.small_bytes_per_ms * present_ms / 5)

    assert light.chosen.interval_ms < 0.8 * present_ms <= heavy.chosen.interval_ms
    assert heavy.chosen.mode is not Mode.ALIGNED
    assert heavy.heavy_ratio == 0.0


def test_no_interval_is_chosen_in_which_checkpoints_run_for_most_of_the_time(known, often):
    """The simulation of the shorter interval says that its checkpoints take longer than the closed form expects."""
    present_ms = float(known.evidence.config.interval_ms)

    def predict(model: JobModel, what_if: WhatIf) -> Outcome:
        ms = 0.6 * what_if.interval_ms if what_if.interval_ms < present_ms else 300.0
        return replace(outcome(Interval(ms, ms / 2, ms * 2)), sync_pause_ms=NOTHING)

    choice = choose(often, model_of=uncalibrated, predict_with=predict)

    assert choice.best.duration_ms.value <= OPEN_MAX_RATIO * choice.best.chosen.interval_ms


def test_settings_whose_simulation_is_too_large_are_left_out(known, monkeypatch):
    present_ms = known.evidence.config.interval_ms
    monkeypatch.setattr(fast, "steps_of", lambda m: 2e6 if m.settings.interval_ms > present_ms else 2.5e5)
    large = Predicted(outcome(SLOW), outcome(QUICK, 20_000.0))
    choose(known, model_of=uncalibrated, predict_with=large)
    monkeypatch.setattr(fast, "steps_of", lambda m: 1e6)
    many = Predicted(outcome(SLOW), outcome(QUICK, 20_000.0))
    choice = choose(known, model_of=uncalibrated, predict_with=many)

    assert {w.interval_ms for w in large.asked} <= {float(ms) for ms in range(present_ms + 1)}
    assert len(many.asked) == choice.setting_count == 10


def test_settings_that_fill_a_queue_of_the_simulation_are_left_out(known):
    predicted = Predicted(outcome(SLOW), outcome(QUICK, 20_000.0))

    def full(full_mode):
        def predict(model, what_if):
            if what_if.mode is full_mode:
                raise fast.FullQueueError("a queue is full")
            return predicted(model, what_if)

        return choose(known, model_of=uncalibrated, predict_with=predict)

    choice = full(Mode.UNALIGNED)
    assert choice.why_not is None
    assert choice.best is not None
    assert Mode.UNALIGNED not in {s.chosen.mode for s in choice.by_mode}
    # Without the present settings, nothing can be compared.
    assert "a queue is full" in full(choice.now.chosen.mode).why_not


def test_intervals_keep_their_hard_bounds(known):
    timeout_ms = known.evidence.config.timeout_ms
    predicted = Predicted(outcome(SLOW), outcome(QUICK, 20_000.0))
    choose(known, model_of=uncalibrated, predict_with=predicted)

    assert all(w.interval_ms <= timeout_ms for w in predicted.asked)
    assert all(2 * (w.aligned_timeout_ms or 0) <= w.interval_ms for w in predicted.asked)


def test_of_settings_that_lose_the_same_the_present_ones_are_chosen(known):
    choice = chosen(known, outcome(QUICK), outcome(QUICK))
    card = on(Topic.INTERVAL, advised(known.evidence, choice))

    assert choice.best.chosen.mode is Mode.ALIGNED
    assert [c.key for c in card.changes] == [RUNTIME.settings.interval]
    assert card.direction == ("raise" if choice.best.chosen.interval_ms > choice.now.chosen.interval_ms else "lower")


def test_a_simulation_without_the_measured_expired_checkpoints_does_not_choose(known):
    rows = tuple(replace(r, is_expired=n % 2 == 0) for n, r in enumerate(known.recorded))
    choice = chosen(replace(known, recorded=rows))
    timeout = float(known.evidence.config.timeout_ms)
    near = chosen(replace(known, recorded=rows), outcome(Interval(0.8 * timeout, 0.7 * timeout, 0.9 * timeout)))

    assert choice.best is None
    assert "the model lacks their cause" in choice.why_not
    assert near.best is not None


def _hanging(known, delay_ms, *, every=3, expired=()):
    """Return the job, with a write that hung for ``delay_ms`` in every third checkpoint.

    Those at the places ``expired`` expired without a trace of their writes.
    """
    rows = []
    for n, r in enumerate(known.evidence.checkpoints):
        details = r.details
        if n % every == 0 and n not in expired:
            late = tuple(None if ms is None else ms + delay_ms for ms in details[-1].async_duration_ms)
            details = (*details[:-1], replace(details[-1], async_duration_ms=late))
        rows.append(_expire(r) if n in expired else replace(r, details=details))
    evidence = replace(known.evidence, checkpoints=tuple(rows))
    return situation(evidence, engine=RUNTIME, version="0.0.0")


def _expire(checkpoint):
    header = checkpoint.header
    return replace(
        checkpoint,
        header=replace(
            header,
            status=CheckpointStatus.FAILED,
            failure_reason=FailureReason.EXPIRED,
            failed_at=header.triggered_at + timedelta(seconds=20),
            end_to_end_duration_ms=None,
        ),
    )


def test_if_writes_hang_for_half_of_the_timeout_the_interval_does_not_grow(known):
    timeout, present = known.evidence.config.timeout_ms, known.evidence.config.interval_ms

    def interval(delay_ms, **how):
        return chosen(_hanging(known, delay_ms, **how), outcome(QUICK), outcome(SLOW)).best.chosen.interval_ms

    assert chosen(known, outcome(QUICK), outcome(SLOW)).best.chosen.interval_ms > present
    assert interval(0.2 * timeout, every=15) > present
    # Two of them in a longer interval would reach the timeout.
    assert interval(0.55 * timeout, every=15) <= present
    assert interval(0.6 * timeout) <= present


def test_a_shorter_interval_is_not_chosen_because_fewer_writes_would_hang(known):
    found = chosen(_hanging(known, 5_000), outcome(QUICK), outcome(SLOW))

    shorter = [s for s in found.by_mode if s.chosen.interval_ms < found.now.chosen.interval_ms]
    assert all(s.bound_ratio >= found.now.bound_ratio for s in shorter)
    assert found.best.chosen.interval_ms >= known.evidence.config.interval_ms


def test_the_mean_of_the_simulated_durations_counts_and_not_their_median(known):
    even, uneven = outcome(QUICK), replace(outcome(QUICK), durations_ms=(*(200.0,) * 8, 9_000.0, 9_000.0))

    assert chosen(known, even, even).best.chosen.mode is Mode.ALIGNED
    assert chosen(known, uneven, even).best.chosen.mode is not Mode.ALIGNED
    large = replace(even, persisted_bytes=Interval(1e3, 0.0, 1e5), persisted_mean_bytes=1e9)
    assert chosen(known, uneven, large).best.chosen.mode is Mode.ALIGNED


def test_barriers_that_were_later_than_simulated_count_for_the_modes_that_wait_for_them(known, monkeypatch):
    excess = np.array([0.0] * 8 + [6_000.0] * 2)
    late = LateBarriers(excess, usual_ms=100.0, bytes_per_ms=np.full((10, 2), 0.5))
    monkeypatch.setattr(LateBarriers, "of", lambda *_: late)

    choice = chosen(known, outcome(QUICK), outcome(QUICK))

    assert choice.best.chosen.mode is not Mode.ALIGNED
    assert choice.best.persisted_bytes.value > 0
    assert choice.now.duration_ms.high >= 6_000.0
    assert choice.now.lost_ratio > choice.best.lost_ratio
    monkeypatch.setattr(LateBarriers, "of", lambda *_: replace(late, bytes_per_ms=np.full((10, 2), 1e9)))
    assert chosen(known, outcome(QUICK), outcome(QUICK)).best.chosen.mode is Mode.ALIGNED


def test_a_mode_whose_largest_checkpoints_would_be_too_heavy_is_not_chosen(known, monkeypatch):
    """The mean would keep the limit. But the queues of every fifth recorded checkpoint were three times as large."""
    limit = chosen(known).limit_bytes
    half = outcome(QUICK, 1.0)
    half = replace(half, persisted_bytes=Interval(*(limit / 2,) * 3), persisted_mean_bytes=limit / 2)
    assert chosen(known, outcome(SLOW), half).best.chosen.mode is not Mode.ALIGNED

    monkeypatch.setattr(Uneven, "of", lambda *_: Uneven(np.array([0.5, 0.5, 0.5, 0.5, 3.0])))
    found = chosen(known, outcome(SLOW), half)

    assert found.best.chosen.inflight_cap_bytes is not None or found.best.chosen.mode is Mode.ALIGNED
    assert max(s.heavy_ratio for s in found.by_mode) == pytest.approx(0.2)


def test_if_none_of_the_promising_settings_keeps_the_bounds_the_others_are_simulated_too(known):
    """The shortest aligned timeout promises least, and only it has little in-flight data at another interval."""
    asked = _asked(known, outcome(QUICK, 20_000.0))
    last_ms = min(w.aligned_timeout_ms for w in asked if w.aligned_timeout_ms)
    first_ms = min(w.interval_ms for w in asked if w.aligned_timeout_ms == last_ms)

    def predict(model, what_if):
        if what_if.mode is Mode.ALIGNED:
            return outcome(SLOW, expired=1.0)
        if what_if.aligned_timeout_ms != last_ms:
            return outcome(QUICK, 1e12)
        return outcome(QUICK, 1e13 if what_if.interval_ms == first_ms else 20_000.0)

    choice = choose(known, model_of=uncalibrated, predict_with=predict)

    assert choice.best.chosen.aligned_timeout_ms == last_ms
    assert choice.best.heavy_ratio == 0.0


def _taking(share, persisted, expired=0.0):
    """Return what settings other than aligned ones do: checkpoints take this share of their interval."""

    def predict(model, what_if):
        if what_if.mode is Mode.ALIGNED:
            return outcome(SLOW, expired=1.0)
        if what_if.interval_ms == 2 * (what_if.aligned_timeout_ms or 0):
            ms = share * what_if.interval_ms
            return outcome(Interval(ms, ms / 2, ms * 2), persisted, expired)
        return outcome(QUICK, 1e12)

    return predict


def test_of_settings_that_all_break_a_bound_those_that_break_it_least_are_chosen(known):
    """The others persist far too much, or always expire. Checkpoints may then run for more than half of the time."""
    choice = choose(known, model_of=uncalibrated, predict_with=_taking(0.6, 20_000.0))

    assert choice.best.chosen.interval_ms == 2 * choice.best.chosen.aligned_timeout_ms
    assert choice.best.chosen.interval_ms >= known.evidence.config.interval_ms
    assert choice.best.heavy_ratio == 0.0


@pytest.mark.parametrize(
    "predict",
    [_taking(0.6, 1e10), _taking(0.6, 20_000.0, expired=1.0), _taking(1.2, 20_000.0)],
    ids=["as heavy", "all expire", "longer than the interval"],
)
def test_settings_that_break_bounds_no_less_must_not_run_for_most_of_the_time(known, predict):
    choice = choose(known, model_of=uncalibrated, predict_with=predict)

    is_open = choice.best.usual_ms > OPEN_MAX_RATIO * choice.best.chosen.interval_ms
    assert choice.best.chosen == choice.now.chosen or not is_open


def _asked(known, unaligned):
    predicted = Predicted(outcome(SLOW), unaligned)
    choose(known, model_of=uncalibrated, predict_with=predicted)
    return predicted.asked


def test_while_choices_are_followed_the_limit_on_in_flight_data_stays_as_it_was_before_the_first(known):
    first = chosen(known)
    series = Series(began_at=first.made_at, limit_bytes=first.limit_bytes / 10)
    heavy = outcome(QUICK, first.limit_bytes / 3)

    assert chosen(known, outcome(SLOW), heavy).best.chosen.mode is not Mode.ALIGNED
    later = chosen(replace(known, series=series), outcome(SLOW), heavy)

    assert later.limit_bytes == series.limit_bytes
    assert later.series == series
    assert later.best.chosen.mode is Mode.ALIGNED


def _with(config, chosen):
    """Return settings of a job after those of a choice were followed."""
    return replace(
        config,
        interval_ms=chosen.interval_ms,
        is_unaligned_enabled=chosen.aligned_timeout_ms is not None,
        aligned_timeout_ms=chosen.aligned_timeout_ms,
        inflight_cap_bytes=chosen.inflight_cap_bytes,
    )


def test_a_series_of_choices_goes_on_while_they_are_followed_and_for_a_day(known):
    first = chosen(known)
    now, config = first.made_at, known.evidence.config
    followed = _with(config, first.best.chosen)
    series = first.series_at(followed, now)

    assert series == Series(began_at=now, limit_bytes=first.limit_bytes)
    # Other cards may have been followed too.
    assert first.series_at(replace(followed, min_pause_ms=777), now) == series
    second = replace(first, config=followed, now=first.best, best=first.now, series=series, made_at=now + HOLDS / 2)
    assert second.series_at(followed, now + HOLDS) == series
    assert second.series_at(config, now + HOLDS) == series
    assert second.series_at(followed, now + HOLDS + timedelta(seconds=1)) is None
    # Nothing was followed: the settings are the same, or they are not known.
    assert first.series_at(config, now) is None
    assert first.series_at(None, now) is None


def test_the_best_settings_of_a_mode_that_has_to_stay_are_followed_too(known):
    first = chosen(known)
    other = next(s for s in first.by_mode if s.chosen not in (first.best.chosen, first.now.chosen))

    assert first.series_at(_with(known.evidence.config, other.chosen), first.made_at) is not None


@pytest.mark.parametrize(
    "changes",
    [{"interval_ms": 12_345}, {"aligned_timeout_ms": 888}, {"is_unaligned_enabled": False}, {"inflight_cap_bytes": 1}],
    ids=lambda c: next(iter(c)),
)
def test_settings_that_were_not_chosen_begin_no_series_and_end_one(known, changes):
    first = chosen(known)
    series = Series(began_at=first.made_at, limit_bytes=1.0)
    other = replace(_with(known.evidence.config, first.best.chosen), **changes)

    assert first.series_at(other, first.made_at) is None
    assert replace(first, series=series).series_at(other, first.made_at) is None


def test_a_change_of_other_settings_alone_begins_no_series(known):
    """The best settings have the present interval, and only the timeout of checkpoints was raised."""
    first = chosen(known)
    config = known.evidence.config
    best = replace(first.best, chosen=replace(first.best.chosen, interval_ms=config.interval_ms))

    raised = replace(config, timeout_ms=600_000)
    assert replace(first, best=best, by_mode=(best, first.now)).series_at(raised, first.made_at) is None


def test_writes_that_hang_explain_expired_checkpoints(known):
    count = len(known.evidence.checkpoints)
    choice = chosen(_hanging(known, 2_000, expired=range(1, count, 4)), outcome(QUICK), outcome(SLOW))

    assert choice.why_not is None
    assert choice.now.expired_ratio.value == pytest.approx(1 / 4, abs=0.1)
    assert choice.now.duration_ms.high > 2_000


@pytest.mark.parametrize("is_newest", [True, False])
def test_expired_checkpoints_count_among_all_that_show_how_often_writes_hang(known, is_newest):
    """Half of the ten newest checkpoints expired, and none before. Or none of them did, and as many of those before."""
    count = len(known.evidence.checkpoints)
    expired = range(count - 10, count, 2) if is_newest else range(0, 10, 2)

    choice = chosen(_hanging(known, 2_000, expired=expired), outcome(QUICK), outcome(SLOW))

    assert count > 12
    assert choice.why_not is None
    assert choice.now.expired_ratio.value == pytest.approx(5 / count, abs=0.05)


def test_older_expired_checkpoints_keep_the_interval_from_growing_too(known, monkeypatch):
    older = tuple(replace(r, is_expired=True) for r in known.recorded[:3])
    monkeypatch.setattr(Losses, "recorded", property(lambda _: (*older, *known.recorded)))

    found = chosen(known, outcome(QUICK), outcome(SLOW))

    assert found.best.chosen.interval_ms <= known.evidence.config.interval_ms


def test_clearly_more_expired_checkpoints_than_simulated_keep_the_interval_from_growing(known):
    rows = tuple(replace(r, is_expired=n % 5 == 0) for n, r in enumerate(known.recorded))

    found = chosen(replace(known, recorded=rows), outcome(QUICK), outcome(SLOW))

    assert found.why_not is None
    assert found.best.chosen.interval_ms <= known.evidence.config.interval_ms


def test_more_expired_checkpoints_in_the_simulation_than_measured_lower_the_confidence(evidence, known):
    choice = chosen(known, outcome(SLOW, expired=0.5))
    card = on(Topic.MODE, advised(evidence, choice))

    assert card.confidence is Confidence.LOW
    assert "50 % of the checkpoints would expire now, and 0 % did" in card.confidence_reason
    (now,) = (c for c in card.candidates if c.is_current)
    assert now.expired_ratio == 0.0


def test_small_uploads_show_the_speed_of_the_store(known):
    store = uncalibrated(known).store

    assert store.small_bytes_per_ms == pytest.approx(_DRAWN.store_bytes_per_s / 1000, rel=0.3)
    # What small uploads to Flink take is mostly latency.
    assert build(known.evidence, engine=flink("1.20.5"), version="1.20.5").store == replace(
        store, small_bytes_per_ms=None
    )


def test_the_speed_that_the_uploads_show_is_the_price_of_what_is_written(known):
    """The same in-flight data cost more on a store of a tenth of the speed."""

    def lost(speed: float) -> float:
        def model_of(one):
            model = uncalibrated(one)
            return replace(model, store=replace(model.store, small_bytes_per_ms=speed))

        written = replace(outcome(QUICK), persisted_bytes=Interval(*(1e6,) * 3))
        choice = choose(known, model_of=model_of, predict_with=Predicted(outcome(QUICK), written))
        return next(s for s in choice.by_mode if s.chosen.mode is Mode.UNALIGNED).lost_ratio

    assert lost(500.0) > lost(5_000.0) + 1e-3


def test_modes_are_compared_if_the_store_hangs_and_not_if_each_write_takes_long(known):
    verdict = replace(known.diagnosis.verdict, kind=VerdictKind.STORE)
    blamed = replace(known, diagnosis=replace(known.diagnosis, verdict=verdict))

    def modes(own_async_ms: float, duration_ms: float) -> set[Mode]:
        rows = (replace(r, own_async_ms=own_async_ms, duration_ms=duration_ms) for r in known.recorded)
        return {s.chosen.mode for s in chosen(replace(blamed, recorded=tuple(rows))).by_mode}

    assert len({s.chosen.mode for s in chosen(blamed).by_mode}) > 1
    assert modes(12_000.0, 20_000.0) == {Mode.ALIGNED}
    assert len(modes(8_000.0, 20_000.0)) > 1
    # Writes of less than a second are quick, whatever part of a checkpoint they take.
    assert len(modes(600.0, 700.0)) > 1


# --- the advice ---


def test_of_intervals_that_lose_hardly_more_the_nearest_one_is_chosen_if_writes_hang(known, monkeypatch):
    present_ms = known.evidence.config.interval_ms
    hanging = _hanging(known, 1_000, every=5)
    before = chosen(hanging, outcome(QUICK), outcome(SLOW)).best.chosen.interval_ms
    steady = chosen(known, outcome(QUICK), outcome(SLOW)).best.chosen.interval_ms
    monkeypatch.setattr(choosing, "_EVEN_IF_HUNG_RATIO", 0.2)

    assert present_ms < chosen(hanging, outcome(QUICK), outcome(SLOW)).best.chosen.interval_ms < before
    assert chosen(known, outcome(QUICK), outcome(SLOW)).best.chosen.interval_ms == steady
