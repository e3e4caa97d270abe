"""Goal: scrambling many numbers at once gives the same result as scrambling each number alone (DET-3)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from backend.runtime.core.prng import LANES, mix64_pair, mix64_run, mix64_sum

_SIGNED = st.integers(-(2**63), 2**63 - 1)


@settings(max_examples=20)
@given(value=st.integers(0, 2**64 - 1), block=st.integers(0, 2**50))
def test_scrambling_a_run_equals_scrambling_each_number(value: int, block: int) -> None:
    first = block * LANES
    assert mix64_run(value, first) == tuple(mix64_pair(value, first + n) for n in range(LANES))


@settings(max_examples=20)
@given(pairs=st.lists(st.tuples(_SIGNED, _SIGNED), max_size=5), copies=st.integers(0, LANES))
def test_the_sum_of_a_run_equals_the_sum_of_its_scrambled_numbers(pairs: list[tuple[int, int]], copies: int) -> None:
    pairs = pairs * copies
    values, inners = [value for value, _ in pairs], [inner for _, inner in pairs]
    assert mix64_sum(values, inners) == sum(mix64_pair(value, inner) for value, inner in pairs) % 2**64
