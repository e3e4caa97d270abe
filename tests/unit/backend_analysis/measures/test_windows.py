"""Tests of the comparison of two windows: distributions, intervals, directions and the sentence about them."""

from __future__ import annotations

import random
import time
from math import comb
from statistics import median

import pytest

from backend.analysis.measures.windows import (
    MEDIAN_MIN_COUNT,
    POINTS_MAX,
    Direction,
    Tally,
    change,
    distribution,
    distribution_of,
    failure_change,
    headline,
)
from backend.analysis.numbers.log_buckets import count
from backend.domain.rollup import Measure

NONE_FAILED = (Tally(20, 0), Tally(20, 0))


def _medians(before, after):
    return change(distribution(before).median, distribution(after).median)


def test_the_interval_of_a_median_is_between_the_order_statistics_of_the_binomial_distribution():
    # Of 20 values, 5 or fewer are below the median with a probability of 2.07 %, and 4 or fewer with 0.59 %.
    found = distribution([float(n) for n in range(1, 21)]).median

    tails = [sum(comb(20, k) for k in range(n)) / 2**20 for n in range(21)]
    low = max(n for n in range(21) if tails[n] <= 0.0125)
    assert (found.low, found.value, found.high) == (low, 10.5, 21 - low)
    assert low == 5


def test_few_values_give_no_interval():
    assert distribution([1.0] * (MEDIAN_MIN_COUNT - 1)).median.low is None
    assert distribution([1.0] * MEDIAN_MIN_COUNT).median.low == 1.0
    # With fewer than 86 values, it is not certain enough that one of them is above the 95th percentile.
    assert distribution([1.0] * 85).p95.high is None
    assert distribution([1.0] * 86).p95.high == 1.0
    assert distribution([]) is None


def test_what_may_be_longer_is_not_called_shorter_and_what_is_surely_longer_is_called_longer():
    whole, short, expired = distribution([300.0] * 20), distribution([60.0] * 20), distribution([], [60.0] * 20)

    # All expired after 60 ms: they would have taken longer, so it is not known whether they are shorter than 300 ms.
    assert change(whole.median, expired.median).direction is Direction.UNCLEAR
    assert change(whole.median, expired.median).high is None
    assert change(expired.median, whole.median).direction is Direction.UNCLEAR
    assert change(whole.median, short.median).direction is Direction.LOWER
    assert change(short.median, distribution([], [300.0] * 20).median).direction is Direction.HIGHER
    # A few that expired leave the median's interval closed.
    few = distribution([60.0] * 18, [900.0] * 2)
    assert change(whole.median, few.median).direction is Direction.LOWER
    assert change(distribution([], [60.0] * 3).median, whole.median).direction is Direction.TOO_FEW


def test_two_windows_of_the_same_job_differ_in_at_most_five_of_a_hundred_cases():
    rnd, wrong = random.Random(11), 0
    for _ in range(400):
        before, after = ([rnd.lognormvariate(6, 0.8) for _ in range(n)] for n in (40, 25))
        wrong += _medians(before, after).direction in (Direction.HIGHER, Direction.LOWER)

    assert wrong <= 20, f"{wrong} of 400 with seed 11"


def test_a_window_that_takes_twice_as_long_is_found():
    rnd, found = random.Random(12), 0
    for _ in range(100):
        before = [rnd.lognormvariate(6, 0.3) for _ in range(40)]
        after = [2 * rnd.lognormvariate(6, 0.3) for _ in range(40)]
        one, back = _medians(before, after), _medians(after, before)
        found += one.direction is Direction.HIGHER
        assert (back.difference, back.low, back.high) == (-one.difference, -one.high, -one.low)
        assert one.difference == pytest.approx(median(after) - median(before))

    assert found >= 99, f"{found} of 100 with seed 12"


def test_too_few_checkpoints_on_a_side_give_no_direction():
    found = _medians([1.0, 2.0, 3.0], [100.0 + n for n in range(50)])

    assert found.direction is Direction.TOO_FEW
    assert found.difference is not None
    assert change(None, distribution([1.0]).median).difference is None


def test_a_quantile_at_or_above_an_expired_checkpoint_is_a_lower_bound():
    found = distribution([100.0] * 6, expired=[3_000.0] * 5)

    assert (found.median.value, found.median.is_at_least) == (100.0, False)
    assert found.p95.is_at_least
    assert distribution([5_000.0] * 10, expired=[3_000.0]).median.is_at_least


def test_the_distribution_function_ends_at_one_and_is_bounded():
    few, many = distribution([3.0, 1.0, 2.0]), distribution([float(n) for n in range(5_000)])

    assert (few.points, few.shares) == ((1.0, 2.0, 3.0), (1 / 3, 2 / 3, 1.0))
    assert len(many.points) == len(many.shares) == POINTS_MAX
    assert (many.points[0], many.points[50], many.points[-1]) == (0.0, 2_499.0, 4_999.0)
    assert many.shares[-1] == 1.0


