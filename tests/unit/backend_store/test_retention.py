"""Tests of retention: arrays are removed before days, the oldest days first, and nothing is removed without need."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from backend.store.downsampling import NO_RULE, Removed
from backend.store.retention import DayStep, next_step
from backend.store.schema.partitions import AgeRule, Retention
from backend.store.stored_days import StoredDay

_NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
_TODAY = date(2026, 11, 21)
_DAY = timedelta(days=1)
# The share of a day's size that is left after the arrays of its healthy checkpoints were removed.
_LEFT = 0.25


def _all_steps(days, retention, others_bytes=0):
    """Take every step that retention requires. Return the steps and the days that are left."""
    days, steps = list(days), []
    while (step := next_step(days, others_bytes, retention, _NOW)) is not None:
        assert step not in steps
        steps.append(step)
        at = next(i for i, d in enumerate(days) if d.day == step.day)
        if step.removed is None:
            del days[at]
        else:
            is_smaller = step.removed.arrays and not days[at].removed.arrays
            size = int(days[at].size_bytes * (_LEFT if is_smaller else 1))
            days[at] = replace(days[at], size_bytes=size, removed=step.removed)
    return steps, days


@given(
    st.dictionaries(st.integers(-30, 2), st.integers(0, 100), max_size=12),
    st.integers(0, 500),
    st.integers(0, 20),
    st.integers(0, 20),
    st.integers(0, 50),
)
def test_arrays_and_then_days_go_oldest_first_and_no_more_than_needed(sizes, max_size, max_days, arrays_days, others):
    stored = [StoredDay(_TODAY + n * _DAY, size) for n, size in sorted(sizes.items())]
    retention = Retention(
        max_age=timedelta(days=max_days), max_size_bytes=max_size, arrays_max_age=timedelta(days=arrays_days)
    )

    steps, left = _all_steps(stored, retention, others)

    dropped = [s.day for s in steps if s.removed is None]
    assert sorted(dropped) == [d.day for d in stored][: len(dropped)]
    assert all(d < _TODAY for d in dropped)
    assert not [d for d in left if d.day < retention.oldest_day(_NOW)]
    past = [d for d in left if d.day < _TODAY]
    assert others + sum(d.size_bytes for d in left) <= max_size or not past
    # Arrays are removed from the oldest days, and no day is dropped for size while another day still has all its
    # arrays.
    are_removed = [d.removed.arrays for d in past]
    assert are_removed == sorted(are_removed, reverse=True)
    assert not any(d.removed.arrays for d in left if d.day >= _TODAY)
    if any(d >= retention.oldest_day(_NOW) for d in dropped):
        assert all(are_removed)


def test_a_day_loses_the_runs_of_each_rule_at_the_limit_of_that_rule():
    dev, prod = AgeRule("environment", "dev", 2 * _DAY), AgeRule("environment", "prod", 30 * _DAY)
    retention = Retention(rules=(dev, prod), arrays_max_age=40 * _DAY)
    days = [StoredDay(_TODAY - n * _DAY, 1) for n in (31, 30, 8, 7, 3, 2, 0)]

    steps, _ = _all_steps(days, retention)

    short, both = Removed(expired=frozenset({str(dev)})), Removed(expired=frozenset({str(dev), NO_RULE}))
    assert steps == [
        DayStep(_TODAY - 31 * _DAY, None),
        DayStep(_TODAY - 30 * _DAY, both),
        DayStep(_TODAY - 8 * _DAY, both),
        DayStep(_TODAY - 7 * _DAY, short),
        DayStep(_TODAY - 3 * _DAY, short),
    ]
