"""Tests of the share of the next checkpoints that expire: how wide its interval is, and how often it holds."""

from __future__ import annotations

import numpy as np
import pytest

from backend.advisor.twin.model.next_shares import inflation, next_share


def test_independent_checkpoints_inflate_nothing_and_equal_ones_count_as_one():
    assert inflation(20, 0.0) == 1.0
    assert inflation(20, 1.0) == 20
    assert inflation(0.3, 0.5) == 1.0
    assert inflation(1e9, 0.5) == pytest.approx(3.0)


@pytest.mark.parametrize(("count", "correlation"), [(2, 0.5), (7, 0.9), (20, 0.3), (40, 0.999)])
def test_the_inflation_is_the_variance_of_a_mean_of_correlated_values(count: int, correlation: float):
    apart = np.abs(np.subtract.outer(np.arange(count), np.arange(count)))

    assert inflation(count, correlation) == pytest.approx(float((correlation**apart).sum()) / count)


def test_the_interval_is_wider_if_fewer_were_seen_if_fewer_follow_and_if_neighbours_are_alike():
    usual = next_share(0.2, 40, next_count=20, correlation=0.3)
    width = usual.high - usual.low

    for other in (
        next_share(0.2, 10, next_count=20, correlation=0.3),
        next_share(0.2, 40, next_count=5, correlation=0.3),
        next_share(0.2, 40, next_count=20, correlation=0.7),
    ):
        assert other.high - other.low > width
        assert other.value == usual.value == 0.2


def test_a_share_of_zero_or_one_is_not_certain():
    none, all_of_them = (next_share(r, 20, next_count=20, correlation=0.0) for r in (0.0, 1.0))

    assert none.low == none.value == 0.0
    assert 0.0 < none.high < 0.2
    assert all_of_them.value == all_of_them.high == 1.0
    assert all_of_them.low == pytest.approx(1 - none.high)


def test_after_one_long_hang_anything_may_follow():
    found = next_share(0.3, 15, next_count=20, correlation=1.0)

    assert (found.low, found.high) == (0.0, 1.0)


@pytest.mark.parametrize("correlation", [0.0, 0.4, 0.8])
@pytest.mark.parametrize("ratio", [0.05, 0.2, 0.5])
def test_the_interval_holds_the_share_of_the_next_checkpoints_in_ninety_percent(ratio: float, correlation: float):
    """Checkpoints of a Markov chain: 40 are seen, and their share predicts that of the 20 that come later."""
    draws = np.random.default_rng(1)
    inside, runs = 0, 1_000
    for _ in range(runs):
        seen, later = (_chain(draws, ratio, correlation, count).mean() for count in (40, 20))
        found = next_share(float(seen), 40, next_count=20, correlation=correlation)
        inside += found.low <= later <= found.high

    assert 0.88 <= inside / runs <= 0.99


def _chain(draws: np.random.Generator, ratio: float, correlation: float, count: int) -> np.ndarray:
    """Return ones and zeros with this mean. Each is a copy of the one before with the probability ``correlation``."""
    fresh, is_copy = draws.random(count) < ratio, draws.random(count) < correlation
    for n in range(1, count):
        if is_copy[n]:
            fresh[n] = fresh[n - 1]
    return fresh
