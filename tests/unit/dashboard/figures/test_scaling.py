"""Tests of the choice of an axis that one outlier does not flatten."""

from __future__ import annotations

from dashboard.figures.scaling import clipped_top


def test_one_outlier_does_not_decide_the_top_of_the_axis():
    usual = [100.0 + i for i in range(30)]

    assert clipped_top([*usual, 9_000.0]) < 300
    assert clipped_top(usual) > 129


def test_values_of_one_magnitude_are_all_shown():
    assert clipped_top([10.0, 20.0, 30.0, 40.0] * 5) >= 40


def test_among_few_values_none_is_an_outlier():
    assert clipped_top([1.0, 1.0, 500.0]) >= 500


def test_many_large_values_are_no_outliers():
    assert clipped_top([1.0] * 10 + [500.0] * 5) >= 500


def test_an_axis_without_values_or_of_zeros_has_a_height():
    assert clipped_top([]) == 1.0
    assert clipped_top([0.0] * 20) == 1.0
