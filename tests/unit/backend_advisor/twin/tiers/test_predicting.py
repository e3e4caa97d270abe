"""Outcomes: what the intervals contain, and how the calibration error widens them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.advisor.advice import Interval
from backend.advisor.twin.asking.changes import WhatIf
from backend.advisor.twin.model.hangs import Hangs
from backend.advisor.twin.model.model import Calibration, JobModel, MeasureError
from backend.advisor.twin.model.outcomes import Simulated, SimulatedCheckpoint, Tier
from backend.advisor.twin.tiers import predicting
from backend.advisor.twin.tiers.predicting import (
    DURATION,
    PERSISTED,
    RATE,
    believed_share,
    outcome_of,
    predict,
    simulated,
)
from backend.domain.advice import Mode
from tests.support.twin_models import three_vertices


def checkpoint(duration_ms: float, *, persisted: float = 0.0, is_expired: bool = False) -> SimulatedCheckpoint:
    return SimulatedCheckpoint(
        checkpoint_id=1,
        triggered_ms=0.0,
        duration_ms=duration_ms,
        is_expired=is_expired,
        persisted_bytes=persisted,
        checkpointed_bytes=persisted,
        travel_ms=duration_ms,
        alignment_ms=0.0,
        sync_ms=1.0,
    )


def runs(*found: SimulatedCheckpoint) -> list[Simulated]:
    return [Simulated(tier=Tier.RUNTIME, seed=1, checkpoints=found, records_per_s=2000.0, notes=("a note",))]


def scored(measured: float, predicted: float, spread: float = 0.0, measure: str = DURATION) -> JobModel:
    error = MeasureError(
        measure=measure,
        unit="ms",
        measured=measured,
        predicted=predicted,
        sample_count=5,
        unexplained_spread=spread,
    )
    return replace(three_vertices(), calibration=Calibration(fitted_ids=(1, 2, 3), scored_ids=(4, 5), errors=(error,)))


def width(model: JobModel, *, mode: Mode | None = None) -> float:
    interval = outcome_of(model, runs(checkpoint(4000.0), checkpoint(4400.0)), calibrated_mode=mode).duration_ms
    assert interval is not None
    assert interval.low < 4000 < 4400 < interval.high
    return interval.high / interval.low


def test_a_larger_calibration_error_makes_the_interval_wider():
    exact, off, spread = scored(4000.0, 4000.0), scored(4000.0, 5000.0), scored(4000.0, 4000.0, 0.3)

    assert width(exact) < 1.5
    assert width(off) > 1.5 * width(exact)
    assert width(spread) > 1.5 * width(exact)
    assert width(three_vertices()) > 1.5 * width(exact)
    assert width(exact, mode=Mode.UNALIGNED) > width(exact)


@pytest.mark.parametrize(("predicted", "half"), [(2000.0, 0.033), (2200.0, 0.16)])
def test_throughput_has_the_calibration_error_and_little_more(predicted: float, half: float):
    found = outcome_of(scored(2000.0, predicted, measure=RATE), runs(checkpoint(4000.0))).records_per_s

    assert found is not None
    assert found.high / found.value - 1 == pytest.approx(half, rel=0.1)
    assert found.value / found.low - 1 == pytest.approx(half, rel=0.1)


def test_the_interval_reaches_from_the_5_to_the_95_percent_quantile_of_the_simulated_checkpoints():
    found = outcome_of(
        scored(1000.0, 1000.0), runs(*(checkpoint(float(ms)) for ms in range(1000, 3001, 20)))
    ).duration_ms

    assert found is not None
    assert found.value == pytest.approx(2000.0)
    # The error of the tier and the jitter make it a little wider.
    assert 900 < found.low < 1100 < 2900 < found.high < 3150


def test_milliseconds_of_error_of_a_short_duration_do_not_multiply_a_long_one():
    assert width(scored(40.0, 60.0)) < 1.1 * width(scored(4000.0, 4000.0))


def test_a_model_that_was_not_scored_says_so():
    found = outcome_of(three_vertices(), runs(checkpoint(10.0)))

    assert "a note" in found.notes
    assert any("could not be scored" in note for note in found.notes)
    assert not any("scored" in n for n in outcome_of(scored(1.0, 1.0), runs(checkpoint(10.0))).notes)


def test_expired_checkpoints_end_at_the_timeout_and_their_share_has_an_interval():
    model = replace(scored(500.0, 500.0), settings=replace(three_vertices().settings, timeout_ms=600.0))
    mixed = outcome_of(model, runs(checkpoint(600.0, is_expired=True), checkpoint(500.0), checkpoint(550.0)))

    assert mixed.duration_ms is not None
    assert mixed.duration_ms.high == 600.0
    assert mixed.expired_ratio is not None
    assert mixed.expired_ratio.value == pytest.approx(1 / 3)
    assert mixed.expired_ratio.low < 1 / 3 < mixed.expired_ratio.high
    never = outcome_of(scored(500.0, 500.0), runs(checkpoint(500.0)))
    assert never.expired_ratio is not None
    assert never.expired_ratio.high == 0.0
    assert never.durations_ms == (500.0,)


def test_durations_a_little_below_the_timeout_may_all_expire():
    model = replace(scored(3900.0, 3950.0), settings=replace(three_vertices().settings, timeout_ms=4000.0))
    near = outcome_of(model, runs(*[checkpoint(3900.0 + n) for n in range(8)])).expired_ratio
    far = outcome_of(model, runs(*[checkpoint(2000.0 + n) for n in range(8)])).expired_ratio

    # Wilson's interval of none in 8 ends at 25 %.
    assert near is not None
    assert (near.value, near.low, near.high) == (0.0, 0.0, 1.0)
    assert far is not None
    assert far.high == 0.0


def test_the_share_that_expires_may_be_small_if_most_are_near_the_timeout():
    model = replace(scored(3900.0, 3950.0), settings=replace(three_vertices().settings, timeout_ms=4000.0))
    late = [checkpoint(4000.0, is_expired=True)] * 6
    near = outcome_of(model, runs(*late, checkpoint(3900.0), checkpoint(3950.0))).expired_ratio
    spread = outcome_of(model, runs(*late, checkpoint(400.0), checkpoint(900.0))).expired_ratio
    always = outcome_of(model, runs(*late)).expired_ratio

    assert near is not None
    assert spread is not None
    assert always is not None
    assert near.low < 0.1 < 0.3 < spread.low < 0.75 == near.value == spread.value
    assert always.low > 0.6


def test_persisted_bytes_are_those_of_checkpoints_that_completed():
    model = scored(1e6, 1e6, measure=PERSISTED)
    found = outcome_of(model, runs(checkpoint(10.0, persisted=2e6), checkpoint(600_000.0, is_expired=True)))

    assert found.persisted_bytes is not None
    assert found.persisted_bytes.value == 2e6


def test_no_checkpoint_in_the_simulated_time_is_no_prediction():
    found = outcome_of(three_vertices(), runs())

    assert found.duration_ms is None
    assert any("no checkpoint ended" in note for note in found.notes)


def test_the_fast_tier_runs_twice_only_if_shares_are_guesses_and_each_run_has_another(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(predicting, "simulate_fast", lambda model, *, seed: model.vertices[-1].input_shares[0])
    source, middle, sink = three_vertices().vertices
    guessed = tuple((share, *((1 - share) / 3,) * 3) for share in (0.3, 0.4, 0.5, 0.6, 0.7))
    model = replace(three_vertices(), vertices=(source, middle, replace(sink, share_guesses=guessed)))

    assert simulated(three_vertices(), Tier.FAST) == [0.25]
    assert simulated(model, Tier.FAST) == [0.4, 0.6]
    assert simulated(model, Tier.FAST, seeds=(1,)) == [0.5]
    assert simulated(model, Tier.FAST, seeds=(5, 6, 7)) == [0.3, 0.5, 0.7]


def test_formulas_answer_a_what_if_with_recovery():
    found = predict(three_vertices(rate_per_s=1000.0), WhatIf(interval_ms=10_000.0), Tier.FORMULAS)

    assert found.tier is Tier.FORMULAS
    assert found.duration_ms is not None
    assert found.restore_ms is not None
    assert found.catch_up_ms is not None
    assert found.catch_up_ms.value == pytest.approx(found.restore_ms.value + found.duration_ms.value + 5000.0)


@pytest.mark.parametrize("measured", [None, 0.0])
def test_a_measure_that_was_not_scored_has_the_interval_of_a_model_that_was_not(measured: float | None):
    # Aligned checkpoints of the job persisted nothing, or their bytes are not known.
    model = scored(100.0, 100.0) if measured is None else scored(measured, 0.0, measure=PERSISTED)
    found = outcome_of(model, runs(checkpoint(100.0, persisted=1e6))).persisted_bytes
    unscored = outcome_of(replace(model, calibration=None), runs(checkpoint(100.0, persisted=1e6))).persisted_bytes

    assert found is not None
    assert found == unscored
    assert found.low < 0.7e6
    assert found.high > 1.4e6


@pytest.mark.parametrize(("predicted_ms", "high"), [(4000.0, 1.22e6), (6000.0, 2.0e6)])
def test_bytes_that_aligned_checkpoints_do_not_show_are_as_uncertain_as_their_durations_and_a_little_more(
    predicted_ms: float, high: float
):
    durations, nothing = scored(4000.0, predicted_ms), scored(0.0, 0.0, measure=PERSISTED)
    assert durations.calibration is not None
    assert nothing.calibration is not None
    both = replace(durations.calibration, errors=(*durations.calibration.errors, *nothing.calibration.errors))
    model = replace(durations, calibration=both)
    found = outcome_of(model, runs(checkpoint(100.0, persisted=1e6)), calibrated_mode=Mode.UNALIGNED).persisted_bytes

    assert found is not None
    assert found.high == pytest.approx(high, rel=0.05)
    assert found.high / found.value == pytest.approx(found.value / found.low)


@pytest.mark.parametrize(("measured", "predicted"), [(5e6, 0.0), (0.0, 5e6)])
def test_bytes_that_the_score_contradicts_are_as_uncertain_as_those_of_a_model_that_was_not_scored(measured, predicted):
    durations, bytes_ = scored(4000.0, 4000.0), scored(measured, predicted, measure=PERSISTED)
    assert durations.calibration is not None
    assert bytes_.calibration is not None
    both = replace(durations.calibration, errors=(*durations.calibration.errors, *bytes_.calibration.errors))
    found = outcome_of(replace(durations, calibration=both), runs(checkpoint(100.0, persisted=1e6))).persisted_bytes
    plain = outcome_of(replace(durations, calibration=None), runs(checkpoint(100.0, persisted=1e6))).persisted_bytes

    assert found == plain


@pytest.mark.parametrize(
    ("share", "current", "measured_ratio", "believed"),
    [
        (0.5, Interval(0.5, 0.3, 0.7), 0.5, True),
        (0.0, Interval(1.0, 1.0, 1.0), 0.1, True),
        (0.4, Interval(1.0, 1.0, 1.0), 0.1, False),
        (0.0, Interval(0.0, 0.0, 0.0), 0.9, False),
    ],
)
def test_a_share_is_believed_if_the_model_explains_the_measured_one_or_lets_too_many_expire_and_then_none(
    share: float, current: Interval, measured_ratio: float, believed: bool
):
    found = believed_share(Interval(share, share, share), current, measured_ratio, 25)
    assert (found is not None) is believed


def hanging(model: JobModel, hangs: Hangs) -> JobModel:
    return replace(model, store=replace(model.store, hangs=hangs))


def test_writes_that_hang_are_part_of_each_number_of_an_outcome():
    settings = replace(three_vertices().settings, timeout_ms=20_000.0)
    model = replace(scored(1000.0, 1000.0), settings=settings)
    hangs = Hangs((0.0,) * 8 + (5_000.0, 60_000.0), (), settings.interval_ms)
    found = [checkpoint(1000.0 + n) for n in range(8)]
    plain, hung = outcome_of(model, runs(*found)), outcome_of(hanging(model, hangs), runs(*found))

    assert plain.duration_ms is not None
    assert plain.duration_ms.high < 2_000.0
    assert hung.duration_ms is not None
    assert hung.duration_ms.high == 20_000.0
    assert hung.duration_ms.value == pytest.approx(plain.duration_ms.value, rel=0.3)
    assert hung.expired_ratio is not None
    assert hung.expired_ratio.low < 0.1 < hung.expired_ratio.high
    assert hung.expired_ratio.value == pytest.approx(0.15, abs=0.1)
    assert max(hung.durations_ms) == 20_000.0
    assert len([ms for ms in hung.durations_ms if ms < 2_000.0]) > len(hung.durations_ms) / 2
    # The input since the last checkpoint is read again, and this one is older if checkpoints hang.
    assert hung.replay_ms is not None
    assert plain.replay_ms is not None
    assert hung.replay_ms.high > plain.replay_ms.high + 10_000


@pytest.mark.parametrize("tier", [Tier.FORMULAS, Tier.RUNTIME])
def test_each_tier_has_the_hangs_and_more_of_them_at_a_longer_interval(tier: Tier):
    model = three_vertices(rate_per_s=200.0, settings=replace(three_vertices().settings, timeout_ms=30_000.0))
    # One of ten checkpoints at an interval of three seconds expired after 30 s, so one was triggered every 5.7 s.
    often = hanging(model, Hangs((0.0,) * 9, (40_000.0,), 5_700.0))
    shares = []
    for interval_ms in (3_000.0, 9_000.0):
        found = predict(often, WhatIf(interval_ms=interval_ms), tier, seeds=(1,)).expired_ratio
        assert found is not None
        shares.append(found.value)

    assert predict(model, WhatIf(interval_ms=3_000.0), tier, seeds=(1,)).expired_ratio == Interval(0, 0, 0)
    assert 0.05 < shares[0] < 0.8 * shares[1]


def unaligned(ms: float, *, service_us: float | None = None, mode: Mode = Mode.UNALIGNED) -> Interval:
    model = scored(ms, ms)
    model = replace(model, settings=replace(model.settings, mode=mode))
    if service_us is not None:
        last = model.vertices[-1]
        slow = replace(last, service_us=(service_us,) * len(last.service_us))
        model = replace(model, vertices=(*model.vertices[:-1], slow))
    found = outcome_of(model, runs(*(checkpoint(ms + n) for n in range(-3, 4)))).duration_ms
    assert found is not None
    return found


def test_the_interval_of_a_short_unaligned_checkpoint_allows_for_what_the_host_does():
    """Measured on a running Flink: 34 ms where 123 ms were predicted, and 77 ms where 35 ms were."""
    assert unaligned(123.0).low < 34
    assert unaligned(35.0).high > 77
    assert (unaligned(35.0).value, unaligned(123.0).value) == (35.0, 123.0)
    one, slow = unaligned(35.0, service_us=1_000.0), unaligned(35.0, service_us=101_000.0)
    assert slow.high - one.high == pytest.approx(100.0)


def test_from_a_second_on_and_with_other_modes_the_host_makes_no_interval_wider():
    for ms in (1_000.0, 4_000.0):
        assert unaligned(ms) == unaligned(ms, mode=Mode.ALIGNED)
    assert unaligned(100.0, mode=Mode.ALIGNED).high < unaligned(100.0).high
    widths = [unaligned(ms).high - unaligned(ms, mode=Mode.ALIGNED).high for ms in (100.0, 500.0, 900.0)]
    assert widths == sorted(widths, reverse=True)
