"""Tests of the effect of a change: how often it is seen if there is none, and if there is one, in drawn series."""

from __future__ import annotations

import numpy as np
import pytest

from backend.analysis.measures.effects import EFFECT_MIN_COUNT, effect
from backend.analysis.measures.windows import Direction


def _durations(count, rho, draws):
    """Return skewed durations in ms whose logarithms have the autocorrelation ``rho``."""
    noise = draws.normal(size=count + 20)
    logs = [noise[0]]
    for one in noise[1:]:
        logs.append(rho * logs[-1] + np.sqrt(1 - rho**2) * one)
    return 1000 * np.exp(0.7 * np.array(logs[20:]))


def _seen(rho, factor, *, draws=200):
    generator = np.random.default_rng(7)
    found = [
        effect(_durations(20, rho, generator), factor * _durations(20, rho, generator)).direction for _ in range(draws)
    ]
    return {d: found.count(d) / draws for d in Direction}


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.6])
def test_an_effect_is_rarely_seen_where_there_is_none_although_neighbours_are_alike(rho):
    seen = _seen(rho, 1.0)

    assert seen[Direction.HIGHER] + seen[Direction.LOWER] <= 0.05


def test_an_effect_is_seen_in_its_direction():
    assert _seen(0.3, 4.0)[Direction.HIGHER] >= 0.75
    assert _seen(0.3, 0.25)[Direction.LOWER] >= 0.75
    assert _seen(0.3, 4.0)[Direction.LOWER] == 0.0


def test_the_difference_is_that_of_the_medians_and_lies_in_its_interval():
    before, after = [1000.0 + i % 7 for i in range(12)], [400.0 + i % 5 for i in range(11)]

    found = effect(before, after)

    assert (found.before, found.after) == (np.median(before), np.median(after))
    assert found.difference == found.after - found.before
    assert found.low <= found.difference <= found.high < 0
    assert (found.before_count, found.after_count) == (12, 11)
    assert found.direction is Direction.LOWER


def test_values_that_are_like_their_neighbours_widen_the_interval():
    generator = np.random.default_rng(3)
    values = generator.permutation(np.linspace(100.0, 200.0, 20))
    mixed, sorted_ = effect(values, values + 30.0), effect(np.sort(values), np.sort(values) + 30.0)

    assert mixed.autocorrelation < 0.3 < 0.8 < sorted_.autocorrelation
    assert sorted_.high - sorted_.low > 1.5 * (mixed.high - mixed.low)


def test_equal_values_have_no_autocorrelation_and_an_exact_difference():
    found = effect([4000.0] * 15, [250.0] * 10)

    assert (found.difference, found.low, found.high) == (-3750.0, -3750.0, -3750.0)
    assert found.direction is Direction.LOWER
    assert effect([5.0] * 10, [5.0] * 10).direction is Direction.UNCLEAR


def test_too_few_values_have_no_effect():
    enough, few = [1.0] * EFFECT_MIN_COUNT, [1.0] * (EFFECT_MIN_COUNT - 1)

    assert effect(enough, few) is None
    assert effect(few, enough) is None
    assert effect(enough, enough) is not None