@pytest.mark.parametrize(
    ("before", "after", "direction"),
    [
        (Tally(100, 0), Tally(60, 40), Direction.HIGHER),
        (Tally(60, 40), Tally(100, 0), Direction.LOWER),
        (Tally(19, 1), Tally(18, 2), Direction.UNCLEAR),
        (Tally(3, 1), Tally(0, 40), Direction.TOO_FEW),
    ],
)
def test_the_share_of_failures_changes_only_if_the_intervals_of_both_shares_are_apart(before, after, direction):
    assert failure_change(before, after) is direction


def test_the_headline_names_the_change_its_interval_and_the_phase():
    before, after = distribution([800.0 + n for n in range(20)]), distribution([14_000.0 + n for n in range(20)])
    phases = [
        (Measure.SYNC, _medians([3.0] * 20, [50.0] * 20)),
        (Measure.ALIGNMENT, _medians([10.0] * 20, [12_900.0] * 20)),
    ]

    assert headline((before, after), phases, (Tally(20, 0), Tally(20, 5))) == (
        "The median duration changed: 810 ms before, 14.0 s after (+13.2 s, 95 % interval +13.2 s to +13.2 s), mostly "
        "alignment (+12.9 s). Failed: 0 of 20 before, 5 of 25 after."
    )


def test_the_headline_says_if_nothing_changed_or_too_few_checkpoints_stand_on_a_side():
    same = distribution([float(n) for n in range(100, 200)])
    few = distribution([5.0] * 3)

    assert headline((same, same), [], NONE_FAILED) == (
        "No clear change of the median duration: 150 ms before, 150 ms after (0 ms, 95 % interval -23 ms to +23 ms)."
    )
    assert headline((few, same), [], NONE_FAILED) == (
        "Too few checkpoints to tell: 3 before and 100 after; each side needs at least 7."
    )
    assert headline((None, same), [], NONE_FAILED).startswith("Too few checkpoints to tell: 0 before")


def test_the_time_of_a_distribution_grows_about_as_the_number_of_checkpoints():
    rnd = random.Random(5)
    values = [rnd.random() for _ in range(20_000)]

    def quickest_s(count):
        took = []
        for _ in range(5):
            began = time.process_time()
            distribution(values[:count])
            took.append(time.process_time() - began)
        return min(took)

    # The time must not grow with the square of the number of values. The ratio would then be 100.
    assert quickest_s(20_000) < 40 * quickest_s(2_000)


def test_a_median_that_is_a_lower_bound_is_never_said_to_be_lower():
    completed, expired = [5_600.0 + n for n in range(20)], [3_000.0 + n for n in range(20)]
    before, after = distribution(completed), distribution([], expired)

    found = change(before.median, after.median)

    assert (found.direction, found.bound, found.high) == (Direction.UNCLEAR, "at-least", None)
    back = change(after.median, before.median)
    assert (back.direction, back.bound, back.low) == (Direction.UNCLEAR, "at-most", None)
    assert headline((before, after), [], (Tally(20, 0), Tally(0, 20))).startswith(
        "No clear change of the median duration: 5.6 s before, at least 3.0 s after (at least -2.6 s, 95 %"
    )


def test_of_two_lower_bounds_the_difference_is_not_known():
    both = distribution([], [3_000.0 + n for n in range(20)]), distribution([], [9_000.0 + n for n in range(20)])

    found = change(both[0].median, both[1].median)

    assert (found.difference, found.low, found.high, found.direction) == (None, None, None, Direction.UNCLEAR)
    said = headline(both, [], (Tally(0, 20), Tally(0, 20)))
    assert "at least 3.0 s before, at least 9.0 s after (both are lower bounds, so the difference is not known)" in said


def test_a_lower_bound_above_all_other_values_is_higher():
    found = change(distribution([300.0 + n for n in range(20)]).median, distribution([], [3_000.0] * 20).median)

    assert (found.direction, found.bound, found.high) == (Direction.HIGHER, "at-least", None)
    assert found.low > 0


def test_a_quantile_between_a_completed_and_an_expired_checkpoint_is_a_lower_bound():
    found = distribution([400.0 + n for n in range(10)], [410.0])

    assert found.p99.value < 410
    assert found.p99.is_at_least
    assert not found.median.is_at_least


def test_buckets_of_rollups_give_the_distribution_within_one_percent():
    values = [100 * n for n in range(1, 101)]
    exact, found = distribution(values, [9_000.0]), distribution_of(count([*values, 9_000]), 9_000)

    assert found.count == exact.count
    assert found.median.value == pytest.approx(exact.median.value, rel=0.01)
    assert (found.median.is_at_least, found.p95.is_at_least) == (False, True)
    assert distribution_of({}, None) is None
