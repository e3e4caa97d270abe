"""Tests of the forecast of a checkpoint's duration from past checkpoints.

A forecast has a lower bound. With too few past checkpoints, there is no forecast.
"""

from __future__ import annotations

import random
from statistics import median

import pytest

from backend.alerting.prediction import Forecast, NoForecast, Past, Running, forecast
from backend.domain.ids import VertexId
from tests.support.alert_signals import linear_past

SINK = VertexId("sink")


def _forecast(running, past, *, confidence=0.8, least=5):
    return forecast(running, past, confidence_min_ratio=confidence, past_min_count=least)


def _past(*durations_ms):
    return [linear_past(d) for d in durations_ms]


def test_a_checkpoint_like_the_past_ones_is_predicted_to_take_as_long():
    past = _past(4000, 4100, 4200, 4300, 4400)

    told = _forecast(Running(2100, 5, 10, 2100), past)

    assert isinstance(told, Forecast)
    assert told.duration_ms == pytest.approx(4200, rel=0.02)
    assert 3900 < told.duration_least_ms <= told.duration_ms
    assert (told.past_count, told.confidence_ratio) == (5, pytest.approx(5 / 6))


def test_a_checkpoint_three_times_slower_so_far_is_predicted_to_take_three_times_as_long():
    told = _forecast(Running(6300, 5, 10, 6300), _past(4000, 4100, 4200, 4300, 4400))

    assert isinstance(told, Forecast)
    assert told.duration_ms == pytest.approx(12_600, rel=0.15)


def test_waiting_long_for_the_next_acknowledgement_raises_the_prediction():
    past = _past(4000, 4100, 4200, 4300, 4400)
    at_once = _forecast(Running(500, 1, 10, 420), past)
    long_after = _forecast(Running(9000, 1, 10, 420), past)

    assert isinstance(at_once, Forecast)
    assert isinstance(long_after, Forecast)
    assert at_once.duration_ms < 5000
    assert long_after.duration_least_ms > 20_000


def test_late_first_barriers_raise_the_prediction_before_any_acknowledgement():
    keys = [(SINK, i) for i in range(3)]
    past = [
        Past(p.acks_ms, p.subtask_count, p.end_ms, dict.fromkeys(keys, 500 + i))
        for i, p in enumerate(_past(4000, 4100, 4200, 4300, 4400))
    ]
    running = Running(350, 0, 10, None, None, dict.fromkeys(keys, 5000))

    told = _forecast(running, past)

    assert isinstance(told, Forecast)
    assert told.duration_least_ms > 20_000


def test_expired_checkpoints_count_with_their_timeout_as_a_least_duration():
    expired = [linear_past(10_000, acknowledged=4) for _ in range(6)]

    told = _forecast(Running(4100, 4, 10, 4000), [*expired, *_past(9000)])

    assert isinstance(told, Forecast)
    assert told.duration_least_ms == pytest.approx(10_000, rel=0.15)


@pytest.mark.parametrize(
    ("past", "confidence", "words"),
    [
        ([], 0.8, "0 past checkpoints of 10 subtasks, 5 needed"),
        (_past(1, 2, 3, 4), 0.8, "4 past checkpoints of 10 subtasks, 5 needed"),
        ([linear_past(4000, 8) for _ in range(9)], 0.8, "0 past checkpoints of 10 subtasks"),
        (_past(4000, 4100, 4200, 4300, 4400), 0.9, "5 past checkpoints, 9 needed for this confidence"),
    ],
)
def test_with_too_few_past_checkpoints_there_is_no_forecast_but_a_reason(past, confidence, words):
    told = _forecast(Running(2100, 5, 10, 2100), past, confidence=confidence)

    assert isinstance(told, NoForecast)
    assert words in told.reason


