"""Tests of how predictions are presented: the front, and shares of expired checkpoints that were not measured."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from backend.advisor.advice import Interval
from backend.advisor.proposing import middle_of
from backend.contracts.advice import IntervalOut
from backend.contracts.whatif import EstimateOut, Measure, MeasuredNowOut, PredictionOut, Tier
from backend.domain.pressure import VertexPressure
from backend.domain.replay_debt import ReplayBound
from backend.services.whatif.presenting import (
    checked,
    rates_of,
    unpredicted,
    value_of,
    with_front,
    with_trend,
)
from tests.support.observations import NOW, SOURCE, pressure

COUNT = 25


def prediction(share: float, *, low: float | None = None, high: float | None = None) -> PredictionOut:
    interval = IntervalOut(value=share, low=share if low is None else low, high=share if high is None else high)
    rows = ((Measure.EXPIRED, interval), (Measure.DURATION, IntervalOut(value=9.0, low=8.0, high=10.0)))
    estimates = [EstimateOut(measure=m, unit="-", predicted=p, tier=Tier.FAST) for m, p in rows]
    return PredictionOut(settings={}, tier=Tier.FAST, estimates=estimates)


def measured(share: float | None) -> list[MeasuredNowOut]:
    return [MeasuredNowOut(measure=Measure.EXPIRED, unit="ratio", value=share)]


def shares(found: list[PredictionOut]) -> list[float | None]:
    return [value_of(p, Measure.EXPIRED) for p in found]


def test_a_share_that_the_measured_one_contradicts_is_not_predicted_and_a_note_says_so():
    found = checked([prediction(1.0), prediction(0.0), prediction(0.5)], measured(0.12), COUNT)

    assert shares(found) == [None, 0.0, None]
    for one in found:
        assert "lets 100 % of the checkpoints expire, and 12 % of the last 25 did" in one.notes[-1]
        assert value_of(one, Measure.DURATION) == 9.0


def test_a_model_that_lets_too_few_checkpoints_expire_predicts_no_share():
    assert shares(checked([prediction(0.0), prediction(0.0)], measured(0.5), COUNT)) == [None, None]


def with_replay(predicted: PredictionOut) -> PredictionOut:
    rows = (
        EstimateOut(measure=m, unit="ms", predicted=IntervalOut(value=6500.0, low=3600.0, high=9000.0), tier=Tier.FAST)
        for m in (Measure.REPLAY, Measure.CATCH_UP)
    )
    return predicted.model_copy(update={"estimates": [*predicted.estimates, *rows]})


def bounds(found: PredictionOut) -> list[ReplayBound]:
    return [e.bound for e in found.estimates if e.measure in (Measure.REPLAY, Measure.CATCH_UP)]


def test_a_model_that_lets_checkpoints_complete_of_a_job_whose_checkpoints_all_expire_predicts_no_short_replay():
    found = checked([with_replay(prediction(0.0)), with_replay(prediction(0.0))], measured(1.0), COUNT)

    assert [value_of(p, m) for p in found for m in (Measure.REPLAY, Measure.CATCH_UP)] == [None] * 4
    assert bounds(found[0]) == [ReplayBound.ENDLESS] * 2, "no checkpoint of the job as it is completed"
    assert bounds(found[1]) == [ReplayBound.BOUNDED] * 2, "what the change does is not known"
    assert "predicts neither this share nor what a failure would read again" in found[0].notes[-1]


def test_a_believed_share_keeps_what_a_failure_reads_again():
    found = checked([with_replay(prediction(0.0)), with_replay(prediction(0.0))], measured(0.0), COUNT)

    assert [value_of(p, Measure.REPLAY) for p in found] == [6500.0, 6500.0]


@pytest.mark.parametrize(
    ("predicted", "share"),
    [
        (prediction(0.0), 0.0),
        (prediction(0.0), 0.04),
        (prediction(0.1, low=0.0, high=0.4), 0.3),
        (prediction(1.0), 1.0),
    ],
)
def test_a_share_within_what_chance_explains_stays(predicted, share):
    found = checked([predicted, prediction(0.0)], measured(share), COUNT)

    assert found == [predicted, prediction(0.0)]


def _took(*seconds: float | None) -> list[MeasuredNowOut]:
    values = [None if s is None else 1000 * s for s in seconds]
    return [MeasuredNowOut(measure=Measure.DURATION, unit="ms", value=1.0, values=values)]


@pytest.mark.parametrize(
    ("took", "words"),
    [
        (
            _took(2, 3, 2.5, 5, None, 6, 6, 8, 9, 8.5),
            "rise: the newest 3 took 8.5 s in the median, and the oldest 3 2.5",
        ),
        (_took(9, 8, 8.5, 5, 5, 5, 2, 3, 2.5), "fall: the newest 3 took 2.5 s"),
    ],
)
def test_durations_that_rise_or_fall_are_a_note_because_the_next_ones_are_predicted(took, words):
    for one in with_trend([prediction(0.0), prediction(0.5)], took):
        assert words in one.notes[-1]
        assert value_of(one, Measure.DURATION) == 9.0


@pytest.mark.parametrize(
    "took",
    [
        # Too few, a single long one, hardly longer ones, and durations that are not known.
        _took(1, 2, 3, 4, 5, 6, 7, 8),
        _took(2, 9, 2, 5, 5, 5, 8, 8, 8),
        _took(4, 4, 4.1, 4.1, 4.1, 4.1, 4.2, 4.2, 4.2),
        _took(*[None] * 12),
        measured(0.5),
    ],
)
def test_durations_without_a_clear_trend_are_no_note(took):
    assert with_trend([prediction(0.0)], took) == [prediction(0.0)]


def test_the_interval_of_measured_values_holds_the_middle_of_them_and_not_those_that_are_missing():
    found = middle_of([None, *(float(v) for v in range(21))])

    assert found == Interval(10.0, 1.0, 19.0)
    assert middle_of([None]) is None


def test_a_measured_rate_is_the_whole_one_with_the_middle_of_those_between_readings():
    counts = [0, 100, 200, 300, 1300]
    readings = [_reading(i, count) for i, count in enumerate(counts)]

    found = rates_of(readings)
    assert (found.value, found.low) == (32.5, 10.0)
    assert 32.5 < found.high < 100
    # One missing reading leaves out two rates. A count that began anew has no whole rate.
    assert rates_of([*readings[:1], _reading(1, None), *readings[2:]]).value == 32.5
    assert rates_of([_reading(0, 500), _reading(1, 100)]) is None
    assert rates_of(readings[:1]) is None


def test_a_measured_rate_is_that_of_the_engine_and_not_of_counts_of_unknown_age():
    # The counts are read every second and change every 10 s, so the rates between readings are 0 or ten times too high.
    readings = [replace(_reading(i, 1000 * (i // 10)), records_out_per_s=(40.0, 60.0)) for i in range(15)]
    readings[3] = replace(readings[3], records_out_per_s=(40.0, None))
    readings[4] = replace(readings[4], records_out_per_s=(50.0, 60.0))

    found = rates_of(readings)

    assert found.value == pytest.approx(100.7, abs=0.1)
    assert found.low == 100.0
    assert 100.7 < found.high <= 110.0
    assert rates_of([_reading(0, 500), replace(_reading(1, 100), records_out_per_s=(50.0,))]) is None, "restarted"


@pytest.mark.parametrize(
    "counts",
    [
        # After the restart, the source emits more than before. The count falls in all subtasks, in one of them, behind
        # a missing reading, behind a missing subtask, behind a reading without counts, and with one more subtask.
        [(100,), (200,), (50,), (1000,)],
        [(100, 100), (200, 200), (1000, 50), (2000, 1000)],
        [(100, 100), (200, 200), (None, None), (50, 1000), (1000, 2000)],
        [(100, 100), (200, None), (50, 1000), (1000, 2000)],
        [(100,), (), (50,), (1000,)],
        [(100,), (200,), (50, 1000), (1000, 2000)],
    ],
)
def test_a_count_that_began_anew_between_the_readings_has_no_whole_rate(counts: list[tuple[int | None, ...]]):
    assert rates_of([_of_subtasks(i, row) for i, row in enumerate(counts)]) is None


def test_a_reading_without_one_of_the_subtasks_is_no_restart():
    counts: list[tuple[int | None, ...]] = [(100, 100), (200, None), (300, 300)]

    found = rates_of([_of_subtasks(i, row) for i, row in enumerate(counts)])

    assert found is not None
    assert found.value == 20.0


def _reading(number: int, count: int | None) -> VertexPressure:
    return _of_subtasks(number, (count, None))


def _of_subtasks(number: int, counts: tuple[int | None, ...]) -> VertexPressure:
    return replace(pressure(SOURCE, NOW + number * timedelta(seconds=10)), records_out_count=counts)


def test_without_a_measured_share_nothing_is_checked():
    assert checked([prediction(1.0)], measured(None), 0) == [prediction(1.0)]


def of(expired: float, duration: float, persisted: float) -> PredictionOut:
    values = {Measure.EXPIRED: expired, Measure.DURATION: duration, Measure.PERSISTED: persisted}
    rows = [
        EstimateOut(measure=m, unit="-", predicted=IntervalOut(value=v, low=v, high=v), tier=Tier.FAST)
        for m, v in values.items()
    ]
    return PredictionOut(settings={}, tier=Tier.FAST, estimates=rows)


def test_on_the_front_is_what_nothing_beats_in_expired_share_duration_and_persisted_bytes():
    safe, quick, small, beaten = of(0.0, 900, 50), of(0.5, 100, 50), of(0.5, 400, 0), of(0.5, 400, 60)
    found = with_front([safe, quick, small, beaten, unpredicted({}, Tier.FAST, "why")])

    # It takes longest and persists no less, but no checkpoint expires.
    assert [p.is_on_front for p in found] == [True, True, True, False, False]
    assert [p.is_on_front for p in with_front([quick, quick])] == [True, True]
