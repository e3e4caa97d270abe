"""Log buckets have exact bounds, can be merged in any order, and give every quantile with a bounded error."""

from __future__ import annotations

from fractions import Fraction
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.analysis.numbers import statistics
from backend.analysis.numbers.log_buckets import (
    BOUNDS,
    GAMMA,
    ZERO,
    bucket_of,
    count,
    merge,
    quantile,
    reached,
    rounded,
)

_INT8 = st.one_of(st.integers(0, 5000), st.integers(0, 2**40), st.integers(0, 2**63 - 1))
_RELATIVE_ERROR_MAX = (GAMMA - 1) / (GAMMA + 1)
_SHARES = st.one_of(st.sampled_from([0.0, 0.5, 0.95, 0.99, 1.0]), st.floats(0, 1))


@given(_INT8)
def test_a_value_lies_between_the_exact_powers_that_bound_its_bucket(value):
    bucket = bucket_of(value)

    if value == 0:
        assert bucket == ZERO
        return
    gamma = Fraction(51, 50)
    assert value <= gamma**bucket
    assert bucket == 0 or value > gamma ** (bucket - 1)


def test_the_bounds_reach_the_largest_stored_value_and_a_bucket_number_fits_two_bytes():
    assert BOUNDS[-1] == 2**63 - 1
    assert len(BOUNDS) < 2**15
    assert list(BOUNDS) == sorted(BOUNDS)


@given(st.lists(_INT8, min_size=1, max_size=200), _SHARES)
def test_a_quantile_of_buckets_is_within_the_promised_error_of_that_of_the_values(values, share):
    ordered = sorted(values)
    position = Fraction(share) * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    exact = ordered[below] + (position - below) * (ordered[above] - ordered[below])

    told = quantile(count(values), share)

    # The small tolerance allows for rounding errors of floating point.
    assert told is not None
    assert abs(Fraction(told) - exact) <= exact * Fraction(_RELATIVE_ERROR_MAX) * (1 + Fraction(1, 10**9))


# A position that is within a billionth of a value counts as that value, so that no random share is drawn.
@given(st.lists(_INT8, min_size=1, max_size=50), st.integers(0, 100).map(lambda hundredths: hundredths / 100))
def test_a_quantile_reaches_the_larger_of_the_values_between_which_it_is_interpolated(values, share):
    buckets = count(values)
    told, exact = reached(buckets, share), statistics.reached(values, share)

    assert told is not None
    assert exact is not None
    assert told >= quantile(buckets, share) * (1 - 1e-9)
    assert exact >= statistics.quantile(values, share) * (1 - 1e-9)
    if max(values) < 2**53:
        # Larger whole numbers are rounded in floating point, perhaps to another bucket.
        assert told == rounded(int(exact))


@given(st.lists(st.lists(_INT8, max_size=30), max_size=8), st.randoms(use_true_random=False))
def test_merging_parts_in_any_order_gives_the_buckets_of_the_whole(parts, random):
    whole = count(chain.from_iterable(parts))
    shuffled = [item for part in parts for item in count(part).items()]
    random.shuffle(shuffled)

    assert merge(shuffled) == whole
    assert sum(whole.values()) == sum(map(len, parts))


def test_without_values_there_is_no_quantile_and_q_outside_0_to_1_is_an_error():
    assert quantile({}, 0.5) is None
    with pytest.raises(ValueError, match="within 0 and 1"):
        quantile({3: 1}, 1.1)


def test_on_many_values_it_agrees_with_numpy_within_the_error():
    values = np.random.default_rng(7).lognormal(8, 2, 20_000).astype(np.int64)

    for share in (0.01, 0.5, 0.95, 0.99, 0.999):
        assert quantile(count(map(int, values)), share) == pytest.approx(
            float(np.quantile(values, share)), rel=_RELATIVE_ERROR_MAX
        )
