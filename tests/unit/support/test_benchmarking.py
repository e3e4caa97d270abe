"""The ratios that the benchmarks print."""

from __future__ import annotations

from tests.support.benchmarking import spread, spread_words


def test_a_spread_is_the_median_with_the_middle_half_and_never_reaches_beyond_the_values():
    assert spread([3.0, 1.0, 2.0, 5.0, 4.0]) == (3.0, 2.0, 4.0)
    assert spread([1.0, 3.0]) == (2.0, 1.5, 2.5)
    assert spread([2.0]) == (2.0, 2.0, 2.0)
    assert spread_words((2.0, 1.5, 2.5)) == "2.00 (1.50 to 2.50)"