def test_the_bound_holds_as_often_as_its_confidence_states():
    """With random durations, the duration is below the predicted bound at most as often as the confidence allows."""
    rnd, misses, total = random.Random(7), 0, 0
    for _ in range(400):
        pace = rnd.uniform(500, 20_000)
        curves = [_drawn(rnd, pace) for _ in range(11)]
        *past, real = curves
        count = rnd.randrange(0, 9)
        last_ms = real.acks_ms[count - 1] if count else None
        elapsed_ms = (last_ms or 0) + 1
        told = _forecast(Running(elapsed_ms, count, 10, last_ms), past)
        assert isinstance(told, Forecast)
        misses += real.end_ms < told.duration_least_ms
        total += 1

    # With ten past checkpoints, the bound is based on the second smallest of ten ratios, so it may fail in 2 of 11
    # cases.
    assert misses / total < 2 / 11 + 0.05, f"seed=7: {misses} of {total}"
    assert misses > 0, "a bound that never fails is too loose"


def _drawn(rnd, pace_ms):
    scale = pace_ms * rnd.lognormvariate(0, 0.25)
    acks = sorted(round(scale * (i + 1) / 10 * rnd.lognormvariate(0, 0.1)) for i in range(10))
    return Past(tuple(acks), 10, max(1, acks[-1]))


def _plain_slowdown(view, past):
    w = 0.1 * past.end_ms
    found = []
    if view.acknowledged_count > 0 and view.last_ack_ms is not None:
        found.append((view.last_ack_ms + w) / (past.ack_ms(view.acknowledged_count) + w))
    next_ms = past.ack_ms(view.acknowledged_count + 1)
    if view.elapsed_ms > next_ms:
        found.append((view.elapsed_ms + w) / (next_ms + w))
    shared = view.first_barriers_ms.keys() & past.first_barriers_ms.keys()
    if shared:
        found.append(median((view.first_barriers_ms[k] + w) / (past.first_barriers_ms[k] + w) for k in shared))
    return max(found, default=1.0)


def _plain_prediction(view, past):
    return max(median(_plain_slowdown(view, p) * p.end_ms for p in past), float(view.elapsed_ms))


def _plain_view(running, past):
    count = running.acknowledged_count
    last_ms = past.ack_ms(count) if count else None
    elapsed_ms = min((last_ms or 0) + running.elapsed_ms - (running.last_ack_ms or 0), past.ack_ms(count + 1))
    return Running(elapsed_ms, count, running.subtask_count, last_ms, None, past.first_barriers_ms)


@pytest.mark.parametrize("seed", range(40))
def test_the_forecast_follows_the_stated_formulas(seed):
    rnd = random.Random(seed)
    keys = [(SINK, i) for i in range(rnd.choice([0, 1, 4]))]
    past = []
    for _ in range(rnd.randrange(5, 17)):
        end_ms = rnd.randrange(10, 60_000)
        acks = tuple(sorted(rnd.randrange(end_ms) for _ in range(rnd.choice([10, 10, 9, 3]))))
        past.append(Past(acks, 10, end_ms, {k: rnd.randrange(end_ms) for k in keys if rnd.random() < 0.8}))
    count = rnd.randrange(0, 10)
    last_ms = rnd.randrange(50_000) if count and rnd.random() < 0.9 else None
    running = Running(
        (last_ms or 0) + rnd.randrange(20_000), count, 10, last_ms, None, {k: rnd.randrange(50_000) for k in keys}
    )

    told = _forecast(running, past)

    duration_ms = _plain_prediction(running, past)
    ratios = sorted(
        p.end_ms / max(1.0, _plain_prediction(_plain_view(running, p), [o for o in past if o is not p])) for p in past
    )
    rank = int(0.2 * (len(past) + 1) + 1e-9)
    least_ms = max(duration_ms * ratios[rank - 1], float(running.elapsed_ms))
    assert isinstance(told, Forecast)
    assert told.duration_least_ms == pytest.approx(least_ms), f"seed {seed}"
    assert told.duration_ms == pytest.approx(max(duration_ms, least_ms)), f"seed {seed}"
