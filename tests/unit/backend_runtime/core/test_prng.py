"""Tests of the random number generator: it returns its published sequence, and its streams are independent."""

from __future__ import annotations

from backend.runtime.core.prng import Stream, mix64


def test_splitmix_gives_the_published_sequence() -> None:
    # This is the first output of the reference implementation from state 0.
    assert mix64(0) == 0xE220A8397B1DCDAF


def test_streams_of_two_purposes_differ_and_repeat() -> None:
    first = [Stream(1, "a").below(2**64) for _ in range(2)]
    assert first[0] == first[1]
    assert Stream(1, "b").below(2**64) != first[0]
    draws = [Stream(3, "c").between(5, 7) for _ in range(1)] + [s.between(5, 7) for s in [Stream(4, "c")] * 50]
    assert set(draws) == {5, 6, 7}
