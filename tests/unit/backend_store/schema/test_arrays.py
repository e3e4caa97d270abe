"""Tests of arrays with one value per subtask. A value that does not fit into its column becomes missing."""

from __future__ import annotations

import math
import struct

from hypothesis import given
from hypothesis import strategies as st

from backend.domain.stored_form import expand, expand_ratios
from backend.store.schema.arrays import INT2_MAX, INT4_MAX, INT8_MAX, compact, compact_ratios

_BOUNDED = {limit: st.none() | st.integers(-limit, limit) for limit in (INT2_MAX, INT4_MAX, INT8_MAX)}


@given(st.sampled_from(sorted(_BOUNDED)).flatmap(lambda n: st.tuples(st.just(n), st.lists(_BOUNDED[n], max_size=9))))
def test_stored_arrays_expand_to_the_given_values(case):
    limit, values = case
    assert expand(compact(values, limit), len(values)) == tuple(values)


@given(st.lists(st.none() | st.integers(0, 10**6).map(lambda n: n / 10**6), max_size=9))
def test_ratios_expand_to_the_given_values_despite_float32(values):
    stored = compact_ratios(values)
    through_float4 = stored and [v if v is None else struct.unpack(">f", struct.pack(">f", v))[0] for v in stored]
    assert expand_ratios(through_float4, len(values)) == tuple(values)


@given(st.lists(st.none() | st.integers(-(2**80), 2**80) | st.just(INT4_MAX + 1), min_size=1, max_size=5))
def test_a_value_beyond_its_column_is_missing_and_its_neighbours_stay(values):
    kept = tuple(v if v is not None and abs(v) <= INT4_MAX else None for v in values)
    assert expand(compact(values, INT4_MAX), len(values)) == kept


@given(st.lists(st.none() | st.floats(), max_size=5))
def test_every_ratio_can_be_packed(values):
    for value in compact_ratios(values) or []:
        assert value is None or math.isfinite(value)
        struct.pack(">f", value or 0.0)


def test_equal_values_are_stored_once_and_missing_ones_not_at_all():
    assert compact([7, 7, 7]) == [7]
    assert compact([0, 0]) == [0]
    assert compact([None, None]) is None
    assert compact([]) is None
    assert compact([None, 7]) == [None, 7]
