"""Arrays that are kept while the same values are read again and again equal those that are not."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from backend.analysis.numbers.arrays import array_for, array_of, by_column, kept_arrays, peak_of, stacked

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


def _with_gaps(seed, rows, columns):
    rng = np.random.default_rng(seed)
    values = rng.lognormal(3, 2, (rows, columns))
    values[rng.uniform(size=values.shape) < 0.2] = np.nan
    values[:, ::7] = np.nan
    return values


@pytest.mark.parametrize("statistic", [np.median, np.mean, np.max])
@pytest.mark.parametrize(("rows", "columns"), [(1, 3), (2, 8), (9, 30), (40, 100)])
def test_a_statistic_of_all_columns_equals_that_of_each_column_to_the_last_bit(statistic, rows, columns):
    values = _with_gaps(rows, rows, columns)
    expected = []
    for column in values.T:
        known = column[~np.isnan(column)]
        expected.append(statistic(known) if known.size else np.nan)

    found = by_column(values, partial(statistic, axis=1))

    assert np.array_equal(found, expected, equal_nan=True)


def test_rows_of_tuples_make_the_same_array_whether_arrays_are_kept_or_not():
    owner, rows = object(), ((1.0, None, 3), (4, 5, None))
    plain = array_for(owner, "rows", rows)
    assert plain.shape == (2, 3)
    with kept_arrays():
        for _ in range(2):
            assert np.array_equal(array_for(owner, "rows", rows), plain, equal_nan=True)
        assert array_for(owner, "rows", rows) is array_for(owner, "rows", rows)
        assert array_for(object(), "rows", rows) is not array_for(owner, "rows", rows)


def test_an_owner_has_an_array_of_its_own_for_each_kind_of_rows():
    owner, first, second = (7.0, 8.0), ((1.0, 2.0),), ((3.0, 4.0), (5.0, 6.0))
    with kept_arrays():
        for _ in range(2):
            assert array_of(owner).tolist() == [7.0, 8.0]
            assert array_for(owner, "first", first).tolist() == [[1.0, 2.0]]
            assert array_for(owner, "second", second).tolist() == [[3.0, 4.0], [5.0, 6.0]]


@pytest.mark.parametrize("widths", [(), (3, 3), (2, 0, 3)])
def test_stacked_rows_end_in_missing_values(widths):
    rows = [np.arange(float(width)) for width in widths]
    found = stacked(rows)
    assert found.shape == (len(widths), max(widths, default=0))
    for whole, row in zip(found, rows, strict=True):
        assert whole[: row.size].tolist() == row.tolist()
        assert np.isnan(whole[row.size :]).all()
