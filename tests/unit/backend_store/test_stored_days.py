"""Tests of the forecast of stored days: it agrees with what retention then does, and it comes before any drop."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.store.downsampling import Removed
from backend.store.retention import next_step
from backend.store.schema.partitions import Retention, StoredPartition
from backend.store.stored_days import StoredDay, days_of, forecast

_NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
_TODAY = date(2026, 11, 21)
_DAY = timedelta(days=1)
_LONG_AGO = _NOW - 30 * _DAY
_THIN = Removed(arrays=True)


def test_a_day_that_was_rewritten_in_part_is_rewritten_again():
    whole = StoredPartition("checkpoints_p20261101", date(2026, 11, 1), 10)
    done = StoredPartition("pressure_p20261101", date(2026, 11, 1), 5, str(Removed(arrays=True)))

    assert days_of([whole, done]) == [StoredDay(date(2026, 11, 1), 15, Removed())]
    assert days_of([done]) == [StoredDay(date(2026, 11, 1), 5, Removed(arrays=True))]


@given(st.integers(1000, 5000), st.integers(1, 900), st.integers(0, 2000), st.integers(2000, 60_000))
def test_the_forecast_is_what_retention_leaves_after_weeks_at_this_rate(whole, small, others, limit):
    retention = Retention(max_age=7 * _DAY, arrays_max_age=2 * _DAY, max_size_bytes=limit)
    yesterday, before = StoredDay(_TODAY - _DAY, whole), StoredDay(_TODAY - 3 * _DAY, small, _THIN)
    found = forecast([before, yesterday, StoredDay(_TODAY, whole // 2)], others, retention, _NOW, _LONG_AGO)

    # Every day but today is past, and today has reached its full size.
    days = [StoredDay(_TODAY - n * _DAY, whole) for n in range(20, -1, -1)]
    while (step := next_step(days, others, retention, _NOW)) is not None:
        at = next(i for i, d in enumerate(days) if d.day == step.day)
        if step.removed is None:
            del days[at]
        else:
            days[at] = replace(days[at], size_bytes=small, removed=step.removed)

    assert found.whole_day_bytes in (whole, whole - 1)
    assert len(days) - 1 == int(found.held_days)
    assert found.is_short == (found.held_days < 7)
    if not found.is_short:
        kept_whole = [d for d in days if not d.removed.arrays]
        assert len(kept_whole) - 1 == int(found.held_whole_days + 1e-9)
    assert (found.needed_bytes <= limit) == (found.held_whole_days == 2 and not found.is_short)


def test_todays_size_is_extrapolated_before_a_day_has_ended():
    retention = Retention(max_size_bytes=8000)
    days = [StoredDay(_TODAY, 1000), StoredDay(_TODAY + _DAY, 8)]

    found = forecast(days, 0, retention, _NOW, _LONG_AGO)

    assert (found.whole_day_bytes, found.size_bytes, found.oldest_day) == (2000, 1008, _TODAY)
    assert found.held_days == 7
    assert forecast(days, 0, replace(retention, max_size_bytes=4000), _NOW, _LONG_AGO).is_short
    early = forecast(days, 0, retention, _NOW - timedelta(hours=11), _LONG_AGO)
    assert (early.held_days, early.needed_bytes, early.is_short) == (None, None, False)


def test_a_day_is_extrapolated_from_its_first_data_and_not_from_midnight():
    days, retention = [StoredDay(_TODAY, 1000)], Retention(max_size_bytes=40_000)

    after_three_hours = forecast(days, 0, retention, _NOW, _NOW - timedelta(hours=3))

    assert after_three_hours.whole_day_bytes == 8000
    after_two = forecast(days, 0, retention, _NOW, _NOW - timedelta(hours=2))
    assert (after_two.whole_day_bytes, after_two.size_bytes) == (12_000, 1000)


@pytest.mark.parametrize("first_data_at", [None, _NOW, _NOW - timedelta(minutes=119)])
def test_less_than_two_hours_of_data_give_no_forecast_at_any_time_of_the_day(first_data_at):
    # The older days were imported.
    days = [StoredDay(_TODAY - _DAY, 500), StoredDay(_TODAY, 1000)]

    found = forecast(days, 10, Retention(max_size_bytes=0), _NOW, first_data_at)

    assert (found.whole_day_bytes, found.held_days, found.held_whole_days, found.needed_bytes) == (None,) * 4
    assert (found.is_short, found.size_bytes) == (False, 1510)


def test_a_first_day_that_began_late_is_not_a_whole_day_after_midnight():
    days = [StoredDay(_TODAY - _DAY, 1000), StoredDay(_TODAY, 40)]
    after_midnight = datetime(2026, 11, 21, 0, 30, tzinfo=UTC)

    from_18 = forecast(days, 0, Retention(), after_midnight, after_midnight - timedelta(hours=6, minutes=30))
    from_23 = forecast(days, 0, Retention(), after_midnight, after_midnight - timedelta(hours=1, minutes=30))

    assert (from_18.whole_day_bytes, from_23.whole_day_bytes) == (4000, None)


@pytest.mark.parametrize("limit", [0, 1000])
def test_a_limit_below_one_day_holds_no_past_day(limit):
    found = forecast([StoredDay(_TODAY - _DAY, 2000)], 0, Retention(max_size_bytes=limit), _NOW, _LONG_AGO)

    assert (found.held_days, found.held_whole_days, found.is_short) == (0, 0, True)
