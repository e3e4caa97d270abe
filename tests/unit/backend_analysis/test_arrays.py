"""Arrays that are kept while the same values are read again and again equal those that are not."""

from __future__ import annotations

import numpy as np
import pytest

from backend.analysis.arrays import array_of, kept_arrays, peak_of

ROWS = [(1, None, 3), (), (None, None), (0.5, 0.25), tuple(range(200))]


@pytest.mark.parametrize("values", ROWS)
def test_a_kept_array_equals_one_that_is_made_anew(values):
    plain, peak = array_of(values), peak_of(values)
    with kept_arrays():
        for _ in range(2):
            assert np.array_equal(array_of(values), plain, equal_nan=True)
            assert peak_of(values) == peak


def test_a_small_tuple_is_converted_once_and_only_while_arrays_are_kept():
    values = (1, 2, None)
    with kept_arrays():
        assert array_of(values) is array_of(values)
        assert not array_of(values).flags.writeable
        # A list may change, and the array of a large tuple may need much memory.
        assert array_of([1]) is not array_of([1])
        assert array_of(ROWS[-1]) is not array_of(ROWS[-1])
    assert array_of(values) is not array_of(values)


def test_many_values_are_kept_only_in_part_and_stay_right():
    with kept_arrays():
        found = [array_of((float(n),)) for n in range(20_000)]
    assert [float(a[0]) for a in found] == list(range(20_000))
