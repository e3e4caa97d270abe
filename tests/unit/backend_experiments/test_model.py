"""Tests of the statistics over seeds, and of the comparison with the results in the literature."""

from __future__ import annotations

from backend.experiments.model import (
    Judgement,
    Median,
    Ordering,
    Row,
    about_equal,
    at_least,
    at_most,
    below,
    cannot,
    every,
    judged,
    median_of,
    medians,
)

_FOUND = {
    ("ms", "slow", "aligned"): Median(400, 390, 410),
    ("ms", "slow", "unaligned"): Median(4, 3, 5),
    ("ms", "fast", "aligned"): Median(100, 90, 110),
}


def test_the_interval_of_a_median_is_that_of_its_order_statistics():
    assert median_of([float(n) for n in range(1, 21)]) == Median(10.5, 6, 15)
    assert median_of([3.0, 1.0, 2.0]) == Median(2, 1, 3)
    rows = [Row("times", "aligned", "x", seed, float(seed), "ms") for seed in range(5)]
    assert medians(rows) == {("times", "x", "aligned"): Median(2, 0, 4)}


def _judged(judge, otherwise=""):
    return judged(Ordering("claim", "source", judge, otherwise), _FOUND)


def test_an_ordering_comes_out_by_the_factor_that_it_names():
    assert _judged(below("ms", "slow", "unaligned", "aligned", times=99)).came_out
    assert _judged(below("ms", "slow", "unaligned", "aligned", times=100)).came_out is False
    assert _judged(below("ms", "slow", "unaligned", "aligned", times=100, or_equal=True)).came_out
    found = _judged(below("ms", "fast", "aligned", "aligned", times=3, other="slow"))
    assert found == Judgement(True, "aligned (fast) 100 (90 to 110), aligned (slow) 400 (390 to 410): 4 times")


def test_other_ways_to_compare():
    assert _judged(about_equal("ms", "slow", ("aligned", "unaligned"), share=0.995)).came_out
    assert _judged(about_equal("ms", "slow", ("aligned", "unaligned"), share=0.98)).came_out is False
    assert _judged(at_most("ms", "slow", ("aligned", "unaligned"), 400)).came_out
    assert _judged(at_most("ms", "slow", ("aligned", "unaligned"), 399)).came_out is False
    assert _judged(at_least("ms", "slow", ("aligned", "unaligned"), 4)).came_out
    assert _judged(at_least("ms", "slow", ("aligned", "unaligned"), 5)) == Judgement(
        False, "the smallest is 4 (unaligned)"
    )
    both = every(below("ms", "slow", "unaligned", "aligned"), below("ms", "slow", "aligned", "unaligned"))
    assert _judged(both).came_out is False
    assert _judged(cannot("no such protocol")) == Judgement(None, "no such protocol")


def test_an_ordering_that_did_not_come_out_says_why_and_a_missing_value_decides_nothing():
    why = _judged(below("ms", "slow", "aligned", "unaligned"), "The store is slow.").why
    assert why.endswith(". The store is slow.")
    missing = _judged(below("ms", "fast", "unaligned", "aligned"))
    assert (missing.came_out, missing.why) == (None, "there is no value of 'ms' for unaligned, fast")
