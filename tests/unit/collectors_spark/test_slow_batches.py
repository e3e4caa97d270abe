"""Which micro-batches are looked into: the first one, slow ones, and one long one every 15 s."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from collectors.spark.slow_batches import EVERY_MS, LONG_MS, SlowBatches


def chosen(took_ms: list[int], *, every_ms: int = 5_000) -> list[int]:
    """Return the places of the batches that are chosen."""
    slow = SlowBatches()
    return [n for n, ms in enumerate(took_ms) if slow.choose("run", n * every_ms, ms)]


def test_the_first_batch_of_a_run_is_chosen_and_short_ones_after_it_are_not():
    assert chosen([300] * 100) == [0]


def test_a_batch_that_takes_one_and_a_half_times_those_before_it_is_chosen():
    assert chosen([900] * 6 + [1_350, 900], every_ms=2_000) == [0, 6]


def test_a_batch_that_takes_a_little_less_is_not_chosen():
    assert chosen([900] * 6 + [1_349, 900], every_ms=2_000) == [0]


def test_a_slow_batch_below_a_second_is_not_chosen():
    assert chosen([100] * 6 + [LONG_MS - 1]) == [0]


def test_a_batch_is_not_compared_with_fewer_than_five():
    assert chosen([100] * 4 + [1_500], every_ms=2_000) == [0]


def test_of_long_batches_that_are_alike_one_every_15_s_is_chosen():
    assert chosen([2_000] * 10) == [0, 3, 6, 9]


def test_runs_are_compared_with_themselves_only():
    slow = SlowBatches()
    for n in range(6):
        slow.choose("quick", n, 100)
        slow.choose("long", n, 3_000)
    assert slow.choose("quick", 7, 1_200)
    assert not slow.choose("long", 7, 3_100)


def test_a_copy_changes_by_itself():
    slow = SlowBatches()
    slow.choose("run", 0, 100)
    copy = slow.copy()
    for n in range(5):
        assert not copy.choose("run", n, 100)
    assert copy.choose("run", 6, 2_000)
    assert not slow.choose("run", 6, 2_000), "one batch before it is too few"


@given(st.lists(st.integers(0, 100_000), max_size=200))
def test_more_than_one_in_15_s_is_chosen_only_if_it_is_slow(took_ms):
    places = chosen(took_ms)
    for before, at in pairwise(places):
        assert took_ms[at] >= LONG_MS
        others = sorted(took_ms[max(0, at - 20) : at])
        is_slow = len(others) >= 5 and took_ms[at] >= 1.5 * others[(len(others) - 1) // 2]
        assert is_slow or (at - before) * 5_000 >= EVERY_MS
