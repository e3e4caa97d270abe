"""The period of a long callback, from barriers that wait for its end or come at another time."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from backend.advisor.twin.asking.changes import WhatIf
from backend.advisor.twin.asking.changing import changed
from backend.advisor.twin.model.callbacks import Callback, with_callback
from backend.advisor.twin.model.callbacks import _by_subtask as by_subtask  # pyright: ignore[reportPrivateUsage]
from backend.advisor.twin.model.callbacks import _period_ms as period_of  # pyright: ignore[reportPrivateUsage]
from backend.advisor.twin.model.callbacks import _Waits as Waits  # pyright: ignore[reportPrivateUsage]
from backend.advisor.twin.model.rates import throughput_of
from backend.advisor.twin.tiers.formulas import simulate
from backend.domain.advice import Mode
from backend.domain.ids import VertexId
from tests.support.twin_models import three_vertices


def waits(interval_ms: float, period_ms: float, lasts_ms: float, *, count: int = 20, first_ms: float = 900.0) -> Waits:
    """Return the waits of barriers every interval for callbacks that begin with each period, and vary by 2 %."""
    draws = random.Random("waits")
    begin = np.array([first_ms + n * interval_ms for n in range(count)])
    ends = (begin // period_ms) * period_ms + np.array([lasts_ms * draws.gauss(1.0, 0.02) for _ in range(count)])
    return Waits(begin, np.maximum(begin + 5.0, ends))


@pytest.mark.parametrize(
    ("interval_ms", "period_ms", "lasts_ms"),
    [
        (4_000, 5_000, 2_000),
        (5_000, 5_000, 2_500),
        (5_000, 20_000, 6_000),
        (10_000, 7_000, 3_000),
        (60_000, 10_000, 3_000),
    ],
    ids=["sweeps", "in step", "rare", "no usual size", "windows shorter than the interval"],
)
def test_the_period_is_found_at_any_ratio_to_the_interval(interval_ms: float, period_ms: float, lasts_ms: float):
    found = period_of(waits(interval_ms, period_ms, lasts_ms), lasts_ms / period_ms + 0.03)

    assert found is not None
    assert found[0] == pytest.approx(period_ms, rel=0.02)
    assert found[1] == pytest.approx(lasts_ms, rel=0.2)


def test_waits_at_random_times_and_too_few_of_them_have_no_period():
    draws = random.Random("random")
    begin = np.arange(20) * 5000.0
    irregular = Waits(begin, begin + np.array([draws.uniform(300, 4500) for _ in begin]))

    assert period_of(irregular, 0.9) is None
    assert period_of(waits(5_000, 20_000, 6_000, count=5), 0.33) is None


def test_a_vertex_that_is_hardly_busy_cannot_have_the_callback_that_its_waits_would_need():
    assert period_of(waits(5_000, 5_000, 2_500), 0.1) is None


def test_the_time_of_a_callback_is_taken_from_that_of_the_records():
    callback = Callback(VertexId("sink"), 4000.0, (2000.0, 1000.0, 1000.0, 0.0), 1500.0, 5, 20)
    vertices = with_callback(three_vertices().vertices, callback, np.array([0.75, 0.5, 0.25, 0.0]))

    assert vertices[:2] == three_vertices().vertices[:2]
    assert vertices[2].service_us == pytest.approx([2000.0 / 3, 1000.0, 0.0, 2000.0])
    assert (vertices[2].callback_period_ms, vertices[2].callback_ms) == (4000.0, callback.lasts_ms)
    said = callback.assumption("sink")
    assert said.taken.startswith("up to 2 s in every 4 s")
    assert "5 of 20 checkpoints waited up to 1.5 s" in said.reason


@pytest.mark.parametrize(
    ("records_us", "expected"),
    [
        # A tenth of the busy time is the records'.
        (1.0, [900.0, 450.0]),
        # Records that are as quick as elsewhere would explain all, but barriers waited for up to 0.8 s.
        (10.0, [800.0, 400.0]),
        (50.0, [800.0, 400.0]),
        # They explain nothing.
        (0.0, [950.0, 475.0]),
    ],
)
def test_a_callback_is_what_records_do_not_explain_but_never_shorter_than_the_longest_wait(records_us, expected):
    busy, rates = np.array([0.1, 0.05]), np.array([10_000.0, 5_000.0])

    assert by_subtask(busy, rates * records_us / 1e6, 10_000.0, 800.0, 950.0) == pytest.approx(expected)
    # The busy time limits both.
    assert by_subtask(busy, rates * 0.0, 5_000.0, 800.0, 950.0) == pytest.approx([500.0, 250.0])


def test_a_callback_leaves_less_time_for_records_delays_each_mode_and_is_divided_among_more_subtasks():
    model = three_vertices(rate_per_s=100.0)
    callback = Callback(VertexId("sink"), 4000.0, (2000.0,) * 4, 1500.0, 5, 20)
    held = replace(model, vertices=with_callback(model.vertices, callback, np.full(4, 1.0)))

    # Half of the service time, in half of the time.
    assert throughput_of(held).use_ratio == pytest.approx(throughput_of(model).use_ratio)
    for mode in (Mode.ALIGNED, Mode.UNALIGNED):
        delays = [simulate(changed(m, WhatIf(mode=mode))).checkpoints[0].duration_ms for m in (model, held)]
        assert delays[1] - delays[0] == pytest.approx(500.0, abs=5.0)
    doubled = changed(held, WhatIf(parallelism=((VertexId("sink"), 8),)))
    assert doubled.vertices[2].callback_ms == pytest.approx([1000.0] * 8, rel=0.05)
