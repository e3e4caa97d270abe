"""Tests of the steps of a long range that are merged from several hours."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from backend.analysis.numbers.log_buckets import count
from backend.store.rollups import history

AT = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.mark.parametrize(("completed_ms", "is_bound"), [([100], True), ([100, 110], False)])
def test_a_median_between_a_completed_and_an_expired_checkpoint_of_another_hour_is_a_lower_bound(
    completed_ms, is_bound
):
    quick = history._Hour(AT, len(completed_ms), 0, None, None, 110, is_rolled_up=True, buckets=count(completed_ms))
    late = history._Hour(
        *(AT + timedelta(hours=1), 0, 1, None, None, 4_000),
        is_rolled_up=True,
        buckets=count([4_000]),
        expired_min_ms=4_000,
    )

    step = history._step(AT, [quick, late], is_hour=False)

    assert step.p50_ms is not None
    assert step.p50_ms < 3_900
    assert (step.is_p50_lower_bound, step.is_p95_lower_bound, step.is_max_lower_bound) == (is_bound, True, True)


@pytest.mark.parametrize(("exact_max_ms", "is_p95_bound"), [(100, True), (4_000, False), (None, False)])
def test_a_percentile_of_one_hour_above_its_largest_exact_value_is_a_lower_bound(exact_max_ms, is_p95_bound):
    hour = history._Hour(
        *(AT, 20, 1, 100.0, 3_900.0, 5_000),
        is_rolled_up=True,
        expired_min_ms=5_000,
        exact_max_ms=exact_max_ms,
    )

    step = history._step(AT, [hour], is_hour=True)

    assert (step.is_p50_lower_bound, step.is_p95_lower_bound, step.is_max_lower_bound) == (False, is_p95_bound, True)
