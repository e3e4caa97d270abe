"""Tests of writes that hang: how they are seen in recorded checkpoints, and what they do under other settings."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace

import numpy as np
import pytest

from backend.advisor.advice import Interval
from backend.advisor.hangs import Hangs

_SIMULATED = Interval(1_000.0, 800.0, 1_300.0)
_NONE = Interval(0.0, 0.0, 0.0)
_TIMEOUT_MS = 10_000.0
_COUNT = 20


def _of(rows):
    """Return the hangs of recorded checkpoints, whose subtasks took as long as ``rows`` says, in milliseconds."""
    recorded = [SimpleNamespace(phases={"sink": SimpleNamespace(own_async_ms=np.array(row))}) for row in rows]
    return Hangs.of(SimpleNamespace(recorded=recorded, evidence=SimpleNamespace(topology=None, config=None)), 5_000)


def test_a_subtask_that_always_takes_longer_than_its_siblings_does_not_hang():
    assert _of([[1_000.0 + n, *[150.0] * 7] for n in range(_COUNT)]) == Hangs()


def test_a_write_that_took_many_times_as_long_as_its_subtask_usually_does_is_a_hang():
    rows = [[1_000.0, *[150.0] * 7] for _ in range(_COUNT)]
    rows[3][5] = 2_150.0
    rows[7][0] = 6_000.0

    expected = [0.0] * _COUNT
    expected[3], expected[7] = 2_000.0, 5_000.0
    assert _of(rows).delays_ms == pytest.approx(expected)


def test_hangs_are_found_if_some_durations_are_not_known_and_after_a_change_of_the_parallelism():
    rows = [[np.nan, 150.0]] * 5 + [[np.nan, 150.0, 150.0]] * 5 + [[np.nan, np.nan, 5_150.0]]

    assert _of(rows).delays_ms == pytest.approx([0.0] * 10 + [5_000.0])


def _expired(hangs, interval_ms):
    return hangs.expired_ratio(_NONE, _SIMULATED, interval_ms, _TIMEOUT_MS).value


def test_without_hangs_the_simulated_values_stay():
    assert Hangs().durations(_SIMULATED, 5_000, _TIMEOUT_MS) == (1_000.0, _SIMULATED)
    assert Hangs().expired_ratio(Interval(0.2, 0.1, 0.3), _SIMULATED, 5_000, _TIMEOUT_MS) == Interval(0.2, 0.1, 0.3)


def test_at_the_interval_at_which_they_were_recorded_hangs_are_those_that_were_recorded():
    hangs = Hangs((0.0, 0.0, 0.0, 20_000.0), 5_000)

    assert _expired(hangs, 5_000) == pytest.approx(0.25, abs=0.05)
    mean, duration = hangs.durations(_SIMULATED, 5_000, _TIMEOUT_MS)
    assert mean == pytest.approx(0.75 * 1_000 + 0.25 * _TIMEOUT_MS, rel=0.1)
    assert duration.value == pytest.approx(1_000, rel=0.1)
    # More than one in twenty hang, so the interval of 90 % contains the timeout.
    assert duration.high == _TIMEOUT_MS


def test_more_checkpoints_hang_at_a_longer_interval_and_fewer_at_a_shorter_one():
    hangs = Hangs((0.0, 0.0, 0.0, 20_000.0), 5_000)

    assert _expired(hangs, 1_250) < 0.12
    assert _expired(hangs, 20_000) == pytest.approx(1 - 0.75**4, abs=0.06)


def test_hangs_within_one_interval_add_up():
    hangs = Hangs((6_000.0,), 5_000)

    assert _expired(hangs, 5_000) == 0.0
    assert _expired(hangs, 10_000) == 1.0


def test_expired_checkpoints_that_nothing_else_explains_are_endless_hangs():
    seen = Hangs((0.0, 0.0, 0.0, 4_000.0), 5_000)

    assert sorted(seen.explaining(0.5, 0.0).delays_ms) == [0.0, 4_000.0, inf, inf]
    assert seen.explaining(0.1, 0.1) == seen
    # Without a write that is seen to hang, hangs explain nothing.
    assert Hangs().explaining(1.0, 0.0) == Hangs()


def test_the_same_hangs_give_the_same_numbers():
    hangs = Hangs((0.0, 3_000.0), 5_000)

    assert hangs.durations(_SIMULATED, 7_000, _TIMEOUT_MS) == hangs.durations(_SIMULATED, 7_000, _TIMEOUT_MS)
