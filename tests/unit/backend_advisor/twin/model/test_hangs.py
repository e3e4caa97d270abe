"""Tests of writes that hang: what they add to simulated durations, under any settings."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from backend.advisor.advice import Interval
from backend.advisor.twin.model.hangs import NO_HANGS, Hangs, Schedule

_SIMULATED = Interval(1_000.0, 800.0, 1_300.0)
_NONE = Interval(0.0, 0.0, 0.0)
_TIMEOUT_MS = 10_000.0
_ONE_IN_FOUR = Hangs((0.0, 0.0, 0.0, 20_000.0), (), 5_000.0)


def _when(interval_ms: float, **more: float) -> Schedule:
    return Schedule(interval_ms=interval_ms, timeout_ms=_TIMEOUT_MS, **more)


def _expired(hangs: Hangs, interval_ms: float, simulated: Interval = _SIMULATED) -> float:
    return hangs.expired_ratio(_NONE, simulated, _when(interval_ms, max_concurrent=2)).value


def test_without_hangs_the_simulated_values_stay():
    when = _when(5_000)

    assert NO_HANGS.durations(_SIMULATED, when) == _SIMULATED
    assert NO_HANGS.samples(_SIMULATED.value, when).tolist() == [1_000.0]
    assert NO_HANGS.expired_ratio(Interval(0.2, 0.1, 0.3), _SIMULATED, when) == Interval(0.2, 0.1, 0.3)
    assert NO_HANGS.on((900.0, 1_100.0), when) == (900.0, 1_100.0)
    assert NO_HANGS.explaining(0.0) == NO_HANGS


def test_at_the_interval_at_which_they_were_recorded_hangs_are_those_that_were_recorded():
    when = _when(5_000, max_concurrent=2)
    duration = _ONE_IN_FOUR.durations(_SIMULATED, when)

    assert _expired(_ONE_IN_FOUR, 5_000) == pytest.approx(0.25, abs=0.05)
    assert _ONE_IN_FOUR.samples(_SIMULATED.value, when).mean() == pytest.approx(
        0.75 * 1_000 + 0.25 * _TIMEOUT_MS, rel=0.1
    )
    assert duration.value == pytest.approx(1_000, rel=0.1)
    assert duration.low == _SIMULATED.low
    # More than one in twenty hang, so the interval of 90 % contains the timeout.
    assert duration.high == _TIMEOUT_MS


def test_the_distribution_has_the_simulated_durations_and_those_of_checkpoints_in_which_a_write_hangs():
    found = _ONE_IN_FOUR.on((900.0, 1_100.0), _when(5_000, max_concurrent=2), count=100)

    assert len(found) == 100
    assert set(found) == {900.0, 1_100.0, _TIMEOUT_MS}
    assert found.count(_TIMEOUT_MS) == pytest.approx(25, abs=10)
    assert _ONE_IN_FOUR.on((), _when(5_000)) == ()


def test_more_checkpoints_hang_at_a_longer_interval_and_fewer_at_a_shorter_one():
    assert _expired(_ONE_IN_FOUR, 1_250) < 0.12
    assert _expired(_ONE_IN_FOUR, 20_000) == pytest.approx(1 - 0.75**4, abs=0.06)


def test_hangs_within_one_interval_add_up():
    hangs = Hangs((6_000.0,), (), 5_000.0)

    assert _expired(hangs, 5_000) == 0.0
    assert _expired(hangs, 10_000) == 1.0


def test_an_interval_that_checkpoints_outlast_anyway_changes_nothing():
    """Each checkpoint takes eight seconds, so one is triggered every eight seconds, whatever the interval."""
    hangs, slow = Hangs((0.0,) * 7 + (5_000.0,), (), 8_000.0), Interval(8_000.0, 8_000.0, 8_000.0)
    short, longer = (hangs.durations(slow, _when(ms)) for ms in (1_000.0, 4_000.0))

    assert short == longer
    assert hangs.expired_ratio(_NONE, slow, _when(1_000.0)).value == pytest.approx(1 / 8, abs=0.06)
    # A pause delays the next trigger as well.
    paused = hangs.expired_ratio(_NONE, slow, _when(1_000.0, min_pause_ms=24_000.0)).value
    assert paused == pytest.approx(1 - (7 / 8) ** 4, abs=0.08)


def test_hangs_delay_triggers_so_that_the_next_checkpoints_meet_more_of_them():
    often = Hangs((0.0, 9_000.0), (), 2_000.0)
    alone, concurrent = (_when(2_000.0, max_concurrent=n) for n in (1, 2))

    assert often.samples(_SIMULATED.value, alone).mean() > 1.2 * often.samples(_SIMULATED.value, concurrent).mean()


def test_if_nearly_all_checkpoints_hang_none_is_as_quick_as_a_simulated_one():
    duration = Hangs((4_000.0,) * 20, (), 5_000.0).durations(_SIMULATED, _when(5_000, max_concurrent=2))

    assert duration.low == pytest.approx(_SIMULATED.low + 4_000)
    assert duration.low <= duration.value <= duration.high


def test_expired_checkpoints_that_nothing_else_explains_are_endless_hangs():
    seen = Hangs((0.0, 0.0, 600.0), (4_000.0, 0.0), 5_000.0)

    assert seen.all_ms == (0.0, 0.0, 600.0, 4_000.0, 0.0)
    assert seen.longest_ms == 4_000.0
    # The longest hangs explain an expiry best, so the shortest are replaced.
    assert seen.explaining(0.2).all_ms == (0.0, 0.0, 600.0, 4_000.0, inf)
    assert seen.explaining(0.0).all_ms == (0.0, 0.0, 600.0, inf, inf)
    assert seen.explaining(0.0).longest_ms == inf
    # Another simulation explains more of them.
    assert seen.explaining(0.0).explaining(0.4) == seen
    assert seen.explaining(0.0).without_endless() == seen
    assert seen.explaining(1.0) == seen


def test_endless_hangs_reach_any_timeout():
    hangs = Hangs((0.0, 600.0), (0.0, 0.0), 5_000.0).explaining(0.0)
    long = Schedule(interval_ms=5_000.0, timeout_ms=1e9, max_concurrent=2)

    assert hangs.expired_ratio(_NONE, _SIMULATED, long).value == pytest.approx(0.5, abs=0.06)
    assert np.isfinite(hangs.samples(_SIMULATED.value, long)).all()


def test_endless_hangs_do_not_replace_those_that_explain_an_expiry():
    """Four of 20 checkpoints expired, and the hangs of two of them reach the timeout."""
    seen = Hangs((0.0,) * 16, (9_000.0, 9_000.0, 0.0, 0.0), 5_000.0)
    simulated = Interval(1_500.0, 1_400.0, 1_600.0)
    before = _expired(seen, 5_000, simulated)

    assert before == pytest.approx(0.1, abs=0.03)
    assert _expired(seen.explaining(before), 5_000, simulated) == pytest.approx(0.2, abs=0.03)


_ONE_SHORT = Hangs((0.0,) * 19 + (600.0,), (), 5_000.0)


@pytest.mark.parametrize(
    ("share", "duration", "most"),
    [
        (0.6, Interval(10_000.0, 8_000.0, 10_000.0), 0.62),
        (0.2, Interval(9_500.0, 9_000.0, 10_000.0), 0.24),
        (0.0, Interval(5_000.0, 2_500.0, 10_000.0), 0.01),
        (1.0, Interval(10_000.0, 10_000.0, 10_000.0), 1.0),
    ],
)
def test_a_checkpoint_that_expires_without_hangs_does_not_expire_twice(share: float, duration: Interval, most: float):
    """In one of 20 checkpoints a write hangs for 600 ms, so at most one in 20 of the others expires too."""
    found = _ONE_SHORT.expired_ratio(Interval(share, share, share), duration, _when(5_000, max_concurrent=2))

    assert share <= found.value <= most


def test_checkpoints_that_end_before_the_timeout_expire_by_hangs_also_if_most_others_expire_without():
    found = _ONE_IN_FOUR.expired_ratio(
        Interval(0.6, 0.4, 0.8), Interval(10_000.0, 8_000.0, 10_000.0), _when(5_000, max_concurrent=2)
    )

    assert found.value == pytest.approx(0.6 + 0.4 * 0.25, abs=0.03)


def test_hangs_add_up_over_any_number_of_recorded_periods():
    hangs = Hangs((0.0, 10.0), (), 5_000.0)
    long = Schedule(interval_ms=1_000_000.0, timeout_ms=1e9, max_concurrent=2)

    assert hangs.samples(1_000.0, long).mean() == pytest.approx(1_000 + 200 * 5, rel=0.05)


def test_a_tiny_hang_leaves_the_median_as_it_is():
    hangs = Hangs((0.0,) * 19 + (1.0,), (), 5_000.0)

    assert hangs.durations(_SIMULATED, _when(5_000, max_concurrent=2)).value == pytest.approx(1_000.0, abs=1.0)


def test_the_same_hangs_give_the_same_numbers():
    hangs = Hangs((0.0, 3_000.0), (), 5_000.0)

    assert hangs.durations(_SIMULATED, _when(7_000)) == hangs.durations(_SIMULATED, _when(7_000))


def _in_a_row(lengths: tuple[int, ...]) -> Hangs:
    """Return the hangs of 40 checkpoints. Of each ten, the first so many hung for longer than the timeout."""
    rows = [[20_000.0] * n + [0.0] * (10 - n) for n in lengths]
    return Hangs(tuple(ms for row in rows for ms in row), (), 5_000.0, order=tuple(range(40)))


def test_of_hangs_that_last_for_several_checkpoints_the_next_share_is_less_certain():
    when = _when(5_000, max_concurrent=2)
    alone, in_a_row = _in_a_row((2, 2, 2, 2)), _in_a_row((8, 0, 0, 0))
    alone = replace(alone, order=tuple(np.random.default_rng(1).permutation(40).tolist()))
    first, second = (h.expired_ratio(_NONE, _SIMULATED, when) for h in (alone, in_a_row))

    assert alone.correlation(_TIMEOUT_MS) < 0.2
    assert in_a_row.correlation(_TIMEOUT_MS) > 0.8
    assert first.value == pytest.approx(0.2, abs=0.05)
    assert second.value == pytest.approx(0.2, abs=0.05)
    assert first.low == second.low == 0.0
    assert 0.3 <= first.high <= 0.6
    assert second.high >= 0.8
    # Without the order, nothing is known of neighbours.
    assert replace(in_a_row, order=()).correlation(_TIMEOUT_MS) == 0.0


def test_consecutive_checkpoints_are_less_alike_at_a_longer_interval_and_more_at_a_shorter_one():
    hangs = _in_a_row((3, 3, 3, 3))
    short, usual, long = (
        hangs.expired_ratio(_NONE, _SIMULATED, _when(ms, max_concurrent=2)) for ms in (500.0, 5_000.0, 20_000.0)
    )

    assert hangs.correlation(_TIMEOUT_MS) > 0.4
    # Few of the shortest ones expire, but if one does, so do those after it.
    assert short.value < 0.06
    assert short.high >= 0.6
    assert usual.high - usual.low > 0.5
    assert long.value > 0.6
    assert long.low >= 0.2


def test_checkpoints_that_expired_count_as_delayed_by_the_timeout():
    """Seven of ten expired one after the other, and nothing is known of their writes."""
    hangs = Hangs((0.0, 0.0, 900.0), (0.0,) * 7, 5_000.0, endless_count=7, order=tuple(range(10)))

    assert hangs.correlation(_TIMEOUT_MS) > 0.8
    found = hangs.expired_ratio(_NONE, _SIMULATED, _when(5_000, max_concurrent=2))
    assert (found.low, found.high) == (0.0, 1.0)


def test_if_most_checkpoints_hang_the_time_between_triggers_follows_from_them():
    """Seven of ten hung until the timeout of 10 s, so a checkpoint was triggered every 7.6 s, and not every two."""
    hangs = Hangs((0.0,) * 3, (0.0,) * 7, 7_600.0, endless_count=7)

    assert hangs.expired_ratio(_NONE, _SIMULATED, _when(2_000.0)).value == pytest.approx(0.7, abs=0.05)


def test_a_hang_behind_a_late_barrier_counts_by_how_much_faster_barriers_are():
    hangs = Hangs((0.0, 0.0, 1_000.0), (2_000.0,), 5_000.0, hidden_ms=(0.0, 6_000.0, 0.0, 4_000.0), travel_ms=8_000.0)

    assert hangs.uncovered(8_000.0) == hangs.uncovered(9_000.0) == hangs
    assert hangs.uncovered(0.0).all_ms == (0.0, 6_000.0, 1_000.0, 6_000.0)
    assert hangs.uncovered(4_000.0).all_ms == (0.0, 3_000.0, 1_000.0, 4_000.0)
    assert NO_HANGS.uncovered(0.0) == NO_HANGS


def test_hangs_that_delay_nothing_change_nothing_before_they_are_uncovered():
    hangs, when = Hangs((0.0, 0.0), (), 5_000.0, hidden_ms=(0.0, 20_000.0), travel_ms=8_000.0), _when(5_000)

    assert hangs.count == 0
    assert hangs.durations(_SIMULATED, when) == _SIMULATED
    assert hangs.expired_ratio(_NONE, _SIMULATED, when) == _NONE
    assert hangs.explaining(0.0) == hangs
    assert hangs.uncovered(0.0).expired_ratio(_NONE, _SIMULATED, when).value > 0.3
