"""Tests of change points in durations: a lasting change is found, and noise contains no change."""

from __future__ import annotations

import numpy as np
import pytest

from backend.analysis.numbers.change_points import SEGMENT_MIN_COUNT, change_points


def _noise(rng: np.random.Generator, count: int, median_ms: float) -> list[float]:
    """Return random log-normal durations with a spread of about a third.

    One duration in twenty is five times as long.
    """
    values = median_ms * np.exp(rng.normal(0, 0.3, count))
    outliers = rng.random(count) < 0.05
    return list(np.where(outliers, values * 5, values))


@pytest.mark.parametrize(("before", "after"), [(12_000, 41_000), (41_000, 12_000), (300, 900)])
def test_a_lasting_change_is_found_at_its_checkpoint(before, after):
    missed_by = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        found = change_points([*_noise(rng, 40, before), *_noise(rng, 25, after)])
        assert len(found) == 1, seed
        (change,) = found
        missed_by.append(abs(change.index - 40))
        assert (change.begin, change.end) == (0, 65), seed
        assert 0.75 * before <= change.before_median_ms <= 1.35 * before, seed
        assert 0.75 * after <= change.after_median_ms <= 1.35 * after, seed
    # An outlier next to the change may be assigned to either side, so the change may be found up to three checkpoints
    # away.
    assert sorted(missed_by)[26] <= 1
    assert max(missed_by) <= 3


def test_a_change_and_its_reversal_are_two_changes():
    rng = np.random.default_rng(5)
    found = change_points([*_noise(rng, 40, 1_000), *_noise(rng, 20, 6_000), *_noise(rng, 40, 1_000)])
    assert [c.index for c in found] == pytest.approx([40, 60], abs=2)
    assert found[0].end == found[1].index


def test_noise_has_no_change():
    false = sum(len(change_points(_noise(np.random.default_rng(seed), 100, 2_000))) for seed in range(200))
    assert false == 0


@pytest.mark.parametrize(
    "series",
    [
        [],
        [5.0],
        [2_000.0] * 100,
        # A single long checkpoint is not a change. A few long checkpoints are not a change either.
        [1_000.0] * 40 + [90_000.0] + [1_000.0] * 40,
        [1_000.0] * 40 + [9_000.0] * (SEGMENT_MIN_COUNT // 3),
        # The first series has a change that is too small. The second has one that the noise of a machine can explain.
        [1_000.0 + n for n in range(50)] + [1_400.0 + n for n in range(50)],
        [20.0] * 50 + [90.0] * 50,
    ],
    ids=str,
)
def test_a_small_change_is_not_reported(series):
    assert change_points(series) == ()


def test_the_newest_change_is_reported_once_enough_checkpoints_show_it():
    rng = np.random.default_rng(1)
    long = _noise(rng, 200, 1_000)
    counts = [len(change_points([*long, *[20_000.0] * n])) for n in range(1, 9)]
    assert counts == [0] * (SEGMENT_MIN_COUNT - 1) + [1] * (8 - SEGMENT_MIN_COUNT + 1)
